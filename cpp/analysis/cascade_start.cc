#include "analysis/cascade_start.h"

#include <cmath>
#include <limits>

#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// What is known of a number: nothing, which infinity it is, or that it is NaN.
enum class Limit { kUnknown, kMinusInf, kPlusInf, kNaN };

Limit Negated(Limit limit) {
  if (limit == Limit::kMinusInf) return Limit::kPlusInf;
  return limit == Limit::kPlusInf ? Limit::kMinusInf : limit;
}

Limit Sum(Limit a, Limit b) {
  if (a == Limit::kNaN || b == Limit::kNaN) return Limit::kNaN;
  if (a == Limit::kUnknown || b == Limit::kUnknown) return Limit::kUnknown;
  return a == b ? a : Limit::kNaN;
}

// An exponent, where a key and the carrier are both the infinity that the carrier started at.
class LimitReader {
 public:
  LimitReader(const Expr& key, const CascadeStage& carrier) : key_(key), carrier_(carrier) {}

  Limit Of(const Expr& expr) const {
    if (expr.same_as(carrier_.value) || DeepEqual(expr, key_)) {
      return carrier_.Is(MonoidId::kMax) ? Limit::kMinusInf : Limit::kPlusInf;
    }
    if (auto add = As<Add>(expr)) return Sum(Of(add->a()), Of(add->b()));
    if (auto sub = As<Sub>(expr)) return Sum(Of(sub->a()), Negated(Of(sub->b())));
    if (auto mul = As<Mul>(expr)) {
      auto left = As<FloatImm>(mul->a()), right = As<FloatImm>(mul->b());
      if (right) return Scaled(Of(mul->a()), right->value());
      if (left) return Scaled(Of(mul->b()), left->value());
    }
    if (auto div = As<Div>(expr)) {
      if (auto right = As<FloatImm>(div->b())) return Scaled(Of(div->a()), right->value());
    }
    return Limit::kUnknown;
  }

 private:
  static Limit Scaled(Limit limit, double scale) {
    if (limit == Limit::kNaN || scale > 0) return limit;
    return scale < 0 ? Negated(limit) : Limit::kUnknown;
  }

  const Expr& key_;
  const CascadeStage& carrier_;
};

Expr IsAtStart(const CascadeStage& carrier) { return MakeEqual(carrier.value, carrier.init); }

}  // namespace

bool StartsFinite(const CascadeStage& carrier) {
  auto start = LiteralOf(carrier.init);
  return start && std::isfinite(*start);
}

bool StartsAtInfinity(const CascadeStage& carrier) {
  auto start = As<FloatImm>(carrier.init);
  if (!start || !std::isinf(start->value())) return false;
  return carrier.Is(start->value() < 0 ? MonoidId::kMax : MonoidId::kMin);
}

Expr FiniteValue(const CascadeStage& carrier) {
  return MakeSelect(IsAtStart(carrier), MakeZero(carrier.value), carrier.value);
}

Expr NaNAtStart(const CascadeStage& carrier, const Expr& result) {
  Expr nan = MakeFloat(std::numeric_limits<double>::quiet_NaN(), result);
  return MakeSelect(IsAtStart(carrier), nan, result);
}

bool IsNaNAtStart(const Cascade& cascade, const RowFactor& factor) {
  const CascadeStage& carrier = cascade.stages[factor.carrier];
  if (factor.kind != FactorKind::kExponential || !factor.conditions.empty()) return false;
  if (LimitReader(carrier.term, carrier).Of(factor.argument) == Limit::kNaN) return true;
  Expr key = cascade.expand(carrier.term), exponent = cascade.expand(factor.argument);
  return LimitReader(key, carrier).Of(exponent) == Limit::kNaN;
}

}  // namespace fuse_epilogue
