#include "schedule/ground.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

class StateGround : public Ground {
 public:
  StateGround(const ScheduleState& state, const StmtSRef& scope) : state_(state), scope_(scope) {}

  SBlock Scope() const override { return scope_.defined() ? SBlock(StmtOf(scope_)) : SBlock(); }
  SBlock Root() const override { return SBlock(StmtOf(RootOf(scope_))); }
  bool RegionCovered(const SBlock& block) const override {
    return fuse_epilogue::RegionCovered(state_, block);
  }
  void Replace(const SBlock& scope, const BlockReuse& reuse) override {
    ReplaceScope(state_, scope_, scope, reuse);
  }
  std::unique_ptr<Ground> Copy() const override {
    ScheduleState copy = CopyOf(state_);
    auto scope = CallGlobal(Fn::GetSRefOfStmt, copy, StmtOf(scope_)).cast<StmtSRef>();
    return std::make_unique<StateGround>(copy, scope);
  }
  bool IsShared() const override { return true; }

 private:
  ScheduleState state_;
  StmtSRef scope_;
};

}  // namespace

std::unique_ptr<Ground> GroundOf(const ScheduleState& state, const StmtSRef& block) {
  return std::make_unique<StateGround>(state, fuse_epilogue::ScopeOf(block));
}

FunctionGround::FunctionGround(const PrimFunc& func)
    : func_(func), root_(SBlockRealize(func.body()).block()) {}

PrimFunc FunctionGround::Func() const {
  auto realize = CallGlobal(Fn::SBlockRealize, ffi::Array<Expr>(), true, root_, nullptr);
  return CallGlobal(Fn::PrimFunc, func_.params(), realize, func_.ret_type(),
                    BaseFunc(func_).attrs(), nullptr)
      .cast<PrimFunc>();
}

bool FunctionGround::RegionCovered(const SBlock& block) const {
  constexpr int64_t kNoDebugChecks = 0;
  auto main = CallGlobal(Fn::GlobalVar, ffi::String("main")).cast<ffi::ObjectRef>();
  ffi::Map<ffi::ObjectRef, ffi::ObjectRef> functions{{main, Func()}};
  ffi::Map<ffi::String, ffi::Any> no_infos;
  auto mod = CallGlobal(Fn::IRModule, functions, nullptr, no_infos);
  auto state = CallGlobal(Fn::ScheduleState, mod, kNoDebugChecks, false).cast<ScheduleState>();
  return fuse_epilogue::RegionCovered(state, block);
}

void FunctionGround::Replace(const SBlock& scope, const BlockReuse&) { root_ = scope; }

std::unique_ptr<Ground> FunctionGround::Copy() const {
  return std::make_unique<FunctionGround>(Func());
}

}  // namespace fuse_epilogue
