#include "schedule/cascade.h"

#include <tvm/ffi/error.h>

#include <memory>
#include <string>

#include "schedule/diagnostics.h"
#include "schedule/ground.h"
#include "schedule/needs_package.h"
#include "schedule/state.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

CascadeReport Run(Ground* ground, const SBlock& block, const CascadeOptions& options) {
  if (!ground->Scope().defined() || !ground->Scope().same_as(ground->Root())) {
    throw Refusal(Code::kCascadeLoops, block,
                  "block " + Quoted(block) + " is not directly in its function's root block");
  }
  CascadeReport report;
  report.scope = std::make_shared<const fuse_epilogue::Scope>(ground->Scope());
  const fuse_epilogue::Scope& scope = *report.scope;
  report.options = options;
  report.cascade = FindCascade(scope, block, options);
  report.stopped = report.cascade->stopped;
  CascadeOrder order = CheckCascadeOrder(scope, *report.cascade);
  report.fused = FuseCascade(scope, *report.cascade, order);
  BlockReuse reuse;
  for (const auto& [old, now] : report.fused->blocks) reuse.Set(old, now);
  ground->Replace(report.fused->scope_root, reuse);
  ground->Commit();
  return report;
}

// The loop variable of a random variable.
std::optional<Var> LoopOf(const ffi::ObjectRef& schedule, const ffi::Any& loop_rv) {
  auto rv = ObjectIn(loop_rv);
  if (!rv) return std::nullopt;
  auto loop = As<For>(StmtOf(SRefOf(schedule, *rv)));
  if (!loop) TVM_FFI_THROW(TypeError) << "fuse_cascaded_reductions: loop must be a loop";
  return loop->loop_var();
}

// The variables that are an extent of a parameter of the function with this root block.
std::vector<Var> SizesOf(const ScheduleState& state, const SBlock& root) {
  std::vector<Var> sizes;
  auto functions = state.mod().functions().cast<ffi::Map<GlobalVar, ffi::ObjectRef>>();
  for (const auto& entry : functions) {
    auto func = As<PrimFunc>(entry.second);
    auto realize = func ? As<SBlockRealize>(func->body()) : std::nullopt;
    if (!realize || !realize->block().same_as(root)) continue;
    for (const Expr& param : func->params().cast<ffi::Array<Expr>>()) {
      if (ExprBase(param).ty().kind() != NodeKind::kBufferType) continue;
      for (const Expr& extent : BufferTypeOf(Var(param)).shape()) {
        if (auto size = As<Var>(extent)) sizes.push_back(*size);
      }
    }
  }
  return sizes;
}

void Record(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block, const ffi::Any& loop,
            const CascadeOptions& options) {
  auto trace = ObjectIn(CallGlobal(Fn::GetTrace, schedule));
  if (!trace) return;
  RecordNeedsPackage(schedule, block);
  ffi::Array<ffi::Any> inputs{block};
  if (auto rv = ObjectIn(loop)) inputs.push_back(*rv);
  ffi::Array<ffi::Any> attrs{ffi::String(kCascadeInstruction),
                             ffi::String(options.exact ? "exact" : "reassociate"), options.factor};
  if (options.parts > 1) attrs.push_back(options.parts);
  ffi::Array<ffi::Any> outputs;
  auto kind = CallGlobal(Fn::InstructionKindGet, kFuseInstruction);
  CallGlobal(Fn::TraceAppend, *trace, CallGlobal(Fn::Instruction, kind, inputs, attrs, outputs),
             nullptr);
}

// ---- Report ----

using AnyMap = ffi::Map<ffi::String, ffi::Any>;
using Anys = ffi::Array<ffi::Any>;

ffi::Any Maybe(const std::optional<Expr>& expr) {
  return expr ? ffi::Any(*expr) : ffi::Any(nullptr);
}

void AddAxes(const std::vector<Axis>& axes, const std::string& name, AnyMap* map) {
  ffi::Array<Var> vars;
  ffi::Array<Expr> extents;
  for (const Axis& axis : axes) {
    vars.push_back(axis.var);
    extents.push_back(axis.extent);
  }
  map->Set(name, vars);
  map->Set(name + "_extents", extents);
}

AnyMap StageAsMap(const CascadeStage& stage, const Var& state, const ffi::Any& part_state) {
  Anys bindings, carriers;
  for (const IterVar& iter : stage.block().iter_vars()) {
    bindings.push_back(Anys{iter.var(), stage.axes.at(iter.var().get())});
  }
  for (size_t carrier : stage.carriers) carriers.push_back(static_cast<int64_t>(carrier));
  ffi::Array<ffi::String> guards;
  for (const std::string& guard : stage.guards) guards.push_back(guard);
  AnyMap map{{"name", stage.block().name_hint()},
             {"monoid", ffi::String(stage.combiner())},
             {"rule", ffi::String(RuleName(stage.rule))},
             {"accumulator", stage.reduction.accumulator},
             {"indices", stage.indices},
             {"bindings", bindings},
             {"init", stage.init},
             {"term", stage.term},
             {"value", stage.value},
             {"previous", stage.previous},
             {"accumulated", stage.accumulated},
             {"finished", stage.finished},
             {"state", state},
             {"part_state", part_state},
             {"state_init", stage.state_init},
             {"step", stage.step},
             {"correction", stage.correction},
             {"tail", Maybe(stage.tail)},
             {"rolled", Maybe(stage.rolled)},
             {"deferred", Maybe(stage.deferred)},
             {"quotient", Maybe(stage.quotient)},
             {"carriers", carriers},
             {"guards", guards}};
  AddAxes(stage.own_axes, "axes", &map);
  return map;
}

