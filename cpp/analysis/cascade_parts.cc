#include "analysis/cascade_parts.h"

#include <string>

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

bool StartsAgain(const CascadeStage& stage) {
  return stage.Is(MonoidId::kMax) || stage.Is(MonoidId::kMin);
}

void CheckStage(const CascadeStage& stage, const CascadeOptions& options) {
  SBlock block = stage.block();
  if (stage.IsOneOfSeveral()) {
    throw Refusal(Code::kCascadeParts, block,
                  "block " + Quoted(block) + " reduces several values at once");
  }
  if (!stage.Is(MonoidId::kSum) && !StartsAgain(stage)) {
    throw Refusal(Code::kCascadeParts, block,
                  "block " + Quoted(block) + " is a " + stage.combiner());
  }
  if (options.exact && IsFloat(DTypeOf(stage.term))) {
    Refuse(Code::kCascadeExact, block,
           "block " + Quoted(block) + " would combine floats in another order");
  }
}

}  // namespace

void DivideIntoParts(const CascadeOptions& options, Cascade* cascade) {
  for (CascadeStage& stage : cascade->stages) {
    CheckStage(stage, options);
    if (stage.Is(MonoidId::kSum) && IsFloat(DTypeOf(stage.term))) {
      stage.guards.push_back("finite-parts");
    }
  }
}

Expr StartOfPart(const CascadeStage& stage) {
  return StartsAgain(stage) ? stage.state_init : MakeZero(stage.term);
}

}  // namespace fuse_epilogue
