/*!
 * \file analysis/cascade_parts.h
 * \brief May the keys of a cascade be reduced in parts, each with a state of its own?
 *
 * A part p holds what its keys K_p make of each stage, a_p at the carrier r_p. The carriers are
 * merged first, r = r_1 (+) ... (+) r_P, and then each state is corrected once, to the final
 * carrier: the law that rolls a state over the next block of keys,
 *
 *     h(t(x, r), r, r') = t(x, r'),    h(a (+) b) = h(a) (+) h(b),    h(0) = 0,
 *
 * holds for the keys of any set, so that the sum of h(a_p, r_p, r) is that of t(x, r) over all
 * keys. A part without keys holds identities, of which h makes an identity. That h composes,
 * h(h(a, r, r'), r', r'') = h(a, r, r''), follows for such states: both are the sum of t(x, r'').
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_CASCADE_PARTS_H_
#define FUSE_EPILOGUE_ANALYSIS_CASCADE_PARTS_H_

#include "analysis/cascade.h"

namespace fuse_epilogue {

/*!
 * \brief Check that every stage can be merged from the states of parts, and note what is assumed of
 *        sums of floats: that none of a part overflows where that of the row does not.
 * \throws Refusal if one cannot.
 */
void DivideIntoParts(const CascadeOptions& options, Cascade* cascade);

/*! \brief What a part starts from: the program's own start counts once, so that a sum starts from
 *         0 in each part; a maximum may start from its own several times. */
ir::Expr StartOfPart(const CascadeStage& stage);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_CASCADE_PARTS_H_
