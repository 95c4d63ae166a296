/*!
 * \file analysis/comparison.h
 * \brief Comparisons of integers, and the numbers that satisfy them.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_COMPARISON_H_
#define FUSE_EPILOGUE_ANALYSIS_COMPARISON_H_

#include <optional>
#include <utility>

#include "analysis/interval.h"

namespace fuse_epilogue {

/*! \brief The two sides of a comparison. */
std::optional<std::pair<ir::Expr, ir::Expr>> Comparands(const ir::Expr& expr);

/*! \brief The comparison that holds where \p comparison does not. */
ir::NodeKind Opposite(ir::NodeKind comparison);

/*! \brief The comparison with the operands exchanged. */
ir::NodeKind Mirrored(ir::NodeKind comparison);

/*! \brief The numbers for which a comparison with one of \p bound may hold. */
Interval Satisfying(ir::NodeKind comparison, const Interval& bound);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_COMPARISON_H_
