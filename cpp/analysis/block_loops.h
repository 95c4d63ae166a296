/*!
 * \file analysis/block_loops.h
 * \brief A block's own loops: every point of its axes once, and a reduction's init first.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_BLOCK_LOOPS_H_
#define FUSE_EPILOGUE_ANALYSIS_BLOCK_LOOPS_H_

#include "analysis/pattern.h"

namespace fuse_epilogue {

/*! \brief The loops that the bindings of the reduction axes use. */
ir::VarSet ReductionLoops(const Reduction& reduction);

/*!
 * \brief Prove the reduction's own schedule: every point once, init first, serial reduction loops.
 * \return The (injective) bindings of the block as a map of the loops.
 */
InjectiveMap CheckReductionLoops(const Reduction& reduction);

/*! \brief Prove that the epilogue's loops visit every point of its axes exactly once. */
InjectiveMap CheckEpilogueLoops(const Epilogue& epilogue);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_BLOCK_LOOPS_H_
