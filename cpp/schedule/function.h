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

/*! \brief What a fusion saves, and what it may cost where nobody schedules its loops. A number is
 * -1 if it is none. */
struct Balance {
  /*! \brief Of the intermediates that are gone or no longer held in full. */
  int64_t bytes = 0;
  int64_t elements = 0;
  /*! \brief How often the tails' place is come to, and the terms that are summed for an element. */
  int64_t rounds = -1;
  int64_t terms = -1;
  /*! \brief Whether a tail calls a function of the C library. */
  bool calls = false;
};

/*! \brief The balance of a fusion of \p reduction, the block as it was before. */
Balance BalanceOf(const FusionReport& report, const ir::SBlock& reduction);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_FUNCTION_H_
