/*!
 * \file analysis/distributions.h
 * \brief The table of what distributes over a monoid.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_DISTRIBUTIONS_H_
#define FUSE_EPILOGUE_ANALYSIS_DISTRIBUTIONS_H_

#include <optional>
#include <vector>

#include "analysis/monoid.h"

namespace fuse_epilogue {

enum Side { kLeft, kRight, kEither, kUnary };
// What h costs in every term. A subtraction instead of an addition is free.
enum Cost { kFree, kWork };
// kFinite: a literal, since an infinity would make NaN of infinities.
enum Literal { kAnything, kPositive, kNegative, kFinite };

/*! \brief A row of the table in distributions.cc: h distributes over a monoid. */
struct Distribution {
  ir::NodeKind node;
  ir::Fn make;
  Side x;  // the operand that x is
  MonoidId from;
  MonoidId to;
  unsigned types;
  Cost cost;
  Literal operand;
};

/*! \brief All rows; the first that fits counts. */
const std::vector<Distribution>& Distributions();

/*! \brief Whether \p operand is one that the row is for. */
bool Fits(Literal wanted, const std::optional<ir::Expr>& operand);

/*! \brief Whether a floating type holds the number with all its precision: neither zero nor
 *         denormal, neither infinite nor NaN. False of a type that is not in the table. */
bool IsNormal(double value, DLDataType dtype);

/*! \brief Whether \p node scales by what its type holds. A literal factor or divisor that it does
 * not hold turns every term into a zero, an infinity or NaN, and other terms into other ones: it is
 * left for the finished element. */
bool Scales(ir::NodeKind node, const std::optional<ir::Expr>& operand);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_DISTRIBUTIONS_H_
