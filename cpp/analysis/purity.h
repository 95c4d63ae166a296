/*!
 * \file analysis/purity.h
 * \brief Blocks without side effects.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_PURITY_H_
#define FUSE_EPILOGUE_ANALYSIS_PURITY_H_

#include "ir/vocabulary.h"

namespace fuse_epilogue {

/*! \brief Throw a Refusal unless every call in the block, also in its init, has no effect. */
void CheckPure(const ir::SBlock& block);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_PURITY_H_
