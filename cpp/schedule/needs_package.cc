#include "schedule/needs_package.h"

#include <string>

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

bool SaysNeedsPackage(const ffi::Array<ffi::Any>& attrs) {
  auto text = attrs.size() > 0 ? attrs[0].as<ffi::String>() : std::nullopt;
  // For printing, TVM puts strings into quotes.
  return text && std::string(*text).find(kNeedsPackage) != std::string::npos;
}

void RecordNeedsPackage(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block) {
  auto trace = ObjectIn(CallGlobal(Fn::GetTrace, schedule));
  if (!trace) return;
  for (const Instruction& step : Trace(*trace).insts()) {
    if (SaysNeedsPackage(step.attrs())) return;
  }
  auto kind = CallGlobal(Fn::InstructionKindGet, kTensorizeInstruction);
  ffi::Array<ffi::Any> inputs{block};
  ffi::Array<ffi::Any> attrs{ffi::String(kNeedsPackage), int64_t{1}};
  ffi::Array<ffi::Any> outputs;
  CallGlobal(Fn::TraceAppend, *trace, CallGlobal(Fn::Instruction, kind, inputs, attrs, outputs),
             nullptr);
}

}  // namespace fuse_epilogue
