/*!
 * \file analysis/element_map.h
 * \brief The one-to-one map between what a reduction has finished and what an epilogue reads.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_ELEMENT_MAP_H_
#define FUSE_EPILOGUE_ANALYSIS_ELEMENT_MAP_H_

#include <utility>
#include <vector>

#include "analysis/pattern.h"

namespace fuse_epilogue {

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

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_ELEMENT_MAP_H_
