/*!
 * \file schedule/rfactor.h
 * \brief TVM's rfactor on a reduction that starts from something else than the identity.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_RFACTOR_H_
#define FUSE_EPILOGUE_SCHEDULE_RFACTOR_H_

#include <functional>

#include "ir/vocabulary.h"

namespace fuse_epilogue {

/*! \brief TVM's primitive on a schedule: returns the random variable of the block of partials. */
using RFactorCall = std::function<ffi::ObjectRef(const ffi::ObjectRef& schedule)>;

/*!
 * \brief rfactor of the loop \p loop_rv, where an absorbed epilogue may be in the init.
 *
 * TVM takes the init for the identity, because every partial result starts from it. Here partial
 * results start from the identity, and the block that combines them from the program's init:
 *
 *     acc = bias                               part[r] = 0
 *     for r, k: acc = acc + t(r, k)    ->      for r, k: part[r] = part[r] + t(r, k)
 *                                              acc = bias
 *                                              for r: acc = acc + part[r]
 *
 * Where that is not known to give the same, TVM refuses. A refused call changes nothing.
 */
ffi::ObjectRef RFactor(const ffi::ObjectRef& schedule, const ffi::Any& loop_rv,
                       const RFactorCall& rfactor);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_RFACTOR_H_
