#include "schedule/diagnostics.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

enum class RenderLevel { kDetail, kFast, kNone };

IRModule ModuleOf(const ffi::ObjectRef& schedule) {
  return CallGlobal(Fn::GetState, schedule).cast<ScheduleState>().mod();
}

// A schedule does not tell its error_render_level; how it renders an error does. Asking for a block
// that cannot exist changes nothing, the trace included.
RenderLevel LevelOf(const ffi::ObjectRef& schedule) {
  ffi::Any function = nullptr;
  auto functions = ModuleOf(schedule).functions().cast<ffi::Map<GlobalVar, ffi::ObjectRef>>();
  for (const auto& entry : functions) {
    if (As<PrimFunc>(entry.second)) function = entry.first.name_hint();
  }
  try {
    CallGlobal(Fn::GetSBlock, schedule, "<no block has this name>", function);
  } catch (const ffi::Error& error) {
    std::string message = error.message();
    if (message.find("The IR with diagnostic is") != std::string::npos) return RenderLevel::kDetail;
    if (message.find("(not rendered)") != std::string::npos) return RenderLevel::kNone;
  }
  return RenderLevel::kFast;
}

std::string MarkedModule(const ffi::ObjectRef& schedule, const Refusal& refusal) {
  ffi::Map<ffi::String, ffi::Any> config;
  ffi::Map<ffi::ObjectRef, ffi::String> annotate;
  ffi::Array<ffi::ObjectRef> underline;
  annotate.Set(refusal.block, "block " + Quoted(refusal.block));
  for (const ffi::ObjectRef& mark : refusal.marks) underline.push_back(mark);
  config.Set("syntax_sugar", false);
  config.Set("obj_to_annotate", annotate);
  config.Set("obj_to_underline", underline);
  return CallGlobal(Fn::Script, ModuleOf(schedule), CallGlobal(Fn::PrinterConfig, config))
      .cast<ffi::String>();
}

}  // namespace

ffi::Error MakeScheduleError(const ffi::ObjectRef& schedule, const std::string& primitive,
                             const Refusal& refusal) {
  std::string code = std::string("[") + CodeText(refusal.code) + "] ";
  std::string text;
  switch (LevelOf(schedule)) {
    case RenderLevel::kNone:
      text = "(not rendered) " + code;
      break;
    case RenderLevel::kFast:
      text = "ScheduleError: " + code + refusal.Message();
      break;
    case RenderLevel::kDetail:
      // The reason first, and last again: a reader of the first line and one of a terminal see it.
      text = "ScheduleError: " + code + refusal.Message() + "\n'" + primitive +
             "' refuses; documentation of the code: refusals.html#refusal-" +
             CodeText(refusal.code) + "\n\nThe IR with diagnostic is:\n" +
             MarkedModule(schedule, refusal) + "\nError message: " + code + refusal.Message();
      break;
  }
  return ffi::Error("ScheduleError", text, "");
}

}  // namespace fuse_epilogue
