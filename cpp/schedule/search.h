/*!
 * \file schedule/search.h
 * \brief What TVM's MetaSchedule needs to search among schedules with fused blocks.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_SEARCH_H_
#define FUSE_EPILOGUE_SCHEDULE_SEARCH_H_

#include "ir/vocabulary.h"

namespace fuse_epilogue {

/*!
 * \brief Decompose every reduction whose init reads a buffer, as MetaSchedule's postprocessor
 *        RewriteReductionBlock does with all reductions: before the outermost reduction loop.
 *
 * TVM's own calls TVM's decompose_reduction, which takes the init for a constant. After this one,
 * it finds only reductions of which that is true.
 *
 * \return False if the schedule cannot be built so: the init would pass the block that writes what
 *         it reads, or a reduction loop is bound to threads, which TVM refuses when it lowers it.
 */
bool DecomposeInitReads(const ffi::ObjectRef& schedule);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_SEARCH_H_
