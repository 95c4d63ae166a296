/*!
 * \file schedule/rewriting.h
 * \brief Rewritings of a function as steps of a schedule, by their names.
 *
 * What a rewriting does is written in Python, where the schedules are; what makes a step of it is
 * here. TVM registers instruction kinds at load time only, so such a step is a `tensorize` by an
 * intrinsic that nobody registers, whose name says all: `fuse_epilogue.rows(lanes=16, ...)`. Where
 * this package is not loaded, TVM refuses the step by that name.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_REWRITING_H_
#define FUSE_EPILOGUE_SCHEDULE_REWRITING_H_

#include "ir/vocabulary.h"

namespace fuse_epilogue {

/*! \brief Whether the name of an intrinsic is that of a rewriting. */
bool NamesRewriting(const ffi::Any& intrinsic);

/*!
 * \brief Rewrite the function of a block and record the step on the schedule's trace, if it has
 *        one and anything has changed.
 *
 * The random variables of the root block, of blocks that keep a name of their own and of loops that
 * keep their variable stay valid; those of others are so no more, as after compute_inline.
 *
 * \param schedule A tvm.s_tir.Schedule.
 * \param block_rv What the rewriting is about; the root block, if it is about the whole function.
 * \param name With all parameters.
 * \throws ffi::Error of kind ScheduleError if the function is not one that the rewriting is for, or
 *         of kind ValueError if there is no such rewriting; nothing has changed then.
 */
void Rewrite(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block_rv,
             const ffi::String& name);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_REWRITING_H_
