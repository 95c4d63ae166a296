#include "schedule/primitive.h"

#include "analysis/algebra.h"
#include "analysis/domain.h"
#include "analysis/hazards.h"
#include "schedule/diagnostics.h"
#include "schedule/state.h"
#include "transform/fuse.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

const Site& SiteIn(const Scope& scope, const SBlock& block) {
  if (const Site* site = scope.Find(block)) return *site;
  if (block.same_as(scope.root)) {
    throw Refusal(Code::kWrongPair, block,
                  "block " + Quoted(block) + " is the scope of the other block");
  }
  throw Refusal(Code::kStructure, block,
                "block " + Quoted(block) + " is not directly in block " + Quoted(scope.root));
}

// The reductions whose result \p consumer reads, the nearest one first.
std::vector<const Site*> ReductionsReadBy(const Scope& scope, const Site& consumer) {
  std::vector<const Site*> producers;
  for (auto it = scope.sites.rbegin(); it != scope.sites.rend(); ++it) {
    if (!it->is_block() || &*it == &consumer || !LooksLikeReduction(it->block())) continue;
    auto stored = StoredBuffer(it->block());
    if (stored && consumer.Touches(stored->get(), Use::kRead)) producers.push_back(&*it);
  }
  return producers;
}

bool IsReadBesides(const Scope& scope, const SBlock& block, const Var& buffer) {
  for (const Site& site : scope.sites) {
    bool itself = site.is_block() && site.block().same_as(block);
    if (!itself && site.Touches(buffer.get(), Use::kRead)) return true;
  }
  return false;
}

bool IsReadOutside(const Scope& scope, const SBlock& root, const Var& buffer) {
  if (root.same_as(scope.root)) return false;
  // The reduction itself reads its accumulator: any further statement is another reader.
  size_t readers = 0;
  for (const Site& site : Scope(root).sites) readers += site.Touches(buffer.get(), Use::kRead);
  return readers > 1;
}

// The only block that reads the reduction's result.
const Site& OnlyConsumer(const Scope& scope, const SBlock& root, const Reduction& reduction) {
  const Site* consumer = nullptr;
  std::string others;
  size_t readers = 0;
  for (const Site& site : scope.sites) {
    if (&site == reduction.site || !site.Touches(reduction.accumulator.get(), Use::kRead)) continue;
    if (consumer == nullptr && site.is_block()) consumer = &site;
    others += (readers++ ? ", " : "") +
              (site.is_block() ? Quoted(site.block()) : std::string("a statement"));
  }
  SBlock block = reduction.site->block();
  if (readers == 0 && IsReadOutside(scope, root, reduction.accumulator)) {
    throw Refusal(Code::kStructure, block,
                  "the result " + Quoted(reduction.accumulator) + " of block " + Quoted(block) +
                      " is read outside of block " + Quoted(scope.root));
  }
  if (readers == 0) {
    throw Refusal(Code::kNoConsumer, block,
                  "nothing in its scope reads " + Quoted(reduction.accumulator) +
                      ", the result of block " + Quoted(block));
  }
  if (readers > 1 || consumer == nullptr) {
    throw Refusal(Code::kOtherReader, block,
                  "the result " + Quoted(reduction.accumulator) + " of block " + Quoted(block) +
                      " is read by " + others);
  }
  return *consumer;
}

// A scope inside another block: outside of it, pointers and aliases may have been taken as well.
void CheckNoAliasOutside(const SBlock& root, const Reduction& reduction, const Epilogue& epilogue) {
  Scope whole(root);
  VarSet used;
  for (const Site* site : {reduction.site, epilogue.site}) {
    for (const Access& access : site->accesses) used.insert(access.buffer);
  }
  for (const Site& site : whole.sites) {
    for (const Access& access : site.accesses) {
      if (access.use == Use::kOpaque && used.count(access.buffer)) {
        throw Refusal(Code::kOpaqueAccess, epilogue.site->block(),
                      "a buffer of block " + Quoted(epilogue.site->block()) +
                          " is used through its address, or as a matched region");
      }
    }
  }
}

/*! \brief One proved fusion, not carried out yet. */
struct Plan {
  Reduction reduction;
  Epilogue epilogue;
  AxisMap axes;
};

Plan Prove(const ScheduleState& state, const Scope& scope, const SBlock& root, const Site& producer,
           const Site* consumer) {
  Reduction reduction = MatchReduction(producer);
  CheckNoPointer(scope, reduction);
  if (consumer == nullptr) {
    consumer = &OnlyConsumer(scope, root, reduction);
  } else if (consumer == &producer || !consumer->Touches(reduction.accumulator.get(), Use::kRead)) {
    throw Refusal(Code::kWrongPair, consumer->block(),
                  "block " + Quoted(consumer->block()) + " does not read " +
                      Quoted(reduction.accumulator) + ", the result of block " +
                      Quoted(producer.block()));
  }
  CheckIntermediate(scope, reduction, *consumer);
  Epilogue epilogue = MatchEpilogue(scope, *consumer, reduction);
  CheckStructure(scope, producer, *consumer);
  CheckAbsorbable(epilogue, reduction);
  if (ir::ScopeOf(reduction.accumulator) != ir::ScopeOf(epilogue.output)) {
    throw Refusal(Code::kStorageScope, consumer->block(),
                  "the result " + Quoted(reduction.accumulator) + " of block " +
                      Quoted(producer.block()) + " is in '" + ir::ScopeOf(reduction.accumulator) +
                      "' and " + Quoted(epilogue.output) + " in '" + ir::ScopeOf(epilogue.output) +
                      "'");
  }
  CheckCompleteSums(reduction, epilogue, CommonSteps(producer, *consumer));
  InjectiveMap reduction_loops = CheckReductionLoops(reduction);
  InjectiveMap epilogue_loops = CheckEpilogueLoops(epilogue);
  AxisMap axes = MatchElements(reduction, epilogue);
  CheckSharedLoops(reduction, reduction_loops, epilogue, epilogue_loops, axes,
                   CommonSteps(producer, *consumer));
  CheckHazards(scope, reduction, epilogue, [&](const SBlock& block) {
    // TVM's flag believes the declared regions.
    return RegionCovered(state, block) && DeclaresItsReads(block);
  });
  if (!root.same_as(scope.root)) CheckNoAliasOutside(root, reduction, epilogue);
  return Plan{reduction, epilogue, axes};
}

