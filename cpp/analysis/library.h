/*!
 * \file analysis/library.h
 * \brief Which expressions call functions of the C library on a processor.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_LIBRARY_H_
#define FUSE_EPILOGUE_ANALYSIS_LIBRARY_H_

#include "ir/vocabulary.h"

namespace fuse_epilogue {

/*!
 * \brief Whether LLVM calls a function for \p expr, as for exp, instead of computing in place.
 *
 * LLVM has no vector version of such a function: it is called element by element, and what is
 * computed in the same loop may lose its vectors.
 */
bool CallsLibrary(const ir::Expr& expr);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_LIBRARY_H_
