/*!
 * \file analysis/folding.h
 * \brief What TVM's simplifier makes of one expression in another.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_FOLDING_H_
#define FUSE_EPILOGUE_ANALYSIS_FOLDING_H_

#include "analysis/prover.h"

namespace fuse_epilogue {

/*!
 * \brief Whether TVM may compute another value of \p f with \p inner in the place of \p hole than
 *        of the two one after the other.
 *
 * To its simplifier floats are numbers: `(x + y) - y` is x, `x - x` is 0, and `not x < y` is
 * `y <= x`, whatever is rounded, infinite or NaN. Nor do narrow and unsigned integers wrap around:
 * `max(int32(x + int8(1)), -127)` is the first operand. And it fails where literals that it folds
 * leave their type, as in `x * 1073741828 * 4`. In separate stores it sees nothing of that.
 */
bool FoldsTogether(const ir::Expr& f, const ir::Var& hole, const ir::Expr& inner,
                   const std::vector<Axis>& axes);

/*! \brief The same where another rounding is allowed: whether an operand drops out. */
bool CancelsTogether(const ir::Expr& f, const ir::Var& hole, const ir::Expr& inner);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_FOLDING_H_
