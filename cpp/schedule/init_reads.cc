#include "schedule/init_reads.h"

#include "analysis/init_uses.h"
#include "analysis/scope.h"
#include "ir/functor.h"
#include "schedule/diagnostics.h"
#include "schedule/state.h"
#include "transform/regions.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

class InitReadFinder : public StmtExprVisitor {
 public:
  explicit InitReadFinder(bool in_place_only) : in_place_only_(in_place_only) {}
  std::optional<SBlock> found;

 protected:
  using StmtExprVisitor::VisitStmt_;
  void VisitStmt_(const SBlock& op) override {
    VarSet reads = BuffersReadByInit(op);
    bool in_place = false;
    for (const TensorRegion& region : op.writes()) {
      in_place = in_place || reads.count(region.source().get()) > 0;
    }
    if (in_place_only_ ? in_place : !reads.empty()) found = op;
    (*this)(op.body());
  }

 private:
  bool in_place_only_;
};

bool IsUnder(const Site& site, const Stmt& loop) {
  for (const Step& step : site.path) {
    if (step.stmt.same_as(loop)) return true;
  }
  return false;
}

// The init would move from the block to before the loop: past every statement in that loop that
// writes what it reads, and past those before the block that touch the output (a fused block
// accumulates in the output itself, which others may have read or filled before).
void CheckNothingPassed(const ffi::ObjectRef& schedule, const SBlock& block, const SBlock& scope,
                        const Stmt& loop) {
  VarSet reads = BuffersReadByInit(block);
  VarSet outputs;
  for (const TensorRegion& region : block.writes()) outputs.insert(region.source().get());
  Scope in(scope);
  const Site* itself = in.Find(block);
  for (const Site& site : in.sites) {
    if (!IsUnder(site, loop) || (site.is_block() && site.block().same_as(block))) continue;
    for (const Access& access : site.accesses) {
      bool input_written = access.use != Use::kRead && reads.count(access.buffer);
      bool output_used = itself && site.position < itself->position && outputs.count(access.buffer);
      if ((!input_written && !output_used) || IsSwitchedOff(Code::kInitReads)) continue;
      Var buffer(ffi::GetRef<ffi::ObjectRef>(access.buffer));
      throw MakeScheduleError(
          schedule, "decompose-reduction",
          Refusal(Code::kInitReads, block,
                  "the init of block " + Quoted(block) + " uses " + Quoted(buffer) + ", which is " +
                      (input_written ? "written" : "used before") +
                      " inside the loop that the init would be moved out of",
                  {loop}));
    }
  }
}

// Declare what the two blocks of a decomposition read.
void DeclareReads(const ffi::ObjectRef& schedule, const ffi::ObjectRef& init_rv,
                  const ffi::ObjectRef& update_rv, bool declared_exactly) {
  ScheduleState state = StateOf(schedule);
  StmtSRef init_sref = SRefOf(schedule, init_rv);
  SBlock init(StmtOf(init_sref));
  SBlock update(StmtOf(SRefOf(schedule, update_rv)));
  auto init_reads = RegionsOf(init).first;
  auto update_reads = RegionsOf(update).first;
  if (!declared_exactly) {
    // The user declared more than there is: keep that, except for what only the init read.
    VarSet in_update = VarsIn(update.body());
    ffi::Array<TensorRegion> kept;
    for (const TensorRegion& region : update.reads()) {
      VarKey buffer = region.source().get();
      bool only_init = false;
      for (const TensorRegion& read : init_reads) {
        only_init = only_init || (read.source().get() == buffer && !in_update.count(buffer));
      }
      if (!only_init) kept.push_back(region);
    }
    update_reads = kept;
  }

  BlockReuse reuse;
  reuse.Set(init, WithParts(init, init_reads, init.writes(), init.init(), init.body()));
  reuse.Set(update, WithParts(update, update_reads, update.writes(), update.init(), update.body()));
  ReplaceBlocks(state, ScopeOf(init_sref), reuse);
}

}  // namespace

ffi::ObjectRef DecomposeReduction(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block_rv,
                                  const ffi::ObjectRef& loop_rv,
                                  const std::function<ffi::ObjectRef()>& decompose) {
  StmtSRef sref = SRefOf(schedule, block_rv);
  auto block = As<SBlock>(StmtOf(sref));
  StmtSRef scope = ScopeOf(sref);
  if (!block || !scope.defined()) return decompose();  // for TVM to refuse
  CheckNothingPassed(schedule, *block, SBlock(StmtOf(scope)), StmtOf(SRefOf(schedule, loop_rv)));
  if (BuffersReadByInit(*block).empty()) return decompose();
  bool declared_exactly = DeclaresItsReads(*block);
  ffi::ObjectRef init_rv = decompose();
  DeclareReads(schedule, init_rv, block_rv, declared_exactly);
  return init_rv;
}

bool InitReadsAny(const SBlock& block) { return !BuffersReadByInit(block).empty(); }

void CheckInits(const ffi::ObjectRef& schedule, const char* primitive, const ffi::Any& target,
                InitInTheWay kind) {
  if (auto several = target.as<ffi::Array<ffi::Any>>()) {
    for (const ffi::Any& one : *several) CheckInits(schedule, primitive, one, kind);
    return;
  }
  auto rv = ObjectIn(target);
  if (!rv) return;  // for TVM to refuse
  bool in_place_only = kind == InitInTheWay::kReadsItsOutput;
  InitReadFinder finder(in_place_only);
  finder(StmtOf(SRefOf(schedule, *rv)));
  if (finder.found && !IsSwitchedOff(Code::kInitReads)) {
    throw MakeScheduleError(schedule, primitive,
                            Refusal(Code::kInitReads, *finder.found,
                                    "the init of block " + Quoted(*finder.found) + " reads " +
                                        (in_place_only ? "the output" : "a buffer")));
  }
}

}  // namespace fuse_epilogue
