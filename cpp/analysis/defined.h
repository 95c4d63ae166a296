/*!
 * \file analysis/defined.h
 * \brief Where the operations of an expression are defined.
 *
 * Not every expression can be evaluated at every point: a load needs its element, a division a
 * divisor that is not zero, a shift an amount within the width, wide integer arithmetic a result
 * that its type holds, a conversion from a float a number that fits. A program may guard such an
 * operation by a condition. The rule for every rewriting: an expression may be evaluated at more
 * points, or more often, than before only if it is defined at all of them.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_DEFINED_H_
#define FUSE_EPILOGUE_ANALYSIS_DEFINED_H_

#include <optional>
#include <string>
#include <vector>

#include "analysis/prover.h"

namespace fuse_epilogue {

/*! \brief An operation that is not proved to be defined everywhere. */
struct Partial {
  ir::Expr operation;
  /*! \brief What may go wrong, as the end of a sentence: "its divisor may be 0". */
  std::string why;
};

/*!
 * \brief Find an operation of an expression that may be undefined at a point of some axes.
 *
 * Nothing is known of the data but its type. Known are the ranges of the axes, the shapes of the
 * buffers, the assumptions, and the conditions inside of the expression itself.
 *
 * \param expr An expression of the axes, of sizes and of buffers.
 * \param axes All points of these.
 * \param assumptions Conditions that hold wherever the expression is evaluated.
 * \return The first such operation; nothing if all are proved to be defined.
 */
std::optional<Partial> FindPartial(const ir::Expr& expr, const std::vector<Axis>& axes,
                                   const std::vector<ir::Expr>& assumptions);

/*! \brief The same for what ends a program where it is evaluated: loads, divisions and calls. */
std::optional<Partial> FindFault(const ir::Expr& expr, const std::vector<Axis>& axes,
                                 const std::vector<ir::Expr>& assumptions);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_DEFINED_H_
