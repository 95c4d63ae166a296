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

/*! \brief `for s, r: acc[indices(s)] = acc[indices(s)] + t(s, r)`, with `T.init: acc = init`. */
struct Reduction {
  const Site* site;
  ir::Var accumulator;
  ffi::Array<ir::Expr> indices;
  ir::Expr init;
  /*! \brief Whether a term is subtracted, acc - t. */
  bool subtracts;
  std::vector<Axis> spatial;
  std::vector<Axis> reduce;
};

/*! \brief `for v: output[out_indices(v)] = value(v)`, where value reads the accumulator once. */
struct Epilogue {
  const Site* site;
  ir::Var output;
  ffi::Array<ir::Expr> out_indices;
  ir::Expr value;
  /*! \brief The load of the accumulator inside value. */
  ir::TensorLoad read;
  std::vector<Axis> axes;
};

/*! \brief Whether \p block has the iteration kinds of a reduction: an init, or a reduction axis. */
bool LooksLikeReduction(const ir::SBlock& block);

/*! \brief The buffer a block stores to, if its body is one store or several to one buffer. */
std::optional<ir::Var> StoredBuffer(const ir::SBlock& block);

/*! \brief Match the reduction side, or throw a Refusal. */
Reduction MatchReduction(const Site& site);

/*! \brief Match the consumer side for the result of \p reduction, or throw a Refusal. */
Epilogue MatchEpilogue(const Scope& scope, const Site& site, const Reduction& reduction);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_PATTERN_H_
