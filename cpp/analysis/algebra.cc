#include "analysis/algebra.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "analysis/defined.h"
#include "analysis/overflow.h"
#include "analysis/refusal.h"
#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// ---- The table of what distributes -------------------------------------------------------------

enum Side { kLeft, kRight, kEither, kUnary };
enum Types : unsigned { kFloats = 1, kNarrow = 2, kSigned = 4, kUnsigned = 8, kBools = 16 };
constexpr unsigned kIntegers = kNarrow | kSigned | kUnsigned;
// What h costs in every term. A subtraction instead of an addition is free.
enum Cost { kFree, kWork };
enum Literal { kAnything, kPositive, kNegative };

struct Distribution {
  NodeKind node;
  Fn make;
  Side x;  // where x stands
  MonoidId from;
  MonoidId to;
  unsigned types;  // kNarrow: integers of 8 and 16 bits, which TVM lets wrap
  Cost cost;
  Literal operand;
};

using M = MonoidId;
using N = NodeKind;
constexpr Distribution kDistributions[] = {
    // h(x (+) y) == h(x) (+)' h(y). Floats: up to rounding, and to which of two zeros or NaN wins.
    {N::kSub, Fn::Sub, kRight, M::kSum, M::kSum, kFloats | kNarrow | kSigned, kFree, kAnything},
    // c - (x + y) == (c - x) - y
    {N::kMul, Fn::Mul, kEither, M::kSum, M::kSum, kFloats | kNarrow, kWork, kAnything},
    // (x + y) * c == x*c + y*c
    {N::kDiv, Fn::Div, kLeft, M::kSum, M::kSum, kFloats, kWork, kAnything},
    // (x + y) / c == x/c + y/c

    // non-decreasing functions keep max and min ...
    {N::kMin, Fn::Min, kEither, M::kMax, M::kMax, kFloats | kIntegers, kWork, kAnything},
    {N::kMax, Fn::Max, kEither, M::kMin, M::kMin, kFloats | kIntegers, kWork, kAnything},
    {N::kAdd, Fn::Add, kEither, M::kMax, M::kMax, kFloats, kWork, kAnything},
    {N::kAdd, Fn::Add, kEither, M::kMin, M::kMin, kFloats, kWork, kAnything},
    {N::kSub, Fn::Sub, kLeft, M::kMax, M::kMax, kFloats, kWork, kAnything},
    {N::kSub, Fn::Sub, kLeft, M::kMin, M::kMin, kFloats, kWork, kAnything},
    {N::kMul, Fn::Mul, kEither, M::kMax, M::kMax, kFloats, kWork, kPositive},
    {N::kMul, Fn::Mul, kEither, M::kMin, M::kMin, kFloats, kWork, kPositive},
    {N::kDiv, Fn::Div, kLeft, M::kMax, M::kMax, kFloats, kWork, kPositive},
    {N::kDiv, Fn::Div, kLeft, M::kMin, M::kMin, kFloats, kWork, kPositive},
    // ... and decreasing ones swap them (integers would overflow at the lowest value)
    {N::kSub, Fn::Sub, kRight, M::kMax, M::kMin, kFloats, kWork, kAnything},
    {N::kSub, Fn::Sub, kRight, M::kMin, M::kMax, kFloats, kWork, kAnything},
    {N::kMul, Fn::Mul, kEither, M::kMax, M::kMin, kFloats, kWork, kNegative},
    {N::kMul, Fn::Mul, kEither, M::kMin, M::kMax, kFloats, kWork, kNegative},
    {N::kDiv, Fn::Div, kLeft, M::kMax, M::kMin, kFloats, kWork, kNegative},
    {N::kDiv, Fn::Div, kLeft, M::kMin, M::kMax, kFloats, kWork, kNegative},

    // (x | y) & c == x&c | y&c, (x ^ y) & c == x&c ^ y&c, (x & y) | c == (x|c) & (y|c)
    {N::kBitwiseAnd, Fn::BitwiseAnd, kEither, M::kBitOr, M::kBitOr, kIntegers, kWork, kAnything},
    {N::kBitwiseAnd, Fn::BitwiseAnd, kEither, M::kBitXor, M::kBitXor, kIntegers, kWork, kAnything},
    {N::kBitwiseOr, Fn::BitwiseOr, kEither, M::kBitAnd, M::kBitAnd, kIntegers, kWork, kAnything},
    {N::kAnd, Fn::And, kEither, M::kOr, M::kOr, kBools, kWork, kAnything},
    {N::kOr, Fn::Or, kEither, M::kAnd, M::kAnd, kBools, kWork, kAnything},
    // De Morgan
    {N::kBitwiseNot, Fn::BitwiseNot, kUnary, M::kBitAnd, M::kBitOr, kIntegers, kWork, kAnything},
    {N::kBitwiseNot, Fn::BitwiseNot, kUnary, M::kBitOr, M::kBitAnd, kIntegers, kWork, kAnything},
    {N::kNot, Fn::Not, kUnary, M::kAnd, M::kOr, kBools, kWork, kAnything},
    {N::kNot, Fn::Not, kUnary, M::kOr, M::kAnd, kBools, kWork, kAnything},
};

