/*!
 * \file analysis/hazards.h
 * \brief May the epilogue's reads move up to the init, and its stores up to the reduction?
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_HAZARDS_H_
#define FUSE_EPILOGUE_ANALYSIS_HAZARDS_H_

#include <functional>

#include "analysis/element_map.h"

namespace fuse_epilogue {

/*! \brief Whether all that a block reads is written before it, in the same loop iterations. */
using RegionCover = std::function<bool(const ir::SBlock&)>;

/*! \brief Throw a Refusal unless only loops and sequences lead from the scope to both blocks. */
void CheckStructure(const Scope& scope, const Site& producer, const Site& consumer);

/*!
 * \brief Throw a Refusal if one of the first \p steps around the reduction is a pipelined loop: its
 *        stages are numbered by its statements, of which one would come or go.
 */
void CheckNotPipelined(const Site& reduction, size_t steps, const ir::SBlock& epilogue);

/*!
 * \brief Throw a Refusal if \p buffer is used through a pointer or a matched region, or is
 * allocated by a statement instead of a block.
 */
void CheckNoPointer(const Scope& scope, const ir::Var& buffer, const Site& writer);

/*! \brief Throw a Refusal unless \p writer is the only statement that writes \p buffer. */
void CheckOnlyWriter(const Scope& scope, const ir::Var& buffer, const Site& writer);

/*!
 * \brief Throw a Refusal unless moving the epilogue's accesses changes nobody's view of memory.
 *
 * Where both blocks stand in one sequence, at positions p < e, the reads and stores of the epilogue
 * move from e to p. That is seen by the statements of p (the reduction's nest), between p and e,
 * and of e (the epilogue's nest), and by nobody else:
 *
 *   the statement      writes what the epilogue reads   writes the output     reads the output
 *   in p, between      refused                          refused               refused
 *   in e               refused                          refused               after it, covered
 *   the reduction      (writes the accumulator only)    -                     refused
 *   the epilogue       -                                -                     same element only
 *
 * A tail moves to the end of the reduction's nest; what is absorbed moves to its beginning. What
 * the reduction and earlier tails have \p produced is read at the element that has just been
 * finished.
 */
void CheckHazards(const Scope& scope, const Reduction& reduction,
                  const std::vector<Produced>& produced, const Epilogue& epilogue,
                  const RegionCover& region_cover);

/*!
 * \brief Whether \p tail would read the same from the reduction on until after \p last.
 *
 * The value of a tail that is merged into a later consumer is computed where that one's is: in the
 * init, or at the place of its tail. No statement in between may write what it reads.
 *
 * \param produced What the reduction and the tails before \p tail have produced: it is read where
 *        it has just been finished, wherever that is.
 */
bool ReadsTheSame(const Scope& scope, const Reduction& reduction,
                  const std::vector<Produced>& produced, const Site& tail, const Site& last);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_HAZARDS_H_
