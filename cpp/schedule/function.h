/*!
 * \file schedule/function.h
 * \brief The same fusion on a function that has no schedule, for passes over whole modules.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_FUNCTION_H_
#define FUSE_EPILOGUE_SCHEDULE_FUNCTION_H_

#include "schedule/report.h"

namespace fuse_epilogue {

/*! \brief The reductions of a function, or why it is left alone. */
struct FunctionReductions {
  ffi::Array<ir::SBlock> blocks;
  /*! \brief "opaque" or "scheduled"; empty if it may be worked on. */
  std::string reason;
};

/*!
 * \brief The reductions directly in the root block of \p func, in program order.
 *
 * A function without blocks is opaque. One with a block inside a block, or a loop that is not
 * serial, has been scheduled: somebody has decided where its epilogues are computed.
 */
FunctionReductions ReductionsOf(const ir::PrimFunc& func);

/*! \brief A function after a fusion, and what the fusion did. */
struct FusedFunction {
  ir::PrimFunc func;
  FusionReport report;
};

/*!
 * \brief Fuse one reduction of a function with what follows it.
 * \param reduction One of ReductionsOf(func), or of an earlier state of it that did not change it.
 * \return The function and no steps, with the refusal in `stopped`, where nothing can be fused.
 */
FusedFunction FuseInFunction(const ir::PrimFunc& func, const ir::SBlock& reduction,
                             const Options& options);

/*! \brief Bytes of the intermediates that a fusion has removed or no longer holds in full; -1 if
 *         that is not a number. */
int64_t BytesSaved(const FusionReport& report);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_FUNCTION_H_