unsigned TypesOf(DLDataType dtype) {
  if (IsBool(dtype)) return kBools;
  if (IsFloat(dtype)) return kFloats;
  if (!IsInteger(dtype)) return 0;
  if (dtype.bits < 32) return kNarrow;
  return dtype.code == kDLInt ? kSigned : kUnsigned;
}

// Whether a floating type holds the number with all its precision: neither zero nor denormal,
// neither infinite nor NaN. False of a type that is not in the table.
bool IsNormal(double value, DLDataType dtype) {
  double low = 0, high = 0;
  if (dtype.code == kDLFloat && dtype.bits == 64) {
    low = std::numeric_limits<double>::min();
    high = std::numeric_limits<double>::max();
  } else if (dtype.code == kDLFloat && dtype.bits == 32) {
    low = std::numeric_limits<float>::min();
    high = std::numeric_limits<float>::max();
  } else if (dtype.code == kDLFloat && dtype.bits == 16) {
    low = std::ldexp(1.0, -14);
    high = 65504;
  } else if (dtype.code == kDLBfloat) {
    low = std::ldexp(1.0, -126);
    high = std::ldexp(255.0, 120);
  }
  double magnitude = std::abs(value);
  return 0 < low && low <= magnitude && magnitude <= high;
}

// A literal factor or divisor that its type does not hold turns every term into a zero, an infinity
// or NaN, and other terms into other ones: it is left for the finished element.
bool Scales(NodeKind node, const std::optional<Expr>& operand) {
  auto imm = operand ? As<FloatImm>(*operand) : std::nullopt;
  if (!imm || (node != N::kMul && node != N::kDiv)) return true;
  return IsNormal(imm->value(), DTypeOf(*operand));
}

bool Fits(Literal wanted, const std::optional<Expr>& operand) {
  if (wanted == kAnything) return true;
  auto imm = operand ? As<FloatImm>(*operand) : std::nullopt;
  return imm && (wanted == kPositive ? imm->value() > 0 : imm->value() < 0);
}

// c - x over a sum: the terms change their signs, which is done where they are combined.
bool Negates(const PeelStep& step) {
  return step.node == N::kSub && !step.x_first && step.after->id == M::kSum;
}

// The product of two floating literals, if their type holds it. Rounded to 0, to a denormal or to
// infinity, it would be something else than what it stands for: (x * 1e-30) * 1e-30 is not x * 0.
std::optional<Expr> FoldFactors(const Expr& a, const Expr& b) {
  auto x = As<FloatImm>(a), y = As<FloatImm>(b);
  if (!x || !y || !IsNormal(x->value() * y->value(), DTypeOf(a))) return std::nullopt;
  return CallGlobal(Fn::Mul, a, b, nullptr).cast<Expr>();
}

