/*!
 * \file analysis/special_factors.h
 * \brief Factors that compare a key with a result, or are its distance from one.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_SPECIAL_FACTORS_H_
#define FUSE_EPILOGUE_ANALYSIS_SPECIAL_FACTORS_H_

#include <optional>

#include "analysis/row_factors.h"

namespace fuse_epilogue {

/*! \brief x == r for a result r; where x <= r, x >= r says the same. */
std::optional<RowFactor> EqualityIn(const Cascade& cascade, const ir::Expr& condition);

/*! \brief x - r, r - x, for the extreme r: all of one sign, so that nothing cancels. */
std::optional<RowFactor> DifferenceIn(const Cascade& cascade, const ir::Expr& node);

/*! \brief d * d or pow(d, 2) with d = x - r / N, for a sum r. */
std::optional<RowFactor> SquaredDeviationIn(const Cascade& cascade, const ir::Expr& node);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_SPECIAL_FACTORS_H_
