/*!
 * \file schedule/decompose.h
 * \brief TVM's decompose_reduction, with the reads of an init that is not a constant.
 *
 * TVM gives the init block that it creates no reads at all, and leaves in the update block the
 * reads that only the init had. With a bias in the init, dependence analysis would then not see
 * that the bias must be ready first: its producer could be moved below the init.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_DECOMPOSE_H_
#define FUSE_EPILOGUE_SCHEDULE_DECOMPOSE_H_

#include "ir/vocabulary.h"

namespace fuse_epilogue {

/*!
 * \brief After a decomposition, declare what the two blocks read; a constant init changes nothing.
 * \param schedule The schedule.
 * \param init_rv The init block that decompose_reduction returned.
 * \param update_rv The block that was decomposed.
 */
void RepairDecomposition(const ffi::ObjectRef& schedule, const ffi::ObjectRef& init_rv,
                         const ffi::ObjectRef& update_rv);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_DECOMPOSE_H_
