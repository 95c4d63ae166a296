#include "analysis/monoid.h"

#include <limits>

#include "analysis/log_add_exp.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

template <Fn fn>
Expr Make(const Expr& x, const Expr& y) {
  return CallGlobal(fn, x, y, nullptr).cast<Expr>();
}

// The combiner is one node.
template <NodeKind kind, Fn node>
std::optional<Combination> MatchNode(const Expr& value) {
  if (value.kind() != kind) return std::nullopt;
  auto [x, y] = *Operands(value);
  return Combination{x, y, Make<node>};
}

template <int value>
bool Is(const Expr& literal) {
  return IsConst(literal, value);
}

// Of integers only the ends that a literal holds; of floats infinity and not the largest finite
// one, which is no identity for infinity.
bool IsEnd(const Expr& literal, bool highest) {
  if (auto imm = As<FloatImm>(literal)) {
    double infinity = std::numeric_limits<double>::infinity();
    return imm->value() == (highest ? infinity : -infinity);
  }
  auto imm = As<IntImm>(literal);
  if (!imm) return false;
  DLDataType dtype = DTypeOf(literal);
  if (dtype.code == kDLUInt) {
    if (!highest) return imm->value() == 0;
    return dtype.bits < 64 && imm->value() == (int64_t{1} << dtype.bits) - 1;
  }
  if (dtype.code != kDLInt) return false;
  int64_t top = static_cast<int64_t>(~uint64_t{0} >> (65 - dtype.bits));
  return imm->value() == (highest ? top : -top - 1);
}
bool IsLowest(const Expr& literal) { return IsEnd(literal, false); }
bool IsHighest(const Expr& literal) { return IsEnd(literal, true); }
bool IsAllOnes(const Expr& literal) {
  return DTypeOf(literal).code == kDLInt ? IsConst(literal, -1) : IsHighest(literal);
}

constexpr unsigned kNumbers = kFloats | kIntegers;

// A combiner of one node, Name, that Fn::Name folds and Fn::NameNode does not.
#define NODE(Name) \
  MatchNode<NodeKind::k##Name, Fn::Name##Node>, Make<Fn::Name>, Make<Fn::Name##Node>

// Every row absorbs its own combiner: init (+) t_0 (+) ... (+) c == (init (+) c) (+) t_0 (+) ...
// What distributes over a row is in distributions.cc. A row whose combinations are also those of
// another one, which would take them for something else, is before that one.
constexpr Monoid kMonoids[] = {
    // id, name, types, rounds, height, clashes, match, make, make_node, is_identity
    {MonoidId::kLogAddExp, "logaddexp", kFloats, true, 7, true, MatchLogAddExp, MakeLogAddExp,
     MakeLogAddExp, IsLowest},
    {MonoidId::kSum, "sum", kNumbers, true, 1, false, NODE(Add), Is<0>},
    {MonoidId::kProduct, "product", kNumbers, true, 1, false, NODE(Mul), Is<1>},
    {MonoidId::kMax, "max", kNumbers, false, 1, false, NODE(Max), IsLowest},
    {MonoidId::kMin, "min", kNumbers, false, 1, false, NODE(Min), IsHighest},
    {MonoidId::kAnd, "logical and", kBools, false, 1, false, NODE(And), Is<1>},
    {MonoidId::kOr, "logical or", kBools, false, 1, false, NODE(Or), Is<0>},
    {MonoidId::kBitAnd, "bit-wise and", kIntegers, false, 1, false, NODE(BitwiseAnd), IsAllOnes},
    {MonoidId::kBitOr, "bit-wise or", kIntegers, false, 1, false, NODE(BitwiseOr), Is<0>},
    {MonoidId::kBitXor, "bit-wise xor", kIntegers, false, 1, false, NODE(BitwiseXor), Is<0>},
};
#undef NODE

}  // namespace

unsigned TypesOf(DLDataType dtype) {
  if (IsBool(dtype)) return kBools;
  if (IsFloat(dtype)) return kFloats;
  if (!IsInteger(dtype)) return 0;
  if (dtype.bits < 32) return kNarrow;
  return dtype.code == kDLInt ? kSigned : kUnsigned;
}

const Monoid* MonoidOf(const Expr& value) {
  for (const Monoid& row : kMonoids) {
    if (Split(value, row)) return &row;
  }
  return nullptr;
}

const Monoid& MonoidOf(MonoidId id) { return kMonoids[static_cast<int>(id)]; }

std::optional<Combination> Split(const Expr& value, const Monoid& monoid) {
  auto sub = As<Sub>(value);
  // acc - t is acc + (-t)
  if (sub && monoid.id == MonoidId::kSum) return Combination{sub->a(), sub->b(), Make<Fn::SubNode>};
  return monoid.match(value);
}

Expr Combine(const Monoid& monoid, const Expr& a, const Expr& b) {
  if (monoid.is_identity(a)) return b;
  if (monoid.is_identity(b)) return a;
  return monoid.make(a, b);
}

}  // namespace fuse_epilogue
