/*!
 * \file analysis/common_loops.h
 * \brief Loops around both a reduction and an epilogue.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_COMMON_LOOPS_H_
#define FUSE_EPILOGUE_ANALYSIS_COMMON_LOOPS_H_

#include "analysis/element_map.h"

namespace fuse_epilogue {

/*!
 * \brief Prove that one iteration of the loops around both blocks consumes what it computes.
 *
 * The loops are functions of the block's axes (the bindings are injective): both functions must be
 * equal where s and h(s) are the axes, and must not depend on the reduction axes.
 */
void CheckSharedLoops(const Reduction& reduction, const InjectiveMap& reduction_loops,
                      const Epilogue& epilogue, const InjectiveMap& epilogue_loops,
                      const AxisMap& axes, size_t common_steps);

/*! \brief Throw a Refusal if a loop around both blocks is a reduction loop: sums are partial there.
 */
void CheckCompleteSums(const Reduction& reduction, const Epilogue& epilogue, size_t common_steps);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_COMMON_LOOPS_H_
