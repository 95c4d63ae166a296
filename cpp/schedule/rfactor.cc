#include "schedule/rfactor.h"

#include <tvm/ffi/error.h>

#include "analysis/scope.h"
#include "ir/tools.h"
#include "schedule/peeled_init.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

bool IsTrue(const ffi::Any& predicate) {
  auto expr = predicate.as<Expr>();
  return expr && IsConst(*expr, 1);
}

void Replace(const ffi::ObjectRef& schedule, const StmtSRef& scope, const SBlock& old,
             const SBlock& now) {
  BlockReuse reuse;
  reuse.Set(old, now);
  ReplaceBlocks(StateOf(schedule), scope, reuse);
}

// The block that reads the partial results.
SBlock CombinerOf(const SBlock& partials, const SBlock& scope_root) {
  VarKey buffer = BufferStore(partials.body()).buffer().get();
  Scope scope(scope_root);
  for (const Site& site : scope.sites) {
    bool itself = site.is_block() && site.block().same_as(partials);
    if (site.is_block() && !itself && site.Touches(buffer, Use::kRead)) return site.block();
  }
  TVM_FFI_THROW(InternalError) << "rfactor left no block that reads the partial results";
}

ffi::ObjectRef PeelAndCall(const ffi::ObjectRef& schedule, const ffi::Any& loop_rv,
                           const RFactorCall& rfactor) {
  PeeledInit peeled = *FindPeeledInit(schedule, loop_rv);
  Replace(schedule, peeled.scope_sref, peeled.block(), WithInit(peeled.block(), peeled.identity));
  ffi::ObjectRef partials_rv = rfactor(schedule);
  StmtSRef partials = SRefOf(schedule, partials_rv);
  StmtSRef scope = ScopeOf(partials);
  SBlock combiner = CombinerOf(SBlock(StmtOf(partials)), SBlock(StmtOf(scope)));
  Substitution at;
  auto axis = peeled.reduction.spatial.begin();
  for (const IterVar& iter : combiner.iter_vars()) {
    if (iter.iter_type() == kDataPar) at[(axis++)->var.get()] = iter.var();
  }
  Replace(schedule, scope, combiner, WithInit(combiner, Substitute(peeled.reduction.init, at)));
  return partials_rv;
}

}  // namespace

ffi::ObjectRef RFactor(const ffi::ObjectRef& schedule, const ffi::Any& loop_rv,
                       const RFactorCall& rfactor) {
  auto peeled = FindPeeledInit(schedule, loop_rv);
  // Under a predicate TVM's primitive leaves partial results without a start.
  if (!peeled || !IsTrue(peeled->reduction.site->realize.predicate())) return rfactor(schedule);
  // On a copy first: where TVM refuses, nothing has changed.
  PeelAndCall(CallGlobal(Fn::CopySchedule, schedule).cast<ffi::ObjectRef>(), loop_rv, rfactor);
  return PeelAndCall(schedule, loop_rv, rfactor);
}

}  // namespace fuse_epilogue