// A literal factor of a literal or of a product with a literal is folded: no work in the term.
std::optional<Expr> Folded(const PeelStep& step, const Expr& term) {
  bool scales_sum = step.node == N::kMul && step.after->id == M::kSum;
  if (!scales_sum || !As<FloatImm>(*step.operand)) return std::nullopt;
  if (As<FloatImm>(term)) return FoldFactors(term, *step.operand);
  auto product = As<Mul>(term);
  if (!product) return std::nullopt;
  for (bool first : {true, false}) {
    Expr literal = first ? product->a() : product->b();
    if (!As<FloatImm>(literal)) continue;
    auto scale = FoldFactors(literal, *step.operand);
    if (!scale) return std::nullopt;
    return first ? MakeMul(*scale, product->b()) : MakeMul(product->a(), *scale);
  }
  return std::nullopt;
}

// Two literals of a type that wraps around: TVM's own folding rejects what leaves the type's range.
std::optional<Expr> FoldWrapping(NodeKind node, const Expr& a, const Expr& b) {
  auto x = As<IntImm>(a), y = As<IntImm>(b);
  DLDataType dtype = DTypeOf(a);
  if (!x || !y || !IsInteger(dtype) || dtype.bits > 32) return std::nullopt;
  int64_t value = 0;
  switch (node) {
    case N::kAdd:
      value = x->value() + y->value();
      break;
    case N::kSub:
      value = x->value() - y->value();
      break;
    case N::kMul:
      if (dtype.bits == 32) return std::nullopt;  // known not to overflow
      value = x->value() * y->value();
      break;
    default:
      return std::nullopt;
  }
  uint64_t mask = (uint64_t{1} << dtype.bits) - 1;
  uint64_t wrapped = static_cast<uint64_t>(value) & mask;
  bool negative = dtype.code == kDLInt && (wrapped >> (dtype.bits - 1)) != 0;
  return MakeInt(static_cast<int64_t>(negative ? wrapped | ~mask : wrapped), a);
}

Expr ApplyStep(const PeelStep& step, const Expr& x) {
  if (!step.operand) return CallGlobal(step.make, x, nullptr).cast<Expr>();
  const Expr& a = step.x_first ? x : *step.operand;
  const Expr& b = step.x_first ? *step.operand : x;
  if (auto folded = FoldWrapping(step.node, a, b)) return *folded;
  if (step.absorbs && step.node != N::kSub) return Combine(*step.after, a, b);
  return CallGlobal(step.make, a, b, nullptr).cast<Expr>();
}

// In `acc or t` the accumulator guards t, and (x and c) would keep it false where x was true: there
// c has to guard the term.
Expr ApplyToTerm(const PeelStep& step, const Expr& term) {
  if (auto folded = Folded(step, term)) return *folded;
  bool guards = step.node == N::kAnd || step.node == N::kOr;
  if (guards && step.operand && !IsSwitchedOff(Decision::kOperandGuardsTerm)) {
    return CallGlobal(step.make, *step.operand, term, nullptr).cast<Expr>();
  }
  return ApplyStep(step, term);
}

// Visits the terms of an update: all leaves but the accumulator.
template <typename Visit>
void ForEachTerm(const Expr& update, const VarSet& around, const Visit& visit) {
  auto operands = Operands(update);
  if (!operands || !around.count(update.get())) return;
  for (const Expr& side : {operands->first, operands->second}) {
    if (!around.count(side.get())) {
      visit(side);
    } else {
      ForEachTerm(side, around, visit);
    }
  }
}

// \p around: the nodes with the accumulator inside.
Expr MapTerms(const Expr& update, const VarSet& around, const PeelStep& step) {
  auto operands = Operands(update);
  if (!operands) return update;  // the load of the accumulator
  auto [a, b] = *operands;
  bool left = around.count(a.get()) > 0;
  Expr side = MapTerms(left ? a : b, around, step);
  const Expr& term = left ? b : a;
  // The combination stays one even with a term that TVM would fold away.
  auto combine = [](Fn make, const Expr& x, const Expr& y) {
    return CallGlobal(make, x, y, nullptr).cast<Expr>();
  };
  if (Negates(step)) {
    return combine(update.kind() == N::kSub ? Fn::AddNode : Fn::SubNode, side, term);
  }
  Expr mapped = ApplyToTerm(step, term);
  if (update.kind() == N::kSub) return combine(Fn::SubNode, side, mapped);
  Fn make = step.after->make_node;
  return left ? combine(make, side, mapped) : combine(make, mapped, side);
}

