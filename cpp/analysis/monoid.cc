#include "analysis/monoid.h"

#include <limits>

#include "analysis/spellings.h"
#include "ir/unify.h"

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

// The combiner has several nodes, in one of several spellings.
template <typename Spelled>
std::optional<Combination> MatchSpelled(const Expr& value) {
  if (!Spelled::MayBe(value)) return std::nullopt;
  Var x = MakeVar("x", value), y = MakeVar("y", value);
  for (const Expr& spelling : Spelled::Of(x, y)) {
    auto found = Unify(spelling, value, {x.get(), y.get()});
    if (!found) continue;
    auto of = [spelling, x, y](const Expr& a, const Expr& b) {
      return Substitute(spelling, {{x.get(), a}, {y.get(), b}});
    };
    return Combination{found->at(x.get()), found->at(y.get()), of};
  }
  return std::nullopt;
}

template <typename Spelled>
Expr MakeSpelled(const Expr& x, const Expr& y) {
  return Spelled::Of(x, y).front();
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
  1, MatchNode<NodeKind::k##Name, Fn::Name##Node>, Make<Fn::Name>, Make<Fn::Name##Node>
#define SPELLED(Name, height) \
  height, MatchSpelled<spellings::Name>, MakeSpelled<spellings::Name>, MakeSpelled<spellings::Name>

constexpr Monoid kMonoids[] = {
#define MONOID(Id, ...) {MonoidId::k##Id, __VA_ARGS__},
#include "analysis/monoid.def"
};
#undef SPELLED
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

std::string MonoidNames() {
  std::string names;
  for (const Monoid& row : kMonoids) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
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
