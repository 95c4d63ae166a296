/*!
 * \file analysis/views.h
 * \brief Buffers that go by two names, because a block around has taken a view of them.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_VIEWS_H_
#define FUSE_EPILOGUE_ANALYSIS_VIEWS_H_

#include "analysis/scope.h"

namespace fuse_epilogue {

/*!
 * \brief Whether \p scope writes memory that it uses by two names, one of them among \p used.
 * \param root The root block of the function: the scope's own, or one around it.
 */
bool HasTwoNames(const ir::SBlock& root, const Scope& scope, const ir::VarSet& used);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_VIEWS_H_
