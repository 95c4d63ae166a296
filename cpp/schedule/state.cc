#include "schedule/state.h"

#include <dlfcn.h>
#include <tvm/ffi/error.h>

#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// ScheduleStateNode::UpdateScopeSBlockInfo(const Stmt&) is exported but not registered. A Stmt is
// one pointer, like every reference of tvm-ffi, so the call needs no header of TVM.
constexpr const char* kUpdateScope =
    "_ZN3tvm5s_tir17ScheduleStateNode21UpdateScopeSBlockInfoERKNS_4tirx4StmtE";
using UpdateScopeFn = void (*)(ffi::Object* state, const ffi::ObjectRef& stmt);
UpdateScopeFn update_scope = nullptr;

class RealizeFinder : public StmtExprVisitor {
 public:
  explicit RealizeFinder(const Stmt& block) : block_(block) {}
  SBlockRealize found;

 protected:
  using StmtExprVisitor::VisitStmt_;
  void VisitStmt_(const SBlockRealize& op) override {
    if (op.block().same_as(block_)) found = op;
  }

 private:
  Stmt block_;
};

// The SBlockRealize around the block of \p sref.
SBlockRealize RealizeOf(const ScheduleState& state, const StmtSRef& sref) {
  Stmt block = StmtOf(sref);
  RealizeFinder finder(block);
  auto parent = ObjectIn(CallGlobal(Fn::SRefParent, sref));
  if (parent) {
    Stmt stmt = StmtOf(StmtSRef(*parent));
    auto loop = As<For>(stmt);
    finder(loop ? loop->body() : SBlock(stmt).body());
  } else {
    auto functions = state.mod().functions().cast<ffi::Map<ffi::ObjectRef, ffi::ObjectRef>>();
    for (const auto& entry : functions) {
      auto func = As<PrimFunc>(entry.second);
      auto realize = func ? As<SBlockRealize>(func->body()) : std::nullopt;
      if (realize && realize->block().same_as(block)) return *realize;
    }
  }
  if (!finder.found.defined()) {
    TVM_FFI_THROW(InternalError) << "no realize around the scope block";
  }
  return finder.found;
}

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

void ReplaceScope(const ScheduleState& state, const StmtSRef& scope, const SBlock& new_scope,
                  BlockReuse reuse) {
  reuse.Set(StmtOf(scope), new_scope);
  CallGlobal(Fn::StateReplace, state, scope, new_scope, reuse);
  SBlockRealize realize = RealizeOf(state, scope);
  update_scope(const_cast<ffi::Object*>(state.get()), realize);
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
