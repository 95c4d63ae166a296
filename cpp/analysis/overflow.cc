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

OverflowCheck::OverflowCheck(const Reduction& reduction)
    : dtype_(BufferTypeOf(reduction.accumulator).dtype().dtype()),
      monoid_(reduction.monoid->id),
      subtracts_(reduction.subtracts) {
  if (monoid_ == MonoidId::kProduct) literals_ = ProductOfLiterals(reduction.init);
  if (monoid_ == MonoidId::kSum) literals_ = SumOfLiterals(reduction.init);
}

bool OverflowCheck::MayOverflow(const PeelStep& step) {
  if (!IsInteger(dtype_) || dtype_.bits < 32) return false;
  const double limit = std::ldexp(1.0, dtype_.bits - 2);
  if (monoid_ == MonoidId::kProduct) {
    literals_ *= ProductOfLiterals(*step.operand);
    return literals_ >= limit;
  }
  if (monoid_ != MonoidId::kSum) return false;
  literals_ += SumOfLiterals(*step.operand);
  subtracts_ = subtracts_ || step.node == NodeKind::kSub;
  return dtype_.code == kDLUInt ? subtracts_ : literals_ >= limit;
}

}  // namespace fuse_epilogue
