#include "schedule/primitive.h"

#include <memory>

#include "schedule/diagnostics.h"
#include "schedule/fuser.h"
#include "schedule/needs_package.h"
#include "schedule/state.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

std::optional<SBlock> BlockOf(const ffi::ObjectRef& schedule, const ffi::Any& block_rv) {
  auto rv = ObjectIn(block_rv);
  if (!rv) return std::nullopt;
  return SBlock(StmtOf(SRefOf(schedule, *rv)));
}

void RecordCall(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block,
                const ffi::Any& epilogue, const Options& options) {
  auto trace = ObjectIn(CallGlobal(Fn::GetTrace, schedule));
  if (!trace) return;
  RecordNeedsPackage(schedule, block);
  ffi::Array<ffi::Any> inputs{block};
  if (auto rv = ObjectIn(epilogue)) inputs.push_back(*rv);
  ffi::Array<ffi::Any> outputs;
  auto kind = CallGlobal(Fn::InstructionKindGet, kFuseInstruction);
  CallGlobal(Fn::TraceAppend, *trace,
             CallGlobal(Fn::Instruction, kind, inputs, AttrsOf(options), outputs), nullptr);
}

}  // namespace

ffi::Array<ffi::Any> AttrsOf(const Options& options) {
  if (!options.exact && !options.distribute) return {};
  return {ffi::String(options.exact ? "exact" : "reassociate"), int64_t{options.distribute}};
}

FusionReport FuseReductionEpilogue(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block,
                                   const ffi::Any& epilogue, const Options& options) {
  StmtSRef sref = SRefOf(schedule, block);
  std::unique_ptr<Ground> ground = GroundOf(StateOf(schedule), sref);
  try {
    FusionReport report =
        RunFusion(ground.get(), SBlock(StmtOf(sref)), BlockOf(schedule, epilogue), options);
    RecordCall(schedule, block, epilogue, options);
    return report;
  } catch (const Refusal& refusal) {
    throw MakeScheduleError(schedule, "fuse_reduction_epilogue", refusal);
  }
}

FusionReport AnalyzeReductionEpilogue(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block,
                                      const ffi::Any& epilogue, const Options& options) {
  // On a state of its own; the statements are the same objects in both.
  SBlock named(StmtOf(SRefOf(schedule, block)));
  ScheduleState copy = CopyOf(StateOf(schedule));
  auto sref = CallGlobal(Fn::GetSRefOfStmt, copy, named).cast<StmtSRef>();
  try {
    return RunFusion(GroundOf(copy, sref).get(), named, BlockOf(schedule, epilogue), options);
  } catch (const Refusal& refusal) {
    FusionReport report;
    report.options = options;
    report.stopped = refusal;
    return report;
  }
}

}  // namespace fuse_epilogue
