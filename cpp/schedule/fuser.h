/*!
 * \file schedule/fuser.h
 * \brief One call of the primitive, wherever the blocks are: find, prove, rewrite, report.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_FUSER_H_
#define FUSE_EPILOGUE_SCHEDULE_FUSER_H_

#include <optional>

#include "schedule/ground.h"
#include "schedule/report.h"

namespace fuse_epilogue {

/*!
 * \brief Fuse a reduction with what follows it.
 * \param block The reduction, or (without \p epilogue) a block that reads its result.
 * \param epilogue The one epilogue to fuse, or nothing for every one that follows.
 * \throws Refusal where nothing can be fused; nothing has changed then.
 */
FusionReport RunFusion(Ground* ground, const ir::SBlock& block,
                       const std::optional<ir::SBlock>& epilogue, const Options& options);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_FUSER_H_
