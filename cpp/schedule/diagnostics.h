/*!
 * \file schedule/diagnostics.h
 * \brief A refusal as a ScheduleError, rendered like TVM's own.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_DIAGNOSTICS_H_
#define FUSE_EPILOGUE_SCHEDULE_DIAGNOSTICS_H_

#include <tvm/ffi/error.h>

#include "analysis/refusal.h"

namespace fuse_epilogue {

/*!
 * \brief The error to throw for \p refusal, at the schedule's own error_render_level.
 * \param primitive The schedule primitive that is refused, as TVM names it in errors.
 */
ffi::Error MakeScheduleError(const ffi::ObjectRef& schedule, const std::string& primitive,
                             const Refusal& refusal);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_DIAGNOSTICS_H_