// ---- Peeling -----------------------------------------------------------------------------------

// Puts the hole in the place of some nodes, which are known by their identity.
class NodeReplacer : public StmtExprMutator {
 public:
  NodeReplacer(VarSet nodes, const Var& hole) : nodes_(std::move(nodes)), hole_(hole) {}

 protected:
  using StmtExprMutator::VisitExpr_;
  Expr VisitExpr_(const Call& op) override { return VisitOther(op).cast<Expr>(); }
  Expr VisitExpr_(const TensorLoad& op) override { return VisitOther(op).cast<Expr>(); }
  ffi::Any VisitOther(const Node& op) override {
    return nodes_.count(op.get()) ? ffi::Any(hole_) : MutateChildren(op);
  }

 private:
  VarSet nodes_;
  Var hole_;
};

// The nodes between the holes of f and its root. All holes climb together, a node at a time, while
// the nodes above them are equal: each node is looked at once, however many are taken off.
class Spine : private StmtExprVisitor {
 public:
  Spine(const Expr& f, const Var& hole) : f_(f), hole_(hole) {
    (*this)(f);
    // Whatever is inside of a node has been found after it.
    for (size_t i = nodes_.size(); i-- > 1;) nodes_[nodes_[i].parent].holes += nodes_[i].holes;
  }

  // Whether all nodes have been taken off.
  bool IsEmpty() const { return f_.same_as(hole_) || (!at_.empty() && at_[0] == kNone); }
  // Whether the present node is all that is left.
  bool IsAtRoot() const { return at_[0] == 0; }

  // The one node in which every hole is, if there is one and the hole is in it once; what has been
  // taken off is the hole in it.
  std::optional<Expr> Node() const {
    if (at_.empty()) return std::nullopt;
    const Expr& first = nodes_[at_[0]].node;
    for (size_t i = 0; i < at_.size(); ++i) {
      const Position& here = nodes_[at_[i]];
      if (here.holes != 1) return std::nullopt;
      if (!here.node.same_as(first) && !EqualBesides(here.node, i, first)) return std::nullopt;
    }
    if (below_.empty()) return first;
    return NodeReplacer({nodes_[below_[0]].node.get()}, hole_).Rewrite(first);
  }

  // Whether one of the present nodes is evaluated whenever f is.
  bool IsAlwaysEvaluated() {
    if (guarded_.empty()) FindGuarded();
    return std::any_of(at_.begin(), at_.end(), [&](size_t at) { return !guarded_[at]; });
  }

  void TakeOff() {
    below_ = at_;
    for (size_t& at : at_) at = nodes_[at].parent;
  }

