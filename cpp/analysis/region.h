/*!
 * \file analysis/region.h
 * \brief The place where an element of the reduction is finished, and the tails that stand there.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_REGION_H_
#define FUSE_EPILOGUE_ANALYSIS_REGION_H_

#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/element_map.h"

namespace fuse_epilogue {

/*!
 * \brief Where tails go: after the nest of all the reduction loops.
 *
 *     for i in range(M):                     <- the innermost loop around all reduction loops
 *         for k, j in T.grid(K, N):          <- the nest
 *             with T.sblock("matmul"): ...
 *         for j in range(N):                 <- a tail
 *             with T.sblock("relu"): ...
 *
 * Vectorized loops around the reduction loops belong to the nest: a tail gets a vectorized loop of
 * its own.
 */
struct Place {
  /*! \brief Index of the step of the reduction's path with which the nest begins. */
  size_t nest;
  /*! \brief Whether the nest is already one of several statements in a sequence. */
  bool in_sequence;

  /*! \brief Whether \p site is at this place, after the nest of \p reduction. */
  bool Holds(const Site& site, const Site& reduction) const;
  /*! \brief Which statement of the sequence \p site is, or is in. */
  size_t ChildOf(const Site& site) const { return site.path[nest - 1].child; }
};

/*! \brief A block at the place that works on what has just been finished. */
struct Tail {
  const Site* site;
  ir::Var output;
  /*! \brief The element and the value that it stores, in the reduction's spatial axes. */
  ffi::Array<ir::Expr> indices;
  ir::Expr value;
  /*! \brief Its own axes as functions of the reduction's, and its loops; nothing for a tail that
   * the same call has made. */
  std::optional<std::pair<AxisMap, InjectiveMap>> proof;
};

/*! \brief A reduction with the tails that it already has. */
struct Region {
  Reduction reduction;
  InjectiveMap loops;
  Place place;
  std::vector<Tail> tails;
  /*! \brief The accumulator first, then the outputs of the tails. */
  std::vector<Produced> produced;
};

/*! \brief A tail as the fusion that made it knows it: nothing has to be proved again. */
struct KnownTail {
  ir::SBlock block;
  ir::Var output;
  ffi::Array<ir::Expr> indices;
  ir::Expr value;
};
/*! \brief Such tails by their blocks. */
using KnownTails = std::unordered_map<ir::VarKey, KnownTail>;

/*! \brief The proved bindings of a reduction, and what they were proved of. */
struct KnownLoops {
  ir::SBlockRealize realize;
  std::vector<ir::For> loops;
  InjectiveMap map;

  /*! \brief Whether they hold for \p site: the same loops, axes, bindings and predicate. */
  bool HoldFor(const Site& site) const;
};

/*!
 * \brief Prove a reduction to be what tails and absorbed terms rely on, and find its tails.
 * \param known Tails that have been made by the same call.
 * \param known_loops Of the reduction, if an earlier step of the same call has proved them.
 * \param proved_init See Reduction.
 * \param rows Whether the innermost spatial loop belongs to the nest, too; see Options.
 * \throws Refusal if \p site is not a complete reduction.
 */
Region FindRegion(const Scope& scope, const Site& site, const KnownTails& known = {},
                  const std::optional<KnownLoops>& known_loops = std::nullopt,
                  const ir::Expr& proved_init = {}, bool rows = false);

/*! \brief The sites besides the reduction that read \p buffer, in program order. */
std::vector<const Site*> ReadersOf(const Scope& scope, const Site& reduction,
                                   const ir::Var& buffer);

/*! \brief Whether \p root allocates \p buffer. */
bool Owns(const ir::SBlock& root, const ir::Var& buffer);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_REGION_H_
