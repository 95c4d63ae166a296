/*!
 * \file analysis/strides.h
 * \brief Whether declared strides let two elements of a buffer meet in one place of memory.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_STRIDES_H_
#define FUSE_EPILOGUE_ANALYSIS_STRIDES_H_

#include "analysis/refusal.h"

namespace fuse_epilogue {

/*!
 * \brief Refuse a buffer that a block stores to if its elements may overlap: a stride of 0, or rows
 *        that are longer than the distance between them. Strides that are no constants are the
 *        caller's duty, and an extent that is none is taken to be 2.
 */
void CheckPlacesDiffer(const ir::SBlock& block, const ir::Var& buffer);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_STRIDES_H_
