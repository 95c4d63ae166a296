/*!
 * \file transform/tail.h
 * \brief A tail: the block that works on elements which the reduction has just finished.
 */
#ifndef FUSE_EPILOGUE_TRANSFORM_TAIL_H_
#define FUSE_EPILOGUE_TRANSFORM_TAIL_H_

#include "analysis/region.h"

namespace fuse_epilogue {

/*! \brief A block and the statement that runs it. */
struct TailNest {
  ir::SBlock block;
  ir::Stmt stmt;
};

/*!
 * \brief `output[indices(s)] = value(s)` for every s that the nest of the reduction finishes.
 *
 * The loops are copies of the nest's loops that the reduction's spatial axes run over, with their
 * kinds, so that a tail keeps what has been vectorized, parallelised or bound to threads:
 *
 *     for k, j0 in T.grid(K, N // 4):               for j0 in range(N // 4):
 *         for j1 in T.vectorized(4):          ->        for j1 in T.vectorized(4):
 *             with T.sblock("matmul"): ...                  with T.sblock("relu"): ...
 *
 * A spatial axis that shares a loop with a reduction axis gets a loop over its own domain.
 *
 * \param like The block whose name and annotations the tail gets.
 * \throws Refusal where the reduction's loops do not separate into spatial and reduction loops.
 */
TailNest MakeTail(const Reduction& reduction, const Place& place, const ir::SBlock& like,
                  const ir::Var& output, const ffi::Array<ir::Expr>& indices,
                  const ir::Expr& value);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_TRANSFORM_TAIL_H_