  // f with the hole in the place of all that was taken off.
  Expr Rest() const {
    if (IsEmpty()) return hole_;
    if (below_.empty()) return f_;
    VarSet taken;
    for (size_t at : below_) taken.insert(nodes_[at].node.get());
    return NodeReplacer(std::move(taken), hole_).Rewrite(f_);
  }

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const Var& op) override {
    if (!op.same_as(hole_) || stack_.empty()) return;
    at_.push_back(stack_.back());
    ++nodes_[stack_.back()].holes;
  }
  void VisitExpr_(const Call& op) override { VisitOther(op); }
  void VisitExpr_(const TensorLoad& op) override { VisitOther(op); }
  void VisitOther(const ir::Node& op) override {
    // The arguments of a call, or the indices of a load: the hole is directly in the call.
    if (op.type_index() == TVMFFITypeIndex::kTVMFFIArray) return VisitChildren(op);
    size_t parent = stack_.empty() ? kNone : stack_.back();
    stack_.push_back(nodes_.size());
    nodes_.push_back({Expr(op), parent, 0});
    VisitChildren(op);
    stack_.pop_back();
  }

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);
  struct Position {
    Expr node;
    size_t parent;
    size_t holes;
  };

  // What is below the node of a hole; the hole itself at first.
  Expr Below(size_t i) const { return below_.empty() ? Expr(hole_) : nodes_[below_[i]].node; }

  // Whether the node above the i-th hole is the one above the first, but for what is below.
  bool EqualBesides(const Expr& node, size_t i, const Expr& first) const {
    auto one = Operands(node), other = Operands(first);
    if (node.kind() != first.kind() || !one || !other) return false;
    bool left = one->first.same_as(Below(i));
    if (left != other->first.same_as(Below(0))) return false;
    return left ? DeepEqual(one->second, other->second) : DeepEqual(one->first, other->first);
  }

  void FindGuarded() {
    guarded_.assign(nodes_.size(), false);
    for (size_t i = 1; i < nodes_.size(); ++i) {
      if (nodes_[i].holes == 0) continue;
      size_t parent = nodes_[i].parent;
      guarded_[i] = guarded_[parent] || Guards(nodes_[parent].node, nodes_[i].node);
    }
  }

  static bool Guards(const Expr& node, const Expr& part) {
    if (node.kind() == NodeKind::kAnd || node.kind() == NodeKind::kOr) {
      return !Operands(node)->first.same_as(part);
    }
    bool chooses = node.kind() == NodeKind::kCall || node.kind() == NodeKind::kSelect;
    return chooses && !fuse_epilogue::IsAlwaysEvaluated(part, node);
  }

  Expr f_;
  Var hole_;
  // All nodes of f, outer ones first, and those that the visitor is in.
  std::vector<Position> nodes_;
  std::vector<size_t> stack_;
  // For each hole, the node above it and the one that was last taken off.
  std::vector<size_t> at_;
  std::vector<size_t> below_;
  std::vector<bool> guarded_;
};

// The variables that are bound inside an expression: out of it they mean nothing.
VarSet BoundIn(const Expr& f) {
  class Finder : public StmtExprVisitor {
   public:
    VarSet bound;

   protected:
    void VisitOther(const Node& op) override {
      if (auto let = As<Let>(op)) bound.insert(let->var().get());
      VisitChildren(op);
    }
  };
  Finder finder;
  finder(f);
  return finder.bound;
}

class Peeler {
 public:
  Peeler(const Var& hole, const Reduction& reduction, const Options& options,
         const Epilogue& epilogue)
      : hole_(hole),
        reduction_(reduction),
        options_(options),
        output_(epilogue.output),
        dtype_(BufferTypeOf(reduction.accumulator).dtype().dtype()),
        monoid_(reduction.monoid),
        mapped_(reduction.update),
        overflow_(reduction) {}

  Peeled Run(const Expr& f) {
    Spine spine(f, hole_);
    bound_ = BoundIn(f);
    while (!spine.IsEmpty()) {
      auto node = spine.Node();
      if (!node) {
        reason_ = "it uses the finished value in several ways";
        break;
      }
      if (spine.IsAtRoot()) root_ = *node;
      always_evaluated_ = spine.IsAlwaysEvaluated();
      auto step = StepFor(*node);
      if (!step || !Allowed(*step, *node)) break;
      monoid_ = step->after;
      steps_.push_back(*step);
      spine.TakeOff();
    }
    return Peeled{steps_, spine.Rest(), spine.IsEmpty() ? Reason() : reason_};
  }

 private:
  // A node in a reason: "it" if it is all that is left.
  Reason Name(const Expr& node) const { return node.same_as(root_) ? Reason("it") : Reason(node); }

