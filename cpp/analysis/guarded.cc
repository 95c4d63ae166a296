#include "analysis/guarded.h"

#include "analysis/defined.h"
#include "analysis/refusal.h"
#include "ir/calls.h"
#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

class LazyChoices : public StmtExprMutator {
 public:
  LazyChoices(const std::vector<Axis>& axes, const std::vector<Expr>& assumptions)
      : axes_(axes), assumptions_(assumptions) {}

 protected:
  ffi::Any VisitOther(const Node& op) override {
    ffi::Any rewritten = MutateChildren(op);
    if (auto select = As<Select>(rewritten)) {
      if (!MayFault(select->true_value()) && !MayFault(select->false_value())) return rewritten;
      return IfThenElse(select->condition(), select->true_value(), select->false_value());
    }
    bool conjunction = op.kind() == NodeKind::kAnd;
    if (!conjunction && op.kind() != NodeKind::kOr) return rewritten;
    auto [a, b] = *Operands(rewritten.cast<Expr>());
    if (!MayFault(b)) return rewritten;
    return conjunction ? IfThenElse(a, b, MakeInt(0, b)) : IfThenElse(a, MakeInt(1, b), b);
  }

 private:
  static ffi::Any IfThenElse(const Expr& condition, const Expr& yes, const Expr& no) {
    return CallGlobal(Fn::IfThenElse, condition, yes, no, nullptr);
  }

  bool MayFault(const Expr& expr) const { return FindFault(expr, axes_, assumptions_).has_value(); }

  const std::vector<Axis>& axes_;
  const std::vector<Expr>& assumptions_;
};

// Looks for a node, but not where it would be evaluated under a condition only.
class UnguardedFinder : public StmtExprVisitor {
 public:
  explicit UnguardedFinder(const Expr& node) : node_(node) {}
  bool found = false;

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const Var& op) override { Look(op); }
  void VisitExpr_(const Call& op) override { Look(op); }
  void VisitExpr_(const TensorLoad& op) override { Look(op); }
  void VisitOther(const Node& op) override { Look(op); }

 private:
  void Look(const Node& op) {
    if (found) return;
    Expr expr(op);
    found = op.same_as(node_) || (op.kind() == node_.kind() && DeepEqual(expr, node_));
    if (found) return;
    if (op.type_index() == TVMFFITypeIndex::kTVMFFIArray) return VisitChildren(op);
    if (auto choice = ChoiceOf(expr)) return (*this)(choice->condition);
    if (op.kind() == NodeKind::kAnd || op.kind() == NodeKind::kOr) {
      return (*this)(Operands(expr)->first);
    }
    VisitChildren(op);
  }

  const Expr& node_;
};

}  // namespace

Expr MakeChoicesLazy(const Expr& expr, const std::vector<Axis>& axes,
                     const std::vector<Expr>& assumptions) {
  if (IsSwitchedOff(Decision::kLazySelect)) return expr;
  return LazyChoices(axes, assumptions).Rewrite(expr);
}

bool IsAlwaysEvaluated(const Expr& node, const Expr& root) {
  UnguardedFinder finder(node);
  finder(root);
  return finder.found;
}

}  // namespace fuse_epilogue
