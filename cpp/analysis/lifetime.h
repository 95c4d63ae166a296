/*!
 * \file analysis/lifetime.h
 * \brief Does a buffer still live as long as its values are read?
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_LIFETIME_H_
#define FUSE_EPILOGUE_ANALYSIS_LIFETIME_H_

#include <vector>

#include "analysis/hazards.h"
#include "analysis/region.h"

namespace fuse_epilogue {

/*!
 * \brief Throw a Refusal if moving the epilogue to the place of the tails shortens the life of a
 *        buffer that it reads, and another block reads a value that is lost by that.
 *
 * TVM allocates a buffer in the innermost loop around all that uses it, anew for each iteration.
 * Where \p epilogue is the last to stand outside of a loop, the buffer moves into that loop:
 *
 *     for i: acc[i] = sum(i)                        for i: acc[i] = sum(i)
 *            z[i] = acc[i // 2]                ->          z[i] = acc[i // 2]    <- is it there?
 *     for i: D[i] = f(acc[i])                              D[i] = f(acc[i])
 *
 * What all others in the loop read must therefore be computed in the same iteration, before it.
 *
 * \param root The root block of the function; the scope itself, or a block around it.
 * \param merged Tails that go away.
 * \param region_cover Whether all that a block reads is written before it, in the iterations that
 *        it shares with those that write it.
 */
void CheckLifetimes(const Scope& scope, const ir::SBlock& root, const Region& region,
                    const Site& epilogue, const std::vector<const Tail*>& merged,
                    const RegionCover& region_cover);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_LIFETIME_H_