  // The step that takes a node off, if the algebra has one.
  std::optional<PeelStep> StepFor(const Expr& node) {
    std::optional<Expr> operand;
    bool x_first = true;
    if (auto operands = Operands(node)) {
      x_first = operands->first.same_as(hole_);
      operand = x_first ? operands->second : operands->first;
    }
    if (node.kind() == monoid_->combiner) {
      return PeelStep{true, node.kind(), monoid_->make, operand, x_first, monoid_};
    }
    if (monoid_->id == M::kSum && node.kind() == N::kSub && x_first) {
      return PeelStep{true, node.kind(), Fn::Sub, operand, x_first, monoid_};
    }
    reason_ = Name(node) + " does not distribute over a " + monoid_->name;
    for (const Distribution& row : kDistributions) {
      bool side = row.x == kEither || (row.x == kUnary && !operand) ||
                  (operand && row.x == (x_first ? kLeft : kRight));
      if (row.node != node.kind() || row.from != monoid_->id || !side) continue;
      if (!Fits(row.operand, operand)) continue;
      if (!Scales(row.node, operand)) {
        reason_ = Name(node) + " scales by what " + DTypeStr(dtype_) + " does not hold";
        continue;
      }
      if (!(row.types & TypesOf(dtype_))) {
        reason_ = Name(node) + " could overflow " + DTypeStr(dtype_) + " in a term";
        continue;
      }
      if (row.cost == kWork && IsTooNarrow()) {
        reason_ = Name(node) + " would be rounded to " + DTypeStr(dtype_) + " in every term";
        return std::nullopt;
      }
      PeelStep step{false, row.node, row.make, operand, x_first, &MonoidOf(row.to)};
      if (row.cost == kWork && !options_.distribute && !FoldsAway(step)) {
        reason_ = Name(node) + " would cost work in every term (distribute=True allows that)";
        return std::nullopt;
      }
      return step;
    }
    return std::nullopt;
  }

  bool FoldsAway(const PeelStep& step) {
    bool folds = step.operand.has_value();
    PeelSteps more(steps_.begin() + num_mapped_, steps_.end());
    mapped_ = fuse_epilogue::MapTerms(mapped_, reduction_, more);
    num_mapped_ = steps_.size();
    ForEachTerm(mapped_, NodesAround(mapped_, reduction_.accumulator),
                [&](const Expr& term) { folds = folds && Folded(step, term); });
    return folds;
  }

  // A float that a bias, or a rounding of every term, would harm.
  bool IsTooNarrow() const {
    return monoid_->rounds && IsFloat(dtype_) && dtype_.bits < 32 && !options_.exact;
  }

  bool Allowed(const PeelStep& step, const Expr& node) {
    if (step.operand && UsesAny(*step.operand, bound_)) {
      reason_ = Name(node) + " uses a variable that is bound inside the expression";
      return false;
    }
    if (IsFloat(dtype_)) {
      if (options_.exact) {
        reason_ = "numerics=\"exact\" keeps floats bit for bit";
        return false;
      }
      if (IsTooNarrow()) {
        if (!step.absorbs) {
          reason_ = Name(node) + " would be rounded to " + DTypeStr(dtype_) + " in every term";
          return false;
        }
        if (!IsSwitchedOff(Decision::kNarrowAccumulator)) {
          reason_ = Name(node) + " would let a large bias swallow the small terms of a " +
                    DTypeStr(dtype_) + " " + monoid_->name;
          return false;
        }
      }
    }
    if (!IsDefined(step, node)) return false;
    // A term would read the output while the reduction accumulates in it.
    if (!step.absorbs && !Negates(step) && step.operand &&
        !LoadsOf(*step.operand, output_).empty() && !IsSwitchedOff(Decision::kOutputInATerm)) {
      reason_ = Name(node) + " uses " + Quoted(output_) + ", which would be overwritten";
      return false;
    }
    if (overflow_.MayOverflow(step)) {
      reason_ = Name(node) + " could overflow " + DTypeStr(dtype_) +
                " on the way, which TVM compiles as if it never happened";
      return false;
    }
    return true;
  }

  // Whether the step may be taken for every element, also for those where a condition has kept its
  // operand, or the operation itself, from being evaluated. (The operand of `x and operand` is
  // under the condition x.)
  bool IsDefined(const PeelStep& step, const Expr& node) {
    if (IsSwitchedOff(Decision::kUndefinedOperand)) return true;
    bool is_logic = node.kind() == N::kAnd || node.kind() == N::kOr;
    std::optional<Partial> partial;
    if (step.operand && (!always_evaluated_ || (is_logic && step.x_first))) {
      partial = FindPartial(*step.operand, reduction_.spatial, AssumptionsBefore(*reduction_.site));
    }
    bool computes = node.kind() == N::kAdd || node.kind() == N::kSub || node.kind() == N::kMul;
    bool wide = IsInteger(dtype_) && dtype_.bits >= 32;
    if (!partial && computes && wide && !always_evaluated_) {
      partial = Partial{node, "it may overflow " + DTypeStr(dtype_)};
    }
    if (!partial) return true;
    reason_ = Reason(partial->operation) + " is computed only under a condition, without which " +
              partial->why;
    return false;
  }

