/*!
 * \file schedule/bind.h
 * \brief Loops bound to threads: reductions whose init is not the identity, and cascades.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_BIND_H_
#define FUSE_EPILOGUE_SCHEDULE_BIND_H_

#include <functional>
#include <string>

#include "ir/vocabulary.h"

namespace fuse_epilogue {

/*! \brief TVM's primitive on a schedule. */
using BindCall = std::function<void(const ffi::ObjectRef& schedule)>;

/*!
 * \brief bind of the loop \p loop_rv to \p thread, where an absorbed epilogue may be in the init.
 *
 * Every thread starts from the init, so that TVM demands the identity when it lowers the loop. Here
 * the threads sum into registers from the identity, and a block after the reduction loops combines
 * the program's init with the finished sum:
 *
 *     acc[i] = bias[i]                               sum = 0
 *     for k: acc[i] = acc[i] + t(i, k)        ->     for k in threads: sum = sum + t(i, k)
 *                                                    acc[i] = bias[i] + sum
 *
 * Where that is not known to give the same, the loop is bound as it is.
 *
 * Of a cascade with rows in threads, the buffers between two states of a row become local.
 */
void BindLoop(const ffi::ObjectRef& schedule, const ffi::Any& loop_rv, const std::string& thread,
              const BindCall& bind);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_BIND_H_
