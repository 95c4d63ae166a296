/*!
 * \file schedule/guarded_call.h
 * \brief Calls of TVM's primitives on a schedule that pass through here.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_GUARDED_CALL_H_
#define FUSE_EPILOGUE_SCHEDULE_GUARDED_CALL_H_

#include "schedule/guards.h"

namespace fuse_epilogue {

/*!
 * \brief Check a guarded primitive and run it, or carry out the rewriting that it names.
 * \param args The schedule, and TVM's arguments.
 */
void CallGuarded(const Guard& guard, ffi::PackedArgs args, ffi::Any* result);

/*! \brief TVM's bind, with the preparation of bind.h. */
void CallBind(ffi::PackedArgs args);

/*! \brief TVM's decompose_reduction, with the checks and repairs of init_reads.h. */
ffi::ObjectRef CallDecomposeReduction(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block,
                                      const ffi::ObjectRef& loop);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_GUARDED_CALL_H_
