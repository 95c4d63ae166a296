/*!
 * \file analysis/row_factors.h
 * \brief The factors by which the terms of a sum depend on results that are not final.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_ROW_FACTORS_H_
#define FUSE_EPILOGUE_ANALYSIS_ROW_FACTORS_H_

#include <optional>
#include <vector>

#include "analysis/cascade.h"
#include "analysis/known_choices.h"
#include "analysis/linear_form.h"

namespace fuse_epilogue {

enum class FactorKind {
  /*! \brief Reads no key: f(r), or 1 / f(r). */
  kOfRow,
  /*! \brief exp(x + c r), exp2(x + c r). */
  kExponential,
  /*! \brief x == r, as a choice between a value and 0. */
  kEquality,
  /*! \brief x - r or r - x for a maximum or minimum r, or (x - r/N)^2 for a sum. */
  kDifference,
  kSquaredDeviation,
};

/*! \brief One factor of a term. */
struct RowFactor {
  FactorKind kind = FactorKind::kOfRow;
  ir::Expr node;
  /*! \brief The stage whose result it reads; of no meaning for kOfRow. */
  size_t carrier = 0;
  /*! \brief For kOfRow. */
  bool divides = false;
  /*! \brief What is divided, for kOfRow; compared, for kEquality; the exponent. */
  ir::Expr argument;
  /*! \brief The exponent as a sum. */
  LinearForm form;
  /*! \brief For kSquaredDeviation: the mean. */
  ir::Expr mean;
  /*! \brief The conditions under which the factor is used, outermost first. */
  std::vector<Known> conditions;
};

/*! \brief A term without its factors of the row; those that need a key are still in it. */
struct SplitTerm {
  std::vector<RowFactor> factors;
  /*! \brief Nothing: 1. */
  std::optional<ir::Expr> kept;
  /*! \brief Factors like those, in the other operand of a sum or the other value of a choice: they
   *         change in the same proportion, and must be in range as well. */
  std::vector<RowFactor> also;
};

/*!
 * \brief Split the term of a sum.
 *
 * The term is linear in each factor that is found: if the factor is scaled by something that reads
 * no key, so is the term.
 *
 * \throws Refusal where it depends on a result in another way.
 */
SplitTerm SplitIntoFactors(const Cascade& cascade, const CascadeStage& stage);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_ROW_FACTORS_H_
