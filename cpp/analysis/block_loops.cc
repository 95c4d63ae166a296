#include "analysis/block_loops.h"

#include "analysis/refusal.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

std::vector<Axis> AxesOf(const std::vector<For>& loops, const SBlock& block, Code code) {
  std::vector<Axis> axes;
  for (const For& loop : loops) {
    auto step = ObjectIn(loop.step());
    if (step && !IsConst(Expr(*step), 1)) {
      Refuse(code, block, "block " + Quoted(block) + " is in a loop with a step", {loop});
    }
    axes.push_back(Axis{loop.loop_var(), loop.min(), loop.extent()});
  }
  return axes;
}

// A domain with a load or a call in it need not be the same for both blocks.
void CheckFixedDomain(const Axis& axis, const SBlock& block, Code code) {
  if (ReadsMemory(axis.min) || ReadsMemory(axis.extent)) {
    Refuse(code, block,
           "the extent of " + Quoted(axis.var) + " around block " + Quoted(block) +
               " is read from memory or called for: " + Print(axis.extent));
  }
}

// TVM's detection uses the conditions that bound an axis and passes over others, such as
// i // 2 < 2. So the predicate is proved here: for every point of the block's domain, at the loop
// iteration that the inverse of the bindings gives.
void CheckPredicate(const Site& site, const std::vector<Axis>& loops, const InjectiveMap& map,
                    Code code) {
  SBlock block = site.block();
  Expr predicate = site.realize.predicate();
  if (IsConst(predicate, 1)) return;
  ffi::Array<Expr> vars;
  Prover prover;
  for (const IterVar& iter : block.iter_vars()) {
    vars.push_back(iter.var());
    prover.Bind(Axis{iter.var(), iter.dom().min(), iter.dom().extent()});
  }
  Substitution iteration;
  if (auto inverse = map.Inverse(vars)) {
    for (size_t i = 0; i < loops.size(); ++i) iteration[loops[i].var.get()] = (*inverse)[i];
  }
  for (const Expr& condition : Conjuncts(predicate)) {
    if (iteration.size() != loops.size() || !prover.True(Substitute(condition, iteration))) {
      Refuse(code, block, "block " + Quoted(block) + " runs only where " + Print(condition),
             {condition});
    }
  }
}

bool CoversDomain(const InjectiveMap& map, const SBlock& block, const Prover& prover) {
  size_t i = 0;
  for (const IterVar& iter : block.iter_vars()) {
    if (!map.Covers(i++, iter.dom().min(), iter.dom().extent(), prover)) return false;
  }
  return true;
}

// Those conditions of a predicate that say of a binding that it is below a bound.
ffi::Any BoundsOfAxes(const Site& site) {
  ffi::Any bounds = true;
  for (const Expr& condition : Conjuncts(site.realize.predicate())) {
    auto less = As<Less>(condition);
    if (!less) continue;
    for (const Expr& value : site.realize.iter_values()) {
      if (!DeepEqual(value, less->a())) continue;
      auto before = bounds.as<Expr>();
      bounds = before ? CallGlobal(Fn::And, *before, condition, nullptr) : ffi::Any(condition);
      break;
    }
  }
  return bounds;
}

// The bindings of a block as an injective map of its loops that covers the block's domain.
InjectiveMap CheckVisits(const Site& site, Code code) {
  SBlock block = site.block();
  std::vector<Axis> loops = AxesOf(site.Loops(), block, code);
  Prover prover(loops);
  auto values = site.realize.iter_values();
  auto detect = [&](const ffi::Any& predicate) {
    return InjectiveMap::Detect(values, loops, predicate);
  };
  auto map = detect(site.realize.predicate());
  if (!map || !CoversDomain(*map, block, prover)) {
    // Of several conditions on one axis TVM takes the extent of what is left to be their minimum.
    // Without those that bound no axis it is injective in more points, of which the domain needs
    // all; that these conditions hold there is proved below.
    if (auto fewer = detect(BoundsOfAxes(site))) map = fewer;
  }
  if (!map) {
    throw Refusal(
        code, block,
        "the bindings of block " + Quoted(block) + " are not a one-to-one affine map of its loops");
  }
  for (const Axis& loop : loops) CheckFixedDomain(loop, block, code);
  for (const IterVar& iter : block.iter_vars()) {
    CheckFixedDomain(Axis{iter.var(), iter.dom().min(), iter.dom().extent()}, block, code);
  }
  size_t i = 0;
  for (const IterVar& iter : block.iter_vars()) {
    if (!map->Covers(i++, iter.dom().min(), iter.dom().extent(), prover)) {
      Refuse(code, block,
             "the loops of block " + Quoted(block) + " do not give axis " + Quoted(iter.var()) +
                 " exactly the values of its domain");
    }
  }
  CheckPredicate(site, loops, *map, code);
  return *map;
}

