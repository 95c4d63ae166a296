/*!
 * \file analysis/init_uses.h
 * \brief The buffers that the init of a block reads, whatever statement the init is.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_INIT_USES_H_
#define FUSE_EPILOGUE_ANALYSIS_INIT_USES_H_

#include "ir/tools.h"

namespace fuse_epilogue {

/*!
 * \brief The buffers, as the scope of \p block knows them, that its init reads.
 *
 * TVM writes an init as one store, and as loops, sequences and nested blocks once the block is
 * blockized or tensorized. A load counts in all of them, the target of a store does not. A buffer
 * that is used by its address (an intrinsic, address_of, an access pointer) counts, unless the
 * innermost block around says that it writes the buffer and does not read it. So does a buffer that
 * a nested block declares to read: an external call may access it out of sight. A matched or
 * declared buffer counts as the buffer that it is a part of, and one that the init itself allocates
 * does not count.
 */
ir::VarSet BuffersReadByInit(const ir::SBlock& block);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_INIT_USES_H_
