/*!
 * \file analysis/peel_steps.h
 * \brief What was peeled off an epilogue, and what it does to starts and terms.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_PEEL_STEPS_H_
#define FUSE_EPILOGUE_ANALYSIS_PEEL_STEPS_H_

#include <optional>
#include <vector>

#include "analysis/pattern.h"

namespace fuse_epilogue {

/*! \brief One function of x that was peeled: a node, or a combination of the monoid. */
struct PeelStep {
  /*! \brief Absorbed into the init; otherwise distributed over the terms as well. */
  bool absorbs;
  ir::NodeKind node;
  ir::Fn make;
  /*! \brief The operand beside x, in the reduction's axes; nothing for a unary node. */
  std::optional<ir::Expr> operand;
  bool x_first;
  /*! \brief The monoid of the reduction up to here, and from here on. */
  const Monoid* before;
  const Monoid* after;
};
using PeelSteps = std::vector<PeelStep>;

/*! \brief c - x over a sum: the terms change their signs, which is done where they are combined. */
bool Negates(const PeelStep& step);

/*! \brief What the step makes of x. */
ir::Expr ApplyStep(const PeelStep& step, const ir::Expr& x);

/*! \brief Whether the step costs no work in any term of \p update: it is folded into a literal. */
bool FoldsIntoTerms(const PeelStep& step, const ir::Expr& update, const Reduction& reduction);

/*! \brief Whether TVM may compute something else than what the step makes of the start, or of a
 * term of \p update. */
bool FoldsWithAny(const PeelStep& step, const ir::Expr& start, const ir::Expr& update,
                  const Reduction& reduction);

/*! \brief F(x), and H(x), with TVM's constant folding. */
ir::Expr ApplyAll(const PeelSteps& steps, ir::Expr x);
ir::Expr ApplyDistributed(const PeelSteps& steps, ir::Expr x);

/*!
 * \brief The reduction's update value with H applied to every term, and the combiner of the last
 *        step; the load of the accumulator stays.
 */
ir::Expr MapTerms(const ir::Expr& update, const Reduction& reduction, const PeelSteps& steps);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_PEEL_STEPS_H_
