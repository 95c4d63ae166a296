#include "analysis/cascade_laws.h"

#include <string>

#include "analysis/selection_law.h"
#include "analysis/sum_law.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

void CheckAccumulator(const CascadeStage& stage, const CascadeOptions& options) {
  SBlock block = stage.block();
  DLDataType dtype = DTypeOf(stage.term);
  if (IsFloat(dtype) && dtype.bits < 32 && stage.reduction.monoid->rounds) {
    Refuse(Code::kCascadeNarrow, block,
           "block " + Quoted(block) + " accumulates in " + DTypeStr(dtype));
  }
  // A selection between floats, or by them, depends on the order where there are NaN.
  if (options.exact && IsFloat(dtype)) {
    Refuse(Code::kCascadeExact, block,
           "block " + Quoted(block) + " combines floats in another way than before");
  }
}

}  // namespace

void ApplyLaws(const Cascade& cascade, const CascadeOptions& options, CascadeStage* stage) {
  CheckAccumulator(*stage, options);
  switch (stage->reduction.monoid->id) {
    case MonoidId::kSum:
      return ApplyToSum(cascade, options, stage);
    case MonoidId::kMax:
    case MonoidId::kMin:
      return DeferSelection(cascade, stage);
    default:
      SBlock block = stage->block();
      throw Refusal(Code::kCascadeTerm, block,
                    "block " + Quoted(block) + " is a " + stage->combiner() +
                        ", whose terms read an earlier result");
  }
}

}  // namespace fuse_epilogue
