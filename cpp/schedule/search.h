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

/*!
 * \brief The name of a tensor intrinsic that nobody registers, which says what a trace needs.
 *
 * A process that has TVM but not this package would replay a recorded fusion by TVM's own primitive
 * of that name, or fail with a message about numbers of inputs. A step `tensorize` by this
 * intrinsic in front of it makes TVM fail with this text. Where this package is loaded the step
 * does nothing.
 */
inline constexpr const char* kNeedsPackage =
    "(none: this trace needs the Python package fuse_epilogue, which is not loaded; "
    "install it and `import fuse_epilogue` before reading the trace or its database)";

/*! \brief Whether these are the attributes of such a step. */
bool SaysNeedsPackage(const ffi::Array<ffi::Any>& attrs);

/*! \brief Put the step that says so on the trace, unless it is there; it follows on \p block. */
void RecordNeedsPackage(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_SEARCH_H_
