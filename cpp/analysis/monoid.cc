#include "analysis/monoid.h"

#include <cmath>
#include <limits>

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// Every row absorbs its own combiner: init (+) t_0 (+) ... (+) c == (init (+) c) (+) t_0 (+) ...
// What distributes over a row is in the table of algebra.cc.
constexpr Monoid kMonoids[] = {
    // id, name, combiner, make, make_node, rounds                                   identity
    {MonoidId::kSum, "sum", NodeKind::kAdd, Fn::Add, Fn::AddNode, true},          // 0
    {MonoidId::kProduct, "product", NodeKind::kMul, Fn::Mul, Fn::MulNode, true},  // 1
    {MonoidId::kMax, "max", NodeKind::kMax, Fn::Max, Fn::MaxNode, false},  // the lowest value
    {MonoidId::kMin, "min", NodeKind::kMin, Fn::Min, Fn::MinNode, false},  // the highest value
    {MonoidId::kAnd, "logical and", NodeKind::kAnd, Fn::And, Fn::AndNode, false},  // true
    {MonoidId::kOr, "logical or", NodeKind::kOr, Fn::Or, Fn::OrNode, false},       // false
    {MonoidId::kBitAnd, "bit-wise and", NodeKind::kBitwiseAnd, Fn::BitwiseAnd, Fn::BitwiseAndNode,
     false},  // all ones
    {MonoidId::kBitOr, "bit-wise or", NodeKind::kBitwiseOr, Fn::BitwiseOr, Fn::BitwiseOrNode,
     false},  // 0
    {MonoidId::kBitXor, "bit-wise xor", NodeKind::kBitwiseXor, Fn::BitwiseXor, Fn::BitwiseXorNode,
     false},  // 0
};

// The lowest value of a type as a literal's value: of integers only those that a literal holds, of
// floats -inf and not the lowest finite one, which is no identity for -inf.
bool IsLowest(const Expr& literal, DLDataType dtype, bool highest) {
  if (auto imm = As<FloatImm>(literal)) {
    double infinity = std::numeric_limits<double>::infinity();
    return imm->value() == (highest ? infinity : -infinity);
  }
  auto imm = As<IntImm>(literal);
  if (!imm) return false;
  if (dtype.code == kDLUInt) {
    if (!highest) return imm->value() == 0;
    return dtype.bits < 64 && imm->value() == (int64_t{1} << dtype.bits) - 1;
  }
  if (dtype.code != kDLInt) return false;
  int64_t top = static_cast<int64_t>(~uint64_t{0} >> (65 - dtype.bits));
  return imm->value() == (highest ? top : -top - 1);
}

bool IsIdentity(const Monoid& monoid, const Expr& literal) {
  DLDataType dtype = DTypeOf(literal);
  switch (monoid.id) {
    case MonoidId::kSum:
    case MonoidId::kOr:
    case MonoidId::kBitOr:
    case MonoidId::kBitXor:
      return IsConst(literal, 0);
    case MonoidId::kProduct:
    case MonoidId::kAnd:
      return IsConst(literal, 1);
    case MonoidId::kMax:
      return IsLowest(literal, dtype, false);
    case MonoidId::kMin:
      return IsLowest(literal, dtype, true);
    case MonoidId::kBitAnd:
      return dtype.code == kDLInt ? IsConst(literal, -1) : IsLowest(literal, dtype, true);
  }
  return false;
}

}  // namespace

const Monoid* MonoidOf(NodeKind kind) {
  for (const Monoid& row : kMonoids) {
    if (row.combiner == kind) return &row;
  }
  // acc - t is acc + (-t)
  return kind == NodeKind::kSub ? &MonoidOf(MonoidId::kSum) : nullptr;
}

const Monoid& MonoidOf(MonoidId id) { return kMonoids[static_cast<int>(id)]; }

Expr Combine(const Monoid& monoid, const Expr& a, const Expr& b) {
  if (IsIdentity(monoid, a)) return b;
  if (IsIdentity(monoid, b)) return a;
  return CallGlobal(monoid.make, a, b, nullptr).cast<Expr>();
}

}  // namespace fuse_epilogue
