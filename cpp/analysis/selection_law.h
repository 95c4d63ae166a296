/*!
 * \file analysis/selection_law.h
 * \brief Maxima and minima of terms that read an earlier result.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_SELECTION_LAW_H_
#define FUSE_EPILOGUE_ANALYSIS_SELECTION_LAW_H_

#include "analysis/cascade.h"

namespace fuse_epilogue {

/*!
 * \brief max_k f(x_k) = f(max_k x_k) for a function that does not fall.
 *
 * The state starts from the true identity, and the program's start is combined at the end: f need
 * not keep it.
 *
 * \throws Refusal if the term is not such a function.
 */
void DeferSelection(const Cascade& cascade, CascadeStage* stage);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_SELECTION_LAW_H_
