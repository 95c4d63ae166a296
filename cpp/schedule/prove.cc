#include "schedule/prove.h"

#include <algorithm>

#include "analysis/assumptions.h"
#include "analysis/block_loops.h"
#include "analysis/common_loops.h"
#include "analysis/folding.h"
#include "analysis/guarded.h"
#include "analysis/hoisting.h"
#include "analysis/library.h"
#include "analysis/lifetime.h"
#include "analysis/purity.h"
#include "analysis/refusal.h"
#include "analysis/views.h"
#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// Puts an expression in the place of every load of a buffer.
class LoadReplacer : public StmtExprMutator {
 public:
  LoadReplacer(const Var& buffer, const Expr& value) : buffer_(buffer), value_(value) {}

 protected:
  using StmtExprMutator::VisitExpr_;
  Expr VisitExpr_(const TensorLoad& op) override {
    return op.source().same_as(buffer_) ? value_ : StmtExprMutator::VisitExpr_(op);
  }

 private:
  Var buffer_;
  Expr value_;
};

// A scope inside another block: outside of it, pointers and aliases may have
// been taken as well.
bool AliasedOutside(const Surroundings& around, const std::vector<const Site*>& users) {
  VarSet used;
  for (const Site* site : users) {
    for (const Access& access : site->accesses) used.insert(access.buffer);
  }
  if (HasTwoNames(around.root, around.scope, used)) return true;
  if (around.root.same_as(around.scope.root)) return false;
  const Scope whole(around.root);
  return std::any_of(whole.sites.begin(), whole.sites.end(), [&](const Site& site) {
    return std::any_of(site.accesses.begin(), site.accesses.end(), [&](const Access& access) {
      return access.use == Use::kOpaque && used.count(access.buffer) > 0;
    });
  });
}

void CheckNoAliasOutside(const Surroundings& around, const Reduction& reduction,
                         const Epilogue& epilogue) {
  if (!AliasedOutside(around, {reduction.site, epilogue.site})) return;
  SBlock block = epilogue.site->block();
  Refuse(Code::kOpaqueAccess, block,
         "a buffer of block " + Quoted(block) +
             " is used through its address, or as a matched region");
}

// Memories in which single elements may be loaded, stored and computed with.
bool IsPlainMemory(const std::string& scope) {
  for (const char* plain : {"", "global", "shared", "shared.dyn", "local"}) {
    if (scope == plain) return true;
  }
  return false;
}

void CheckStorage(const Reduction& reduction, const Epilogue& epilogue) {
  std::string sum = ir::ScopeOf(reduction.accumulator), output = ir::ScopeOf(epilogue.output);
  if (sum == output || (IsPlainMemory(sum) && IsPlainMemory(output))) return;
  Refuse(Code::kStorageScope, epilogue.site->block(),
         "the result " + Quoted(reduction.accumulator) + " of block " +
             Quoted(reduction.site->block()) + " is in '" + sum + "' and " +
             Quoted(epilogue.output) + " in '" + output + "'");
}

// Expressions of these types are computed in float32 and rounded where they are
// stored: without the store, a rounding would be missing.
bool StoreRounds(const Var& buffer) {
  DLDataType dtype = BufferTypeOf(buffer).dtype().dtype();
  return IsFloat(dtype) && dtype.code != kDLFloat;
}

class NodeCounter : public StmtExprVisitor {
 public:
  size_t count = 0;

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const Var&) override { ++count; }
  void VisitExpr_(const Call& op) override { Count(op); }
  void VisitExpr_(const TensorLoad& op) override { Count(op); }
  void VisitOther(const Node& op) override { Count(op); }

 private:
  void Count(const Node& op) {
    ++count;
    VisitChildren(op);
  }
};

// What is merged is simplified again with each step, here and by TVM, in a time that grows with the
// square of its depth. Some thirty steps fit, and a longer chain becomes several tails.
constexpr size_t kMostMergedNodes = 256;

bool IsTooLarge(const Expr& f, const Expr& value) {
  NodeCounter counter;
  counter(f);
  counter(value);
  return counter.count > kMostMergedNodes;
}

