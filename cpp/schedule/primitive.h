/*!
 * \file schedule/primitive.h
 * \brief `fuse_reduction_epilogue` on a schedule: find the blocks, prove, rewrite, record.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_PRIMITIVE_H_
#define FUSE_EPILOGUE_SCHEDULE_PRIMITIVE_H_

#include <optional>
#include <string>
#include <vector>

#include "analysis/refusal.h"

namespace fuse_epilogue {

/*! \brief One epilogue that was fused. */
struct FusionStep {
  std::string epilogue;
  std::string absorbed;
  std::string removed;
};

/*! \brief What a call did. */
struct FusionReport {
  std::string reduction;
  std::string output;
  std::vector<FusionStep> steps;
  /*! \brief Why the consumer after the last step stays; nothing if there is no consumer. */
  std::optional<Refusal> stopped;
};

/*!
 * \brief Fuse and record the call on the schedule's trace, if it has one.
 * \param schedule A tvm.s_tir.Schedule.
 * \param block The reduction, or (without \p epilogue) a block that reads its result.
 * \param epilogue The one epilogue to fuse, or None for every one that follows.
 * \throws ffi::Error of kind ScheduleError where the first fusion is refused; nothing has changed.
 */
FusionReport FuseReductionEpilogue(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block,
                                   const ffi::Any& epilogue);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_PRIMITIVE_H_
