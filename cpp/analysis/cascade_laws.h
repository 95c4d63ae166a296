/*!
 * \file analysis/cascade_laws.h
 * \brief The laws by which a reduction gets along with results that are not final.
 *
 * Let r be the results that a term reads, r' what they are after more keys. The laws, with what
 * each asks for (the proofs are in docs/concepts/cascades.rst):
 *
 *   name     first reduction   term t(x, r)               what becomes of it
 *   defer    any               g(x) * f(r), g(x) / f(r)   sum of g(x), times f(r) at the end
 *   defer    any               min(x, f(r)), max of a     max of x, then min with f(r) at the end
 *                              max or min
 *   roll     max               exp(c (x - r)), c > 0      s * exp(c (r - r')), at most s
 *   roll     min               exp(c (r - x)), c > 0      s * exp(c (r' - r)), at most s
 *   select   max, min          x == r ? p : 0             s if r' == r, else 0
 *   basis    min               x - r                      s + n (r - r'), n keys so far
 *   basis    max               r - x                      s + n (r' - r)
 *   basis    sum               (x - r/N)^2                s + n (r/n - r'/n')^2, with the mean so
 * far
 *
 * Factors that read no result may stand around all of them, and several laws may meet in one term.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_CASCADE_LAWS_H_
#define FUSE_EPILOGUE_ANALYSIS_CASCADE_LAWS_H_

#include "analysis/cascade.h"

namespace fuse_epilogue {

/*!
 * \brief Find the step, the correction and the tail of \p stage, which reads earlier ones.
 * \throws Refusal if no law holds.
 */
void ApplyLaws(const Cascade& cascade, const CascadeOptions& options, CascadeStage* stage);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_CASCADE_LAWS_H_
