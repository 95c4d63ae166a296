#include "analysis/cascade_laws.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "analysis/cascade_start.h"
#include "analysis/defined.h"
#include "analysis/row_factors.h"
#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

bool IsLiteral(const Expr& expr) {
  return expr.kind() == NodeKind::kFloatImm || expr.kind() == NodeKind::kIntImm;
}

bool IsFinite(const Expr& literal) {
  auto imm = As<FloatImm>(literal);
  return IsLiteral(literal) && (!imm || std::isfinite(imm->value()));
}

Expr MakeEqual(const Expr& a, const Expr& b) {
  return CallGlobal(Fn::Equal, a, b, nullptr).cast<Expr>();
}

// Whether a is scale * b, term by term.
bool IsMultiple(const LinearForm& a, double scale, const LinearForm& b) {
  if (a.terms.size() != b.terms.size()) return false;
  std::vector<bool> used(b.terms.size(), false);
  for (const auto& [coefficient, expr] : a.terms) {
    size_t i = 0;
    while (i < used.size() && (used[i] || coefficient != scale * b.terms[i].first ||
                               !DeepEqual(expr, b.terms[i].second))) {
      ++i;
    }
    if (i == used.size()) return false;
    used[i] = true;
  }
  return true;
}

class Laws {
 public:
  Laws(const Cascade& cascade, const CascadeOptions& options, CascadeStage* stage)
      : cascade_(cascade), options_(options), stage_(*stage), block_(stage->block()) {}

  void Apply() {
    CheckAccumulator();
    switch (stage_.reduction.monoid->id) {
      case MonoidId::kSum:
        return ApplyToSum();
      case MonoidId::kMax:
      case MonoidId::kMin:
        return ApplyToSelection();
      default:
        Throw(Code::kCascadeTerm,
              std::string("is a ") + stage_.combiner() + ", whose terms read an earlier result");
    }
  }

 private:
  [[noreturn]] void Throw(Code code, const std::string& what) const {
    throw Refusal(code, block_, "block " + Quoted(block_) + " " + what);
  }
  void Check(Code code, const std::string& what) const {
    Refuse(code, block_, "block " + Quoted(block_) + " " + what);
  }
  const CascadeStage& CarrierOf(const RowFactor& factor) const {
    return cascade_.stages[factor.carrier];
  }
  std::string NameOf(const CascadeStage& carrier) const {
    return "the result " + Quoted(carrier.reduction.accumulator) + " of block " +
           Quoted(carrier.block());
  }

  void CheckAccumulator() {
    DLDataType dtype = DTypeOf(stage_.term);
    if (IsFloat(dtype) && dtype.bits < 32 && stage_.reduction.monoid->rounds) {
      Check(Code::kCascadeNarrow, "accumulates in " + DTypeStr(dtype));
    }
    if (!options_.exact) return;
    // A selection between floats, or by them, depends on the order where there are NaN.
    if (IsFloat(dtype)) Check(Code::kCascadeExact, "combines floats in another way than before");
  }

  // ---- Sums ----

  void ApplyToSum() {
    SplitTerm split = SplitIntoFactors(cascade_, stage_);
    stage_.step = split.kept ? *split.kept : MakeOne(stage_.term);
    stage_.correction = stage_.accumulated;
    stage_.state_init = MakeZero(stage_.term);
    std::vector<const RowFactor*> deferred, rolled;
    for (const RowFactor& factor : split.factors) {
      if (factor.kind == FactorKind::kOfRow) {
        deferred.push_back(&factor);
      } else {
        rolled.push_back(&factor);
        AddCarrier(factor.carrier);
      }
    }
    for (const RowFactor* factor : rolled) CheckStart(*factor, split);
    if (rolled.empty() && RollsRatios(deferred)) return RollRatios(deferred);
    CheckPowers(deferred, rolled);
    bool differs = std::any_of(rolled.begin(), rolled.end(), [](const RowFactor* factor) {
      return factor->kind == FactorKind::kDifference ||
             factor->kind == FactorKind::kSquaredDeviation;
    });
    if (differs) {
      if (rolled.size() != 1) Throw(Code::kCascadeTerm, "reads an earlier result in two ways");
      CorrectDifference(*rolled[0]);
    } else if (!rolled.empty()) {
      if (stage_.carriers.size() > 1) CheckNoEquality(rolled);
      for (const RowFactor& factor : split.also) CheckFactor(factor);
      for (const RowFactor* factor : rolled) CheckFactor(*factor);
      CorrectFactors(rolled);
    }
    Defer(deferred);
    bool bounded = !IsFloat(DTypeOf(stage_.term)) || stage_.rolled.has_value();
    if (!deferred.empty() && !bounded) stage_.guards.push_back("finite-sum");
    bool of_row = !deferred.empty();
    if (differs) {
      stage_.rule = Rule::kBasis;
    } else if (rolled.empty()) {
      stage_.rule = Rule::kDefer;
    } else if (rolled[0]->kind == FactorKind::kEquality && rolled.size() == 1 && !of_row) {
      stage_.rule = Rule::kSelect;
    } else {
      stage_.rule = of_row ? Rule::kMix : Rule::kRoll;
    }
  }

