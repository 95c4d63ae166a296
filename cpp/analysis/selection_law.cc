#include "analysis/selection_law.h"

#include <limits>
#include <string>
#include <vector>

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// Not so a sum: infinities of opposite signs add to NaN, over which a maximum passes, and of
// integers each term wraps around by itself.
bool CommutesWith(const Expr& node) {
  return node.kind() == NodeKind::kMax || node.kind() == NodeKind::kMin;
}

// The identity of the maximum or minimum.
Expr Worst(const CascadeStage& stage) {
  bool is_max = stage.reduction.monoid->id == MonoidId::kMax;
  DLDataType dtype = DTypeOf(stage.term);
  if (IsFloat(dtype)) {
    double infinity = std::numeric_limits<double>::infinity();
    return MakeFloat(is_max ? -infinity : infinity, stage.term);
  }
  return CallGlobal(is_max ? Fn::MinValue : Fn::MaxValue, dtype, nullptr).cast<Expr>();
}

}  // namespace

void DeferSelection(const Cascade& cascade, CascadeStage* stage) {
  VarSet keys = cascade.KeyVars(), results = cascade.ValueVars();
  Expr rest = stage->term;
  std::vector<Expr> around;
  while (UsesAny(rest, results)) {
    auto operands = CommutesWith(rest) ? Operands(rest) : std::nullopt;
    if (!operands) break;
    bool left = UsesAny(operands->first, keys), right = UsesAny(operands->second, keys);
    if (left == right) break;
    around.push_back(rest);
    rest = left ? operands->first : operands->second;
  }
  if (UsesAny(rest, results)) {
    bool casts = rest.kind() == NodeKind::kCast;
    std::string what = casts ? std::string("casts in ")
                             : std::string("takes a ") + stage->combiner() +
                                   " of terms that read an earlier result in ";
    throw Refusal(casts ? Code::kCascadeCast : Code::kCascadeTerm, stage->block(),
                  "block " + Quoted(stage->block()) + " " + what + Print(rest));
  }
  stage->rule = Rule::kDefer;
  stage->step = rest;
  stage->correction = stage->accumulated;
  stage->state_init = Worst(*stage);
  Expr tail = around.empty() ? stage->finished : ReplacePart(around[0], rest, stage->finished);
  stage->tail = stage->reduction.monoid->make(stage->init, tail);
  stage->deferred = tail;
}

}  // namespace fuse_epilogue
