/*!
 * \file analysis/guarded.h
 * \brief Operations that are evaluated under a condition only.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_GUARDED_H_
#define FUSE_EPILOGUE_ANALYSIS_GUARDED_H_

#include <vector>

#include "analysis/prover.h"

namespace fuse_epilogue {

/*!
 * \brief Whether some part of \p root that equals \p node is evaluated whenever \p root is.
 *
 * What is guarded: both values of if_then_else and of Select, and the right operand of a logical
 * and or or.
 */
bool IsAlwaysEvaluated(const ir::Expr& node, const ir::Expr& root);

/*!
 * \brief Make each Select, `and` and `or` an if_then_else if what it does not need may fault.
 *
 * Not an `and` or `or` whose first operand may fault as well.
 *
 * TVM makes a Select lazy itself, but only where the condition is one boolean: in a vectorized loop
 * both values are computed, for all lanes. `and` and `or` compute both operands on LLVM; a load
 * that nothing uses may be left out there, and need not be elsewhere. What moves into the loops of
 * a reduction may meet either. (An overflow, a shift or a cast in a value that is not selected
 * faults nowhere: those stay in vectors.) Bounds of indices and divisors, and guards, of which the
 * condition says something prove nothing: TVM's simplifier leaves them out under it.
 */
ir::Expr MakeChoicesLazy(const ir::Expr& expr, const std::vector<Axis>& axes,
                         const std::vector<ir::Expr>& assumptions);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_GUARDED_H_
