/*!
 * \file analysis/algebra.h
 * \brief What an epilogue does with the finished sum s, and what of it the init can absorb.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_ALGEBRA_H_
#define FUSE_EPILOGUE_ANALYSIS_ALGEBRA_H_

#include <string>

#include "analysis/domain.h"

namespace fuse_epilogue {

/*! \brief Throw a Refusal unless value(s) = s + c, where c does not depend on s. */
void CheckAbsorbable(const Epilogue& epilogue, const Reduction& reduction);

/*!
 * \brief value(s): the epilogue's expression with \p s in the place of the accumulator's load.
 *
 * The additions between the load and the root are rebuilt with TVM's constant folding, so that an
 * init of 0 disappears; everything else is kept as it is.
 */
ir::Expr Apply(const ir::Expr& value, const ir::TensorLoad& read, const ir::Expr& s);

/*!
 * \brief c in the reduction's axes, as text for a report: "C[vi, vj]", "-C[vi, vj] + 1"; empty
 * where value(s) is s.
 */
std::string AbsorbedTerm(const Epilogue& epilogue, const AxisMap& axes);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_ALGEBRA_H_
