/*!
 * \file schedule/report.h
 * \brief What a call did, for the user to read and for a checker to check.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_REPORT_H_
#define FUSE_EPILOGUE_SCHEDULE_REPORT_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/refusal.h"
#include "transform/fuse.h"

namespace fuse_epilogue {

/*! \brief One epilogue that was fused. Texts are made when they are asked for. */
struct FusionStep {
  ir::SBlock epilogue;
  ir::Var output;
  ir::Var hole;
  Peeled peeled;
  /*! \brief The buffer that is gone, if one is. */
  std::optional<ir::Var> removed;
  /*! \brief The block of a later step that the tail has become part of; empty if none. */
  std::string merged_into;

  // For the certificate: v = h(s), and the epilogue's loops as functions of v.
  ffi::Array<ir::Var> axes;
  ffi::Array<ir::Expr> h;
  ffi::Array<ir::Var> loops;
  ffi::Array<ir::Expr> inverse;
};

/*! \brief A tail after the call: the block, and what it stores where, in the reduction's axes. */
struct TailRecord {
  std::string name;
  ir::Var output;
  ffi::Array<ir::Expr> indices;
  ir::Expr value;
};

/*! \brief What a call did. */
struct FusionReport {
  Options options;
  /*! \brief The reduction as it was before the call; undefined if nothing was fused. */
  std::optional<Reduction> before;
  std::string reduction;
  /*! \brief Where the reduction accumulates now, and what it starts from. */
  Produced result;
  ir::Expr init;
  ffi::Array<ir::Var> loops;
  ffi::Array<ir::Expr> inverse;
  std::vector<FusionStep> steps;
  std::vector<TailRecord> tails;
  std::vector<ir::Var> removed;
  /*! \brief Intermediates that stay alive in full because somebody else reads them. */
  std::vector<ir::Var> kept;
  /*! \brief Intermediates of which only what one round of the loops around the tails works on is
   *         alive, and how many rounds there are; 0 if that is not a number. */
  std::vector<std::pair<ir::Var, int64_t>> shrunk;
  /*! \brief How often the place of the tails is come to; 0 if that is not a number. */
  int64_t rounds = 0;
  /*! \brief Why some consumer stays as it is. */
  std::optional<Refusal> stopped;
};

/*! \brief The report as a map of texts, for Python, with the certificate or without. */
ffi::Map<ffi::String, ffi::Any> ReportAsMap(const FusionReport& report, bool certified = true);

/*! \brief The certificate as a map of TVM's own objects; python/fuse_epilogue/certificate.py
 *         says what each entry is. */
ffi::Map<ffi::String, ffi::Any> CertificateAsMap(const FusionReport& report);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_REPORT_H_
