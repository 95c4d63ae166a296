/*!
 * \file schedule/peeled_init.h
 * \brief A reduction whose init is not the identity, and what it can start from instead.
 *
 * TVM takes an init for the identity where it makes several partial results. After a fusion the
 * init may hold an epilogue, such as a bias: then partial results start from the identity, and the
 * bias is combined once.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_PEELED_INIT_H_
#define FUSE_EPILOGUE_SCHEDULE_PEELED_INIT_H_

#include <memory>
#include <optional>

#include "analysis/pattern.h"
#include "schedule/state.h"

namespace fuse_epilogue {

struct PeeledInit {
  ir::StmtSRef scope_sref;
  /*! \brief The scope that the reduction is read in. */
  std::shared_ptr<const Scope> scope;
  Reduction reduction;
  /*! \brief What TVM wants as init of such a reduction. */
  ir::Expr identity;

  ir::SBlock block() const { return reduction.site->block(); }
};

/*!
 * \brief The only block in a loop, if it starts from something else than the identity and gives the
 *        same where partial results start from that, and its init is combined with them once.
 * \return Nothing in all other cases: they are for TVM.
 */
std::optional<PeeledInit> FindPeeledInit(const ffi::ObjectRef& schedule, const ffi::Any& loop_rv);

/*! \brief \p block, whose body is one store, with another init; its regions are computed. */
ir::SBlock WithInit(const ir::SBlock& block, const ir::Expr& value);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_PEELED_INIT_H_
