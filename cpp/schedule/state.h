/*!
 * \file schedule/state.h
 * \brief TVM's ScheduleState from outside: from a block to its scope, and a scope replaced.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_STATE_H_
#define FUSE_EPILOGUE_SCHEDULE_STATE_H_

#include "ir/vocabulary.h"

namespace fuse_epilogue {

ir::ScheduleState StateOf(const ffi::ObjectRef& schedule);
ir::StmtSRef SRefOf(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block_rv);
ir::Stmt StmtOf(const ir::StmtSRef& sref);
/*! \brief The block that directly encloses \p sref; undefined for the root block of a function. */
ir::StmtSRef ScopeOf(const ir::StmtSRef& sref);
/*! \brief The root block of the function that \p sref is in. */
ir::StmtSRef RootOf(const ir::StmtSRef& sref);

/*! \brief tvm's region_cover flag: all that the block reads is written before, in the same loops.
 */
bool RegionCovered(const ir::ScheduleState& state, const ir::SBlock& block);

/*! \brief A state of its own for the same module, for trying things out. */
ir::ScheduleState CopyOf(const ir::ScheduleState& state);

/*! \brief Pairs of a block and what it becomes, so that its random variables stay valid. */
using BlockReuse = ffi::Map<ffi::ObjectRef, ffi::ObjectRef>;

/*!
 * \brief Replace the block of \p scope by \p new_scope and bring the cached flags up to date.
 */
void ReplaceScope(const ir::ScheduleState& state, const ir::StmtSRef& scope,
                  const ir::SBlock& new_scope, BlockReuse reuse);

/*! \brief \p scope with blocks that are directly in it replaced, each by its partner. */
ir::SBlock WithBlocks(const ir::SBlock& scope, const BlockReuse& reuse);

/*! \brief Replace blocks that are directly in the block of \p scope, each by its partner. */
void ReplaceBlocks(const ir::ScheduleState& state, const ir::StmtSRef& scope,
                   const BlockReuse& reuse);

/*!
 * \brief Find the one function of TVM that is needed and not registered.
 * \return What is missing, or an empty string.
 */
std::string ResolveExportedSymbols();

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_STATE_H_
