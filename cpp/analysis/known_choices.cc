#include "analysis/known_choices.h"

#include <optional>

#include "ir/calls.h"
#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

class Resolver : public StmtExprMutator {
 public:
  explicit Resolver(const std::vector<Known>& known) : known_(known) {}

 protected:
  using StmtExprMutator::VisitExpr_;
  Expr VisitExpr_(const Call& op) override {
    auto made = Made(op);
    return made ? *made : StmtExprMutator::VisitExpr_(op);
  }
  ffi::Any VisitOther(const Node& op) override {
    if (op.kind() == NodeKind::kSelect) {
      if (auto made = Made(Expr(op))) return *made;
    }
    return MutateChildren(op);
  }

 private:
  std::optional<Expr> Made(const Expr& expr) {
    auto choice = ChoiceOf(expr);
    if (!choice) return std::nullopt;
    for (const auto& [condition, holds] : known_) {
      if (DeepEqual(condition, choice->condition)) return Rewrite(holds ? choice->yes : choice->no);
    }
    return std::nullopt;
  }

  const std::vector<Known>& known_;
};

}  // namespace

Expr Resolve(const Expr& expr, const std::vector<Known>& known) {
  return known.empty() ? expr : Resolver(known).Rewrite(expr);
}

}  // namespace fuse_epilogue
