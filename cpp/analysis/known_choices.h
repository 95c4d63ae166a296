/*!
 * \file analysis/known_choices.h
 * \brief Choices whose condition is known.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_KNOWN_CHOICES_H_
#define FUSE_EPILOGUE_ANALYSIS_KNOWN_CHOICES_H_

#include <utility>
#include <vector>

#include "ir/tools.h"

namespace fuse_epilogue {

/*! \brief A condition, and whether it holds. */
using Known = std::pair<ir::Expr, bool>;

/*! \brief \p expr with every choice made whose condition is known. */
ir::Expr Resolve(const ir::Expr& expr, const std::vector<Known>& known);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_KNOWN_CHOICES_H_
