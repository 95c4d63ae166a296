#include "analysis/folding.h"

#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// Looks for values of other types than signed integers, of which all that TVM proves is true. What
// has no such leaf and no conversion has no such value.
class InexactFinder : public StmtExprVisitor {
 public:
  bool found = false;

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const Var& op) override { Look(op); }
  void VisitExpr_(const Call& op) override { Look(op); }
  void VisitExpr_(const TensorLoad& op) override { Look(op); }
  void VisitOther(const Node& op) override {
    if (op.kind() == NodeKind::kFloatImm || op.kind() == NodeKind::kCast) return Look(Expr(op));
    VisitChildren(op);
  }

 private:
  void Look(const Expr& op) {
    DLDataType dtype = DTypeOf(op);
    found = found || IsFloat(dtype) || dtype.code == kDLUInt;
    if (!found) VisitChildren(op);
  }
};

bool MayBeInexact(const Expr& expr) {
  DLDataType dtype = DTypeOf(expr);
  if (IsInteger(dtype) && dtype.code == kDLInt) return false;
  InexactFinder finder;
  finder(expr);
  return finder.found;
}

}  // namespace

bool FoldsTogether(const Expr& f, const Var& hole, const Expr& inner,
                   const std::vector<Axis>& axes) {
  if (f.same_as(hole) || !MayBeInexact(inner)) return false;
  Prover prover(axes);
  Expr together = prover.Simplify(Substitute(f, {{hole.get(), inner}}));
  Expr apart = Substitute(prover.Simplify(f), {{hole.get(), prover.Simplify(inner)}});
  return !DeepEqual(together, apart);
}

}  // namespace fuse_epilogue
