#include "analysis/comparison.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

std::optional<std::pair<Expr, Expr>> Comparands(const Expr& expr) {
  switch (expr.kind()) {
#define CASE(T)        \
  case NodeKind::k##T: \
    return std::make_pair(T(expr).a(), T(expr).b());
    CASE(Less)
    CASE(LessEqual)
    CASE(Greater)
    CASE(GreaterEqual)
    CASE(Equal)
    CASE(NotEqual)
#undef CASE
    default:
      return std::nullopt;
  }
}

NodeKind Opposite(NodeKind comparison) {
  switch (comparison) {
    case NodeKind::kLess:
      return NodeKind::kGreaterEqual;
    case NodeKind::kLessEqual:
      return NodeKind::kGreater;
    case NodeKind::kGreater:
      return NodeKind::kLessEqual;
    case NodeKind::kGreaterEqual:
      return NodeKind::kLess;
    case NodeKind::kEqual:
      return NodeKind::kNotEqual;
    default:
      return NodeKind::kEqual;
  }
}

NodeKind Mirrored(NodeKind comparison) {
  switch (comparison) {
    case NodeKind::kLess:
      return NodeKind::kGreater;
    case NodeKind::kLessEqual:
      return NodeKind::kGreaterEqual;
    case NodeKind::kGreater:
      return NodeKind::kLess;
    case NodeKind::kGreaterEqual:
      return NodeKind::kLessEqual;
    default:
      return comparison;
  }
}

Interval Satisfying(NodeKind comparison, const Interval& bound) {
  constexpr WideInt kAny = WideInt{1} << 100;
  switch (comparison) {
    case NodeKind::kLess:
      return Interval{-kAny, bound.high - 1};
    case NodeKind::kLessEqual:
      return Interval{-kAny, bound.high};
    case NodeKind::kGreater:
      return Interval{bound.low + 1, kAny};
    case NodeKind::kGreaterEqual:
      return Interval{bound.low, kAny};
    case NodeKind::kEqual:
      return bound;
    default:
      return Interval{-kAny, kAny, bound.low == 0 && bound.high == 0};
  }
}

}  // namespace fuse_epilogue
