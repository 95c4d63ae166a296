#include "schedule/report.h"

#include "analysis/peel_text.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

using Strings = ffi::Array<ffi::String>;
using AnyMap = ffi::Map<ffi::String, ffi::Any>;

ffi::Array<Var> ToArray(const std::vector<Var>& vars) {
  ffi::Array<Var> array;
  for (const Var& var : vars) array.push_back(var);
  return array;
}

std::string RestText(const FusionStep& step) {
  bool gone = step.peeled.reason.empty() || !step.merged_into.empty();
  return gone ? "" : Print(step.peeled.rest);
}

// All that was peeled by the call, with one hole for all of it.
PeelSteps AllSteps(const FusionReport& report) {
  PeelSteps all;
  for (const FusionStep& step : report.steps) {
    all.insert(all.end(), step.peeled.steps.begin(), step.peeled.steps.end());
  }
  return all;
}

}  // namespace

AnyMap ReportAsMap(const FusionReport& report, bool certified) {
  ffi::Array<ffi::Any> steps;
  for (const FusionStep& step : report.steps) {
    steps.push_back(Strings{step.epilogue.name_hint(), AbsorbedText(step.peeled.steps),
                            DistributedText(step.peeled.steps, step.hole), RestText(step),
                            step.removed ? step.removed->name() : ffi::String(""),
                            step.merged_into.empty() ? step.peeled.reason.Text() : "",
                            step.merged_into});
  }
  Strings kept;
  for (const Var& buffer : report.kept) kept.push_back(buffer.name());
  ffi::Any stopped = nullptr;
  if (report.stopped) {
    stopped = Strings{CodeText(report.stopped->code), report.stopped->block.name_hint(),
                      report.stopped->Message()};
  }
  ffi::Any certificate = nullptr;
  if (report.before && certified) certificate = CertificateAsMap(report);
  return {{"reduction", ffi::String(report.reduction)},
          {"output", report.before ? report.result.buffer.name() : ffi::String("")},
          {"numerics", ffi::String(report.options.exact ? "exact" : "reassociate")},
          {"steps", steps},
          {"kept", kept},
          {"stopped", stopped},
          {"certificate", certificate}};
}

AnyMap CertificateAsMap(const FusionReport& report) {
  const Reduction& before = *report.before;
  PeelSteps peeled = AllSteps(report);
  const Var& hole = report.steps[0].hole;
  ffi::Array<ffi::Any> epilogues;
  for (const FusionStep& step : report.steps) {
    epilogues.push_back(AnyMap{{"name", step.epilogue.name_hint()},
                               {"axes", step.axes},
                               {"h", step.h},
                               {"loops", step.loops},
                               {"inverse", step.inverse}});
  }
  ffi::Array<ffi::Any> tails;
  for (const TailRecord& tail : report.tails) {
    tails.push_back(AnyMap{{"name", ffi::String(tail.name)},
                           {"output", tail.output},
                           {"indices", tail.indices},
                           {"value", tail.value}});
  }
  bool is_float = IsFloat(BufferTypeOf(before.accumulator).dtype().dtype());
  Expr absorbed = ApplyAll(peeled, hole);
  Expr distributed = ApplyDistributed(peeled, hole);
  bool unchanged = DeepEqual(absorbed, hole) && DeepEqual(distributed, hole);
  const Monoid* after = peeled.empty() ? before.monoid : peeled.back().after;
  return {{"numerics", ffi::String(report.options.exact ? "exact" : "reassociate")},
          {"reassociates", is_float && !unchanged},
          {"reduction", ffi::String(report.reduction)},
          {"monoid", ffi::String(before.monoid->name)},
          {"monoid_after", ffi::String(after->name)},
          {"accumulator", before.accumulator},
          {"indices", before.indices},
          {"result", report.result.buffer},
          {"result_indices", report.result.indices},
          {"hole", hole},
          {"absorbed", absorbed},
          {"distributed", distributed},
          {"init", report.init},
          {"loops", report.loops},
          {"inverse", report.inverse},
          {"epilogues", epilogues},
          {"tails", tails},
          {"removed", ToArray(report.removed)},
          {"kept", ToArray(report.kept)}};
}

}  // namespace fuse_epilogue
