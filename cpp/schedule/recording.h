/*!
 * \file schedule/recording.h
 * \brief What a call of the primitive has done, step by step, in its report.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_RECORDING_H_
#define FUSE_EPILOGUE_SCHEDULE_RECORDING_H_

#include "schedule/report.h"

namespace fuse_epilogue {

/*! \brief Add a fusion that \p plan describes. The first one also records the reduction as it was.
 */
void RecordFusion(const FusionPlan& plan, FusionReport* report);

/*! \brief Add what is known only when all is done: the tails, and what is left of intermediates.
 *  \param region The region after the last fusion. */
void RecordOutcome(const Scope& scope, const Region& region, FusionReport* report);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_RECORDING_H_