  Var hole_;
  const Reduction& reduction_;
  const Options& options_;
  Var output_;
  DLDataType dtype_;
  const Monoid* monoid_;
  PeelSteps steps_;
  // The update with the first steps applied to its terms, and how many of them.
  Expr mapped_;
  size_t num_mapped_ = 0;
  OverflowCheck overflow_;
  // The last node, once it is reached.
  Expr root_;
  VarSet bound_;
  bool always_evaluated_ = true;
  Reason reason_;
};

// ---- Text --------------------------------------------------------------------------------------

// The terms of c with their signs, in the order in which they are added.
struct Term {
  Expr value;
  bool negative;
};

std::string SumText(const PeelSteps& steps) {
  std::vector<Term> terms;
  for (const PeelStep& step : steps) {
    if (step.absorbs) {
      Term term{*step.operand, step.node == N::kSub};
      terms.insert(step.x_first ? terms.end() : terms.begin(), term);
    } else {
      for (Term& term : terms) {
        if (Negates(step)) {
          term.negative = !term.negative;
        } else {
          term.value = ApplyStep(step, term.value);
        }
      }
      if (Negates(step)) terms.insert(terms.begin(), Term{*step.operand, false});
    }
  }
  std::string text;
  for (const Term& term : terms) {
    std::string value = Print(term.value);
    bool sum = term.value.kind() == N::kAdd || term.value.kind() == N::kSub;
    if (term.negative && sum) value = "(" + value + ")";
    if (text.empty()) {
      text = (term.negative ? "-" : "") + value;
    } else {
      text += (term.negative ? " - " : " + ") + value;
    }
  }
  return text;
}

}  // namespace

Peeled Peel(const Expr& f, const Var& hole, const Reduction& reduction, const Options& options,
            const Epilogue& epilogue) {
  return Peeler(hole, reduction, options, epilogue).Run(f);
}

Expr ApplyAll(const PeelSteps& steps, Expr x) {
  for (const PeelStep& step : steps) x = ApplyStep(step, x);
  return x;
}

Expr ApplyDistributed(const PeelSteps& steps, Expr x) {
  bool negative = false;
  for (const PeelStep& step : steps) {
    if (step.absorbs) continue;
    if (Negates(step)) {
      negative = !negative;
    } else {
      x = ApplyStep(step, x);
    }
  }
  return negative ? MakeSub(MakeZero(x), x) : x;
}

Expr MapTerms(const Expr& update, const Reduction& reduction, const PeelSteps& steps) {
  Expr mapped = update;
  for (const PeelStep& step : steps) {
    if (step.absorbs) continue;
    mapped = MapTerms(mapped, NodesAround(mapped, reduction.accumulator), step);
  }
  return mapped;
}

std::string AbsorbedText(const PeelSteps& steps) {
  if (steps.empty()) return "";
  if (steps.back().after->id == MonoidId::kSum) return SumText(steps);
  std::optional<Expr> c;
  for (const PeelStep& step : steps) {
    if (step.absorbs) {
      c = c ? ApplyStep(step, *c) : *step.operand;
    } else if (c) {
      c = ApplyStep(step, *c);
    }
  }
  return c ? Print(*c) : "";
}

std::string DistributedText(const PeelSteps& steps, const Var& hole) {
  Expr h = ApplyDistributed(steps, hole);
  if (h.same_as(hole)) return "";
  auto negated = As<Sub>(h);
  if (negated && IsConst(negated->a(), 0)) return "-" + Print(negated->b());
  return Print(h);
}

void CheckPure(const SBlock& block) {
  class Finder : public StmtExprVisitor {
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
  Finder finder;
  if (auto init = ObjectIn(block.init())) finder(*init);
  finder(block.body());
  if (finder.impure) {
    Refuse(Code::kImpure, block, "block " + Quoted(block) + " calls " + Print(*finder.impure),
           {*finder.impure});
  }
}

}  // namespace fuse_epilogue
