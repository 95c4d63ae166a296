/*!
 * \file analysis/monoid.h
 * \brief The commutative monoids a reduction may run over.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_MONOID_H_
#define FUSE_EPILOGUE_ANALYSIS_MONOID_H_

#include "ir/tools.h"

namespace fuse_epilogue {

/*! \brief A row of the table in monoid.cc. */
struct Monoid {
  /*! \brief The combiner x (+) y as a node, and how it is called in messages. */
  ir::NodeKind combiner;
  const char* name;
  /*! \brief Whether f(s) = s (+) c is absorbed, as init (+) c. */
  bool absorbs;
};

/*! \brief The monoid whose combiner is the root of \p value, or nullptr. */
const Monoid* MonoidOf(const ir::Expr& value);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_MONOID_H_
