#include "analysis/sum_law.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "analysis/cascade_start.h"
#include "analysis/law_checks.h"
#include "analysis/ratio_law.h"
#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

class SumLaw : private LawChecks {
 public:
  using LawChecks::LawChecks;

  void Apply() {
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
    for (const RowFactor* factor : rolled) {
      if (CheckStart(*factor, split)) starts_at_infinity_ = &CarrierOf(*factor);
    }
    if (rolled.empty() && RollRatios(cascade_, options_, deferred, &stage_)) return;
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
    bool bounded = !IsFloat(DTypeOf(stage_.term)) || (stage_.rolled.has_value() && !differs);
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

 private:
  // A sum that is cleared as one result changes must not be cleared as another one does.
  void CheckNoEquality(const std::vector<const RowFactor*>& rolled) const {
    for (const RowFactor* factor : rolled) {
      if (factor->kind != FactorKind::kEquality) continue;
      Throw(Code::kCascadeTerm,
            "reads two results, of which one is compared in " + Print(factor->node));
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
        CheckDefinedThroughout(*factor);
        clears = true;
        continue;
      }
      double c = factor->form.results[0].second;
      Expr difference = c < 0 ? MakeSub(carrier.previous, carrier.value)
                              : MakeSub(carrier.value, carrier.previous);
      difference = Scaled(difference, std::fabs(c), factor->argument);
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

  // Times c, as the exponent is: divided by its 3 if c is 1 / 3, which no literal is.
  static Expr Scaled(const Expr& expr, double c, const Expr& exponent) {
    if (c == 1) return expr;
    auto divisor = DivisorIn(exponent, c);
    return divisor ? MakeDiv(expr, MakeFloat(*divisor, expr)) : MakeMul(expr, MakeFloat(c, expr));
  }

  // The literal whose reciprocal is c, if anything in an expression is divided by it or minus it.
  static std::optional<double> DivisorIn(const Expr& expr, double c) {
    class Finder : public StmtExprVisitor {
     public:
      explicit Finder(double c) : c_(c) {}
      std::optional<double> found;

     protected:
      void VisitOther(const Node& op) override {
        auto div = As<Div>(op);
        auto literal = div ? LiteralOf(div->b()) : std::nullopt;
        if (literal && 1 / std::fabs(*literal) == c_) found = std::fabs(*literal);
        VisitChildren(op);
      }

     private:
      double c_;
    };
    Finder finder(c);
    finder(expr);
    return finder.found;
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

  // The carrier of the exponentials, if it starts at an infinity.
  const CascadeStage* starts_at_infinity_ = nullptr;
};

}  // namespace

void ApplyToSum(const Cascade& cascade, const CascadeOptions& options, CascadeStage* stage) {
  SumLaw(cascade, options, stage).Apply();
}

}  // namespace fuse_epilogue
