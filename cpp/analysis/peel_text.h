/*!
 * \file analysis/peel_text.h
 * \brief What was peeled off an epilogue, as text for reports.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_PEEL_TEXT_H_
#define FUSE_EPILOGUE_ANALYSIS_PEEL_TEXT_H_

#include <string>

#include "analysis/peel_steps.h"

namespace fuse_epilogue {

/*!
 * \brief What was absorbed, as text for a report: "C[vi, vj]", "-C[vi, vj] + 1"; empty if nothing.
 */
std::string AbsorbedText(const PeelSteps& steps);
/*! \brief H(x) as text for a report; empty if nothing was distributed. */
std::string DistributedText(const PeelSteps& steps, const ir::Var& hole);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_PEEL_TEXT_H_