  // A sum that is cleared as one result changes must not be cleared as another one does.
  void CheckNoEquality(const std::vector<const RowFactor*>& rolled) const {
    for (const RowFactor* factor : rolled) {
      if (factor->kind != FactorKind::kEquality) continue;
      Throw(Code::kCascadeTerm,
            "reads two results, of which one is compared in " + Print(factor->node));
    }
  }

  void AddCarrier(size_t carrier) {
    std::vector<size_t>& all = stage_.carriers;
    if (std::find(all.begin(), all.end(), carrier) == all.end()) all.push_back(carrier);
  }

  // A start of NaN, or of the infinity that never changes, would make a NaN of the first
  // correction. The other infinity needs guards, and that of a row which never leaves it the
  // program's own answer is known. Where keys are compared with the result, there is no correction.
  void CheckStart(const RowFactor& factor, const SplitTerm& split) {
    const CascadeStage& carrier = CarrierOf(factor);
    if (carrier.tail) {
      Throw(Code::kCascadeTerm, "reads " + NameOf(carrier) + ", which is known only at the end");
    }
    if (carrier.Is(MonoidId::kSum)) {
      if (!IsConst(carrier.init, 0)) ThrowStart(carrier);
      return;
    }
    if (IsFinite(carrier.init)) return;
    if (!StartsAtInfinity(carrier)) ThrowStart(carrier);
    if (factor.kind == FactorKind::kEquality && stage_.carriers.size() == 1) return;
    auto is_known = [&](const RowFactor& each) {
      return each.kind == FactorKind::kOfRow || IsNaNAtStart(cascade_, each);
    };
    bool known = std::all_of(split.factors.begin(), split.factors.end(), is_known) &&
                 std::all_of(split.also.begin(), split.also.end(), is_known);
    if (!known || stage_.carriers.size() != 1) ThrowStart(carrier);
    starts_at_infinity_ = &carrier;
  }

  void ThrowStart(const CascadeStage& carrier) const {
    Check(Code::kCascadeStart, "reads " + NameOf(carrier) + ", which starts from " +
                                   Print(carrier.init) + ", in a way that is not known for a row " +
                                   "of such values alone");
  }

  // (x / r)^p with r = max |x| and p > 1: |x / r| <= 1 keeps in range what x^p would not.
  bool RollsRatios(const std::vector<const RowFactor*>& factors) const {
    if (factors.size() < 2) return false;
    for (const RowFactor* factor : factors) {
      const CascadeStage* carrier = CarrierOfRatio(*factor);
      if (carrier == nullptr || carrier != CarrierOfRatio(*factors[0])) return false;
    }
    return true;
  }

  const CascadeStage* CarrierOfRatio(const RowFactor& factor) const {
    if (!factor.divides || !factor.conditions.empty()) return nullptr;
    for (const CascadeStage& carrier : cascade_.stages) {
      if (!carrier.value.same_as(factor.node) || !carrier.Is(MonoidId::kMax)) continue;
      auto magnitude = As<Call>(cascade_.expand(carrier.term));
      auto op = magnitude ? As<Op>(magnitude->op()) : std::nullopt;
      if (!op || op->name() != "tirx.fabs") return nullptr;
      bool same = DeepEqual(magnitude->args()[0].cast<Expr>(), cascade_.expand(factor.argument));
      return same ? &carrier : nullptr;
    }
    return nullptr;
  }

