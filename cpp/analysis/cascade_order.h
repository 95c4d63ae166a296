/*!
 * \file analysis/cascade_order.h
 * \brief May the reductions of a cascade run at one place, and the blocks between them before or
 *        after it?
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_CASCADE_ORDER_H_
#define FUSE_EPILOGUE_ANALYSIS_CASCADE_ORDER_H_

#include <vector>

#include "analysis/cascade.h"

namespace fuse_epilogue {

/*! \brief The statements of the root block's sequence around the place of a cascade. */
struct CascadeOrder {
  std::vector<ir::Stmt> before;
  std::vector<ir::Stmt> after;
};

/*!
 * \brief Sort the statements from the first reduction to the last: those that read nothing of the
 *        cascade run before it, all others after it, in their order.
 * \throws Refusal if that would move a statement past one that writes what it reads or writes.
 */
CascadeOrder CheckCascadeOrder(const Scope& scope, const Cascade& cascade);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_CASCADE_ORDER_H_
