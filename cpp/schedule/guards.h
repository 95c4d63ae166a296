/*!
 * \file schedule/guards.h
 * \brief The primitives of TVM that are checked before they run: live, and in a replayed trace.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_GUARDS_H_
#define FUSE_EPILOGUE_SCHEDULE_GUARDS_H_

#include <vector>

#include "ir/vocabulary.h"

namespace fuse_epilogue {

/*! \brief A primitive of TVM that would compute something else, or die, on some fused blocks. */
struct Guard {
  /*! \brief Its function, and its instruction kind. */
  ir::Fn function;
  const char* instruction;
  /*!
   * \brief Throws a ScheduleError if the primitive must not run.
   *
   * The arguments are those of TVM's function without the schedule. Those of a replayed instruction
   * (its inputs, then its attributes) are the same as far as a check looks at them.
   */
  void (*check)(const ffi::ObjectRef& schedule, const ffi::Array<ffi::Any>& arguments);
  /*! \brief How many arguments the check looks at; with fewer, TVM refuses the call. */
  size_t needs;
};

/*! \brief The table of guarded primitives. */
const std::vector<Guard>& Guards();

/*! \brief Before a guarded primitive. */
void CheckGuard(const Guard& guard, const ffi::ObjectRef& schedule,
                const ffi::Array<ffi::Any>& arguments);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_GUARDS_H_
