#include "analysis/algebra.h"

#include <cmath>
#include <vector>

#include "analysis/refusal.h"
#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// The nodes from the root of the value down to the load of the sum, both included.
class PathFinder : public StmtExprVisitor {
 public:
  explicit PathFinder(const TensorLoad& read) : read_(read) {}
  std::vector<Expr> path;

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const TensorLoad& op) override {
    if (op.same_as(read_)) {
      path = stack_;
      path.push_back(op);
    }
  }
  void VisitExpr_(const Call& op) override { VisitOther(op); }
  void VisitOther(const Node& op) override {
    stack_.push_back(Expr(op));
    VisitChildren(op);
    stack_.pop_back();
  }

 private:
  TensorLoad read_;
  std::vector<Expr> stack_;
};

std::vector<Expr> PathTo(const Expr& value, const TensorLoad& read) {
  PathFinder finder(read);
  finder(value);
  return finder.path;
}

// What a node on the path does to the value that comes from below.
//   node            code
//   s + c, c + s    absorbed
//   s - c           absorbed
//   c - s           negated: would need the terms negated
//   s * c, s / c    scale: would have to be distributed over the terms
//   cast(s)         cast
//   anything else   tail: not additive, must run on the finished sum
std::optional<Code> Verdict(const Expr& node, const Expr& below) {
  switch (node.kind()) {
    case NodeKind::kAdd:
      return std::nullopt;
    case NodeKind::kSub:
      if (Sub(node).a().same_as(below)) return std::nullopt;
      return Code::kNegated;
    case NodeKind::kMul:
    case NodeKind::kDiv:
      return Code::kScale;
    case NodeKind::kCast:
      return Code::kCastOfSum;
    default:
      return Code::kTail;
  }
}

// Every call in the epilogue must be known to have no effect.
class PurityCheck : public StmtExprVisitor {
 public:
  std::optional<Call> impure;

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const Call& op) override {
    auto callee = As<Op>(op.op());
    ffi::Any effect;
    if (callee) effect = CallGlobal(Fn::OpGetAttr, *callee, kCallEffectKind);
    auto kind = effect.as<int64_t>();
    if (auto imm = As<IntImm>(effect)) kind = imm->value();
    if (!kind || *kind > kPureCall) impure = op;
    VisitChildren(op);
  }
};

// The terms of c with their signs, in the order in which they are added.
struct Term {
  Expr value;
  bool negative;
};

void CollectTerms(const std::vector<Expr>& path, size_t i, std::vector<Term>* terms) {
  if (i + 1 >= path.size()) return;
  const Expr& below = path[i + 1];
  if (auto sub = As<Sub>(path[i])) {
    CollectTerms(path, i + 1, terms);
    terms->push_back({sub->b(), true});
    return;
  }
  Add add(path[i]);
  bool sum_first = add.a().same_as(below);
  if (!sum_first) terms->push_back({add.a(), false});
  CollectTerms(path, i + 1, terms);
  if (sum_first) terms->push_back({add.b(), false});
}

// LLVM is told that signed arithmetic of 32 bits and more never overflows, and that unsigned
// arithmetic never leaves [0, 2^n). Values that are only known at run time wrap in practice, as the
// machine does; what the compiler can see it uses. So that the fused sums give it nothing to see:
//  - unsigned: no subtraction. Then every partial sum is at most the final one, which fits.
//  - signed: no literal in the start value that is so large that adding a term may pass the end.
void CheckOverflow(const Epilogue& epilogue, const Reduction& reduction,
                   const std::vector<Expr>& path) {
  DLDataType dtype = BufferTypeOf(reduction.accumulator).dtype().dtype();
  bool is_signed = dtype.code == kDLInt;
  if (dtype.bits < 32 || (!is_signed && dtype.code != kDLUInt)) return;
  SBlock block = epilogue.site->block();
  bool subtracts = reduction.subtracts;
  const double limit = std::ldexp(1.0, dtype.bits - 2);
  double literals = 0;
  auto count = [&](const Expr& term) {
    if (auto imm = As<IntImm>(term)) literals += std::fabs(static_cast<double>(imm->value()));
  };
  count(reduction.init);
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    if (auto add = As<Add>(path[i])) {
      count(add->a());
      count(add->b());
    } else if (auto sub = As<Sub>(path[i])) {
      count(sub->b());
      subtracts = true;
    }
  }
  if ((!is_signed && subtracts) || (is_signed && literals >= limit)) {
    throw Refusal(
        Code::kOverflow, block,
        "block " + Quoted(block) + " computes " + Print(epilogue.value) + " in " + DTypeStr(dtype),
        {block.body()});
  }
}

}  // namespace

void CheckAbsorbable(const Epilogue& epilogue, const Reduction& reduction) {
  SBlock block = epilogue.site->block();
  std::string name = "block " + Quoted(block);
  PurityCheck purity;
  purity(block.body());
  if (purity.impure) {
    throw Refusal(Code::kImpure, block, name + " calls " + Print(*purity.impure), {*purity.impure});
  }
  std::vector<Expr> path = PathTo(epilogue.value, epilogue.read);
  // A function that is no addition rules everything else out; otherwise the obstacle next to the
  // sum is the one to report.
  std::optional<Code> obstacle;
  for (size_t i = path.size() - 1; i-- > 0;) {
    auto code = Verdict(path[i], path[i + 1]);
    if (code && (!obstacle || *code == Code::kTail)) obstacle = code;
  }
  if (obstacle) {
    throw Refusal(
        *obstacle, block,
        name + " computes " + Print(epilogue.value) + " from the sum " + Print(epilogue.read),
        {block.body()});
  }
  CheckOverflow(epilogue, reduction, path);
  DLDataType sum = BufferTypeOf(reduction.accumulator).dtype().dtype();
  DLDataType out = BufferTypeOf(epilogue.output).dtype().dtype();
  if (sum.code != out.code || sum.bits != out.bits || sum.lanes != out.lanes) {
    throw Refusal(Code::kCastOfSum, block,
                  name + " stores a sum of " + DTypeStr(sum) + " as " + DTypeStr(out));
  }
}

Expr Apply(const Expr& value, const TensorLoad& read, const Expr& s) {
  std::vector<Expr> path = PathTo(value, read);
  Expr result = s;
  for (size_t i = path.size() - 1; i-- > 0;) {
    const Expr& below = path[i + 1];
    if (auto add = As<Add>(path[i])) {
      result = add->a().same_as(below) ? MakeAdd(result, add->b()) : MakeAdd(add->a(), result);
    } else {
      result = MakeSub(result, Sub(path[i]).b());
    }
  }
  return result;
}

std::string AbsorbedTerm(const Epilogue& epilogue, const AxisMap& axes) {
  std::vector<Term> terms;
  CollectTerms(PathTo(epilogue.value, epilogue.read), 0, &terms);
  std::string text;
  for (const Term& term : terms) {
    std::string value = Print(axes.Apply(term.value));
    bool sum = term.value.kind() == NodeKind::kAdd || term.value.kind() == NodeKind::kSub;
    if (term.negative && sum) value = "(" + value + ")";
    if (text.empty()) {
      text = (term.negative ? "-" : "") + value;
    } else {
      text += (term.negative ? " - " : " + ") + value;
    }
  }
  return text;
}

}  // namespace fuse_epilogue
