/*!
 * \file analysis/linear_form.h
 * \brief Expressions as sums of keys and of results that are not final.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_LINEAR_FORM_H_
#define FUSE_EPILOGUE_ANALYSIS_LINEAR_FORM_H_

#include <optional>
#include <utility>
#include <vector>

#include "analysis/cascade.h"

namespace fuse_epilogue {

/*! \brief c * x for each, and c * r for each result r: a sum of those. No x is a sum itself, or a
 *         product with a literal. */
struct LinearForm {
  std::vector<std::pair<double, ir::Expr>> terms;
  std::vector<std::pair<size_t, double>> results;
};

/*! \brief \p expr as a sum, or nothing if a result occurs in it otherwise. */
std::optional<LinearForm> LinearFormOf(const Cascade& cascade, const ir::Expr& expr);

/*! \brief Whether \p a is \p scale * \p b, term by term. */
bool IsMultiple(const LinearForm& a, double scale, const LinearForm& b);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_LINEAR_FORM_H_
