#include "analysis/distributions.h"

#include <cmath>
#include <limits>
#include <utility>

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

using M = MonoidId;
using N = NodeKind;
const std::vector<Distribution> kRows = {
    // h(x (+) y) == h(x) (+)' h(y). Floats: up to rounding, and to which of two zeros or NaN wins.
    {N::kSub, Fn::Sub, kRight, M::kSum, M::kSum, kFloats | kNarrow | kSigned, kFree, kAnything},
    // c - (x + y) == (c - x) - y
    {N::kMul, Fn::Mul, kEither, M::kSum, M::kSum, kFloats | kNarrow, kWork, kAnything},
    // (x + y) * c == x*c + y*c
    {N::kDiv, Fn::Div, kLeft, M::kSum, M::kSum, kFloats, kWork, kAnything},
    // (x + y) / c == x/c + y/c

    // non-decreasing functions keep max and min ...
    {N::kMin, Fn::Min, kEither, M::kMax, M::kMax, kFloats | kIntegers, kWork, kAnything},
    {N::kMax, Fn::Max, kEither, M::kMin, M::kMin, kFloats | kIntegers, kWork, kAnything},
    {N::kAdd, Fn::Add, kEither, M::kMax, M::kMax, kFloats, kWork, kAnything},
    {N::kAdd, Fn::Add, kEither, M::kMin, M::kMin, kFloats, kWork, kAnything},
    {N::kSub, Fn::Sub, kLeft, M::kMax, M::kMax, kFloats, kWork, kAnything},
    {N::kSub, Fn::Sub, kLeft, M::kMin, M::kMin, kFloats, kWork, kAnything},
    {N::kMul, Fn::Mul, kEither, M::kMax, M::kMax, kFloats, kWork, kPositive},
    {N::kMul, Fn::Mul, kEither, M::kMin, M::kMin, kFloats, kWork, kPositive},
    {N::kDiv, Fn::Div, kLeft, M::kMax, M::kMax, kFloats, kWork, kPositive},
    {N::kDiv, Fn::Div, kLeft, M::kMin, M::kMin, kFloats, kWork, kPositive},
    // ... and decreasing ones swap them (integers would overflow at the lowest value)
    {N::kSub, Fn::Sub, kRight, M::kMax, M::kMin, kFloats, kWork, kAnything},
    {N::kSub, Fn::Sub, kRight, M::kMin, M::kMax, kFloats, kWork, kAnything},
    {N::kMul, Fn::Mul, kEither, M::kMax, M::kMin, kFloats, kWork, kNegative},
    {N::kMul, Fn::Mul, kEither, M::kMin, M::kMax, kFloats, kWork, kNegative},
    {N::kDiv, Fn::Div, kLeft, M::kMax, M::kMin, kFloats, kWork, kNegative},
    {N::kDiv, Fn::Div, kLeft, M::kMin, M::kMax, kFloats, kWork, kNegative},

    // (x | y) & c == x&c | y&c, (x ^ y) & c == x&c ^ y&c, (x & y) | c == (x|c) & (y|c)
    {N::kBitwiseAnd, Fn::BitwiseAnd, kEither, M::kBitOr, M::kBitOr, kIntegers, kWork, kAnything},
    {N::kBitwiseAnd, Fn::BitwiseAnd, kEither, M::kBitXor, M::kBitXor, kIntegers, kWork, kAnything},
    {N::kBitwiseOr, Fn::BitwiseOr, kEither, M::kBitAnd, M::kBitAnd, kIntegers, kWork, kAnything},
    {N::kAnd, Fn::And, kEither, M::kOr, M::kOr, kBools, kWork, kAnything},
    {N::kOr, Fn::Or, kEither, M::kAnd, M::kAnd, kBools, kWork, kAnything},
    // De Morgan
    {N::kBitwiseNot, Fn::BitwiseNot, kUnary, M::kBitAnd, M::kBitOr, kIntegers, kWork, kAnything},
    {N::kBitwiseNot, Fn::BitwiseNot, kUnary, M::kBitOr, M::kBitAnd, kIntegers, kWork, kAnything},
    {N::kNot, Fn::Not, kUnary, M::kAnd, M::kOr, kBools, kWork, kAnything},
    {N::kNot, Fn::Not, kUnary, M::kOr, M::kAnd, kBools, kWork, kAnything},

    // log(exp(x) + exp(y)) + c == log(exp(x + c) + exp(y + c))
    {N::kAdd, Fn::Add, kEither, M::kLogAddExp, M::kLogAddExp, kFloats, kWork, kFinite},
    {N::kSub, Fn::Sub, kLeft, M::kLogAddExp, M::kLogAddExp, kFloats, kWork, kFinite},
};

// The smallest and the largest normal number of a floating type; zeros for one that is not here.
std::pair<double, double> NormalRange(DLDataType dtype) {
  if (dtype.code == kDLFloat && dtype.bits == 64) {
    return {std::numeric_limits<double>::min(), std::numeric_limits<double>::max()};
  }
  if (dtype.code == kDLFloat && dtype.bits == 32) {
    return {std::numeric_limits<float>::min(), std::numeric_limits<float>::max()};
  }
  if (dtype.code == kDLFloat && dtype.bits == 16) {
    return {std::ldexp(1.0, -14), 65504};
  }
  if (dtype.code == kDLBfloat) {
    return {std::ldexp(1.0, -126), std::ldexp(255.0, 120)};
  }
  return {0, 0};
}

}  // namespace

const std::vector<Distribution>& Distributions() { return kRows; }

bool Fits(Literal wanted, const std::optional<Expr>& operand) {
  if (wanted == kAnything) return true;
  auto imm = operand ? As<FloatImm>(*operand) : std::nullopt;
  if (!imm) return false;
  if (wanted == kFinite) return std::abs(imm->value()) <= NormalRange(DTypeOf(*operand)).second;
  return wanted == kPositive ? imm->value() > 0 : imm->value() < 0;
}

bool IsNormal(double value, DLDataType dtype) {
  auto [low, high] = NormalRange(dtype);
  double magnitude = std::abs(value);
  return 0 < low && low <= magnitude && magnitude <= high;
}

bool Scales(NodeKind node, const std::optional<Expr>& operand) {
  auto imm = operand ? As<FloatImm>(*operand) : std::nullopt;
  if (!imm || (node != N::kMul && node != N::kDiv)) return true;
  return IsNormal(imm->value(), DTypeOf(*operand));
}

}  // namespace fuse_epilogue
