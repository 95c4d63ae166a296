#include "schedule/fuser.h"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "schedule/prove.h"
#include "transform/privatize.h"
#include "transform/regions.h"

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

// The reductions whose result \p consumer reads, the nearest one first; if there are none, those
// whose tails' outputs it reads.
std::vector<SBlock> ReductionsReadBy(const Scope& scope, const Site& consumer) {
  std::vector<SBlock> direct, through_tails;
  for (auto it = scope.sites.rbegin(); it != scope.sites.rend(); ++it) {
    if (!it->is_block() || &*it == &consumer || !LooksLikeReduction(it->block())) continue;
    bool reads = false;
    for (const TensorRegion& region : it->block().writes()) {
      reads = reads || consumer.Touches(region.source().get(), Use::kRead);
    }
    if (reads) {
      direct.push_back(it->block());
      continue;
    }
    try {
      for (const Tail& tail : FindRegion(scope, *it).tails) {
        if (!consumer.Touches(tail.output.get(), Use::kRead)) continue;
        through_tails.push_back(it->block());
        break;
      }
    } catch (const Refusal&) {
      // Not a reduction that has tails.
    }
  }
  return direct.empty() ? through_tails : direct;
}

bool IsReadOutside(const Scope& scope, const SBlock& root, const Var& buffer) {
  if (root.same_as(scope.root)) return false;
  // The reduction itself reads its accumulator: any further statement is another reader.
  size_t readers = 0;
  for (const Site& site : Scope(root).sites) readers += site.Touches(buffer.get(), Use::kRead);
  return readers > 1;
}

// There is no block to fuse: say why.
[[noreturn]] void RefuseWithoutCandidates(const Scope& scope, const SBlock& root,
                                          const Region& region) {
  const Reduction& reduction = region.reduction;
  SBlock block = reduction.site->block();
  std::string result = "the result " + Quoted(reduction.accumulator) + " of block " + Quoted(block);
  if (!ReadersOf(scope, *reduction.site, reduction.accumulator).empty()) {
    throw Refusal(Code::kConsumerForm, block,
                  result + " is read by a statement outside of any block");
  }
  if (IsReadOutside(scope, root, reduction.accumulator)) {
    throw Refusal(Code::kStructure, block,
                  result + " is read outside of block " + Quoted(scope.root));
  }
  throw Refusal(Code::kNoConsumer, block,
                "nothing in its scope reads " + Quoted(reduction.accumulator) +
                    ", the result of block " + Quoted(block));
}

// The blocks that may be fused next, in program order: those that read something behind its writer.
// What stands in front of the writer reads something older; in front of the reduction it is a
// candidate (to be refused) only if there is no other.
std::vector<const Site*> Candidates(const Scope& scope, const Region& region) {
  std::vector<const Site*> before, behind;
  const Site& reduction = *region.reduction.site;
  std::unordered_map<VarKey, size_t> produced;
  for (size_t i = 0; i < region.produced.size(); ++i) {
    produced.emplace(region.produced[i].buffer.get(), i);
  }
  for (const Site& site : scope.sites) {
    if (&site == &reduction || !site.is_block()) continue;
    // The first in the order of the region, wherever it is read.
    const Site* writer = nullptr;
    size_t first = region.produced.size();
    for (const Access& access : site.accesses) {
      auto read = access.use == Use::kRead ? produced.find(access.buffer) : produced.end();
      if (read == produced.end() || read->second >= first) continue;
      size_t i = read->second;
      const Site& by = i == 0 ? reduction : *region.tails[i - 1].site;
      if (&site == &by || (i > 0 && site.position < by.position)) continue;
      first = i;
      writer = &by;
    }
    if (writer) (site.position < writer->position ? before : behind).push_back(&site);
  }
  return behind.empty() ? before : behind;
}

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

/*! \brief One call on the scope of the blocks that it names. */
class Fuser {
 public:
  Fuser(Ground* ground, const SBlock& block, const Options& options)
      : ground_(ground), block_(block) {
    report.options = options;
  }