// The block to fuse into, and the plan of the first fusion, for a call that names `block`.
Plan ProveFirst(const ScheduleState& state, const Scope& scope, const SBlock& root,
                const SBlock& block, const Site* epilogue) {
  const Site& named = SiteIn(scope, block);
  if (LooksLikeReduction(block)) return Prove(state, scope, root, named, epilogue);
  std::vector<const Site*> producers;
  if (epilogue == nullptr) producers = ReductionsReadBy(scope, named);
  if (producers.empty()) {
    throw Refusal(Code::kNotAReduction, block,
                  "block " + Quoted(block) +
                      (epilogue ? " is not a reduction"
                                : " is not a reduction and reads no reduction's result"));
  }
  // An epilogue of two reductions can be absorbed by one of them: the later one, if it may.
  for (size_t i = 0; i + 1 < producers.size(); ++i) {
    try {
      return Prove(state, scope, root, *producers[i], &named);
    } catch (const Refusal&) {
    }
  }
  return Prove(state, scope, root, *producers.back(), &named);
}

void RecordCall(const ffi::ObjectRef& schedule, const ffi::Array<ffi::Any>& inputs) {
  auto trace = ObjectIn(CallGlobal(Fn::GetTrace, schedule));
  if (!trace) return;
  ffi::Array<ffi::Any> none;
  auto kind = CallGlobal(Fn::InstructionKindGet, kFuseInstruction);
  CallGlobal(Fn::TraceAppend, *trace, CallGlobal(Fn::Instruction, kind, inputs, none, none),
             nullptr);
}

/*! \brief The schedule that a call works on, and the scope of the blocks that it names. */
class Fuser {
 public:
  Fuser(const ffi::ObjectRef& schedule, const StmtSRef& block)
      : state_(StateOf(schedule)), scope_sref_(ScopeOf(block)), block_(StmtOf(block)) {}

  // The fusion that the call asks for.
  void FuseNamed(const std::optional<StmtSRef>& epilogue) {
    if (!scope_sref_.defined()) {
      throw Refusal(Code::kNotAReduction, block_,
                    "block " + Quoted(block_) + " is the root block of its function");
    }
    Scope scope = CurrentScope();
    const Site* site = epilogue ? &SiteIn(scope, SBlock(StmtOf(*epilogue))) : nullptr;
    CarryOut(scope, ProveFirst(state_, scope, Root(), block_, site));
  }

  // The consumers after it, as far as they can be fused. The report says why it stops.
  void FuseFollowing() {
    while (true) {
      Scope scope = CurrentScope();
      SBlock reduction(StmtOf(reduction_sref_));
      if (!IsReadBesides(scope, reduction, output_)) return;
      try {
        CarryOut(scope, Prove(state_, scope, Root(), SiteIn(scope, reduction), nullptr));
      } catch (const Refusal& refusal) {
        report.stopped = refusal;
        return;
      }
    }
  }

  FusionReport report;

 private:
  Scope CurrentScope() const { return Scope(SBlock(StmtOf(scope_sref_))); }
  SBlock Root() const { return SBlock(StmtOf(RootOf(scope_sref_))); }

  void CarryOut(const Scope& scope, const Plan& plan) {
    SBlock reduction = plan.reduction.site->block();
    Fused fused = Fuse(scope, plan.reduction, plan.epilogue, plan.axes);
    FusionStep step{plan.epilogue.site->block().name_hint(), AbsorbedTerm(plan.epilogue, plan.axes),
                    plan.reduction.accumulator.name()};

    reduction_sref_ = CallGlobal(Fn::GetSRefOfStmt, state_, reduction).cast<StmtSRef>();
    ReplaceScope(state_, scope_sref_, fused.scope_root, BlockReuse{{reduction, fused.block}});
    output_ = plan.epilogue.output;
    report.reduction = reduction.name_hint();
    report.output = output_.name();
    report.steps.push_back(step);
  }

  ScheduleState state_;
  StmtSRef scope_sref_;
  SBlock block_;
  StmtSRef reduction_sref_;
  Var output_;
};

}  // namespace

FusionReport FuseReductionEpilogue(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block_rv,
                                   const ffi::Any& epilogue_rv) {
  ffi::Array<ffi::Any> inputs{block_rv};
  std::optional<StmtSRef> epilogue;
  if (auto rv = ObjectIn(epilogue_rv)) {
    epilogue = SRefOf(schedule, *rv);
    inputs.push_back(*rv);
  }
  Fuser fuser(schedule, SRefOf(schedule, block_rv));
  try {
    fuser.FuseNamed(epilogue);
  } catch (const Refusal& refusal) {
    throw MakeScheduleError(schedule, "fuse_reduction_epilogue", refusal);
  }
  // Recorded as soon as something has changed: whatever happens from here on, trace and module
  // agree.
  RecordCall(schedule, inputs);
  if (!epilogue) fuser.FuseFollowing();
  return fuser.report;
}

}  // namespace fuse_epilogue
