#include "schedule/recording.h"

#include <string>
#include <unordered_set>

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// The loops around a block, and each as a function of the block's axes.
struct LoopProof {
  ffi::Array<Var> loops;
  ffi::Array<Expr> inverse;
};

LoopProof ProofOf(const Site& site, const InjectiveMap& map) {
  ffi::Array<Expr> vars;
  for (const IterVar& iter : site.block().iter_vars()) vars.push_back(iter.var());
  LoopProof proof;
  for (const For& loop : site.Loops()) proof.loops.push_back(loop.loop_var());
  if (auto inverse = map.Inverse(vars)) proof.inverse = *inverse;
  return proof;
}

FusionStep StepOf(const Site& site, const Var& output, const AxisMap& map,
                  const InjectiveMap& loops) {
  FusionStep step;
  step.epilogue = site.block();
  step.output = output;
  for (const IterVar& iter : site.block().iter_vars()) {
    step.axes.push_back(iter.var());
    step.h.push_back(map.axes().at(iter.var().get()));
  }
  LoopProof proof = ProofOf(site, loops);
  step.loops = proof.loops;
  step.inverse = proof.inverse;
  return step;
}

// The step of this call that stores to \p output, or nullptr.
FusionStep* StepThatMade(FusionReport* report, const Var& output) {
  for (FusionStep& step : report->steps) {
    if (step.output.same_as(output)) return &step;
  }
  return nullptr;
}

// How often the place of the tails is come to; 0 if that is not a number.
int64_t RoundsAround(const Region& region) {
  int64_t rounds = 1;
  const std::vector<Step>& path = region.reduction.site->path;
  for (size_t i = 0; i < region.place.nest; ++i) {
    auto loop = As<For>(path[i].stmt);
    if (!loop) continue;
    auto extent = As<IntImm>(loop->extent());
    rounds *= extent ? extent->value() : 0;
  }
  return rounds;
}
}  // namespace

void RecordFusion(const FusionPlan& plan, FusionReport* report) {
  const Reduction& reduction = plan.region.reduction;
  if (!report->before) {
    report->before = reduction;
    report->before->site = nullptr;  // it goes with its scope
    report->reduction = reduction.site->block().name_hint();
    LoopProof proof = ProofOf(*reduction.site, plan.region.loops);
    report->loops = proof.loops;
    report->inverse = proof.inverse;
  }
  for (const Tail* merged : plan.merged) {
    report->removed.push_back(merged->output);
    FusionStep* maker = StepThatMade(report, merged->output);
    if (maker == nullptr) {
      // An earlier call has made it.
      report->steps.push_back(
          StepOf(*merged->site, merged->output, merged->proof->first, merged->proof->second));
      maker = &report->steps.back();
      maker->hole = plan.hole;
    }
    maker->merged_into = plan.epilogue.site->block().name_hint();
    maker->removed = merged->output;
  }
  FusionStep step =
      StepOf(*plan.epilogue.site, plan.epilogue.output, plan.axes, plan.epilogue_loops);
  step.hole = plan.hole;
  step.peeled = plan.peeled;
  if (plan.gone) {
    step.removed = reduction.accumulator;
    report->removed.push_back(reduction.accumulator);
  }
  report->steps.push_back(step);
  report->result =
      plan.gone ? Produced{plan.epilogue.output, plan.indices} : plan.region.produced[0];
  report->init = ApplyAll(plan.peeled.steps, reduction.init);
}

void RecordOutcome(const Scope& scope, const Region& region, FusionReport* report) {
  report->rounds = RoundsAround(region);
  VarSet tails;
  std::unordered_set<std::string> fused;
  for (const FusionStep& step : report->steps) fused.insert(step.epilogue.name_hint());
  for (const Tail& tail : region.tails) {
    tails.insert(tail.site->realize.get());
    std::string name = tail.site->block().name_hint();
    if (fused.count(name)) report->tails.push_back({name, tail.output, tail.indices, tail.value});
  }
  // The accumulator if there are tails, to which alone it would matter; what a tail stores if it
  // is not an output of the function.
  for (const Produced& one : region.produced) {
    bool is_accumulator = &one == &region.produced[0];
    bool owned = Owns(scope.root, one.buffer);
    bool kept = is_accumulator && !owned;
    for (const Site* site : ReadersOf(scope, *region.reduction.site, one.buffer)) {
      kept = kept || ((is_accumulator || owned) && !tails.count(site->realize.get()));
    }
    if (tails.empty()) continue;
    // What an earlier tail stores is none of this call's intermediates.
    size_t place = &one - &region.produced[0];
    bool earlier = place > 0 && !fused.count(region.tails[place - 1].site->block().name_hint());
    if (kept) {
      if (!earlier) report->kept.push_back(one.buffer);
    } else if (owned) {
      report->shrunk.push_back({one.buffer, report->rounds});
    }
  }
}

}  // namespace fuse_epilogue