// Whether the value of a tail may stand in the consumer instead of the load of
// its output.
bool MayMerge(const Surroundings& around, const Region& region, const Tail& tail,
              const Site& consumer, const Expr& f, bool rows) {
  if (LoadsOf(f, tail.output).size() != 1) return false;  // it would be computed twice
  // On rows, what stands in the loop of a call may lose its vectors.
  if (rows && (CallsLibrary(f) || CallsLibrary(tail.value))) return false;
  if (IsTooLarge(f, tail.value)) return false;
  auto keeps = [](Decision decision, bool needed) { return needed && !IsSwitchedOff(decision); };
  if (keeps(Decision::kMergedForTheCaller, !Owns(around.scope.root, tail.output)) ||
      keeps(Decision::kMergedRounding, StoreRounds(tail.output)) ||
      keeps(Decision::kMergedInPlace, !LoadsOf(tail.value, tail.output).empty())) {
    return false;
  }
  Var hole = MakeVar("y", tail.value);
  Expr with_hole = LoadReplacer(tail.output, hole).Rewrite(f);
  if (keeps(Decision::kMergedFolded,
            FoldsTogether(with_hole, hole, tail.value, region.reduction.spatial))) {
    return false;
  }
  for (const Site* reader : ReadersOf(around.scope, *tail.site, tail.output)) {
    if (keeps(Decision::kMergedForAReader, reader != &consumer)) return false;
  }
  // What it reads it would read elsewhere: in the init, or later. What stands
  // at the place of the tails stays where it is; all else goes after the last
  // of them.
  std::vector<Produced> produced{region.produced[0]};
  for (size_t i = 0; i < region.tails.size() && region.tails[i].site != tail.site; ++i) {
    produced.push_back(region.produced[i + 1]);
  }
  bool stays = region.place.Holds(consumer, *region.reduction.site);
  const Site& last = stays ? consumer : *region.tails.back().site;
  bool same = ReadsTheSame(around.scope, region.reduction, produced, *tail.site, last) &&
              !AliasedOutside(around, {tail.site});
  return !keeps(Decision::kMergedPastAStore, !same);
}

// Why nothing may be peeled off, because others see the accumulator; empty if
// it may.
std::string WhyKept(const Surroundings& around, const FusionPlan& plan) {
  const Reduction& reduction = plan.region.reduction;
  const Var& accumulator = reduction.accumulator;
  if (InitUses(reduction, accumulator) && !IsSwitchedOff(Decision::kKeptForItsInit)) {
    return "it cannot be absorbed, because the init of " + Quoted(reduction.site->block()) +
           " reads " + Quoted(accumulator);
  }
  if (!Owns(around.scope.root, accumulator) && !IsSwitchedOff(Decision::kKeptForTheCaller)) {
    return "it cannot be absorbed, because the caller, or another scope, may "
           "read " +
           Quoted(accumulator) + " as it is";
  }
  for (const Site* reader : ReadersOf(around.scope, *reduction.site, accumulator)) {
    bool merged = reader == plan.epilogue.site;
    for (const Tail* tail : plan.merged) merged = merged || tail->site == reader;
    if (merged || IsSwitchedOff(Decision::kKeptForAReader)) continue;
    std::string who = reader->is_block() ? Quoted(reader->block()) : "a statement";
    return "it cannot be absorbed, because " + who + " reads " + Quoted(accumulator) + " as it is";
  }
  return "";
}

// Why the reduction cannot accumulate in the output, though nothing else is
// left to do.
std::string WhyCopied(const FusionPlan& plan) {
  const Reduction& reduction = plan.region.reduction;
  const Var& output = plan.epilogue.output;
  if (ir::ScopeOf(reduction.accumulator) != ir::ScopeOf(output)) {
    return Quoted(output) + " is in another memory than " + Quoted(reduction.accumulator);
  }
  // TVM keeps such a buffer in float32 if the function allocates it, but not if
  // it is a parameter.
  if (reduction.monoid->rounds && StoreRounds(reduction.accumulator) &&
      !IsSwitchedOff(Decision::kRoundsInEveryStep)) {
    return "every store to " + Quoted(output) + " rounds, also those of the steps on the way";
  }
  return "";
}

// An alignment counts the buffers that a block stores to, and their axes: it would be that of
// another buffer.
void CheckNotAligned(const SBlock& reduction, const SBlock& consumer) {
  auto annotations = ObjectIn(reduction.annotations());
  if (!annotations) return;
  auto map = annotations->as<ffi::Map<ffi::String, ffi::Any>>();
  if (!map || map->count(kBufferDimAlign) == 0) return;
  Refuse(Code::kStorageAlign, reduction,
         "block " + Quoted(reduction) + " has the annotation " + kBufferDimAlign +
             ", and would accumulate in what block " + Quoted(consumer) + " stores");
}

// The region as it is at the consumer's place: without the tails after it,
// and itself.
Region Before(const Region& region, const Site& consumer) {
  Region before{region.reduction, region.loops, region.place, {}, {region.produced[0]}};
  for (size_t i = 0; i < region.tails.size(); ++i) {
    if (region.tails[i].site->position >= consumer.position) continue;
    before.tails.push_back(region.tails[i]);
    before.produced.push_back(region.produced[i + 1]);
  }
  return before;
}

// A tail goes after the vectorized loops around the reduction loops. What
// stands inside of them would have to wait for that, and others in there might
// wait for it.
void CheckNotInVectors(const Region& region, const Site& consumer, size_t shared) {
  if (shared <= region.place.nest) return;
  For loop(region.reduction.site->path[region.place.nest].stmt);
  Refuse(Code::kSharedLoops, consumer.block(),
         "blocks " + Quoted(region.reduction.site->block()) + " and " + Quoted(consumer.block()) +
             " share the vectorized loop " + Quoted(loop.loop_var()),
         {loop});
}

