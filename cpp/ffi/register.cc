/*!
 * \file ffi/register.cc
 * \brief The seam to Python: the only file that registers anything.
 */
#include <tvm/ffi/reflection/registry.h>

#include "analysis/refusal.h"
#include "schedule/init_reads.h"
#include "schedule/instruction.h"
#include "schedule/primitive.h"
#include "schedule/state.h"

namespace fuse_epilogue {
namespace {

using Strings = ffi::Array<ffi::String>;

Strings ToStrings(const std::vector<std::string>& items) {
  Strings strings;
  for (const std::string& item : items) strings.push_back(item);
  return strings;
}

// What the running TVM lacks; with an empty answer everything is installed.
Strings Initialize() {
  std::vector<std::string> missing = ir::ResolveVocabulary();
  std::string symbol = ResolveExportedSymbols();
  if (!symbol.empty()) missing.push_back(symbol);
  if (missing.empty()) missing = CheckInstructionKinds();
  if (missing.empty()) InstallInstructionKinds();
  return ToStrings(missing);
}

// The vocabulary's entries are resolved against the running TVM: for tests of the check itself.
Strings MissingFrom(const Strings& names) {
  std::vector<std::string> entries(names.begin(), names.end());
  return ToStrings(ir::MissingFrom(entries));
}

ffi::Map<ffi::String, ffi::Any> Fuse(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block,
                                     const ffi::Any& epilogue) {
  FusionReport report = FuseReductionEpilogue(schedule, block, epilogue);
  ffi::Array<ffi::Any> steps;
  for (const FusionStep& step : report.steps) {
    steps.push_back(Strings{step.epilogue, step.absorbed, step.removed});
  }
  ffi::Any stopped = nullptr;
  if (report.stopped) {
    stopped = Strings{CodeText(report.stopped->code), report.stopped->block.name_hint(),
                      report.stopped->Message()};
  }
  return {{"reduction", ffi::String(report.reduction)},
          {"output", ffi::String(report.output)},
          {"steps", steps},
          {"stopped", stopped}};
}

ffi::Any DecomposeReduction(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block,
                            const ffi::ObjectRef& loop) {
  CheckDecomposition(schedule, block, loop);
  ffi::Any init = ir::CallGlobal(ir::Fn::DecomposeReduction, schedule, block, loop);
  RepairDecomposition(schedule, init.cast<ffi::ObjectRef>(), block);
  return init;
}

// TVM's blockize and tensorize, with their own arguments: (schedule, target, ...).
template <ir::Fn fn>
void Guarded(const char* primitive, ffi::PackedArgs args, ffi::Any* result) {
  if (args.size() >= 2) {
    CheckNoInitReads(args[0].cast<ffi::ObjectRef>(), primitive, ffi::Any(args[1]));
  }
  ir::Global(fn).CallPacked(args, result);
}
void Blockize(ffi::PackedArgs args, ffi::Any* result) {
  Guarded<ir::Fn::Blockize>("blockize", args, result);
}
void Tensorize(ffi::PackedArgs args, ffi::Any* result) {
  Guarded<ir::Fn::Tensorize>("tensorize", args, result);
}

ffi::Array<Strings> Refusals() {
  ffi::Array<Strings> all;
  for (const auto& [code, meaning] : AllCodes()) all.push_back(Strings{code, meaning});
  return all;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef()
      .def("fuse_epilogue.Initialize", Initialize)
      .def("fuse_epilogue.MissingFrom", MissingFrom)
      .def("fuse_epilogue.FuseReductionEpilogue", Fuse)
      .def("fuse_epilogue.DecomposeReduction", DecomposeReduction)
      .def_packed("fuse_epilogue.Blockize", Blockize)
      .def_packed("fuse_epilogue.Tensorize", Tensorize)
      .def("fuse_epilogue.Refusals", Refusals);
}

}  // namespace
}  // namespace fuse_epilogue
