/*!
 * \file schedule/candidates.h
 * \brief Which blocks a call of the primitive may fuse.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_CANDIDATES_H_
#define FUSE_EPILOGUE_SCHEDULE_CANDIDATES_H_

#include <vector>

#include "analysis/region.h"

namespace fuse_epilogue {

/*! \brief The site of \p block. Throws a Refusal if it is not directly in the scope. */
const Site& SiteIn(const Scope& scope, const ir::SBlock& block);

/*! \brief The reductions whose result \p consumer reads, the nearest one first; if there are none,
 *         those whose tails' outputs it reads. */
std::vector<ir::SBlock> ReductionsReadBy(const Scope& scope, const Site& consumer);

/*!
 * \brief The blocks that may be fused next, in program order: those after a writer of the region
 *        whose output they read.
 *
 * A block before that writer reads an older value: it is a candidate (to be refused) only if there
 * is no other.
 */
std::vector<const Site*> Candidates(const Scope& scope, const Region& region);

/*! \brief There is no block to fuse: say why.
 *  \param root The root block of the function. */
[[noreturn]] void RefuseWithoutCandidates(const Scope& scope, const ir::SBlock& root,
                                          const Region& region);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_CANDIDATES_H_
