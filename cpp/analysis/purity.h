/*!
 * \file analysis/purity.h
 * \brief Blocks without side effects.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_PURITY_H_
#define FUSE_EPILOGUE_ANALYSIS_PURITY_H_

#include "ir/vocabulary.h"

namespace fuse_epilogue {

/*!
 * \brief Throw a Refusal unless every call in the block, also in its init, has no effect.
 * \param pure A part of it of which that is known; may be undefined.
 */
void CheckPure(const ir::SBlock& block, const ir::Expr& pure = {});

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_PURITY_H_
