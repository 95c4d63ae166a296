/*!
 * \file analysis/prover.h
 * \brief Proofs about integer index expressions, by tvm.sym.Analyzer and its affine map detection.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_PROVER_H_
#define FUSE_EPILOGUE_ANALYSIS_PROVER_H_

#include <optional>
#include <vector>

#include "ir/tools.h"

namespace fuse_epilogue {

/*! \brief A variable and the half-open range of integers it runs over. */
struct Axis {
  ir::Var var;
  ir::Expr min;
  ir::Expr extent;
};

/*! \brief What is known about the variables, and what follows from it. */
class Prover {
 public:
  Prover();
  explicit Prover(const std::vector<Axis>& axes);
  void Bind(const Axis& axis);
  ir::Expr Simplify(const ir::Expr& expr) const;
  /*! \brief Whether all literals can be folded: none of them leaves its type. */
  bool Folds(const ir::Expr& expr) const;
  bool Equal(const ir::Expr& a, const ir::Expr& b) const;
  bool True(const ir::Expr& condition) const;
  bool LessEqual(const ir::Expr& a, const ir::Expr& b) const;
  /*! \brief min <= value < min + extent. */
  bool InRange(const ir::Expr& value, const ir::Expr& min, const ir::Expr& extent) const;

 private:
  /*! \brief The analyzer, made when the first question needs it; it knows all that was bound. */
  const ffi::ObjectRef& Analyzer() const;
  /*! \brief What the analyzer answers, \p unknown if it fails. */
  template <typename Question, typename Answer = bool>
  Answer Ask(const Question& question, Answer unknown = {}) const;

  std::vector<Axis> known_;
  mutable ffi::ObjectRef analyzer_;
  mutable size_t num_bound_ = 0;
};

/*!
 * \brief An injective affine map `indices(axes)` on the points of the axes that satisfy a
 * predicate.
 *
 * Exists only when TVM's detection shows that different points have different indices.
 */
class InjectiveMap {
 public:
  static std::optional<InjectiveMap> Detect(const ffi::Array<ir::Expr>& indices,
                                            const std::vector<Axis>& axes,
                                            const ffi::Any& predicate);

  /*! \brief Whether different points have different indices, which may be in another integer type
   *         than the axes. */
  static bool IsInjective(const ffi::Array<ir::Expr>& indices, const std::vector<Axis>& axes);

  /*! \brief Whether index \p i takes exactly the values [min, min + extent), each combination of
   *         the indices once. */
  bool Covers(size_t i, const ir::Expr& min, const ir::Expr& extent, const Prover& prover) const;

  /*!
   * \brief Whether index \p i is made of digits of single axes, none of them counting backwards:
   *        to lower it with the other indices fixed is to lower axes.
   */
  bool IsDigits(size_t i) const;

  /*!
   * \brief The axes as functions of given values of the indices: the inverse map.
   * \return One expression per axis, or nothing where TVM cannot invert the map.
   */
  std::optional<ffi::Array<ir::Expr>> Inverse(const ffi::Array<ir::Expr>& values) const;

 private:
  std::vector<Axis> axes_;
  ffi::Array<ir::IterSumExpr> indices_;
  /*! \brief Where every index is just an axis, or a literal: which axis, or their number. */
  std::optional<std::vector<size_t>> named_;
  ffi::Array<ir::Expr> given_;
};

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_PROVER_H_
