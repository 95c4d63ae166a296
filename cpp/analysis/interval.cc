#include "analysis/interval.h"

#include <algorithm>
#include <initializer_list>

namespace fuse_epilogue {

using ir::NodeKind;

namespace {

Interval Spanning(std::initializer_list<WideInt> values) {
  auto [low, high] = std::minmax_element(values.begin(), values.end());
  return Interval{*low, *high};
}

WideInt Magnitude(const Interval& range) { return std::max(-range.low, range.high); }

WideInt FloorDiv(WideInt a, WideInt b) {
  WideInt quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

std::optional<Interval> Product(const Interval& a, const Interval& b) {
  WideInt corners[4];
  size_t i = 0;
  for (WideInt x : {a.low, a.high}) {
    for (WideInt y : {b.low, b.high}) {
      if (__builtin_mul_overflow(x, y, &corners[i++])) return std::nullopt;
    }
  }
  return Spanning({corners[0], corners[1], corners[2], corners[3]});
}

// For a divisor of one sign a quotient rises or falls in each operand: its bounds are at the
// corners. A divisor of both signs passes -1 and 1 on its way.
Interval Quotient(const Interval& a, const Interval& b, bool floor) {
  if (b.low < 0 && b.high > 0) return Interval{-Magnitude(a), Magnitude(a)};
  Interval divisor = Intersect(b, Interval{b.low, b.high, true});
  if (divisor.Empty()) return divisor;
  auto divide = [floor](WideInt x, WideInt y) { return floor ? FloorDiv(x, y) : x / y; };
  return Spanning({divide(a.low, divisor.low), divide(a.low, divisor.high),
                   divide(a.high, divisor.low), divide(a.high, divisor.high)});
}

// A truncated remainder has the sign of the dividend, a floored one that of the divisor.
Interval Remainder(const Interval& a, const Interval& b, bool floor) {
  WideInt largest = Magnitude(b) - 1;
  const Interval& sign = floor ? b : a;
  Interval range{sign.low < 0 ? -largest : 0, sign.high > 0 ? largest : 0};
  bool small = a.low >= 0 && b.low > a.high;
  if (small) return a;
  return !floor && a.low >= 0 ? Intersect(range, Interval{0, a.high}) : range;
}

Interval ShiftRight(const Interval& a, const Interval& b) {
  auto shift = [](WideInt x, WideInt by) {
    return x >> static_cast<int>(std::min<WideInt>(by, 126));
  };
  return Spanning(
      {shift(a.low, b.low), shift(a.low, b.high), shift(a.high, b.low), shift(a.high, b.high)});
}

}  // namespace

std::optional<Interval> RangeOfType(DLDataType dtype) {
  if (dtype.lanes != 1) return std::nullopt;
  if (ir::IsBool(dtype)) return Interval{0, 1};
  if (!ir::IsInteger(dtype)) return std::nullopt;
  WideInt one = 1;
  if (dtype.code == kDLUInt) return Interval{0, (one << dtype.bits) - 1};
  WideInt top = one << (dtype.bits - 1);
  return Interval{-top, top - 1};
}

Interval Intersect(const Interval& a, const Interval& b) {
  Interval both{std::max(a.low, b.low), std::min(a.high, b.high), a.nonzero || b.nonzero};
  if (both.nonzero && both.low == 0) both.low = 1;
  if (both.nonzero && both.high == 0) both.high = -1;
  return both;
}

Interval Unite(const Interval& a, const Interval& b) {
  if (a.Empty()) return b;
  if (b.Empty()) return a;
  return Interval{std::min(a.low, b.low), std::max(a.high, b.high), !a.HasZero() && !b.HasZero()};
}

std::optional<Interval> Combine(NodeKind node, const Interval& a, const Interval& b) {
  if (a.Empty() || b.Empty()) return Interval{1, 0};
  switch (node) {
    case NodeKind::kAdd:
      return Interval{a.low + b.low, a.high + b.high};
    case NodeKind::kSub:
      return Interval{a.low - b.high, a.high - b.low};
    case NodeKind::kMul:
      return Product(a, b);
    case NodeKind::kMax:
      return Interval{std::max(a.low, b.low), std::max(a.high, b.high)};
    case NodeKind::kMin:
      return Interval{std::min(a.low, b.low), std::min(a.high, b.high)};
    case NodeKind::kDiv:
      return Quotient(a, b, false);
    case NodeKind::kFloorDiv:
      return Quotient(a, b, true);
    case NodeKind::kMod:
      return Remainder(a, b, false);
    case NodeKind::kFloorMod:
      return Remainder(a, b, true);
    case NodeKind::kRShift:
      return ShiftRight(a, b);
    case NodeKind::kBitwiseAnd:
      if (a.low < 0 && b.low < 0) return std::nullopt;
      if (a.low < 0) return Interval{0, b.high};
      if (b.low < 0) return Interval{0, a.high};
      return Interval{0, std::min(a.high, b.high)};
    default:
      return std::nullopt;
  }
}

}  // namespace fuse_epilogue