  // What the call asks for. Throws before anything has changed, or not at all.
  void Run(const std::optional<SBlock>& epilogue) {
    if (!ground_->Scope().defined()) {
      throw Refusal(Code::kNotAReduction, block_,
                    "block " + Quoted(block_) + " is the root block of its function");
    }
    if (LooksLikeReduction(block_)) {
      SetReduction(block_);
      if (epilogue) {
        FuseOne(*epilogue);
      } else {
        FuseAll();
      }
    } else if (epilogue) {
      throw Refusal(Code::kNotAReduction, block_,
                    "block " + Quoted(block_) + " is not a reduction");
    } else {
      FuseConsumer();
    }
    DeclareRegions();
    MakePrivate();
  }

  // What is known only when all is done.
  void Finish() {
    const Region* found = report.before ? CurrentRegion() : nullptr;
    if (found == nullptr) return;
    const Region& region = *found;
    const Scope& scope = CurrentScope();
    report.rounds = RoundsAround(region);
    VarSet tails;
    std::unordered_set<std::string> fused;
    for (const FusionStep& step : report.steps) fused.insert(step.epilogue.name_hint());
    for (const Tail& tail : region.tails) {
      tails.insert(tail.site->realize.get());
      std::string name = tail.site->block().name_hint();
      if (fused.count(name)) report.tails.push_back({name, tail.output, tail.indices, tail.value});
    }
    // The accumulator if there are tails, to which alone it would matter; what a tail stores if it
    // is no output of the function.
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
        if (!earlier) report.kept.push_back(one.buffer);
      } else if (owned) {
        report.shrunk.push_back({one.buffer, report.rounds});
      }
    }
  }

  FusionReport report;

 private:
  const Scope& CurrentScope() {
    if (scope_) return *scope_;
    if (previous_) {
      scope_ = std::make_unique<Scope>(ground_->Scope(), std::move(*previous_));
      previous_.reset();
    } else {
      scope_ = std::make_unique<Scope>(ground_->Scope());
    }
    return *scope_;
  }
  void SetReduction(const SBlock& block) {
    reduction_ = block;
    region_.reset();
    tails_.clear();
    proved_init_ = Expr();
    declared_ = SBlock();
  }

  bool IsTail(const Region& region, const Site& site) const {
    return std::any_of(region.tails.begin(), region.tails.end(),
                       [&](const Tail& tail) { return tail.site == &site; });
  }
  // Whether there is a loop around the place of the tails.
  static bool IsInLoops(const Region& region) {
    const std::vector<Step>& path = region.reduction.site->path;
    return std::any_of(path.begin(), path.begin() + region.place.nest,
                       [](const Step& step) { return step.stmt.kind() == NodeKind::kFor; });
  }
  // How often the place of the tails is come to; 0 if that is not a number.
  static int64_t RoundsAround(const Region& region) {
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
  bool MadeHere(const Site& site) const { return tails_.count(site.block().get()) > 0; }

  FusionPlan ProveFusion(const Region& region, const Site& consumer) {
    Surroundings around{CurrentScope(), ground_->Root(), [this](const SBlock& block) {
                          // TVM's flag takes the declared regions for right.
                          return DeclaresItsReads(block) && ground_->RegionCovered(block);
                        }};
    return Prove(around, region, consumer, report.options);
  }

  // The region as it is now; nullptr if the call has changed it so that it allows no more fusion (a
  // buffer that is accumulated in place may have other writers). Says so if somebody reads it.
  const Region* CurrentRegion() {
    if (region_) return &*region_;
    const Site& site = SiteIn(CurrentScope(), reduction_);
    try {
      region_ = FindRegion(CurrentScope(), site, tails_, loops_, proved_init_, report.options.rows);
      loops_ = KnownLoops{site.realize, site.Loops(), region_->loops};
      return &*region_;
    } catch (const Refusal& refusal) {
      if (!report.before) throw;
      if (!ReadersOf(CurrentScope(), site, report.result.buffer).empty()) report.stopped = refusal;
      return nullptr;
    }
  }

  void FuseOne(const SBlock& epilogue) {
    const Site& consumer = SiteIn(CurrentScope(), epilogue);
    CarryOut(ProveFusion(*CurrentRegion(), consumer));
  }

  // One consumer after the other, in program order, until none is left or all that are left are
  // refused.
  void FuseAll() {
    while (const Region* region = CurrentRegion()) {
      std::vector<const Site*> candidates = Candidates(CurrentScope(), *region);
      // After a fusion, what stands in front of the reduction is nobody's business.
      bool only_before = !candidates.empty() &&
                         candidates.back()->position < SiteIn(CurrentScope(), reduction_).position;
      if (report.before && only_before) return;
      if (candidates.empty() && !report.before) {
        RefuseWithoutCandidates(CurrentScope(), ground_->Root(), *region);
      }
      std::optional<Refusal> refusal;
      if (FuseFirst(*region, candidates, &refusal)) continue;
      if (!report.before) throw *refusal;
      report.stopped = refusal;
      return;
    }
  }

  // The first candidate that may be fused, if one may; otherwise why the first of them may not.
  bool FuseFirst(const Region& region, const std::vector<const Site*>& candidates,
                 std::optional<Refusal>* refusal) {
    std::optional<Refusal> in_place;
    for (const Site* candidate : candidates) {
      if (MadeHere(*candidate)) continue;
      try {
        CarryOut(ProveFusion(region, *candidate));
        return true;
      } catch (const Refusal& reason) {
        // That a block is where it belongs is a reason only if there is no other.
        std::optional<Refusal>& first = IsTail(region, *candidate) ? in_place : *refusal;
        if (!first) first = reason;
      }
    }
    // If something was done, it need not be said, unless all that is read is there in full.
    if (!*refusal && (!report.before || !IsInLoops(region))) *refusal = in_place;
    return false;
  }

  // The regions of a reduction that takes in one operand after the other are computed once.
  void DeclareRegions() {
    if (!declared_.defined()) return;
    SBlock block = WithItsRegions(declared_, reduction_, declared_result_);
    BlockReuse reuse{{reduction_, block}};
    Replace(WithBlocks(CurrentScope().root, reuse), reuse);
  }

  // What is left of the intermediates, in GPU threads, moves to the threads' own memory.
  void MakePrivate() {
    const Region* region = CurrentRegion();
    if (region == nullptr) return;
    const Scope& scope = CurrentScope();
    std::vector<Var> buffers = PrivateBuffers(scope, *region);
    if (buffers.empty()) return;
    Substitution local;
    for (const Var& buffer : buffers) local[buffer.get()] = AsLocal(buffer);
    SBlock root = Substitute(scope.root, local);
    // The same blocks at the same positions.
    Scope after(root);
    BlockReuse reuse;
    for (size_t i = 0; i < scope.sites.size(); ++i) {
      if (!scope.sites[i].is_block()) continue;
      SBlock old = scope.sites[i].block();
      if (!old.same_as(after.sites[i].block())) reuse.Set(old, after.sites[i].block());
    }
    Replace(root, reuse);
    for (const Var& buffer : buffers) {
      if (report.result.buffer.same_as(buffer)) report.result.buffer = Var(local.at(buffer.get()));
      report.removed.push_back(buffer);
    }
  }

  // The call names a block that reads a reduction's result: that one first, then all others.
  void FuseConsumer() {
    std::vector<SBlock> producers =
        ReductionsReadBy(CurrentScope(), SiteIn(CurrentScope(), block_));
    if (producers.empty()) {
      throw Refusal(
          Code::kNotAReduction, block_,
          "block " + Quoted(block_) + " neither is a reduction nor reads a reduction's result");
    }
    // An epilogue of two reductions belongs to one of them: the later one, if it may. Consumers
    // that stand before it come first: it may read what they compute.
    for (const SBlock& producer : producers) {
      SetReduction(producer);
      if (IsFirstCandidate() || !WouldFuse(producer)) continue;
      FuseAll();
      return;
    }
    std::optional<Refusal> refusal;
    for (const SBlock& producer : producers) {
      try {
        SetReduction(producer);
        FuseNamed();
        FuseAll();
        return;
      } catch (const Refusal& reason) {
        refusal = reason;
      }
    }
    throw *refusal;
  }

  // The block of this call. If it already is where it belongs, whatever follows it may have work
  // left, as for a call that names the reduction.
  void FuseNamed() {
    try {
      FuseOne(block_);
    } catch (const Refusal& reason) {
      if (reason.code != Code::kAlreadyFused) throw;
      try {
        FuseAll();
      } catch (const Refusal&) {
        throw reason;
      }
    }
  }

  // Whether the block of this call is the next one that a call on the reduction would fuse.
  bool IsFirstCandidate() {
    try {
      std::vector<const Site*> candidates = Candidates(CurrentScope(), *CurrentRegion());
      return !candidates.empty() && candidates[0]->block().same_as(block_);
    } catch (const Refusal&) {
      return false;
    }
  }

  // Whether a call that names \p reduction would fuse the block of this one.
  bool WouldFuse(const SBlock& reduction) {
    std::unique_ptr<Ground> copy = ground_->Copy();
    Fuser trial(copy.get(), reduction, report.options);
    try {
      trial.Run(std::nullopt);
    } catch (const Refusal&) {
      return false;
    }
    for (const FusionStep& step : trial.report.steps) {
      if (step.epilogue.same_as(block_)) return true;
    }
    return false;
  }

  void CarryOut(const FusionPlan& plan) {
    Fused fused = Fuse(CurrentScope(), plan);
    Record(plan);
    BlockReuse reuse;
    for (const auto& [old, now] : fused.blocks) {
      reuse.Set(old, now);
      if (!old.same_as(reduction_)) continue;
      proved_init_ = plan.region.reduction.init;
      if (declared_.defined()) continue;
      declared_ = old;
      declared_result_ = plan.region.reduction.accumulator;
    }
    Replace(fused.scope_root, reuse);
    if (fused.tail) tails_.emplace(fused.tail->block.get(), *fused.tail);
  }

  void Replace(const SBlock& root, const BlockReuse& reuse) {
    ground_->Replace(root, reuse);
    auto now = reuse.find(reduction_);
    if (now != reuse.end()) reduction_ = SBlock((*now).second);
    region_.reset();
    if (scope_) previous_ = std::move(scope_);
  }

  static FusionStep StepOf(const Site& site, const Var& output, const AxisMap& map,
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
  FusionStep* StepThatMade(const Var& output) {
    for (FusionStep& step : report.steps) {
      if (step.output.same_as(output)) return &step;
    }
    return nullptr;
  }

  void Record(const FusionPlan& plan) {
    const Reduction& reduction = plan.region.reduction;
    if (!report.before) {
      report.before = reduction;
      report.before->site = nullptr;  // it goes with its scope
      report.reduction = reduction.site->block().name_hint();
      LoopProof proof = ProofOf(*reduction.site, plan.region.loops);
      report.loops = proof.loops;
      report.inverse = proof.inverse;
    }
    for (const Tail* merged : plan.merged) {
      report.removed.push_back(merged->output);
      FusionStep* maker = StepThatMade(merged->output);
      if (maker == nullptr) {
        // It stood there before the call.
        report.steps.push_back(
            StepOf(*merged->site, merged->output, merged->proof->first, merged->proof->second));
        maker = &report.steps.back();
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
      report.removed.push_back(reduction.accumulator);
    }
    report.steps.push_back(step);
    report.result =
        plan.gone ? Produced{plan.epilogue.output, plan.indices} : plan.region.produced[0];
    report.init = ApplyAll(plan.peeled.steps, reduction.init);
  }

  Ground* ground_;
  SBlock block_;
  SBlock reduction_;
  // Of the present state, once somebody has asked for them.
  std::unique_ptr<Scope> scope_;
  // Of the state before, until the present one's is made of it.
  std::unique_ptr<Scope> previous_;
  std::optional<Region> region_;
  KnownTails tails_;
  std::optional<KnownLoops> loops_;
  // The init before the last step, which has proved it.
  Expr proved_init_;
  // The reduction before the call has changed it, from then on, and the buffer that it wrote.
  SBlock declared_;
  Var declared_result_;
};

}  // namespace

FusionReport RunFusion(Ground* ground, const SBlock& block, const std::optional<SBlock>& epilogue,
                       const Options& options) {
  Fuser fuser(ground, block, options);
  fuser.Run(epilogue);
  fuser.Finish();
  if (ground->IsShared()) ReportAsMap(fuser.report);  // fails before anything has changed
  ground->Commit();
  return fuser.report;
}

}  // namespace fuse_epilogue
