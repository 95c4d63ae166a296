/*!
 * \file analysis/assumptions.h
 * \brief What a program says of itself by T.assume.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_ASSUMPTIONS_H_
#define FUSE_EPILOGUE_ANALYSIS_ASSUMPTIONS_H_

#include <vector>

#include "analysis/scope.h"

namespace fuse_epilogue {

/*! \brief The conditions of each `T.assume` that runs before \p site, if they read no memory. */
std::vector<ir::Expr> AssumptionsBefore(const Site& site);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_ASSUMPTIONS_H_
