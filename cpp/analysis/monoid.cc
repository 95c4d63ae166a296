#include "analysis/monoid.h"

namespace fuse_epilogue {

using ir::NodeKind;

namespace {
constexpr Monoid kMonoids[] = {
    // combiner            name           absorbs: (i + t + ...) + c == (i + c) + t + ...
    {NodeKind::kAdd, "sum", true},
    {NodeKind::kSub, "sum", true},  // acc - t is acc + (-t)
    {NodeKind::kMul, "product", false},
    {NodeKind::kMax, "max", false},
    {NodeKind::kMin, "min", false},
    {NodeKind::kAnd, "logical and", false},
    {NodeKind::kOr, "logical or", false},
    {NodeKind::kBitwiseAnd, "bit-wise and", false},
    {NodeKind::kBitwiseOr, "bit-wise or", false},
    {NodeKind::kBitwiseXor, "bit-wise xor", false},
};
}  // namespace

const Monoid* MonoidOf(const ir::Expr& value) {
  for (const Monoid& row : kMonoids) {
    if (row.combiner == value.kind()) return &row;
  }
  return nullptr;
}

}  // namespace fuse_epilogue
