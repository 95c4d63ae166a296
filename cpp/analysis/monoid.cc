#include "analysis/monoid.h"

namespace fuse_epilogue {

using ir::NodeKind;

namespace {
constexpr Monoid kMonoids[] = {
    // combiner       name           absorbs: (init + t0 + ...) + c == (init + c) + t0 + ...
    {NodeKind::kAdd, "sum", true},
    {NodeKind::kSub, "sum", true},  // acc - t is acc + (-t)
    {NodeKind::kMul, "product", false},
    {NodeKind::kMax, "max", false},
    {NodeKind::kMin, "min", false},
    {NodeKind::kAnd, "logical and", false},
    {NodeKind::kOr, "logical or", false},
};
}  // namespace

const Monoid* MonoidOf(const ir::Expr& value) {
  for (const Monoid& row : kMonoids) {
    if (row.combiner == value.kind()) return &row;
  }
  return nullptr;
}

}  // namespace fuse_epilogue
