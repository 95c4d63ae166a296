/*!
 * \file schedule/init_reads.h
 * \brief TVM's primitives that take the init of a block apart, for an init that reads a buffer.
 *
 * TVM assumes that an init is a constant. Where its primitives move an init (decompose_reduction,
 * blockize, and tensorize through it), they do not look at what it reads: the new block declares no
 * reads, so the producer of a bias may later be moved below it, or the init is moved above that
 * producer at once. Here the first is repaired, and what cannot be repaired is refused.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_INIT_READS_H_
#define FUSE_EPILOGUE_SCHEDULE_INIT_READS_H_

#include "ir/vocabulary.h"

namespace fuse_epilogue {

/*!
 * \brief Before decompose_reduction: refuse to move an init above the block that writes what it
 * reads.
 * \throws ffi::Error of kind ScheduleError.
 */
void CheckDecomposition(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block_rv,
                        const ffi::ObjectRef& loop_rv);

/*!
 * \brief After decompose_reduction: declare what the two blocks read; a constant init changes
 * nothing.
 * \param init_rv The init block that decompose_reduction returned.
 * \param update_rv The block that was decomposed.
 */
void RepairDecomposition(const ffi::ObjectRef& schedule, const ffi::ObjectRef& init_rv,
                         const ffi::ObjectRef& update_rv);

/*!
 * \brief Before blockize or tensorize: refuse a block whose init reads a buffer.
 * \param primitive The primitive's name, for the message.
 * \param target A random variable of a block or a loop, or an array of those.
 * \throws ffi::Error of kind ScheduleError.
 */
void CheckNoInitReads(const ffi::ObjectRef& schedule, const char* primitive,
                      const ffi::Any& target);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_INIT_READS_H_
