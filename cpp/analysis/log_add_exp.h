/*!
 * \file analysis/log_add_exp.h
 * \brief log(exp(x) + exp(y)), as it is spelled so that nothing overflows, and as it is not.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_LOG_ADD_EXP_H_
#define FUSE_EPILOGUE_ANALYSIS_LOG_ADD_EXP_H_

#include "analysis/monoid.h"

namespace fuse_epilogue {

/*! \brief The operands of max(x, y) + log1p(exp(-|x - y|)), or of another spelling of it. */
std::optional<Combination> MatchLogAddExp(const ir::Expr& value);

/*! \brief max(x, y) + log1p(exp(-|x - y|)); nothing is folded. */
ir::Expr MakeLogAddExp(const ir::Expr& x, const ir::Expr& y);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_LOG_ADD_EXP_H_