// Whether a predicate that lets some step of an element pass lets the first one pass.
bool HoldsFirst(const Expr& condition, const Substitution& first, const VarSet& reduce_loops,
                const Prover& prover) {
  if (prover.True(Substitute(condition, first))) return true;
  // a(step) < b with a(first) <= a(step): the tail of a split by a factor that need not divide.
  auto less = As<Less>(condition);
  return less && !UsesAny(less->b(), reduce_loops) &&
         prover.LessEqual(Substitute(less->a(), first), less->a());
}

// T.init fires at the points where every reduction axis is at its minimum. The bindings are
// injective, so there is one such point for each element; it must be the first that is visited.
//  (a) Loops of the reduction axes alone: where all of them are at their start, the axes must be at
//      their minima. No order of the loops visits anything before that point.
//  (b) A loop that a spatial axis shares (fused loops): axes that are digits of single loops. The
//      point with the reduction digits 0 has no loop above any other point of its element.
// In both, no predicate may cut that point off while it lets another one pass.
void CheckInitFirst(const Reduction& reduction, const InjectiveMap& map) {
  const Site& site = *reduction.site;
  SBlock block = site.block();
  auto values = site.realize.iter_values();
  auto iters = block.iter_vars();
  VarSet reduce_loops = ReductionLoops(reduction);
  Substitution first;
  Prover prover;
  for (const For& loop : site.Loops()) {
    prover.Bind(Axis{loop.loop_var(), loop.min(), loop.extent()});
    if (!reduce_loops.count(loop.loop_var().get())) continue;
    first[loop.loop_var().get()] = loop.min();
    if (loop.kind() != kSerial && loop.kind() != kUnrolled) {
      Refuse(Code::kReductionLoopKind, block,
             "reduction loop " + Quoted(loop.loop_var()) + " of block " + Quoted(block) +
                 " is not serial",
             {loop});
    }
  }
  bool shared = false;
  for (size_t i = 0; i < iters.size(); ++i) {
    shared = shared || (iters[i].iter_type() == kDataPar && UsesAny(values[i], reduce_loops));
  }
  for (size_t i = 0; i < iters.size(); ++i) {
    if (iters[i].iter_type() != kCommReduce) continue;
    bool starts =
        shared ? map.IsDigits(i) : prover.Equal(Substitute(values[i], first), iters[i].dom().min());
    if (!starts) {
      Refuse(Code::kReductionOrder, block,
             "axis " + Quoted(iters[i].var()) + " of block " + Quoted(block) + ", bound to " +
                 Print(values[i]) + ", need not start at its minimum");
    }
  }
  for (const Expr& condition : Conjuncts(site.realize.predicate())) {
    if (!UsesAny(condition, reduce_loops)) continue;
    if (shared || !HoldsFirst(condition, first, reduce_loops, prover)) {
      Refuse(Code::kReductionOrder, block,
             "the predicate of block " + Quoted(block) +
                 " may cut off the first reduction step: " + Print(condition),
             {condition});
    }
  }
}

}  // namespace

VarSet ReductionLoops(const Reduction& reduction) {
  VarSet loops;
  auto values = reduction.site->realize.iter_values();
  size_t i = 0;
  for (const IterVar& iter : reduction.site->block().iter_vars()) {
    Expr value = values[i++];
    if (iter.iter_type() != kCommReduce) continue;
    VarSet vars = VarsIn(value);
    loops.insert(vars.begin(), vars.end());
  }
  return loops;
}

InjectiveMap CheckReductionLoops(const Reduction& reduction) {
  InjectiveMap map = CheckVisits(*reduction.site, Code::kReductionDomain);
  CheckInitFirst(reduction, map);
  return map;
}

InjectiveMap CheckEpilogueLoops(const Epilogue& epilogue) {
  return CheckVisits(*epilogue.site, Code::kConsumerDomain);
}

}  // namespace fuse_epilogue
