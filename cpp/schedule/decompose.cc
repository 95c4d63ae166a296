#include "schedule/decompose.h"

#include "ir/functor.h"
#include "ir/tools.h"
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

}  // namespace

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
