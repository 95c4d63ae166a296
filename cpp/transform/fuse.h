/*!
 * \file transform/fuse.h
 * \brief The rewrite itself. Everything it relies on has been proved before it is called.
 */
#ifndef FUSE_EPILOGUE_TRANSFORM_FUSE_H_
#define FUSE_EPILOGUE_TRANSFORM_FUSE_H_

#include <utility>

#include "analysis/domain.h"

namespace fuse_epilogue {

/*! \brief The scope after the fusion, and the fused block in it. */
struct Fused {
  ir::SBlock scope_root;
  ir::SBlock block;
};

/*!
 * \brief Fuse an epilogue into its reduction.
 *
 *     T.init: acc[I(s)] = init                    T.init: D[O(h(s))] = value(init)
 *     acc[I(s)] = acc[I(s)] + t          ->       D[O(h(s))] = D[O(h(s))] + t
 *     D[O(v)] = value(acc[R(v)])
 *
 * \param axes The epilogue's axes as functions of the reduction's: v = h(s).
 */
Fused Fuse(const Scope& scope, const Reduction& reduction, const Epilogue& epilogue,
           const AxisMap& axes);

/*!
 * \brief The regions that \p block reads and writes, computed from its init and its body.
 *
 * TVM leaves a buffer that is both read and written out of the reads of a block with an init; a
 * buffer that the init itself reads (an in-place epilogue) is listed all the same.
 */
std::pair<ffi::Array<ir::TensorRegion>, ffi::Array<ir::TensorRegion>> RegionsOf(
    const ir::SBlock& block);

/*! \brief Whether \p block has no block inside and declares exactly the reads that it has. */
bool DeclaresItsReads(const ir::SBlock& block);

/*! \brief \p block with other reads, writes, init and body. */
ir::SBlock WithParts(const ir::SBlock& block, const ffi::Array<ir::TensorRegion>& reads,
                     const ffi::Array<ir::TensorRegion>& writes, const ffi::Any& init,
                     const ir::Stmt& body);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_TRANSFORM_FUSE_H_
