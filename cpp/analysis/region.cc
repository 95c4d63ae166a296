#include "analysis/region.h"

#include <algorithm>

#include "analysis/block_loops.h"
#include "analysis/common_loops.h"
#include "analysis/hazards.h"
#include "analysis/purity.h"
#include "analysis/refusal.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// Whether more than one iteration runs of a step, as far as is known.
bool Repeats(const Step& step) {
  auto loop = As<For>(step.stmt);
  return loop && !IsConst(loop->extent(), 1);
}

// With the innermost loop in front of it that repeats, if another one does outside of that.
size_t WithRow(const std::vector<Step>& path, size_t nest) {
  size_t row = nest;
  while (row > 0 && path[row - 1].stmt.kind() == NodeKind::kFor) {
    if (!Repeats(path[--row])) continue;
    bool others = std::any_of(path.begin(), path.begin() + row, Repeats);
    return others ? row : nest;
  }
  return nest;
}

Place PlaceOf(const Reduction& reduction, bool rows) {
  const std::vector<Step>& path = reduction.site->path;
  VarSet reduce_loops = ReductionLoops(reduction);
  size_t nest = 0;
  while (nest < path.size()) {
    auto loop = As<For>(path[nest].stmt);
    if (loop && (reduce_loops.count(loop->loop_var().get()) || loop->kind() == kVectorized)) break;
    ++nest;
  }
  if (rows) nest = WithRow(path, nest);
  return Place{nest, nest > 0 && path[nest - 1].stmt.kind() == NodeKind::kSeqStmt};
}

// A block at the place as a tail, or nothing if it is something else.
std::optional<Tail> MatchTail(const Scope& scope, const Region& region, const Site& site) {
  try {
    const Reduction& reduction = region.reduction;
    Epilogue epilogue = MatchEpilogue(scope, site, reduction);
    // Its value may come to be computed elsewhere, within that of a later consumer.
    CheckPure(site.block());
    InjectiveMap loops = CheckEpilogueLoops(epilogue);
    AxisMap axes = MatchElements(reduction, region.produced, epilogue);
    CheckSharedLoops(reduction, region.loops, epilogue, loops, axes,
                     CommonSteps(*reduction.site, site));
    CheckOnlyWriter(scope, epilogue.output, site);
    CheckNoPointer(scope, epilogue.output, site);
    return Tail{&site, epilogue.output, axes.Apply(epilogue.out_indices),
                axes.Apply(epilogue.value), std::make_pair(axes, loops)};
  } catch (const Refusal&) {
    return std::nullopt;
  }
}

std::optional<Tail> KnownAt(const Site& site, const KnownTails& known) {
  auto one = known.find(site.block().get());
  if (one == known.end()) return std::nullopt;
  const KnownTail& tail = one->second;
  return Tail{&site, tail.output, tail.indices, tail.value, std::nullopt};
}

}  // namespace

bool Place::Holds(const Site& site, const Site& reduction) const {
  if (!in_sequence || !site.is_block() || site.path.size() < nest) return false;
  return CommonSteps(site, reduction) == nest - 1 &&
         site.path[nest - 1].stmt.same_as(reduction.path[nest - 1].stmt) &&
         ChildOf(site) > ChildOf(reduction);
}

bool KnownLoops::HoldFor(const Site& site) const {
  SBlockRealize other = site.realize;
  std::vector<For> others = site.Loops();
  auto same_loop = [](const For& a, const For& b) {
    return a.loop_var().same_as(b.loop_var()) && a.min().same_as(b.min()) &&
           a.extent().same_as(b.extent()) && a.kind() == b.kind() &&
           ObjectIn(a.step()) == ObjectIn(b.step());
  };
  return realize.block().iter_vars().same_as(other.block().iter_vars()) &&
         realize.iter_values().same_as(other.iter_values()) &&
         realize.predicate().same_as(other.predicate()) &&
         std::equal(loops.begin(), loops.end(), others.begin(), others.end(), same_loop);
}

Region FindRegion(const Scope& scope, const Site& site, const KnownTails& known,
                  const std::optional<KnownLoops>& known_loops, const Expr& proved_init,
                  bool rows) {
  Reduction reduction = MatchReduction(site, proved_init);
  CheckNoPointer(scope, reduction.accumulator, site);
  CheckOnlyWriter(scope, reduction.accumulator, site);
  bool proved = known_loops && known_loops->HoldFor(site);
  InjectiveMap loops = proved ? known_loops->map : CheckReductionLoops(reduction);
  Region region{reduction, loops, PlaceOf(reduction, rows), {}, {}};
  region.produced.push_back({reduction.accumulator, reduction.indices});
  VarSet produced{reduction.accumulator.get()};
  for (const Site& other : scope.sites) {
    if (!region.place.Holds(other, site) || !other.ReadsAny(produced)) continue;
    auto tail = KnownAt(other, known);
    if (!tail) tail = MatchTail(scope, region, other);
    if (tail) {
      produced.insert(tail->output.get());
      region.produced.push_back({tail->output, tail->indices});
      region.tails.push_back(*tail);
    }
  }
  return region;
}

std::vector<const Site*> ReadersOf(const Scope& scope, const Site& reduction, const Var& buffer) {
  std::vector<const Site*> readers;
  for (const Site& site : scope.sites) {
    if (&site != &reduction && site.Touches(buffer.get(), Use::kRead)) readers.push_back(&site);
  }
  return readers;
}

bool Owns(const SBlock& root, const Var& buffer) {
  for (const Var& owned : root.alloc_buffers()) {
    if (owned.same_as(buffer)) return true;
  }
  return false;
}

}  // namespace fuse_epilogue
