/*!
 * \file transform/fuse.h
 * \brief The rewrite itself. Everything it relies on has been proved before it is called.
 */
#ifndef FUSE_EPILOGUE_TRANSFORM_FUSE_H_
#define FUSE_EPILOGUE_TRANSFORM_FUSE_H_

#include <utility>
#include <vector>

#include "analysis/algebra.h"
#include "analysis/region.h"

namespace fuse_epilogue {

/*! \brief One epilogue that has been proved fusable, and what is to become of it. */
struct FusionPlan {
  Region region;
  Epilogue epilogue;
  InjectiveMap epilogue_loops;
  /*! \brief The epilogue's axes as functions of the reduction's: v = h(s). */
  AxisMap axes;
  /*! \brief O(h(s)): the element of the output. */
  ffi::Array<ir::Expr> indices;
  /*! \brief x, the finished element; of the accumulator's type. */
  ir::Var hole;
  Peeled peeled;
  /*! \brief Earlier tails whose values are part of the epilogue's now; they go away. */
  std::vector<const Tail*> merged;
  /*! \brief Nothing is left of the epilogue: the reduction accumulates in its output. */
  bool gone = false;
};

/*! \brief The scope after a fusion. */
struct Fused {
  ir::SBlock scope_root;
  /*! \brief What blocks have become, so that their random variables stay valid. */
  std::vector<std::pair<ir::SBlock, ir::SBlock>> blocks;
  /*! \brief The tail that the fusion has left, if it has. */
  std::optional<KnownTail> tail;
};

/*!
 * \brief Fuse an epilogue into its reduction, whose reads are to be declared (WithItsRegions) after
 *        the last fusion of a call.
 *
 *     T.init: acc[I(s)] = init                     T.init: R[...] = F(init)
 *     acc[I(s)] = acc[I(s)] (+) t          ->      R[...] = R[...] (+)' H(t)
 *     D[O(v)] = f(acc[R(v)])                       D[O(h(s))] = rest(R[...])
 *
 * Where something is left of f, R[...] is acc[I(s)] and the last line is a tail after the nest;
 * otherwise R[...] is D[O(h(s))], and the last line and acc are gone.
 */
Fused Fuse(const Scope& scope, const FusionPlan& plan);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_TRANSFORM_FUSE_H_
