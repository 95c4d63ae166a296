#include "analysis/law_checks.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "analysis/assumptions.h"
#include "analysis/cascade_start.h"
#include "analysis/defined.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

void LawChecks::Throw(Code code, const std::string& what) const {
  throw Refusal(code, block_, "block " + Quoted(block_) + " " + what);
}
void LawChecks::Check(Code code, const std::string& what) const {
  Refuse(code, block_, "block " + Quoted(block_) + " " + what);
}
const CascadeStage& LawChecks::CarrierOf(const RowFactor& factor) const {
  return cascade_.stages[factor.carrier];
}
std::string LawChecks::NameOf(const CascadeStage& carrier) const {
  return "the result " + Quoted(carrier.reduction.accumulator) + " of block " +
         Quoted(carrier.block());
}

void LawChecks::AddCarrier(size_t carrier) {
  std::vector<size_t>& all = stage_.carriers;
  if (std::find(all.begin(), all.end(), carrier) == all.end()) all.push_back(carrier);
}

bool LawChecks::CheckStart(const RowFactor& factor, const SplitTerm& split) const {
  const CascadeStage& carrier = CarrierOf(factor);
  if (carrier.tail) {
    Throw(Code::kCascadeTerm, "reads " + NameOf(carrier) + ", which is known only at the end");
  }
  if (carrier.Is(MonoidId::kSum)) {
    if (!IsConst(carrier.init, 0)) CheckKnownStart(carrier);
    return false;
  }
  if (StartsFinite(carrier)) return false;
  if (!StartsAtInfinity(carrier)) CheckKnownStart(carrier);
  if (factor.kind == FactorKind::kEquality && stage_.carriers.size() == 1) return false;
  auto is_known = [&](const RowFactor& each) {
    return each.kind == FactorKind::kOfRow || IsNaNAtStart(cascade_, each);
  };
  bool known = std::all_of(split.factors.begin(), split.factors.end(), is_known) &&
               std::all_of(split.also.begin(), split.also.end(), is_known);
  if (!known || stage_.carriers.size() != 1) CheckKnownStart(carrier);
  return true;
}

void LawChecks::CheckKnownStart(const CascadeStage& carrier) const {
  Check(Code::kCascadeStart, "reads " + NameOf(carrier) + ", which starts from " +
                                 Print(carrier.init) + ", in a way that is not known for a row " +
                                 "of such values alone");
}

// (x / r)^2 must not become x^2 / r^2, which overflows; after rolling, all is at most 1. Integers
// wrap, however many factors are taken out.
void LawChecks::CheckPowers(const std::vector<const RowFactor*>& deferred,
                            const std::vector<const RowFactor*>& rolled) const {
  if (!IsFloat(DTypeOf(stage_.term))) return;
  for (const RowFactor* factor : rolled) {
    if (factor->kind == FactorKind::kExponential) return;
  }
  for (const CascadeStage& carrier : cascade_.stages) {
    size_t power = 0;
    for (const RowFactor* factor : deferred) {
      power += UsesAny(factor->node, {carrier.value.get()});
    }
    if (power < 2) continue;
    Check(Code::kCascadeRange,
          "has " + NameOf(carrier) + " as a factor twice, which kept its terms in range");
  }
}

void LawChecks::CheckFactor(const RowFactor& factor) const {
  const CascadeStage& carrier = CarrierOf(factor);
  bool is_max = carrier.Is(MonoidId::kMax), is_min = carrier.Is(MonoidId::kMin);
  if (factor.kind == FactorKind::kEquality) {
    // After a NaN a maximum may fall, and have equals before it. A key is chosen once.
    bool compares_floats = IsFloat(DTypeOf(carrier.term));
    if (options_.exact && compares_floats) {
      Check(Code::kCascadeExact, "compares floats with " + NameOf(carrier));
    }
    CheckSame(factor);
    return;
  }
  if (!is_max && !is_min) {
    Throw(Code::kCascadeTerm,
          "reads " + NameOf(carrier) + ", a " + carrier.combiner() + ", in " + Print(factor.node));
  }
  double coefficient = factor.form.results[0].second;
  if (is_max ? coefficient >= 0 : coefficient <= 0) {
    Check(Code::kCascadeExpanding,
          "would multiply its sum by more than 1 as " + NameOf(carrier) + " changes");
  }
  CheckDominated(factor, factor.form, -coefficient);
  CheckScales(factor, factor.argument);
  CheckSeesEveryNaN(factor);
}

// 2 r is infinite where r is finite, but far from the final result: 2 x - 2 r would be NaN there.
void LawChecks::CheckScales(const RowFactor& factor, const Expr& expr) const {
  if (!UsesAny(expr, cascade_.ValueVars())) return;
  if (UsesAny(expr, cascade_.KeyVars())) {
    auto operands = *Operands(expr);
    CheckScales(factor, operands.first);
    return CheckScales(factor, operands.second);
  }
  auto form = LinearFormOf(cascade_, expr);
  for (const auto& [stage, scale] : form->results) {
    if (std::fabs(scale) <= 1) continue;
    Check(Code::kCascadeRange,
          "multiplies " + NameOf(cascade_.stages[stage]) + " in " + Print(expr) +
              ", which may overflow where it is not final: " + "multiply the difference instead");
  }
  if (auto operands = Operands(expr)) {
    CheckScales(factor, operands->first);
    CheckScales(factor, operands->second);
  }
}

