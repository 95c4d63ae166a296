/*!
 * \file analysis/cascade_axes.h
 * \brief The axes of a reduction in the rows and keys of the cascade that it belongs to.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_CASCADE_AXES_H_
#define FUSE_EPILOGUE_ANALYSIS_CASCADE_AXES_H_

#include <unordered_map>
#include <vector>

#include "analysis/cascade.h"

namespace fuse_epilogue {

/*! \brief A fresh variable for \p axis, which \p axes gets for it. */
Axis Renamed(const Axis& axis, ir::Substitution* axes);

/*!
 * \brief Finds the row or key of each axis of a stage; other axes are the stage's own.
 * \throws Refusal if the stage does not have the rows and keys of the cascade.
 */
class AxisMatcher {
 public:
  AxisMatcher(const Cascade& cascade, CascadeStage* stage) : cascade_(cascade), stage_(*stage) {}

  /*! \brief The element of \p earlier that is read is the result of one row: take its indices for
   *         the axes of that row. */
  void MatchResult(const CascadeStage& earlier, const ir::TensorLoad& load);
  /*! \brief The keys in the order of the first reduction, or as their extents say. */
  void MatchKeys();
  /*! \brief The rows, once all results that the stage reads have been matched. */
  void MatchRows();

 private:
  [[noreturn]] void Throw(Code code, const std::string& what) const;
  void MatchRow(const ir::TensorLoad& load, const ir::Expr& row, const ir::Expr& index);
  void CheckType(const Axis& own, const ir::Var& of_cascade) const;

  const Cascade& cascade_;
  CascadeStage& stage_;
  std::unordered_map<ir::VarKey, ir::Var> row_of_;
  Prover prover_;
};

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_CASCADE_AXES_H_
