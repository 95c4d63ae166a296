/*!
 * \file schedule/primitive.h
 * \brief `fuse_reduction_epilogue` on a schedule: find the blocks, prove, rewrite, record.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_PRIMITIVE_H_
#define FUSE_EPILOGUE_SCHEDULE_PRIMITIVE_H_

#include <optional>

#include "schedule/report.h"

namespace fuse_epilogue {

/*!
 * \brief Fuse and record the call on the schedule's trace, if it has one.
 * \param schedule A tvm.s_tir.Schedule.
 * \param block The reduction, or (without \p epilogue) a block that reads its result.
 * \param epilogue The one epilogue to fuse, or None for every one that follows.
 * \throws ffi::Error of kind ScheduleError where nothing can be fused; nothing has changed then.
 */
FusionReport FuseReductionEpilogue(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block,
                                   const ffi::Any& epilogue, const Options& options);

/*!
 * \brief What FuseReductionEpilogue would do. Neither the schedule nor its trace is touched.
 * \return A report without steps, with the refusal in `stopped`, where it would throw.
 */
FusionReport AnalyzeReductionEpilogue(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block,
                                      const ffi::Any& epilogue, const Options& options);

/*! \brief The options as attributes of an instruction; none for the defaults. */
ffi::Array<ffi::Any> AttrsOf(const Options& options);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_PRIMITIVE_H_
