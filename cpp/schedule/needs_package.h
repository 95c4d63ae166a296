/*!
 * \file schedule/needs_package.h
 * \brief The step of a trace that says which package its fusions need.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_NEEDS_PACKAGE_H_
#define FUSE_EPILOGUE_SCHEDULE_NEEDS_PACKAGE_H_

#include "ir/vocabulary.h"

namespace fuse_epilogue {

/*!
 * \brief The name of a tensor intrinsic that nobody registers, which says what a trace needs.
 *
 * A process that has TVM but not this package would replay a recorded fusion by TVM's own primitive
 * of that name, or fail with a message about numbers of inputs. A step `tensorize` by this
 * intrinsic in front of it makes TVM fail with this text. Where this package is loaded the step
 * does nothing.
 */
inline constexpr const char* kNeedsPackage =
    "(none: this trace needs the Python package fuse_epilogue, which is not loaded; "
    "install it and `import fuse_epilogue` before reading the trace or its database)";

/*! \brief Whether these are the attributes of such a step. */
bool SaysNeedsPackage(const ffi::Array<ffi::Any>& attrs);

/*! \brief Put the step that says so on the trace, unless it is there; it follows on \p block. */
void RecordNeedsPackage(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_NEEDS_PACKAGE_H_
