/*!
 * \file analysis/monoid.h
 * \brief The commutative monoids a reduction may run over.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_MONOID_H_
#define FUSE_EPILOGUE_ANALYSIS_MONOID_H_

#include "ir/tools.h"

namespace fuse_epilogue {

enum class MonoidId { kSum, kProduct, kMax, kMin, kAnd, kOr, kBitAnd, kBitOr, kBitXor };

/*! \brief A row of the table in monoid.cc. */
struct Monoid {
  MonoidId id;
  /*! \brief How it is called in messages and certificates. */
  const char* name;
  /*! \brief The combiner x (+) y as a node, and the functions that build it: with TVM's constant
   *         folding, and without, where a combination has to stay one. */
  ir::NodeKind combiner;
  ir::Fn make;
  ir::Fn make_node;
  /*! \brief Whether the order of the operands changes a float's result by more than the choice
   *         between equal values: sums and products round. */
  bool rounds;
};

/*! \brief The monoid whose combiner is \p kind (acc - t is a sum), or nullptr. */
const Monoid* MonoidOf(ir::NodeKind kind);
const Monoid& MonoidOf(MonoidId id);

/*! \brief a (+) b with TVM's constant folding; an operand that is the identity disappears. */
ir::Expr Combine(const Monoid& monoid, const ir::Expr& a, const ir::Expr& b);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_MONOID_H_
