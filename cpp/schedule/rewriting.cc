#include "schedule/rewriting.h"

#include <tvm/ffi/error.h>

#include "schedule/diagnostics.h"
#include "schedule/state.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// What the names of all rewritings begin with.
constexpr const char* kPrefix = "fuse_epilogue.";
// Given the function, the block and the name: the new function and which blocks of it are those of
// before, or a sentence that says why there is none. Python registers it.
constexpr const char* kRewritten = "fuse_epilogue.Rewritten";

PrimFunc FunctionOf(const ScheduleState& state, const SBlock& root) {
  auto functions = state.mod().functions().cast<ffi::Map<GlobalVar, ffi::ObjectRef>>();
  for (const auto& entry : functions) {
    auto func = As<PrimFunc>(entry.second);
    auto realize = func ? As<SBlockRealize>(func->body()) : std::nullopt;
    if (realize && realize->block().same_as(root)) return *func;
  }
  TVM_FFI_THROW(InternalError) << "no function has the root block " << Quoted(root);
}

void RecordRewriting(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block_rv,
                     const ffi::String& name) {
  auto trace = ObjectIn(CallGlobal(Fn::GetTrace, schedule));
  if (!trace) return;
  ffi::Array<ffi::Any> inputs{block_rv};
  ffi::Array<ffi::Any> attrs{name, int64_t{1}};
  ffi::Array<ffi::Any> outputs;
  auto kind = CallGlobal(Fn::InstructionKindGet, kTensorizeInstruction);
  CallGlobal(Fn::TraceAppend, *trace, CallGlobal(Fn::Instruction, kind, inputs, attrs, outputs),
             nullptr);
}

}  // namespace

bool NamesRewriting(const ffi::Any& intrinsic) {
  auto name = intrinsic.as<ffi::String>();
  if (!name) return false;
  // A rewriting has parameters, if only "()": other names are those of intrinsics.
  std::string text(*name);
  return text.rfind(kPrefix, 0) == 0 && text.find('(') != std::string::npos;
}

void Rewrite(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block_rv,
             const ffi::String& name) {
  StmtSRef sref = SRefOf(schedule, block_rv);
  auto block = As<SBlock>(StmtOf(sref));
  if (!block) TVM_FFI_THROW(TypeError) << "'" << name << "' is about a block, not about a loop";
  ScheduleState state = StateOf(schedule);
  StmtSRef root = RootOf(sref);
  SBlock before(StmtOf(root));
  ffi::Any answer =
      ffi::Function::GetGlobalRequired(kRewritten)(FunctionOf(state, before), *block, name);
  if (auto why = answer.as<ffi::String>()) {
    throw MakeScheduleError(schedule, "tensorize", Refusal(Code::kRewriting, *block, *why));
  }
  auto made = answer.cast<ffi::Array<ffi::ObjectRef>>();
  SBlock after = SBlockRealize(PrimFunc(made[0]).body()).block();
  if (after.same_as(before)) return;
  ReplaceScope(state, root, after, ffi::Any(made[1]).cast<BlockReuse>());
  RecordRewriting(schedule, block_rv, name);
}

}  // namespace fuse_epilogue
