/*!
 * \file schedule/cascade.h
 * \brief `fuse_cascaded_reductions` on a schedule: find, prove, rewrite, record.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_CASCADE_H_
#define FUSE_EPILOGUE_SCHEDULE_CASCADE_H_

#include <memory>
#include <optional>

#include "transform/cascade.h"

namespace fuse_epilogue {

/*! \brief What a call did. */
struct CascadeReport {
  CascadeOptions options;
  /*! \brief The scope before the call, which the cascade refers to. */
  std::shared_ptr<const Scope> scope;
  /*! \brief Nothing if nothing was fused. */
  std::optional<Cascade> cascade;
  std::optional<FusedCascade> fused;
  /*! \brief Why nothing was fused, or why a reduction that reads the results was not. */
  std::optional<Refusal> stopped;
};

/*!
 * \brief Fuse and record the call on the schedule's trace, if it has one.
 * \param schedule A tvm.s_tir.Schedule.
 * \param block A block of the cascade.
 * \param loop A reduction loop of one of its reductions, or None.
 * \throws ffi::Error of kind ScheduleError where nothing can be fused; nothing has changed then.
 */
CascadeReport FuseCascadedReductions(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block,
                                     const ffi::Any& loop, CascadeOptions options);

/*! \brief What FuseCascadedReductions would do. Neither the schedule nor its trace is touched. */
CascadeReport AnalyzeCascadedReductions(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block,
                                        const ffi::Any& loop, CascadeOptions options);

/*! \brief The report as a map of texts and of TVM's own objects, for Python;
 *         python/fuse_epilogue/cascade.py says what each entry is. */
ffi::Map<ffi::String, ffi::Any> CascadeReportAsMap(const CascadeReport& report);

/*! \brief The first attribute of an instruction that fuses a cascade. */
inline constexpr const char* kCascadeInstruction = "cascade";
/*! \brief Whether an instruction fuses a cascade, and with which options. */
std::optional<CascadeOptions> CascadeOptionsOf(const ffi::Array<ffi::Any>& attrs);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_CASCADE_H_
