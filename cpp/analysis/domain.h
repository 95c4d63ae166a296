/*!
 * \file analysis/domain.h
 * \brief Do the two blocks speak of the same elements, each exactly once, in the same iteration?
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_DOMAIN_H_
#define FUSE_EPILOGUE_ANALYSIS_DOMAIN_H_

#include <utility>

#include "analysis/pattern.h"

namespace fuse_epilogue {

/*! \brief The loops that the bindings of the reduction axes use. */
ir::VarSet ReductionLoops(const Reduction& reduction);

/*!
 * \brief Prove the reduction's own schedule: every point once, init first, serial reduction loops.
 * \return The (injective) bindings of the block as a map of the loops.
 */
InjectiveMap CheckReductionLoops(const Reduction& reduction);

/*! \brief Prove that the epilogue's loops visit every point of its axes exactly once. */
InjectiveMap CheckEpilogueLoops(const Epilogue& epilogue);

/*! \brief The epilogue's axes as functions of the reduction's. */
class AxisMap {
 public:
  AxisMap(ir::Substitution axes, Prover prover) : axes_(std::move(axes)), prover_(prover) {}

  /*! \brief An expression of the epilogue in the reduction's axes, with its indices simplified. */
  ir::Expr Apply(const ir::Expr& expr) const;
  ffi::Array<ir::Expr> Apply(const ffi::Array<ir::Expr>& indices) const;

  const ir::Substitution& axes() const { return axes_; }

 private:
  ir::Substitution axes_;
  Prover prover_;
};

/*! \brief A buffer whose element \p indices (functions of the reduction's spatial axes s) is
 *         finished when the reduction of s is. */
struct Produced {
  ir::Var buffer;
  ffi::Array<ir::Expr> indices;
};

/*!
 * \brief The epilogue's axes as functions of the reduction's spatial axes.
 *
 * Let e = I(s) be the element that is finished at s, and e = R(v) the one the epilogue reads at v.
 * With h(s) = R^-1(I(s)) the checks are: I and R are injective, R(h(s)) = I(s), h(s) lies in the
 * epilogue's domain, and both domains have the same number of points. Then h is a bijection. Every
 * other load of a produced buffer must be of the element that belongs to the same s.
 *
 * \param produced The reduction's result first, then what tails make of it.
 */
AxisMap MatchElements(const Reduction& reduction, const std::vector<Produced>& produced,
                      const Epilogue& epilogue);

/*!
 * \brief Prove that one iteration of the loops around both blocks consumes what it computes.
 *
 * The loops are functions of the block's axes (the bindings are injective): both functions must be
 * equal where s and h(s) are the axes, and must not depend on the reduction axes.
 */
void CheckSharedLoops(const Reduction& reduction, const InjectiveMap& reduction_loops,
                      const Epilogue& epilogue, const InjectiveMap& epilogue_loops,
                      const AxisMap& axes, size_t common_steps);

/*! \brief Throw a Refusal if a loop around both blocks is a reduction loop: sums are partial there.
 */
void CheckCompleteSums(const Reduction& reduction, const Epilogue& epilogue, size_t common_steps);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_DOMAIN_H_
