#include "analysis/common_loops.h"

#include "analysis/block_loops.h"
#include "analysis/refusal.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

void CheckCompleteSums(const Reduction& reduction, const Epilogue& epilogue, size_t common_steps) {
  VarSet reduce_loops = ReductionLoops(reduction);
  std::vector<For> loops = reduction.site->Loops();
  size_t num_shared = loops.size() - reduction.site->Loops(common_steps).size();
  for (size_t i = 0; i < num_shared; ++i) {
    if (reduce_loops.count(loops[i].loop_var().get()) && !IsConst(loops[i].extent(), 1)) {
      Refuse(Code::kSharedLoops, epilogue.site->block(),
             "block " + Quoted(epilogue.site->block()) + " is inside reduction loop " +
                 Quoted(loops[i].loop_var()) + " of block " + Quoted(reduction.site->block()) +
                 ", where the sums are not complete",
             {loops[i]});
    }
  }
}

void CheckSharedLoops(const Reduction& reduction, const InjectiveMap& reduction_loops,
                      const Epilogue& epilogue, const InjectiveMap& epilogue_loops,
                      const AxisMap& axes, size_t common_steps) {
  std::vector<For> loops = reduction.site->Loops();
  size_t num_shared = loops.size() - reduction.site->Loops(common_steps).size();
  if (num_shared == 0) return;
  SBlock producer = reduction.site->block();
  SBlock consumer = epilogue.site->block();

  auto vars_of = [](const SBlock& block) {
    ffi::Array<Expr> vars;
    for (const IterVar& iter : block.iter_vars()) vars.push_back(iter.var());
    return vars;
  };
  auto computed = reduction_loops.Inverse(vars_of(producer));
  auto consumed = epilogue_loops.Inverse(vars_of(consumer));
  Prover prover(reduction.spatial);
  VarSet reduce_vars;
  for (const Axis& axis : reduction.reduce) {
    prover.Bind(axis);
    reduce_vars.insert(axis.var.get());
  }
  for (size_t i = 0; i < num_shared; ++i) {
    if (IsConst(loops[i].extent(), 1)) continue;
    bool equal = false;
    if (computed && consumed) {
      Expr at_reduction = prover.Simplify((*computed)[i]);
      equal = !UsesAny(at_reduction, reduce_vars) &&
              prover.Equal(at_reduction, Substitute((*consumed)[i], axes.axes()));
    }
    if (!equal) {
      Refuse(Code::kSharedLoops, consumer,
             "blocks " + Quoted(producer) + " and " + Quoted(consumer) + " share loop " +
                 Quoted(loops[i].loop_var()),
             {loops[i]});
    }
  }
}

}  // namespace fuse_epilogue
