#include "analysis/ratio_law.h"

#include "analysis/cascade_start.h"
#include "analysis/law_checks.h"
#include "ir/calls.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

class RatioLaw : private LawChecks {
 public:
  using LawChecks::LawChecks;

  bool Holds(const std::vector<const RowFactor*>& factors) const {
    if (factors.size() < 2) return false;
    for (const RowFactor* factor : factors) {
      const CascadeStage* carrier = CarrierOfRatio(*factor);
      if (carrier == nullptr || carrier != CarrierOfRatio(*factors[0])) return false;
    }
    return true;
  }

  // While r' is 0 all x are, and so is the sum: then x^p replaces (x / r')^p, which also keeps a
  // NaN. The quotient (r / r')^p needs a first r that is not TVM's lowest value, so that nothing is
  // corrected before the first key. A row of zeros is 0 / 0 in the end, as in the program.
  void Apply(const std::vector<const RowFactor*>& factors) {
    const CascadeStage& carrier = *CarrierOfRatio(*factors[0]);
    AddCarrier(static_cast<size_t>(&carrier - cascade_.stages.data()));
    // After the first key the largest magnitude is not negative, and before it nothing is
    // corrected.
    if (carrier.tail || !(StartsFinite(carrier) || StartsAtInfinity(carrier))) {
      CheckKnownStart(carrier);
    }
    Expr ratio = MakeDiv(carrier.previous, carrier.value), quotient = ratio;
    for (size_t i = 1; i < factors.size(); ++i) quotient = MakeMul(quotient, ratio);
    Expr zero = MakeZero(carrier.value), none = MakeInt(0, cascade_.count);
    Expr corrected = MakeMul(stage_.accumulated, quotient);
    Expr same = CallGlobal(Fn::Or, MakeEqual(cascade_.count, none),
                           MakeEqual(carrier.previous, carrier.value), nullptr)
                    .cast<Expr>();
    Expr is_zero = MakeEqual(carrier.value, zero);
    stage_.rolled = stage_.term;
    stage_.quotient = quotient;
    stage_.step = MakeSelect(is_zero, stage_.step, stage_.term);
    stage_.correction = MakeSelect(same, stage_.accumulated, corrected);
    Expr finished = MakeSelect(is_zero, MakeDiv(stage_.finished, carrier.value), stage_.finished);
    stage_.tail = IsConst(stage_.init, 0) ? finished : MakeAdd(stage_.init, finished);
    stage_.guards = {"same-carrier", "first-block", "zero-carrier"};
    stage_.rule = Rule::kRoll;
  }

 private:
  const CascadeStage* CarrierOfRatio(const RowFactor& factor) const {
    if (!factor.divides || !factor.conditions.empty()) return nullptr;
    for (const CascadeStage& carrier : cascade_.stages) {
      if (!carrier.value.same_as(factor.node) || !carrier.Is(MonoidId::kMax)) continue;
      auto magnitude = As<Call>(cascade_.expand(carrier.term));
      if (!magnitude || CalleeOf(*magnitude) != "tirx.fabs") return nullptr;
      bool same = DeepEqual(magnitude->args()[0].cast<Expr>(), cascade_.expand(factor.argument));
      return same ? &carrier : nullptr;
    }
    return nullptr;
  }
};

}  // namespace

bool RollRatios(const Cascade& cascade, const CascadeOptions& options,
                const std::vector<const RowFactor*>& factors, CascadeStage* stage) {
  RatioLaw law(cascade, options, stage);
  if (!law.Holds(factors)) return false;
  law.Apply(factors);
  return true;
}

}  // namespace fuse_epilogue