bool Reads(const Site& site, const std::vector<Produced>& produced) {
  return std::any_of(produced.begin(), produced.end(), [&](const Produced& one) {
    return site.Touches(one.buffer.get(), Use::kRead);
  });
}

// The epilogue's value in the reduction's axes and the hole, with earlier tails
// merged into it.
Expr Compose(const Surroundings& around, FusionPlan* plan, bool rows) {
  const Region& region = plan->region;
  Expr f = plan->axes.Apply(plan->epilogue.value);
  VarSet used = VarsIn(f);
  for (auto tail = region.tails.rbegin(); tail != region.tails.rend(); ++tail) {
    if (!used.count(tail->output.get())) continue;
    if (!MayMerge(around, region, *tail, *plan->epilogue.site, f, rows)) continue;
    f = LoadReplacer(tail->output, tail->value).Rewrite(f);
    used.merge(VarsIn(tail->value));
    plan->merged.push_back(&*tail);
  }
  const Reduction& reduction = region.reduction;
  std::vector<Expr> assumptions = AssumptionsBefore(*reduction.site);
  // A division by the finished element loads it, and stays.
  f = PinDivisions(f, {reduction.init, reduction.update}, assumptions);
  f = LoadReplacer(reduction.accumulator, plan->hole).Rewrite(f);
  return MakeChoicesLazy(f, reduction.spatial, assumptions);
}

}  // namespace

FusionPlan Prove(const Surroundings& around, const Region& full, const Site& consumer,
                 const Options& options) {
  Region region = Before(full, consumer);
  const Reduction& reduction = full.reduction;
  const Site& producer = *reduction.site;
  SBlock block = consumer.block();
  if (&consumer == &producer || !Reads(consumer, region.produced)) {
    throw Refusal(Code::kWrongPair, block,
                  "block " + Quoted(block) + " does not read " + Quoted(reduction.accumulator) +
                      ", the result of block " + Quoted(producer.block()));
  }
  // What the two blocks are, and where they stand.
  Epilogue epilogue = MatchEpilogue(around.scope, consumer, reduction);
  CheckStructure(around.scope, producer, consumer);
  CheckPure(block);
  // It may raise, or see what the epilogue stores: nothing may move over it.
  CheckPure(producer.block(), reduction.proved_init);
  CheckStorage(reduction, epilogue);
  // The same elements, each once, in the same iterations.
  size_t shared = CommonSteps(producer, consumer);
  CheckCompleteSums(reduction, epilogue, shared);
  InjectiveMap epilogue_loops = CheckEpilogueLoops(epilogue);
  AxisMap axes = MatchElements(reduction, region.produced, epilogue);
  CheckSharedLoops(reduction, region.loops, epilogue, epilogue_loops, axes, shared);
  // Nobody sees the difference.
  CheckHazards(around.scope, reduction, region.produced, epilogue, around.region_cover);
  CheckNoAliasOutside(around, reduction, epilogue);

  FusionPlan plan{std::move(region),
                  epilogue,
                  epilogue_loops,
                  axes,
                  axes.Apply(epilogue.out_indices),
                  MakeVar("x", MakeLoad(reduction.accumulator, reduction.indices)),
                  {},
                  {},
                  false};
  // Site pointers stay, but the tails are the plan's own from here on.
  Expr f = Compose(around, &plan, options.rows);
  std::string kept = UsesAny(f, {plan.hole.get()}) ? WhyKept(around, plan)
                                                   : std::string("it works on what a tail stores");
  if (kept.empty()) {
    plan.peeled = Peel(f, plan.hole, plan.region.reduction, options, epilogue);
    if (plan.peeled.rest.same_as(plan.hole)) plan.peeled.reason = WhyCopied(plan);
    plan.gone = plan.peeled.reason.empty();
  } else {
    plan.peeled = Peeled{{}, f, kept};
  }
  if (plan.gone) CheckNotAligned(producer.block(), block);
  if (!plan.gone) {
    CheckLifetimes(around.scope, around.root, full, consumer, plan.merged, around.region_cover);
  }
  if (!plan.gone) CheckNotInVectors(plan.region, consumer, shared);
  CheckNotPipelined(producer, plan.gone ? shared : std::max(shared, full.place.nest), block);
  bool in_place = full.place.Holds(consumer, producer);
  if (in_place && !plan.gone && plan.peeled.steps.empty() && plan.merged.empty()) {
    throw Refusal(Code::kAlreadyFused, block,
                  "block " + Quoted(block) + " is after the reduction loops of block " +
                      Quoted(producer.block()));
  }
  return plan;
}

}  // namespace fuse_epilogue
