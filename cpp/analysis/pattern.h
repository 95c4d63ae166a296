/*!
 * \file analysis/pattern.h
 * \brief The two sides of a fusion as blocks: a complete reduction, and an elementwise consumer.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_PATTERN_H_
#define FUSE_EPILOGUE_ANALYSIS_PATTERN_H_

#include <vector>

#include "analysis/monoid.h"
#include "analysis/prover.h"
#include "analysis/scope.h"

namespace fuse_epilogue {

/*! \brief `for s, r: acc[I(s)] = acc[I(s)] (+) t(s, r)`, with `T.init: acc[I(s)] = init(s)`. */
struct Reduction {
  const Site* site;
  ir::Var accumulator;
  ffi::Array<ir::Expr> indices;
  ir::Expr init;
  /*! \brief acc[I(s)] (+) t(s, r), the value of the update. */
  ir::Expr update;
  const Monoid* monoid;
  /*! \brief Whether a term of a sum is subtracted, acc - t. */
  bool subtracts;
  std::vector<Axis> spatial;
  std::vector<Axis> reduce;
  /*! \brief A part of the init for which an earlier step of the call has proved what a reduction's
   *         init has to be: pure, and without reduction axes. May be undefined. */
  ir::Expr proved_init;
};

/*! \brief `for v: output[out_indices(v)] = value(v)`. */
struct Epilogue {
  const Site* site;
  ir::Var output;
  ffi::Array<ir::Expr> out_indices;
  ir::Expr value;
  std::vector<Axis> axes;
};

/*! \brief Whether \p block has the iteration kinds of a reduction: an init, or a reduction axis. */
bool LooksLikeReduction(const ir::SBlock& block);

/*! \brief Match the reduction side, or throw a Refusal. \p proved_init: see Reduction. */
Reduction MatchReduction(const Site& site, const ir::Expr& proved_init = {});

/*! \brief Whether the init of \p reduction reads, or points to, \p buffer. */
bool InitUses(const Reduction& reduction, const ir::Var& buffer);

/*! \brief The loads of \p buffer inside \p node, in the order in which they stand there. */
std::vector<ir::TensorLoad> LoadsOf(ffi::AnyView node, const ir::Var& buffer);

/*! \brief The nodes of an expression that have a load of \p buffer inside, and the loads. */
ir::VarSet NodesAround(const ir::Expr& value, const ir::Var& buffer);

/*!
 * \brief Whether \p value is one combination of an element with terms: a tree of the combiner of
 *        \p monoid with exactly one load of \p buffer among its leaves, at \p indices.
 */
bool IsCombination(const ir::Expr& value, const Monoid& monoid, const ir::Var& buffer,
                   const ffi::Array<ir::Expr>& indices);

/*! \brief Match an elementwise consumer of \p reduction, or throw a Refusal. */
Epilogue MatchEpilogue(const Scope& scope, const Site& site, const Reduction& reduction);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_PATTERN_H_
