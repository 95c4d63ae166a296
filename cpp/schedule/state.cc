#include "schedule/state.h"

#include <dlfcn.h>
#include <tvm/ffi/error.h>

#include "ir/functor.h"
#include "transform/regions.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// ScheduleStateNode::UpdateScopeSBlockInfo(const Stmt&) is exported but not registered. A Stmt is
// one pointer, like every reference of tvm-ffi, so the call needs no header of TVM.
constexpr const char* kUpdateScope =
    "_ZN3tvm5s_tir17ScheduleStateNode21UpdateScopeSBlockInfoERKNS_4tirx4StmtE";
using UpdateScopeFn = void (*)(ffi::Object* state, const ffi::ObjectRef& stmt);
UpdateScopeFn update_scope = nullptr;

class BlockReplacer : public StmtExprMutator {
 public:
  explicit BlockReplacer(const BlockReuse& reuse) : reuse_(reuse) {}

 protected:
  using StmtExprMutator::VisitStmt_;
  Stmt VisitStmt_(const SBlockRealize& op) override {
    auto it = reuse_.find(op.block());
    if (it == reuse_.end()) return op;
    return CallGlobal(Fn::SBlockRealize, op.iter_values(), op.predicate(), (*it).second, nullptr)
        .cast<Stmt>();
  }

 private:
  const BlockReuse& reuse_;
};

}  // namespace

ScheduleState StateOf(const ffi::ObjectRef& schedule) {
  return CallGlobal(Fn::GetState, schedule).cast<ScheduleState>();
}

StmtSRef SRefOf(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block_rv) {
  return CallGlobal(Fn::GetSRef, schedule, block_rv).cast<StmtSRef>();
}

Stmt StmtOf(const StmtSRef& sref) { return CallGlobal(Fn::SRefStmt, sref).cast<Stmt>(); }

StmtSRef ScopeOf(const StmtSRef& sref) {
  ffi::ObjectRef at = sref;
  while (auto parent = ObjectIn(CallGlobal(Fn::SRefParent, at))) {
    at = *parent;
    if (StmtOf(StmtSRef(at)).kind() == NodeKind::kSBlock) return StmtSRef(at);
  }
  return StmtSRef();
}

StmtSRef RootOf(const StmtSRef& sref) {
  ffi::ObjectRef at = sref;
  while (auto parent = ObjectIn(CallGlobal(Fn::SRefParent, at))) at = *parent;
  return StmtSRef(at);
}

bool RegionCovered(const ScheduleState& state, const SBlock& block) {
  auto sref = CallGlobal(Fn::GetSRefOfStmt, state, block);
  // affine_binding, region_cover, stage_pipeline
  auto flags = CallGlobal(Fn::GetCachedFlags, state, sref).cast<ffi::Array<Expr>>();
  return IntImm(flags[1]).value() != 0;
}

ScheduleState CopyOf(const ScheduleState& state) {
  constexpr int64_t kNoDebugChecks = 0;
  return CallGlobal(Fn::ScheduleState, state.mod(), kNoDebugChecks, false).cast<ScheduleState>();
}

void ReplaceScope(const ScheduleState& state, const StmtSRef& scope, const SBlock& new_scope,
                  BlockReuse reuse) {
  reuse.Set(StmtOf(scope), new_scope);
  CallGlobal(Fn::StateReplace, state, scope, new_scope, reuse);
  // From the function's root on, not from the scope: whether the scope block's own bindings are
  // affine depends on the loops around it. A root block has no axes, so that its realize can be
  // made here; to look for the function's own would take longer the more functions there are.
  auto realize =
      CallGlobal(Fn::SBlockRealize, ffi::Array<Expr>(), true, StmtOf(RootOf(scope)), nullptr)
          .cast<ffi::ObjectRef>();
  update_scope(const_cast<ffi::Object*>(state.get()), realize);
}

SBlock WithBlocks(const SBlock& scope, const BlockReuse& reuse) {
  Stmt body = BlockReplacer(reuse).Rewrite(scope.body());
  return WithParts(scope, scope.reads(), scope.writes(), scope.init(), body);
}

void ReplaceBlocks(const ScheduleState& state, const StmtSRef& scope, const BlockReuse& reuse) {
  ReplaceScope(state, scope, WithBlocks(SBlock(StmtOf(scope)), reuse), reuse);
}

std::string ResolveExportedSymbols() {
  void* library = dlopen("libtvm_compiler.so", RTLD_NOW | RTLD_NOLOAD);
  if (library != nullptr) {
    update_scope = reinterpret_cast<UpdateScopeFn>(dlsym(library, kUpdateScope));
    dlclose(library);  // TVM itself keeps it loaded
  }
  return update_scope != nullptr ? "" : std::string("symbol ") + kUpdateScope;
}

}  // namespace fuse_epilogue
