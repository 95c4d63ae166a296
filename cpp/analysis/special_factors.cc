#include "analysis/special_factors.h"

#include <utility>

#include "ir/calls.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

RowFactor MakeFactor(FactorKind kind, const Expr& node, size_t carrier) {
  RowFactor factor;
  factor.kind = kind;
  factor.node = node;
  factor.carrier = carrier;
  return factor;
}

std::pair<Expr, Expr> Sides(const Expr& condition) {
  if (auto equal = As<Equal>(condition)) return {equal->a(), equal->b()};
  if (auto greater = As<GreaterEqual>(condition)) return {greater->a(), greater->b()};
  LessEqual less(condition);
  return {less.a(), less.b()};
}

std::optional<int64_t> NumberOfKeys(const Cascade& cascade) {
  int64_t product = 1;
  for (const Axis& key : cascade.keys) {
    auto extent = As<IntImm>(key.extent);
    if (!extent || __builtin_mul_overflow(product, extent->value(), &product)) {
      return std::nullopt;
    }
  }
  return product;
}

bool IsNumberOfKeys(const Cascade& cascade, const Expr& expr) {
  if (auto literal = LiteralOf(expr)) {
    auto keys = NumberOfKeys(cascade);
    return keys && *literal == static_cast<double>(*keys);
  }
  auto cast = As<Cast>(expr);
  return cast && cascade.keys.size() == 1 && DeepEqual(cast->value(), cascade.keys[0].extent);
}

// r / N, or r * (1 / N) with 1 / N as the type rounds it; N is the number of keys.
bool IsMean(const Cascade& cascade, const Expr& mean, const CascadeStage& carrier) {
  if (!carrier.Is(MonoidId::kSum) || !IsFloat(DTypeOf(mean))) return false;
  if (auto div = As<Div>(mean))
    return div->a().same_as(carrier.value) && IsNumberOfKeys(cascade, div->b());
  auto mul = As<Mul>(mean);
  if (!mul) return false;
  bool first = mul->a().same_as(carrier.value);
  if (!first && !mul->b().same_as(carrier.value)) return false;
  auto factor = As<FloatImm>(first ? mul->b() : mul->a());
  auto keys = NumberOfKeys(cascade);
  if (!factor || !keys) return false;
  double exact = 1.0 / static_cast<double>(*keys);
  bool is_single = DTypeOf(*factor).bits == 32;
  return is_single ? static_cast<float>(factor->value()) == static_cast<float>(exact)
                   : factor->value() == exact;
}

}  // namespace

std::optional<RowFactor> EqualityIn(const Cascade& cascade, const Expr& condition) {
  if (condition.kind() != NodeKind::kEqual && condition.kind() != NodeKind::kGreaterEqual &&
      condition.kind() != NodeKind::kLessEqual) {
    return std::nullopt;
  }
  auto depends = [results = cascade.ValueVars()](const Expr& expr) {
    return UsesAny(expr, results);
  };
  auto [a, b] = Sides(condition);
  for (size_t i = 0; i < cascade.stages.size(); ++i) {
    const CascadeStage& carrier = cascade.stages[i];
    bool left = a.same_as(carrier.value), right = b.same_as(carrier.value);
    if (left == right || depends(left ? b : a)) continue;
    bool is_max = carrier.Is(MonoidId::kMax), is_min = carrier.Is(MonoidId::kMin);
    // x >= max, max <= x; x <= min, min >= x.
    bool at_least = condition.kind() == NodeKind::kGreaterEqual;
    bool fits = condition.kind() == NodeKind::kEqual
                    ? is_max || is_min || carrier.part == Part::kIndex
                    : (is_max && right == at_least) || (is_min && left == at_least);
    if (!fits) return std::nullopt;
    RowFactor factor = MakeFactor(FactorKind::kEquality, condition, i);
    factor.argument = left ? b : a;
    return factor;
  }
  return std::nullopt;
}

std::optional<RowFactor> DifferenceIn(const Cascade& cascade, const Expr& node) {
  auto sub = As<Sub>(node);
  if (!sub) return std::nullopt;
  for (size_t i = 0; i < cascade.stages.size(); ++i) {
    const CascadeStage& carrier = cascade.stages[i];
    bool right = sub->b().same_as(carrier.value);
    if (!right && !sub->a().same_as(carrier.value)) continue;
    if (!carrier.Is(MonoidId::kMax) && !carrier.Is(MonoidId::kMin)) continue;
    RowFactor factor = MakeFactor(FactorKind::kDifference, node, i);
    factor.argument = right ? sub->a() : sub->b();
    return factor;
  }
  return std::nullopt;
}

std::optional<RowFactor> SquaredDeviationIn(const Cascade& cascade, const Expr& node) {
  std::optional<Expr> base;
  if (auto mul = As<Mul>(node); mul && DeepEqual(mul->a(), mul->b())) base = mul->a();
  if (auto call = As<Call>(node); call && CalleeOf(*call) == "tirx.pow") {
    if (IsConst(call->args()[1].cast<Expr>(), 2)) base = call->args()[0].cast<Expr>();
  }
  auto depends = [results = cascade.ValueVars()](const Expr& expr) {
    return UsesAny(expr, results);
  };
  auto sub = base ? As<Sub>(*base) : std::nullopt;
  if (!sub || depends(sub->a()) == depends(sub->b())) return std::nullopt;
  bool mean_right = depends(sub->b());
  Expr mean = mean_right ? sub->b() : sub->a();
  for (size_t i = 0; i < cascade.stages.size(); ++i) {
    if (!IsMean(cascade, mean, cascade.stages[i])) continue;
    RowFactor factor = MakeFactor(FactorKind::kSquaredDeviation, node, i);
    factor.argument = mean_right ? sub->a() : sub->b();
    factor.mean = mean;
    return factor;
  }
  return std::nullopt;
}

}  // namespace fuse_epilogue