void LawChecks::CheckSame(const RowFactor& factor) const {
  const CascadeStage& carrier = CarrierOf(factor);
  if (DeepEqual(factor.argument, carrier.term)) return;
  Expr taken = Resolve(cascade_.expand(carrier.term), factor.conditions);
  if (DeepEqual(Resolve(cascade_.expand(factor.argument), factor.conditions), taken)) return;
  RefuseRange(factor);
}

void LawChecks::RefuseRange(const RowFactor& factor) const {
  const CascadeStage& carrier = CarrierOf(factor);
  Check(Code::kCascadeRange, "computes " + Print(factor.node) + ", but " + NameOf(carrier) +
                                 " is taken over " + Print(carrier.term));
}

// The factor is in range at every partial result if its x is what the result is taken over.
void LawChecks::CheckDominated(const RowFactor& factor, const LinearForm& form,
                               double scale) const {
  const CascadeStage& carrier = CarrierOf(factor);
  auto taken = LinearFormOf(cascade_, carrier.term);
  if (taken && taken->terms.size() == 1 && IsMultiple(form, scale, *taken)) return;
  auto full = LinearFormOf(cascade_, Resolve(cascade_.expand(carrier.term), factor.conditions));
  LinearForm expanded;
  for (const auto& [c, expr] : form.terms) {
    auto part = LinearFormOf(cascade_, Resolve(cascade_.expand(expr), factor.conditions));
    for (const auto& [c2, e2] : part->terms) expanded.terms.emplace_back(c * c2, e2);
  }
  if (!full || !IsMultiple(expanded, scale, *full)) return RefuseRange(factor);
  CheckSameSum(factor, *full);
}

// Of a sum, x + (w - m) may round to more than 0 where (x + w) - m is 0 at most.
void LawChecks::CheckSameSum(const RowFactor& factor, const LinearForm& taken) const {
  if (taken.terms.size() < 2 || !IsFloat(DTypeOf(factor.node))) return;
  Expr sum = CarrierOf(factor).term;
  if (Occurs(sum, factor.node)) return;
  sum = Resolve(cascade_.expand(sum), factor.conditions);
  if (Occurs(sum, Resolve(cascade_.expand(factor.node), factor.conditions))) return;
  RefuseRange(factor);
}

// Where a term is masked, a NaN among what the result is taken over changes the result, but need
// not reach the sum: then the correction would bring it there.
void LawChecks::CheckSeesEveryNaN(const RowFactor& factor) const {
  std::vector<Known> known;
  for (const auto& [condition, holds] : factor.conditions) {
    known.emplace_back(condition, !holds);
    Expr masked = Resolve(cascade_.expand(CarrierOf(factor).term), known);
    known.back().second = holds;
    if (LiteralOf(masked)) continue;
    Check(Code::kCascadeRange, "skips terms by " + Print(condition) + " that " +
                                   NameOf(CarrierOf(factor)) + " is taken over");
  }
}

// At the end the factor is computed for every row, whatever conditions its terms have: where they
// are all 0, a factor that is infinite or NaN would make a NaN of that.
void LawChecks::CheckDefinedAlone(const RowFactor& factor) const {
  if (factor.conditions.empty()) return;
  if (IsFloat(DTypeOf(factor.node))) {
    Check(Code::kCascadeCondition, "applies " + Print(factor.node) + " only where " +
                                       Print(factor.conditions[0].first) + " allows it");
  }
  std::vector<Axis> axes = cascade_.rows;
  axes.insert(axes.end(), stage_.own_axes.begin(), stage_.own_axes.end());
  auto fault = FindFault(factor.node, axes, AssumptionsBefore(*stage_.reduction.site));
  if (!fault) return;
  Check(Code::kCascadeCondition,
        "computes " + Print(fault->operation) + " under a condition, and " + fault->why);
}

// A number that equals the result so far need not equal the final one.
void LawChecks::CheckDefinedThroughout(const RowFactor& factor) const {
  std::vector<Axis> axes = cascade_.rows;
  axes.insert(axes.end(), stage_.own_axes.begin(), stage_.own_axes.end());
  axes.insert(axes.end(), cascade_.keys.begin(), cascade_.keys.end());
  auto partial = FindPartial(stage_.step, axes, AssumptionsBefore(*stage_.reduction.site));
  if (!partial) return;
  Check(Code::kCascadeCondition, "computes " + Print(partial->operation) + " within " +
                                     Print(factor.node) + ", and " + partial->why);
}

}  // namespace fuse_epilogue
