#include "analysis/folding.h"

#include <cmath>

#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

bool IsArithmetic(NodeKind kind) {
  switch (kind) {
    case NodeKind::kAdd:
    case NodeKind::kSub:
    case NodeKind::kMul:
    case NodeKind::kDiv:
    case NodeKind::kMod:
    case NodeKind::kFloorDiv:
    case NodeKind::kFloorMod:
    case NodeKind::kLShift:
    case NodeKind::kBitwiseNot:
      return true;
    default:
      return false;
  }
}

bool IsOperation(NodeKind kind) {
  switch (kind) {
    case NodeKind::kRShift:
    case NodeKind::kBitwiseAnd:
    case NodeKind::kBitwiseOr:
    case NodeKind::kBitwiseXor:
    case NodeKind::kMin:
    case NodeKind::kMax:
    case NodeKind::kEqual:
    case NodeKind::kNotEqual:
    case NodeKind::kLess:
    case NodeKind::kLessEqual:
    case NodeKind::kGreater:
    case NodeKind::kGreaterEqual:
    case NodeKind::kAnd:
    case NodeKind::kOr:
    case NodeKind::kNot:
    case NodeKind::kSelect:
    case NodeKind::kCast:
      return true;
    default:
      return IsArithmetic(kind);
  }
}

// Whether results of this type wrap around. Of wider signed ones an overflow is undefined.
bool Wraps(DLDataType dtype) {
  return IsInteger(dtype) && (dtype.code == kDLUInt || dtype.bits < 32);
}

bool Holds(DLDataType type, DLDataType value) {
  if (IsBool(value)) return true;
  if (type.code == value.code) return type.bits >= value.bits;
  return value.code == kDLUInt && type.bits > value.bits;
}

// Looks for what TVM's simplifier takes for something else than it is: floats for numbers, and
// integers that wrap around for such that do not.
class InexactFinder : public StmtExprVisitor {
 public:
  bool found = false;

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const Var& op) override { Look(op, false); }
  void VisitExpr_(const TensorLoad& op) override { Look(op, false); }
  void VisitExpr_(const Call& op) override { Look(op, true); }
  void VisitOther(const Node& op) override {
    if (auto cast = As<Cast>(op)) return LookAtCast(*cast);
    if (op.kind() == NodeKind::kFloatImm) return Look(Expr(op), false);
    if (IsArithmetic(op.kind())) return Look(Expr(op), true);
    if (!found) VisitChildren(op);
  }

 private:
  void Look(const Expr& op, bool computes) {
    DLDataType dtype = DTypeOf(op);
    found = found || IsFloat(dtype) || (computes && Wraps(dtype));
    if (!found) VisitChildren(op);
  }

  void LookAtCast(const Cast& op) {
    DLDataType to = DTypeOf(op), from = DTypeOf(op.value());
    bool floats = IsFloat(to) || IsFloat(from);
    found = found || floats || (IsInteger(to) && !Holds(to, from));
    if (!found) VisitChildren(op);
  }
};

bool MayBeInexact(const Expr& expr) {
  InexactFinder finder;
  finder(expr);
  return finder.found;
}

// Simplifies all that is exact: there, what TVM makes of both at once is right.
class ExactSimplifier : public StmtExprMutator {
 public:
  explicit ExactSimplifier(const Prover& prover) : prover_(prover) {}

 protected:
  using StmtExprMutator::VisitExpr_;
  Expr VisitExpr_(const Call& op) override {
    return MayBeInexact(op) ? MutateChildren(op).cast<Expr>() : prover_.Simplify(op);
  }
  ffi::Any VisitOther(const Node& op) override {
    if (!IsOperation(op.kind()) || MayBeInexact(Expr(op))) return MutateChildren(op);
    return prover_.Simplify(Expr(op));
  }

 private:
  const Prover& prover_;
};

// A bound for what comes of all signed literals of an expression, other than indices.
class LiteralBound : public StmtExprVisitor {
 public:
  double product = 1;

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const TensorLoad&) override {}
  void VisitOther(const Node& op) override {
    auto imm = As<IntImm>(op);
    if (imm && DTypeOf(*imm).code == kDLInt) {
      product *= 1 + std::fabs(static_cast<double>(imm->value()));
    }
    VisitChildren(op);
  }
};

// Whether TVM fails at both at once, as literals that it folds leave their type.
bool FailsTogether(const Expr& f, const Var& hole, const Expr& inner,
                   const std::vector<Axis>& axes) {
  LiteralBound literals;
  literals(f);
  literals(inner);
  if (literals.product < std::ldexp(1.0, 31)) return false;
  return !Prover(axes).Folds(Substitute(f, {{hole.get(), inner}}));
}

// What TVM makes of both at once, and of one after the other; nothing if both are exact.
std::optional<std::pair<Expr, Expr>> Simplified(const Expr& f, const Var& hole, const Expr& inner,
                                                const std::vector<Axis>& axes) {
  if (f.same_as(hole) || inner.kind() == NodeKind::kIntImm) return std::nullopt;
  if (!MayBeInexact(inner) && !MayBeInexact(f)) return std::nullopt;
  Prover prover(axes);
  Expr together = prover.Simplify(Substitute(f, {{hole.get(), inner}}));
  Expr apart = Substitute(prover.Simplify(f), {{hole.get(), prover.Simplify(inner)}});
  return std::make_pair(together, ExactSimplifier(prover).Rewrite(apart));
}

}  // namespace

bool FoldsTogether(const Expr& f, const Var& hole, const Expr& inner,
                   const std::vector<Axis>& axes) {
  if (FailsTogether(f, hole, inner, axes)) return true;
  auto both = Simplified(f, hole, inner, axes);
  return both && !DeepEqual(both->first, both->second);
}

bool CancelsTogether(const Expr& f, const Var& hole, const Expr& inner) {
  auto both = Simplified(f, hole, inner, {});
  return both && VarsIn(both->first) != VarsIn(both->second);
}

}  // namespace fuse_epilogue