AnyMap CertificateAsMap(const CascadeReport& report) {
  const Cascade& cascade = *report.cascade;
  Anys stages;
  for (size_t i = 0; i < cascade.stages.size(); ++i) {
    const std::vector<Var>& of_parts = report.fused->part_states;
    ffi::Any part_state = of_parts.empty() ? ffi::Any(nullptr) : ffi::Any(of_parts[i]);
    stages.push_back(StageAsMap(cascade.stages[i], report.fused->states[i], part_state));
  }
  AnyMap map{{"numerics", ffi::String(report.options.exact ? "exact" : "reassociate")},
             {"block", report.fused->block.name_hint()},
             {"shared", static_cast<int64_t>(cascade.shared)},
             {"factor", cascade.factor},
             {"parts", cascade.parts},
             {"count", cascade.count},
             {"total", cascade.total},
             {"stages", stages}};
  AddAxes(cascade.rows, "rows", &map);
  AddAxes(cascade.keys, "keys", &map);
  return map;
}

ffi::Array<ffi::String> NamesOf(const std::vector<const Site*>& sites) {
  ffi::Array<ffi::String> names;
  for (const Site* site : sites) names.push_back(site->block().name_hint());
  return names;
}

}  // namespace

CascadeReport FuseCascadedReductions(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block,
                                     const ffi::Any& loop, CascadeOptions options) {
  StmtSRef sref = SRefOf(schedule, block);
  ScheduleState state = StateOf(schedule);
  options.loop = LoopOf(schedule, loop);
  options.sizes = SizesOf(state, SBlock(StmtOf(RootOf(sref))));
  std::unique_ptr<Ground> ground = GroundOf(state, sref);
  try {
    CascadeReport report = Run(ground.get(), SBlock(StmtOf(sref)), options);
    Record(schedule, block, loop, options);
    return report;
  } catch (const Refusal& refusal) {
    throw MakeScheduleError(schedule, "fuse_cascaded_reductions", refusal);
  }
}

CascadeReport AnalyzeCascadedReductions(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block,
                                        const ffi::Any& loop, CascadeOptions options) {
  StmtSRef sref_here = SRefOf(schedule, block);
  SBlock named(StmtOf(sref_here));
  ScheduleState state = StateOf(schedule);
  options.loop = LoopOf(schedule, loop);
  options.sizes = SizesOf(state, SBlock(StmtOf(RootOf(sref_here))));
  ScheduleState copy = CopyOf(state);
  auto sref = CallGlobal(Fn::GetSRefOfStmt, copy, named).cast<StmtSRef>();
  try {
    return Run(GroundOf(copy, sref).get(), named, options);
  } catch (const Refusal& refusal) {
    CascadeReport report;
    report.options = options;
    report.stopped = refusal;
    return report;
  }
}

AnyMap CascadeReportAsMap(const CascadeReport& report) {
  ffi::Any stopped = nullptr;
  if (report.stopped) {
    stopped = ffi::Array<ffi::String>{CodeText(report.stopped->code),
                                      report.stopped->block.name_hint(), report.stopped->Message()};
  }
  AnyMap map{{"numerics", ffi::String(report.options.exact ? "exact" : "reassociate")},
             {"stopped", stopped}};
  if (!report.fused) return map;
  ffi::Array<ffi::String> removed;
  for (const Var& buffer : report.fused->removed) removed.push_back(buffer.name());
  map.Set("certificate", CertificateAsMap(report));
  map.Set("removed", removed);
  map.Set("gone", NamesOf(report.cascade->gone));
  map.Set("after", NamesOf(report.cascade->after));
  return map;
}

std::optional<CascadeOptions> CascadeOptionsOf(const ffi::Array<ffi::Any>& attrs) {
  auto text = [&](size_t i) {
    auto string = attrs[i].as<ffi::String>();
    std::string word = string ? std::string(*string) : "";
    // For printing, TVM puts strings into quotes.
    return word.size() > 1 && word.front() == '"' ? word.substr(1, word.size() - 2) : word;
  };
  auto number = [&](size_t i) {
    // From JSON it comes back as an IntImm.
    auto imm = As<IntImm>(attrs[i]);
    return imm ? imm->value() : attrs[i].as<int64_t>();
  };
  bool in_parts = attrs.size() == 4;
  if (attrs.size() != 3 && !in_parts) return std::nullopt;
  if (text(0) != kCascadeInstruction) return std::nullopt;
  CascadeOptions options;
  options.exact = text(1) == "exact";
  auto factor = number(2), parts = in_parts ? number(3) : std::optional<int64_t>(1);
  bool wrong = !factor || *factor < 0 || !parts || *parts < 1;
  if (wrong || (!options.exact && text(1) != "reassociate")) {
    TVM_FFI_THROW(ValueError) << "the attributes of a cascade in " << kFuseInstruction
                              << " must be \"cascade\", numerics, a factor and perhaps a number "
                                 "of parts";
  }
  options.factor = *factor;
  options.parts = *parts;
  return options;
}

}  // namespace fuse_epilogue
