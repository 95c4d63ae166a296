/*!
 * \file analysis/sum_law.h
 * \brief Sums whose terms read an earlier result.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_SUM_LAW_H_
#define FUSE_EPILOGUE_ANALYSIS_SUM_LAW_H_

#include "analysis/cascade.h"

namespace fuse_epilogue {

/*!
 * \brief Find the step, the correction and the tail of a sum that reads earlier stages.
 * \throws Refusal if no law holds.
 */
void ApplyToSum(const Cascade& cascade, const CascadeOptions& options, CascadeStage* stage);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_SUM_LAW_H_
