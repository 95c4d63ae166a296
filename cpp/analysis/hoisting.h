/*!
 * \file analysis/hoisting.h
 * \brief What TVM moves in front of the conditions around it.
 *
 * Where statements of one loop repeat an operation without loads and calls, TVM computes it once,
 * before all of them (CommonSubexprElim). It takes every such operation for safe, a division too:
 * that a condition guards each of the two does not keep it from being computed.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_HOISTING_H_
#define FUSE_EPILOGUE_ANALYSIS_HOISTING_H_

#include <optional>
#include <vector>

#include "analysis/prover.h"

namespace fuse_epilogue {

/*!
 * \brief Find a division of \p expr that only a guard keeps from a divisor of 0, and that TVM would
 *        compute outside of the guard.
 * \param others What else is computed in the same loops, in the same axes.
 * \param parts How many expressions \p expr was made of; TVM sees what the same one repeats before.
 * \param copied Whether TVM copies a loop around \p expr, so that all of it is repeated.
 */
std::optional<ir::Expr> FindHoisted(const ir::Expr& expr, const std::vector<ir::Expr>& others,
                                    size_t parts, bool copied, const std::vector<Axis>& axes,
                                    const std::vector<ir::Expr>& assumptions);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_HOISTING_H_
