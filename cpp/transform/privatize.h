/*!
 * \file transform/privatize.h
 * \brief Buffers of a region that only one GPU thread sees become local to it.
 */
#ifndef FUSE_EPILOGUE_TRANSFORM_PRIVATIZE_H_
#define FUSE_EPILOGUE_TRANSFORM_PRIVATIZE_H_

#include <vector>

#include "analysis/region.h"

namespace fuse_epilogue {

/*!
 * \brief The buffers of \p region in global memory that nothing outside the region uses, if the
 *        reduction runs in GPU threads.
 *
 * A tail has the thread loops of its reduction, so that every element is read by the thread that
 * computed it: its memory may be the thread's own. It has to be, too: TVM cannot allocate global
 * memory in a kernel.
 */
std::vector<ir::Var> PrivateBuffers(const Scope& scope, const Region& region);

/*! \brief \p buffer in the storage scope "local", as a new buffer named like set_scope names it. */
ir::Var AsLocal(const ir::Var& buffer);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_TRANSFORM_PRIVATIZE_H_
