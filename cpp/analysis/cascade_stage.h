/*!
 * \file analysis/cascade_stage.h
 * \brief One reduction of a cascade, read in the variables of the cascade.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_CASCADE_STAGE_H_
#define FUSE_EPILOGUE_ANALYSIS_CASCADE_STAGE_H_

#include <vector>

#include "analysis/cascade.h"
#include "analysis/dataflow.h"

namespace fuse_epilogue {

/*!
 * \brief The first reduction of a cascade, which gives it its rows and keys.
 * \return One stage, or one for each value of a block that reduces several.
 * \throws Refusal if nothing can share its loop.
 */
std::vector<CascadeStage> ReadHeadStages(const Site& site, const CascadeOptions& options,
                                         std::vector<Axis>* rows, std::vector<Axis>* keys);

/*!
 * \brief A reduction that reads results of \p cascade, without its law.
 * \throws Refusal if it cannot be a stage.
 */
CascadeStage ReadStage(const Site& site, const CascadeOptions& options, const Dataflow& flow,
                       const Cascade& cascade);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_CASCADE_STAGE_H_
