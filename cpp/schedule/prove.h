/*!
 * \file schedule/prove.h
 * \brief From a region and a block that reads it to the plan of a fusion: every check, in order.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_PROVE_H_
#define FUSE_EPILOGUE_SCHEDULE_PROVE_H_

#include "analysis/hazards.h"
#include "transform/fuse.h"

namespace fuse_epilogue {

/*! \brief The blocks around a fusion. */
struct Surroundings {
  const Scope& scope;
  /*! \brief The root block of the function; the scope itself, or a block around it. */
  ir::SBlock root;
  RegionCover region_cover;
};

/*!
 * \brief Prove that \p consumer may be fused into \p region.
 * \throws Refusal if it may not, or if nothing is left to do.
 */
FusionPlan Prove(const Surroundings& around, const Region& region, const Site& consumer,
                 const Options& options);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_PROVE_H_