  // While r' is 0 all x are, and so is the sum: then x^p stands for (x / r')^p, which also keeps a
  // NaN. The quotient (r / r')^p needs a first r that is not TVM's lowest value, so that nothing is
  // corrected before the first key. A row of zeros is 0 / 0 in the end, as in the program.
  void RollRatios(const std::vector<const RowFactor*>& factors) {
    const CascadeStage& carrier = *CarrierOfRatio(*factors[0]);
    AddCarrier(static_cast<size_t>(&carrier - cascade_.stages.data()));
    // After the first key the largest magnitude is not negative, and before it nothing is
    // corrected.
    if (carrier.tail || !(IsFinite(carrier.init) || StartsAtInfinity(carrier))) {
      ThrowStart(carrier);
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

  // (x / r)^2 must not become x^2 / r^2, which overflows; after rolling, all is at most 1.
  void CheckPowers(const std::vector<const RowFactor*>& deferred,
                   const std::vector<const RowFactor*>& rolled) {
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

  void CheckFactor(const RowFactor& factor) {
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
      Throw(Code::kCascadeTerm, "reads " + NameOf(carrier) + ", a " + carrier.combiner() + ", in " +
                                    Print(factor.node));
    }
    double coefficient = factor.form.results[0].second;
    if (is_max ? coefficient >= 0 : coefficient <= 0) {
      Check(Code::kCascadeExpanding,
            "would multiply its sum by more than 1 as " + NameOf(carrier) + " changes");
    }
    CheckDominated(factor, factor.form, -coefficient);
    CheckSeesEveryNaN(factor);
  }

  // What is compared with a result, or is its distance, must be what the result is taken over, with
  // the same roundings.
  void CheckSame(const RowFactor& factor) {
    const CascadeStage& carrier = CarrierOf(factor);
    if (DeepEqual(factor.argument, carrier.term)) return;
    Expr taken = Resolve(cascade_.expand(carrier.term), factor.conditions);
    if (DeepEqual(Resolve(cascade_.expand(factor.argument), factor.conditions), taken)) return;
    ThrowRange(factor);
  }

  void ThrowRange(const RowFactor& factor) const {
    const CascadeStage& carrier = CarrierOf(factor);
    Check(Code::kCascadeRange, "computes " + Print(factor.node) + ", but " + NameOf(carrier) +
                                   " is taken over " + Print(carrier.term));
  }

  // The factor is in range at every partial result if its x is what the result is taken over.
  void CheckDominated(const RowFactor& factor, const LinearForm& form, double scale) {
    const CascadeStage& carrier = CarrierOf(factor);
    auto taken = LinearFormOf(cascade_, carrier.term);
    if (taken && IsMultiple(form, scale, *taken)) return;
    auto full = LinearFormOf(cascade_, Resolve(cascade_.expand(carrier.term), factor.conditions));
    LinearForm expanded;
    for (const auto& [c, expr] : form.terms) {
      auto part = LinearFormOf(cascade_, Resolve(cascade_.expand(expr), factor.conditions));
      for (const auto& [c2, e2] : part->terms) expanded.terms.emplace_back(c * c2, e2);
    }
    if (full && IsMultiple(expanded, scale, *full)) return;
    ThrowRange(factor);
  }

  // Where a term is masked, a NaN among what the result is taken over changes the result, but need
  // not reach the sum: then the correction would bring it there.
  void CheckSeesEveryNaN(const RowFactor& factor) {
    std::vector<Known> known;
    for (const auto& [condition, holds] : factor.conditions) {
      known.emplace_back(condition, !holds);
      Expr masked = Resolve(cascade_.expand(CarrierOf(factor).term), known);
      known.back().second = holds;
      if (IsLiteral(masked)) continue;
      Check(Code::kCascadeRange, "skips terms by " + Print(condition) + " that " +
                                     NameOf(CarrierOf(factor)) + " is taken over");
    }
  }

  // exp(x + c r): times exp(c r' - c r). x == r: nothing is left of the sum where r has changed.
  void CorrectFactors(const std::vector<const RowFactor*>& rolled) {
    std::optional<Expr> quotient, unchanged;
    bool clears = false;
    for (const RowFactor* factor : rolled) {
      const CascadeStage& carrier = CarrierOf(*factor);
      Expr same = MakeEqual(carrier.previous, carrier.value);
      if (!unchanged || !DeepEqual(*unchanged, same)) {
        unchanged = unchanged ? CallGlobal(Fn::And, *unchanged, same, nullptr).cast<Expr>() : same;
      }
      if (factor->kind == FactorKind::kEquality) {
        clears = true;
        continue;
      }
      double c = factor->form.results[0].second;
      Expr difference = c < 0 ? MakeSub(carrier.previous, carrier.value)
                              : MakeSub(carrier.value, carrier.previous);
      difference = Scaled(difference, std::fabs(c));
      Expr q = ReplacePart(factor->node, factor->argument, difference);
      quotient = quotient ? MakeMul(*quotient, q) : q;
      stage_.rolled = stage_.rolled ? MakeMul(*stage_.rolled, factor->node) : factor->node;
    }
    if (starts_at_infinity_ != nullptr) {
      const CascadeStage& carrier = *starts_at_infinity_;
      Substitution guarded{{carrier.value.get(), FiniteValue(carrier)}};
      stage_.step = Substitute(stage_.step, guarded);
      quotient = Substitute(*quotient, guarded);
      stage_.guards.push_back("infinite-start");
    }
    stage_.quotient = clears ? MakeZero(stage_.term) : *quotient;
    Expr corrected = clears ? MakeZero(stage_.term) : MakeMul(stage_.accumulated, *quotient);
    stage_.correction = MakeSelect(*unchanged, stage_.accumulated, corrected);
    stage_.guards.push_back("same-carrier");
  }

  // Times c; if that is 1 / 3, which is no float, by 3.
  static Expr Scaled(const Expr& expr, double c) {
    if (c == 1) return expr;
    auto is_float = [](double value) { return static_cast<float>(value) == value; };
    if (!is_float(c) && is_float(1 / c)) return MakeDiv(expr, MakeFloat(1 / c, expr));
    return MakeMul(expr, MakeFloat(c, expr));
  }

  void CorrectDifference(const RowFactor& factor) {
    const CascadeStage& carrier = CarrierOf(factor);
    CheckSame(factor);
    Expr kept = stage_.step;
    Var node = MakeVar("d", factor.node);
    Expr around = ReplacePart(kept, factor.node, node);
    if (UsesAny(around, cascade_.KeyVars())) {
      Throw(Code::kCascadeTerm,
            "weighs " + Print(factor.node) + " by keys, whose sum is not known in the loop");
    }
    Expr before = carrier.previous, after = carrier.value, change;
    Expr count = MakeCast(cascade_.count, factor.node);
    if (factor.kind == FactorKind::kSquaredDeviation) {
      // Before the first key there is no mean; TVM would not divide by a literal 0.
      Expr some =
          CallGlobal(Fn::Max, cascade_.count, MakeInt(1, cascade_.count), nullptr).cast<Expr>();
      before = MakeDiv(before, MakeCast(some, factor.node));
      after = MakeDiv(after, MakeCast(cascade_.total, factor.node));
      Expr deviation = MakeSub(factor.argument, after), moved = MakeSub(before, after);
      stage_.step = ReplacePart(kept, factor.node, MakeMul(deviation, deviation));
      change = MakeMul(count, MakeMul(moved, moved));
    } else {
      bool falls = As<Sub>(factor.node)->b().same_as(carrier.value);
      change = MakeMul(count, falls ? MakeSub(before, after) : MakeSub(after, before));
    }
    stage_.rolled = factor.node;
    Expr none = MakeEqual(cascade_.count, MakeInt(0, cascade_.count));
    Expr corrected = MakeAdd(stage_.accumulated, Substitute(around, {{node.get(), change}}));
    stage_.correction = MakeSelect(none, stage_.accumulated, corrected);
    stage_.guards.push_back("first-block");
  }

  // What is left for the end. An init that is not 0 must not be corrected: it is added there, too.
  void Defer(const std::vector<const RowFactor*>& deferred) {
    bool starts_from_zero = IsConst(stage_.init, 0);
    if (deferred.empty() && starts_from_zero && starts_at_infinity_ == nullptr) {
      stage_.state_init = stage_.init;
      return;
    }
    for (const RowFactor* factor : deferred) {
      CheckDefinedAlone(*factor);
      Expr eta = factor->divides ? MakeDiv(MakeOne(factor->node), factor->node) : factor->node;
      stage_.deferred = stage_.deferred ? MakeMul(*stage_.deferred, eta) : eta;
    }
    Expr tail = WithFactors(stage_.finished, deferred);
    if (!starts_from_zero) tail = MakeAdd(stage_.init, tail);
    if (starts_at_infinity_ != nullptr) tail = NaNAtStart(*starts_at_infinity_, tail);
    stage_.tail = tail;
  }

  // r * sum / s may overflow where r / s does not, which the program computes for each key: what is
  // multiplied and what is divided by is combined first.
  static Expr WithFactors(const Expr& sum, const std::vector<const RowFactor*>& factors) {
    auto divides = [](const RowFactor* factor) { return factor->divides; };
    std::optional<Expr> eta;
    if (!std::all_of(factors.begin(), factors.end(), divides)) {
      for (const RowFactor* factor : factors) {
        if (factor->divides) continue;
        eta = eta ? MakeMul(*eta, factor->node) : factor->node;
      }
    }
    Expr scaled = eta ? *eta : sum;
    for (const RowFactor* factor : factors) {
      if (factor->divides) scaled = MakeDiv(scaled, factor->node);
    }
    return eta ? MakeMul(sum, scaled) : scaled;
  }

  // At the end the factor is computed for every row, whatever conditions its terms have: where they
  // are all 0, a factor that is infinite or NaN would make a NaN of that.
  void CheckDefinedAlone(const RowFactor& factor) {
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

  // ---- Maxima and minima ----

  // max_k f(x_k) = f(max_k x_k) for a function that does not fall. The state starts from the true
  // identity, and the program's start is combined at the end: f need not keep it.
  void ApplyToSelection() {
    VarSet keys = cascade_.KeyVars(), results = cascade_.ValueVars();
    Expr rest = stage_.term;
    std::vector<Expr> around;
    while (UsesAny(rest, results)) {
      auto operands = CommutesWith(rest) ? Operands(rest) : std::nullopt;
      if (!operands) break;
      bool left = UsesAny(operands->first, keys), right = UsesAny(operands->second, keys);
      if (left == right || (right && rest.kind() == NodeKind::kSub)) break;
      around.push_back(rest);
      rest = left ? operands->first : operands->second;
    }
    if (UsesAny(rest, results)) {
      if (rest.kind() == NodeKind::kCast) Throw(Code::kCascadeCast, "casts in " + Print(rest));
      Throw(Code::kCascadeTerm, "takes a " + std::string(stage_.combiner()) +
                                    " of terms that read an earlier result in " + Print(rest));
    }
    stage_.rule = Rule::kDefer;
    stage_.step = rest;
    stage_.correction = stage_.accumulated;
    stage_.state_init = Worst();
    Expr tail = around.empty() ? stage_.finished : ReplacePart(around[0], rest, stage_.finished);
    stage_.tail = stage_.reduction.monoid->make(stage_.init, tail);
    stage_.deferred = tail;
  }

  // Infinities of opposite signs add to NaN, over which a maximum passes, but not the sum at the
  // end.
  static bool CommutesWith(const Expr& node) {
    if (node.kind() == NodeKind::kMax || node.kind() == NodeKind::kMin) return true;
    bool adds = node.kind() == NodeKind::kAdd || node.kind() == NodeKind::kSub;
    return adds && !IsFloat(DTypeOf(node));
  }

  // The identity of the maximum or minimum.
  Expr Worst() const {
    bool is_max = stage_.reduction.monoid->id == MonoidId::kMax;
    DLDataType dtype = DTypeOf(stage_.term);
    if (IsFloat(dtype)) {
      double infinity = std::numeric_limits<double>::infinity();
      return MakeFloat(is_max ? -infinity : infinity, stage_.term);
    }
    return CallGlobal(is_max ? Fn::MinValue : Fn::MaxValue, dtype, nullptr).cast<Expr>();
  }

  static Expr MakeOne(const Expr& like) {
    return IsFloat(DTypeOf(like)) ? MakeFloat(1, like) : MakeInt(1, like);
  }

  const Cascade& cascade_;
  const CascadeOptions& options_;
  CascadeStage& stage_;
  SBlock block_;
  // The carrier of the exponentials, if it starts at an infinity.
  const CascadeStage* starts_at_infinity_ = nullptr;
};

}  // namespace

void ApplyLaws(const Cascade& cascade, const CascadeOptions& options, CascadeStage* stage) {
  Laws(cascade, options, stage).Apply();
}

}  // namespace fuse_epilogue
