#include "schedule/init_reads.h"

#include "analysis/scope.h"
#include "ir/functor.h"
#include "schedule/diagnostics.h"
#include "schedule/state.h"
#include "transform/fuse.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

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

// The buffers that the init of a block reads.
VarSet InitReads(const SBlock& block) {
  VarSet buffers;
  auto init = ObjectIn(block.init());
  if (!init) return buffers;
  auto store = As<BufferStore>(*init);
  ffi::ObjectRef value = store ? ffi::ObjectRef(store->value()) : *init;
  for (VarKey var : VarsIn(value)) {
    Var buffer(ffi::GetRef<ffi::ObjectRef>(var));
    if (ExprBase(buffer).ty().kind() == NodeKind::kBufferType) buffers.insert(var);
  }
  return buffers;
}

class InitReadFinder : public StmtExprVisitor {
 public:
  std::optional<SBlock> found;

 protected:
  using StmtExprVisitor::VisitStmt_;
  void VisitStmt_(const SBlock& op) override {
    if (!InitReads(op).empty()) found = op;
    (*this)(op.body());
  }
};

bool IsUnder(const Site& site, const Stmt& loop) {
  for (const Step& step : site.path) {
    if (step.stmt.same_as(loop)) return true;
  }
  return false;
}

}  // namespace

void CheckDecomposition(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block_rv,
                        const ffi::ObjectRef& loop_rv) {
  StmtSRef sref = SRefOf(schedule, block_rv);
  auto block = As<SBlock>(StmtOf(sref));
  StmtSRef scope_sref = ScopeOf(sref);
  if (!block || !scope_sref.defined()) return;  // for TVM to refuse
  VarSet reads = InitReads(*block);
  if (reads.empty()) return;
  Stmt loop = StmtOf(SRefOf(schedule, loop_rv));
  for (const Site& site : Scope(SBlock(StmtOf(scope_sref))).sites) {
    if (!IsUnder(site, loop) || (site.is_block() && site.block().same_as(*block))) continue;
    for (const Access& access : site.accesses) {
      if (access.use == Use::kRead || !reads.count(access.buffer)) continue;
      Var buffer(ffi::GetRef<ffi::ObjectRef>(access.buffer));
      throw MakeScheduleError(
          schedule, "decompose-reduction",
          Refusal(Code::kInitReads, *block,
                  "the init of block " + Quoted(*block) + " reads " + Quoted(buffer) +
                      ", which is written inside the loop that the init would be moved out of",
                  {loop}));
    }
  }
}

void CheckNoInitReads(const ffi::ObjectRef& schedule, const char* primitive,
                      const ffi::Any& target) {
  if (auto several = target.as<ffi::Array<ffi::Any>>()) {
    for (const ffi::Any& one : *several) CheckNoInitReads(schedule, primitive, one);
    return;
  }
  auto rv = ObjectIn(target);
  if (!rv) return;
  InitReadFinder finder;
  finder(StmtOf(SRefOf(schedule, *rv)));
  if (finder.found) {
    throw MakeScheduleError(
        schedule, primitive,
        Refusal(Code::kInitReads, *finder.found,
                "the init of block " + Quoted(*finder.found) + " reads a buffer"));
  }
}

void RepairDecomposition(const ffi::ObjectRef& schedule, const ffi::ObjectRef& init_rv,
                         const ffi::ObjectRef& update_rv) {
  ScheduleState state = StateOf(schedule);
  StmtSRef init_sref = SRefOf(schedule, init_rv);
  SBlock init(StmtOf(init_sref));
  SBlock update(StmtOf(SRefOf(schedule, update_rv)));
  auto init_reads = RegionsOf(init).first;
  if (init_reads.size() == init.reads().size()) return;  // a constant: TVM's blocks are right

  VarSet in_update = VarsIn(update.body());
  VarSet only_init;
  for (const TensorRegion& region : init_reads) {
    VarKey buffer = region.source().get();
    if (!in_update.count(buffer)) only_init.insert(buffer);
  }
  ffi::Array<TensorRegion> update_reads;
  for (const TensorRegion& region : update.reads()) {
    if (!only_init.count(region.source().get())) update_reads.push_back(region);
  }

  BlockReuse reuse;
  reuse.Set(init, WithParts(init, init_reads, init.writes(), init.init(), init.body()));
  reuse.Set(update, WithParts(update, update_reads, update.writes(), update.init(), update.body()));
  StmtSRef scope = ScopeOf(init_sref);
  SBlock old_scope(StmtOf(scope));
  Stmt body = BlockReplacer(reuse).Rewrite(old_scope.body());
  ReplaceScope(state, scope,
               WithParts(old_scope, old_scope.reads(), old_scope.writes(), old_scope.init(), body),
               reuse);
}

}  // namespace fuse_epilogue
