#include "analysis/guarded.h"

#include <utility>

#include "analysis/defined.h"
#include "analysis/refusal.h"
#include "ir/calls.h"
#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// The variables that an expression is about, and the buffers that it loads from.
class SubjectFinder : public StmtExprVisitor {
 public:
  VarSet found;

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const Var& op) override { found.insert(op.get()); }
  void VisitExpr_(const TensorLoad& op) override { found.insert(op.source().get()); }
};

VarSet SubjectsOf(const Expr& expr) {
  SubjectFinder finder;
  finder(expr);
  return std::move(finder.found);
}

// Looks for an index or a divisor that is bounded by an operation, or for a guard, which TVM's
// simplifier leaves out under a condition that says the same: of p[min(v, 4)] and p[v % 5] it makes
// p[v] where v < 5.
class RepeatFinder : public StmtExprVisitor {
 public:
  explicit RepeatFinder(const Expr& condition) : subjects_(SubjectsOf(condition)) {}
  bool found = false;

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const TensorLoad& op) override { Decisive(op); }
  void VisitExpr_(const Call& op) override { Look(op); }
  void VisitOther(const Node& op) override { Look(op); }

 private:
  void Look(const Node& op) {
    NodeKind kind = op.kind();
    if (auto choice = ChoiceOf(Expr(op))) {
      found = found || Repeats(choice->condition);
    } else if (kind == NodeKind::kDiv || kind == NodeKind::kFloorDiv || IsRemainder(kind)) {
      Decisive(op);
      return;
    } else if (decisive_ && (kind == NodeKind::kMax || kind == NodeKind::kMin)) {
      found = found || Repeats(Expr(op));
    }
    VisitChildren(op);
  }

  // What decides whether a load or a division is defined.
  void Decisive(const Node& op) {
    if (decisive_ && IsRemainder(op.kind())) found = found || Repeats(Expr(op));
    bool outer = std::exchange(decisive_, true);
    VisitChildren(op);
    decisive_ = outer;
  }

  static bool IsRemainder(NodeKind kind) {
    return kind == NodeKind::kMod || kind == NodeKind::kFloorMod;
  }

  bool Repeats(const Expr& bound) const {
    for (VarKey subject : SubjectsOf(bound)) {
      if (subjects_.count(subject) > 0) return true;
    }
    return false;
  }

  VarSet subjects_;
  bool decisive_ = false;
};

class LazyChoices : public StmtExprMutator {
 public:
  LazyChoices(const std::vector<Axis>& axes, const std::vector<Expr>& assumptions)
      : axes_(axes), assumptions_(assumptions) {}

 protected:
  ffi::Any VisitOther(const Node& op) override {
    ffi::Any rewritten = MutateChildren(op);
    if (auto select = As<Select>(rewritten)) {
      Expr condition = select->condition();
      if (!MayFault(select->true_value(), condition) && !MayFault(select->false_value(), condition))
        return rewritten;
      return IfThenElse(select->condition(), select->true_value(), select->false_value());
    }
    bool conjunction = op.kind() == NodeKind::kAnd;
    if (!conjunction && op.kind() != NodeKind::kOr) return rewritten;
    auto [a, b] = *Operands(rewritten.cast<Expr>());
    // Of choices in one another with the same other value TVM makes a single one, with an `and` of
    // their conditions: both would be computed there. Here both are computed anyway.
    if (!MayFault(b, a) || FindFault(a, axes_, assumptions_)) return rewritten;
    return conjunction ? IfThenElse(a, b, MakeInt(0, b)) : IfThenElse(a, MakeInt(1, b), b);
  }

 private:
  static ffi::Any IfThenElse(const Expr& condition, const Expr& yes, const Expr& no) {
    return CallGlobal(Fn::IfThenElse, condition, yes, no, nullptr);
  }

  // Whether it may fault where a condition does not hold, whatever TVM simplifies under it.
  bool MayFault(const Expr& expr, const Expr& condition) const {
    if (FindFault(expr, axes_, assumptions_)) return true;
    RepeatFinder finder(condition);
    finder(expr);
    return finder.found;
  }

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
