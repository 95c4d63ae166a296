#include "schedule/ground.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/scope.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// TVM brings the flags of all blocks up to date after every replacement, which takes longer than
// all proofs together: the steps of a call are collected, and the schedule sees one replacement.
class StateGround : public Ground {
 public:
  StateGround(const ScheduleState& state, const StmtSRef& scope) : state_(state), scope_(scope) {
    if (!scope_.defined()) return;
    now_ = SBlock(StmtOf(scope_));
    root_ = SBlock(StmtOf(RootOf(scope_)));
    is_root_ = root_.same_as(now_);
  }

  SBlock Scope() const override { return now_; }
  // Outside of the scope nothing changes: the root around it is the one from before the call.
  SBlock Root() const override { return is_root_ ? now_ : root_; }
  bool RegionCovered(const SBlock& block) override {
    Commit();
    return fuse_epilogue::RegionCovered(state_, block);
  }
  void Replace(const SBlock& scope, const BlockReuse& reuse) override {
    now_ = scope;
    changed_ = true;
    for (const auto& [old, now] : reuse) {
      auto earlier = became_.find(old.get());
      size_t i = earlier == became_.end() ? reuse_.size() : earlier->second;
      if (i == reuse_.size()) reuse_.emplace_back(old, now);
      reuse_[i].second = now;
      became_[now.get()] = i;
    }
  }
  std::unique_ptr<Ground> Copy() override {
    Commit();
    ScheduleState copy = CopyOf(state_);
    auto scope = CallGlobal(Fn::GetSRefOfStmt, copy, StmtOf(scope_)).cast<StmtSRef>();
    return std::make_unique<StateGround>(copy, scope);
  }
  bool IsShared() const override { return true; }
  void Commit() override {
    if (!changed_) return;
    // A tail of one step that another step has merged is nowhere: its random variable is not valid.
    VarSet blocks;
    const fuse_epilogue::Scope scope(now_);
    for (const Site& site : scope.sites) {
      if (site.is_block()) blocks.insert(site.block().get());
    }
    BlockReuse reuse;
    for (const auto& [old, now] : reuse_) {
      if (blocks.count(now.get())) reuse.Set(old, now);
    }
    ReplaceScope(state_, scope_, now_, reuse);
    reuse_.clear();
    became_.clear();
    changed_ = false;
  }

 private:
  ScheduleState state_;
  StmtSRef scope_;
  SBlock now_;
  SBlock root_;
  bool is_root_ = false;
  // What has been replaced since the state was brought up to date: what blocks of the state are
  // now, and where in that list a block of now is.
  bool changed_ = false;
  std::vector<std::pair<ffi::ObjectRef, ffi::ObjectRef>> reuse_;
  std::unordered_map<VarKey, size_t> became_;
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

bool FunctionGround::RegionCovered(const SBlock& block) {
  constexpr int64_t kNoDebugChecks = 0;
  auto main = CallGlobal(Fn::GlobalVar, ffi::String("main")).cast<ffi::ObjectRef>();
  ffi::Map<ffi::ObjectRef, ffi::ObjectRef> functions{{main, Func()}};
  ffi::Map<ffi::String, ffi::Any> no_infos;
  auto mod = CallGlobal(Fn::IRModule, functions, nullptr, no_infos);
  auto state = CallGlobal(Fn::ScheduleState, mod, kNoDebugChecks, false).cast<ScheduleState>();
  return fuse_epilogue::RegionCovered(state, block);
}

void FunctionGround::Replace(const SBlock& scope, const BlockReuse&) { root_ = scope; }

std::unique_ptr<Ground> FunctionGround::Copy() { return std::make_unique<FunctionGround>(Func()); }

}  // namespace fuse_epilogue
