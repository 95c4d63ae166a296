/*!
 * \file transform/blocks.h
 * \brief Blocks, loops and buffers made from scratch.
 */
#ifndef FUSE_EPILOGUE_TRANSFORM_BLOCKS_H_
#define FUSE_EPILOGUE_TRANSFORM_BLOCKS_H_

#include <optional>
#include <string>
#include <vector>

#include "analysis/prover.h"

namespace fuse_epilogue {

ir::Stmt MakeStore(const ir::Var& buffer, const ir::Expr& value,
                   const ffi::Array<ir::Expr>& indices);
ir::Stmt MakeSequence(const std::vector<ir::Stmt>& statements);
/*! \brief Serial loops over \p axes, the first one outermost, around \p body. */
ir::Stmt MakeLoops(const std::vector<Axis>& axes, ir::Stmt body);
/*! \brief A dense buffer with elements of the type of \p element, in the memory of \p like, or in
 *         the one that \p scope names. */
ir::Var MakeBuffer(const std::string& name, const ir::Var& like, const ir::Expr& element,
                   const ffi::Array<ir::Expr>& shape,
                   const std::optional<ffi::String>& scope = std::nullopt);

/*! \brief An axis of a block, and the value that it is bound to. */
struct BoundAxis {
  Axis axis;
  ir::IterType type;
  ir::Expr value;
};

/*! \brief What a block is made of; its regions are computed. */
struct BlockParts {
  std::string name;
  std::vector<BoundAxis> axes;
  ffi::Any predicate = true;
  ffi::Any init = nullptr;
  ir::Stmt body;
  ffi::Array<ir::Var> buffers;
};
ir::SBlockRealize MakeBlock(const BlockParts& parts);

/*! \brief Serial loops around a block, one for each of its axes, which are bound to the loops. The
 *         predicate is given in the axes. */
ir::Stmt MakeNest(const std::vector<Axis>& axes, const std::vector<ir::IterType>& types,
                  BlockParts parts);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_TRANSFORM_BLOCKS_H_
