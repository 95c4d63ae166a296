#include "analysis/overflow.h"

#include <cmath>

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

double Magnitude(const Expr& literal, double otherwise) {
  auto imm = As<IntImm>(literal);
  return imm ? std::fabs(static_cast<double>(imm->value())) : otherwise;
}

// The size of all literals that are added up, or multiplied, in a start value.
double SumOfLiterals(const Expr& value) {
  if (value.kind() == NodeKind::kAdd || value.kind() == NodeKind::kSub) {
    auto [a, b] = *Operands(value);
    return SumOfLiterals(a) + SumOfLiterals(b);
  }
  return Magnitude(value, 0);
}

double ProductOfLiterals(const Expr& value) {
  if (auto product = As<Mul>(value)) {
    return ProductOfLiterals(product->a()) * ProductOfLiterals(product->b());
  }
  return Magnitude(value, 1);
}

}  // namespace

bool MayOverflow(const Reduction& reduction, const PeelSteps& steps) {
  DLDataType dtype = BufferTypeOf(reduction.accumulator).dtype().dtype();
  if (!IsInteger(dtype) || dtype.bits < 32) return false;
  const double limit = std::ldexp(1.0, dtype.bits - 2);
  double literals = 0;
  if (reduction.monoid->id == MonoidId::kProduct) {
    literals = ProductOfLiterals(reduction.init);
    for (const PeelStep& step : steps) literals *= ProductOfLiterals(*step.operand);
    return literals >= limit;
  }
  if (reduction.monoid->id != MonoidId::kSum) return false;
  bool subtracts = reduction.subtracts;
  literals = SumOfLiterals(reduction.init);
  for (const PeelStep& step : steps) {
    literals += SumOfLiterals(*step.operand);
    subtracts = subtracts || step.node == NodeKind::kSub;
  }
  return dtype.code == kDLUInt ? subtracts : literals >= limit;
}

}  // namespace fuse_epilogue
