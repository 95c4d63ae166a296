/*!
 * \file transform/regions.h
 * \brief The regions that a block reads and writes, and the ones it declares.
 */
#ifndef FUSE_EPILOGUE_TRANSFORM_REGIONS_H_
#define FUSE_EPILOGUE_TRANSFORM_REGIONS_H_

#include <utility>

#include "ir/tools.h"

namespace fuse_epilogue {

using Regions = ffi::Array<ir::TensorRegion>;

/*!
 * \brief The regions that \p block reads and writes, computed from its init and its body.
 *
 * TVM leaves a buffer that is both read and written out of the reads of a block with an init; a
 * buffer that the init itself reads (an in-place epilogue) is listed all the same.
 */
std::pair<Regions, Regions> RegionsOf(const ir::SBlock& block);

/*! \brief Whether \p block has no block inside and declares exactly the reads that it has. */
bool DeclaresItsReads(const ir::SBlock& block);

/*!
 * \brief The reads to declare for a block that was \p old and reads \p computed now.
 *
 * A user may have declared larger reads than the body has. Then his stay, without those of
 * \p gone, and what is new is appended.
 */
Regions MergeReads(const ir::SBlock& old, const Regions& computed, const ir::Var& gone);

/*! \brief \p block, which was \p old and may declare anything, with the regions to declare. */
ir::SBlock WithItsRegions(const ir::SBlock& old, const ir::SBlock& block, const ir::Var& gone);

/*! \brief One element. */
ir::TensorRegion PointRegion(const ir::Var& buffer, const ffi::Array<ir::Expr>& indices);

/*! \brief \p block with other reads, writes, init and body. */
ir::SBlock WithParts(const ir::SBlock& block, const Regions& reads, const Regions& writes,
                     const ffi::Any& init, const ir::Stmt& body);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_TRANSFORM_REGIONS_H_
