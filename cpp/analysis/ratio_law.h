/*!
 * \file analysis/ratio_law.h
 * \brief Sums of powers of keys divided by their largest magnitude.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_RATIO_LAW_H_
#define FUSE_EPILOGUE_ANALYSIS_RATIO_LAW_H_

#include <vector>

#include "analysis/row_factors.h"

namespace fuse_epilogue {

/*!
 * \brief (x / r)^p with r = max |x| and p > 1: |x / r| <= 1 keeps in range what x^p would not.
 * \param factors The factors of the term that read no key.
 * \return Whether the term is of this form; nothing has changed if not.
 */
bool RollRatios(const Cascade& cascade, const CascadeOptions& options,
                const std::vector<const RowFactor*>& factors, CascadeStage* stage);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_RATIO_LAW_H_
