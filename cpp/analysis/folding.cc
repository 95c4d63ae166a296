#include "analysis/folding.h"

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
      return true;
    default:
      return false;
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

// What TVM makes of both at once, and of one after the other; nothing if both are exact.
std::optional<std::pair<Expr, Expr>> Simplified(const Expr& f, const Var& hole, const Expr& inner,
                                                const std::vector<Axis>& axes) {
  if (f.same_as(hole) || inner.kind() == NodeKind::kIntImm) return std::nullopt;
  if (!MayBeInexact(inner) && !MayBeInexact(f)) return std::nullopt;
  Prover prover(axes);
  Expr together = prover.Simplify(Substitute(f, {{hole.get(), inner}}));
  Expr apart = Substitute(prover.Simplify(f), {{hole.get(), prover.Simplify(inner)}});
  return std::make_pair(together, apart);
}

}  // namespace

bool FoldsTogether(const Expr& f, const Var& hole, const Expr& inner,
                   const std::vector<Axis>& axes) {
  auto both = Simplified(f, hole, inner, axes);
  return both && !DeepEqual(both->first, both->second);
}

bool CancelsTogether(const Expr& f, const Var& hole, const Expr& inner) {
  auto both = Simplified(f, hole, inner, {});
  return both && VarsIn(both->first) != VarsIn(both->second);
}

}  // namespace fuse_epilogue
