/*!
 * \file ffi/register.cc
 * \brief The seam to Python: the only file that registers anything.
 */
#include <tvm/ffi/reflection/registry.h>

#include "analysis/refusal.h"
#include "schedule/cascade.h"
#include "schedule/function.h"
#include "schedule/guarded_call.h"
#include "schedule/init_reads.h"
#include "schedule/instruction.h"
#include "schedule/primitive.h"
#include "schedule/search.h"
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

// Each as the type, our name and TVM's.
ffi::Array<Strings> RenamedFields() {
  ffi::Array<Strings> rows;
  for (const ir::RenamedField& field : ir::RenamedFields()) {
    rows.push_back(Strings{field.type, field.name, field.in_tvm});
  }
  return rows;
}

// The vocabulary's entries are resolved against the running TVM: for tests of the check itself.
Strings MissingFrom(const Strings& names) {
  std::vector<std::string> entries(names.begin(), names.end());
  return ToStrings(ir::MissingFrom(entries));
}

using Report = ffi::Map<ffi::String, ffi::Any>;

Report Fuse(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block, const ffi::Any& epilogue,
            bool exact, bool distribute) {
  return ReportAsMap(FuseReductionEpilogue(schedule, block, epilogue, Options{exact, distribute}));
}

Report Analyze(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block,
               const ffi::Any& epilogue, bool exact, bool distribute) {
  return ReportAsMap(
      AnalyzeReductionEpilogue(schedule, block, epilogue, Options{exact, distribute}));
}

CascadeOptions OptionsOf(bool exact, int64_t factor, int64_t parts) {
  CascadeOptions options;
  options.exact = exact;
  options.factor = factor;
  options.parts = parts;
  return options;
}

Report FuseCascade(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block,
                   const ffi::Any& loop, bool exact, int64_t factor, int64_t parts) {
  return CascadeReportAsMap(
      FuseCascadedReductions(schedule, block, loop, OptionsOf(exact, factor, parts)));
}

Report AnalyzeCascade(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block,
                      const ffi::Any& loop, bool exact, int64_t factor, int64_t parts) {
  return CascadeReportAsMap(
      AnalyzeCascadedReductions(schedule, block, loop, OptionsOf(exact, factor, parts)));
}

Report Reductions(const ir::PrimFunc& func) {
  FunctionReductions found = ReductionsOf(func);
  return {{"blocks", found.blocks}, {"reason", ffi::String(found.reason)}};
}

Report FuseFunction(const ir::PrimFunc& func, const ir::SBlock& reduction, bool exact,
                    bool distribute, bool rows) {
  FusedFunction fused = FuseInFunction(func, reduction, Options{exact, distribute, rows});
  Balance balance = BalanceOf(fused.report, reduction);
  return {{"function", fused.func},
          {"bytes", balance.bytes},
          {"elements", balance.elements},
          {"rounds", balance.rounds},
          {"terms", balance.terms},
          {"calls", balance.calls},
          {"report", ReportAsMap(fused.report, false)}};
}

void SwitchOff(const Strings& codes) {
  SwitchOffChecks(std::vector<std::string>(codes.begin(), codes.end()));
}

// The guarded primitives by the names of their instructions, each with TVM's own arguments.
ffi::Map<ffi::String, ffi::Function> Guarded() {
  ffi::Map<ffi::String, ffi::Function> guarded;
  for (const Guard& guard : Guards()) {
    auto call = [guard](ffi::PackedArgs args, ffi::Any* result) {
      CallGuarded(guard, args, result);
    };
    guarded.Set(guard.instruction, ffi::Function::FromPacked(call));
  }
  guarded.Set(ir::kBindInstruction,
              ffi::Function::FromPacked([](ffi::PackedArgs args, ffi::Any*) { CallBind(args); }));
  return guarded;
}

ffi::Array<Strings> Refusals() {
  ffi::Array<Strings> all;
  for (const auto& [code, meaning] : AllCodes()) all.push_back(Strings{code, meaning});
  return all;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef()
      .def("fuse_epilogue.Initialize", Initialize)
      .def("fuse_epilogue.RenamedFields", RenamedFields)
      .def("fuse_epilogue.MissingFrom", MissingFrom)
      .def("fuse_epilogue.FuseReductionEpilogue", Fuse)
      .def("fuse_epilogue.AnalyzeReductionEpilogue", Analyze)
      .def("fuse_epilogue.FuseCascadedReductions", FuseCascade)
      .def("fuse_epilogue.AnalyzeCascadedReductions", AnalyzeCascade)
      .def("fuse_epilogue.Reductions", Reductions)
      .def("fuse_epilogue.FuseFunction", FuseFunction)
      .def("fuse_epilogue.testing.SwitchOffChecks", SwitchOff)
      .def("fuse_epilogue.testing.Decisions", [] { return ToStrings(AllDecisions()); })
      .def("fuse_epilogue.DecomposeReduction", CallDecomposeReduction)
      .def("fuse_epilogue.DecomposeInitReads", DecomposeInitReads)
      .def("fuse_epilogue.Guarded", Guarded)
      .def("fuse_epilogue.Refusals", Refusals);
}

}  // namespace
}  // namespace fuse_epilogue
