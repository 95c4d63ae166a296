#include "schedule/fuser.h"

#include <algorithm>
#include <memory>

#include "schedule/candidates.h"
#include "schedule/prove.h"
#include "schedule/recording.h"
#include "transform/privatize.h"
#include "transform/regions.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

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
    const Region* region = report.before ? CurrentRegion() : nullptr;
    if (region != nullptr) RecordOutcome(CurrentScope(), *region, &report);
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
    RecordFusion(plan, &report);
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
