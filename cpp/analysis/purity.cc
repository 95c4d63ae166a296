#include "analysis/purity.h"

#include <optional>

#include "analysis/refusal.h"
#include "ir/functor.h"
#include "ir/tools.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

void CheckPure(const SBlock& block, const Expr& pure) {
  class Finder : public StmtExprVisitor {
   public:
    explicit Finder(const Expr& pure) : pure_(pure) {}
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
    void VisitOther(const Node& op) override {
      if (!op.same_as(pure_)) VisitChildren(op);
    }

   private:
    Expr pure_;
  };
  Finder finder(pure);
  if (auto init = ObjectIn(block.init())) finder(*init);
  finder(block.body());
  if (finder.impure) {
    Refuse(Code::kImpure, block, "block " + Quoted(block) + " calls " + Print(*finder.impure),
           {*finder.impure});
  }
}

}  // namespace fuse_epilogue
