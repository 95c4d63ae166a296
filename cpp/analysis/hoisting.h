/*!
 * \file analysis/hoisting.h
 * \brief Keeps divisions where they are: TVM moves some in front of the conditions around them.
 *
 * Where a loop repeats an operation without loads and calls, TVM computes it once, before all that
 * use it (CommonSubexprElim). It takes every such operation for safe, a division too: no condition
 * holds it back. What a loop repeats is not known when blocks are fused: it may be unrolled later.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_HOISTING_H_
#define FUSE_EPILOGUE_ANALYSIS_HOISTING_H_

#include <vector>

#include "analysis/prover.h"

namespace fuse_epilogue {

/*!
 * \brief \p expr with the divisor of each division that TVM might move and that might then fault
 *        through a call (\see ir::MakeOpaque).
 * \param others What else the program computes: the sizes of its buffers are at least 1.
 */
ir::Expr PinDivisions(const ir::Expr& expr, const std::vector<ir::Node>& others,
                      const std::vector<ir::Expr>& assumptions);
/*! \brief The same of all expressions of a statement. */
ir::Stmt PinDivisions(const ir::Stmt& stmt, const std::vector<ir::Node>& others,
                      const std::vector<ir::Expr>& assumptions);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_HOISTING_H_
