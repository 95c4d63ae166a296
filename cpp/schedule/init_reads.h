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
#include <vector>

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

/*! \brief A primitive of TVM that must not see a block whose init reads a buffer. */
struct Guard {
  /*! \brief Its function, instruction kind, and name in errors. */
  ir::Fn function;
  const char* instruction;
  const char* primitive;
  /*! \brief Whether only an init that reads the block's own output is in its way. */
  bool in_place_only;
  /*! \brief Which of its inputs is the block (0 is the first after the schedule). */
  int input;
};

/*! \brief The table of guarded primitives. */
const std::vector<Guard>& Guards();

/*!
 * \brief Before a guarded primitive: refuse a block whose init is in its way.
 * \param target A random variable of a block or a loop, or an array of those.
 * \throws ffi::Error of kind ScheduleError.
 */
void CheckGuard(const Guard& guard, const ffi::ObjectRef& schedule, const ffi::Any& target);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_INIT_READS_H_
