/*!
 * \file schedule/init_reads.h
 * \brief TVM's primitives on a block whose init reads a buffer.
 *
 * TVM assumes that an init is a constant. Where its primitives move an init (decompose_reduction,
 * blockize, and tensorize through it), they do not look at what it reads: the new block declares no
 * reads, so the producer of a bias may later be moved below it, or the init is moved above that
 * producer at once. Where they give the output another buffer (cache_write and its like), an init
 * that reads the output would read the new, unwritten one. Here the first is repaired, and what
 * cannot be repaired is refused.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_INIT_READS_H_
#define FUSE_EPILOGUE_SCHEDULE_INIT_READS_H_

#include <functional>

#include "ir/vocabulary.h"

namespace fuse_epilogue {

/*!
 * \brief decompose_reduction for an init that may read a buffer.
 *
 * Refuses to move an init above the block that writes what it reads, or that uses the output
 * before; afterwards declares what the init and the update read.
 *
 * \param decompose Calls TVM's primitive and returns the random variable of the init block.
 * \throws ffi::Error of kind ScheduleError.
 */
ffi::ObjectRef DecomposeReduction(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block_rv,
                                  const ffi::ObjectRef& loop_rv,
                                  const std::function<ffi::ObjectRef()>& decompose);

/*! \brief Whether the init of a block reads a buffer. */
bool InitReadsAny(const ir::SBlock& block);

/*! \brief Which inits are in the way of a primitive. */
enum class InitInTheWay { kReadsAnything, kReadsItsOutput };

/*!
 * \brief Before a primitive that takes every init for a constant: refuse a block whose init is not.
 * \param target A random variable of a block or a loop, or an array of those.
 * \throws ffi::Error of kind ScheduleError.
 */
void CheckInits(const ffi::ObjectRef& schedule, const char* primitive, const ffi::Any& target,
                InitInTheWay kind);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_INIT_READS_H_
