/*!
 * \file schedule/shared_loops.h
 * \brief TVM's primitives on loops that a reduction shares with another block, a tail for example.
 *
 * Some of them believe that what they change in such loops is the reduction's own affair. They
 * compute something else then, store out of bounds, or die; here they are refused.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_SHARED_LOOPS_H_
#define FUSE_EPILOGUE_SCHEDULE_SHARED_LOOPS_H_

#include "ir/vocabulary.h"

namespace fuse_epilogue {

/*!
 * \brief Before vectorize: refuse a loop in which a buffer lives that each lane would need its own
 *        of.
 *
 * TVM allocates a buffer at the innermost loop around all its accesses. Where that is the
 * vectorized loop, or is inside of it, the buffer is shrunk to what one iteration needs, and all
 * lanes get that one. It does not matter while one block alone uses the buffer, and not where all
 * lanes store the same to it.
 *
 * \throws ffi::Error of kind ScheduleError.
 */
void CheckLanes(const ffi::ObjectRef& schedule, const ffi::Any& loop_rv);

/*!
 * \brief Before pad_einsum: refuse to enlarge a loop in which another block's axes run.
 * \param padding The multiples to which the extents of the block's axes are padded.
 * \throws ffi::Error of kind ScheduleError.
 */
void CheckPadding(const ffi::ObjectRef& schedule, const ffi::Any& block_rv,
                  const ffi::Any& padding);

/*!
 * \brief Before rfactor: refuse a reduction that has another block beside it in its loops.
 * \throws ffi::Error of kind ScheduleError.
 */
void CheckAlone(const ffi::ObjectRef& schedule, const ffi::Any& loop_rv);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_SHARED_LOOPS_H_
