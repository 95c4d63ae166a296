/*!
 * \file analysis/cascade_start.h
 * \brief Maxima that start at -inf, and minima that start at +inf, as carriers of a sum.
 *
 * From a finite start no difference of two infinities arises. From -inf one does while all keys so
 * far are -inf: exp(x - r) is exp(-inf + inf). Therefore the terms of a block read 0 in the place
 * of such a result. They are exp(-inf) = 0 then, NaN for a NaN, and their sum is 0 or NaN; the
 * quotient exp(-inf - r') = 0 corrects it when r' becomes finite. Of a row that is -inf until the
 * end the program computes NaN; a Select after the loop does the same.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_CASCADE_START_H_
#define FUSE_EPILOGUE_ANALYSIS_CASCADE_START_H_

#include <vector>

#include "analysis/cascade.h"
#include "analysis/row_factors.h"

namespace fuse_epilogue {

/*! \brief Whether the start is a finite literal. */
bool StartsFinite(const CascadeStage& carrier);

/*! \brief Whether a maximum starts at -inf, or a minimum at +inf. */
bool StartsAtInfinity(const CascadeStage& carrier);

/*! \brief The result of \p carrier, or 0 where it is what it started at. */
ir::Expr FiniteValue(const CascadeStage& carrier);

/*! \brief \p result, or NaN where the result of \p carrier is what it started at. */
ir::Expr NaNAtStart(const CascadeStage& carrier, const ir::Expr& result);

/*!
 * \brief Whether an exponential factor is NaN wherever its carrier and all keys of the row are the
 *        infinity that the carrier started at. Expanding the keys may be needed to see that.
 */
bool IsNaNAtStart(const Cascade& cascade, const RowFactor& factor);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_CASCADE_START_H_
