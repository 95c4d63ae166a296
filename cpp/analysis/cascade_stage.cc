#include "analysis/cascade_stage.h"

#include <algorithm>
#include <string>
#include <utility>

#include "analysis/assumptions.h"
#include "analysis/block_loops.h"
#include "analysis/cascade_axes.h"
#include "analysis/hoisting.h"
#include "analysis/purity.h"
#include "analysis/tuple_reduction.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// The term of `acc = acc (+) t`: the update without its accumulator.
std::optional<Expr> WithoutAccumulator(const Expr& update, const Reduction& reduction) {
  if (LoadsOf(update, reduction.accumulator).empty()) return update;
  auto both = reduction.monoid->match(update);
  if (!both) return std::nullopt;
  auto left = WithoutAccumulator(both->x, reduction);
  auto right = WithoutAccumulator(both->y, reduction);
  if (!left || !right) return left ? left : right;
  return both->of(*left, *right);
}

class StageReader {
 public:
  StageReader(const Site& site, const CascadeOptions& options)
      : options_(options), block_(site.block()) {
    if (block_.body().kind() == NodeKind::kSeqStmt) parts_ = PartsOf(block_);
    stage_.reduction = parts_.empty() ? MatchReduction(site) : AxesOf(site);
  }

  // The first reduction gives the cascade its rows and keys.
  std::vector<CascadeStage> ReadHead(std::vector<Axis>* rows, std::vector<Axis>* keys) {
    CheckForm();
    for (const Axis& axis : stage_.reduction.spatial) {
      // Of an axis with one value, some blocks write the axis and others 0.
      if (IsConst(axis.extent, 1)) {
        stage_.axes[axis.var.get()] = MakeInt(0, axis.var);
      } else {
        rows->push_back(Renamed(axis, &stage_.axes));
      }
    }
    for (const Axis& axis : stage_.reduction.reduce) keys->push_back(Renamed(axis, &stage_.axes));
    CheckNotEmpty(*keys);
    if (!parts_.empty()) return ReadParts();
    Finish(*TermOf(stage_.reduction.update));
    return {AsHead(stage_)};
  }

  CascadeStage Read(const Dataflow& flow, const Cascade& cascade) {
    if (!parts_.empty()) {
      Throw(Code::kTupleReduction, "reduces several values at once, and reads an earlier result");
    }
    CheckForm();
    Expr term = *TermOf(stage_.reduction.update);
    AxisMatcher axes(cascade, &stage_);
    auto is_stage = [&](const Site& site) {
      return std::any_of(cascade.stages.begin(), cascade.stages.end(),
                         [&](const CascadeStage& one) { return one.reduction.site == &site; });
    };
    auto read = [&](const TensorLoad& load) -> std::optional<Expr> {
      for (const CascadeStage& earlier : cascade.stages) {
        if (!load.source().same_as(earlier.reduction.accumulator)) continue;
        axes.MatchResult(earlier, load);
        return earlier.value;
      }
      return std::nullopt;
    };
    Expr inlined = flow.Inline(term, is_stage, read);
    if (!UsesAny(inlined, cascade.ValueVars())) {
      throw Refusal(Code::kNoCascade, block_,
                    "block " + Quoted(block_) + " does not read an earlier result by rows");
    }
    axes.MatchKeys();
    axes.MatchRows();
    Finish(inlined);
    return std::move(stage_);
  }

 private:
  [[noreturn]] void Throw(Code code, const std::string& what) const {
    throw Refusal(code, block_, "block " + Quoted(block_) + " " + what);
  }

  static CascadeStage AsHead(CascadeStage stage) {
    stage.state_init = stage.init;
    stage.step = stage.term;
    stage.correction = stage.accumulated;
    return stage;
  }

  static Reduction AxesOf(const Site& site) {
    Reduction reduction{&site, Var(), {}, Expr(), Expr(), nullptr, false, {}, {}, {}};
    for (const IterVar& iter : site.block().iter_vars()) {
      Axis axis{iter.var(), iter.dom().min(), iter.dom().extent()};
      bool spatial = iter.iter_type() == kDataPar;
      (spatial ? reduction.spatial : reduction.reduce).push_back(axis);
    }
    return reduction;
  }

  // The chosen key, and the largest or smallest value, as stages of their own.
  std::vector<CascadeStage> ReadParts() {
    VarSet accumulators;
    for (const PartUpdate& part : parts_) accumulators.insert(part.store.buffer().get());
    std::vector<CascadeStage> stages;
    for (const PartUpdate& part : parts_) {
      CascadeStage stage = stage_;
      stage.reduction.accumulator = part.store.buffer();
      stage.reduction.indices = part.store.indices();
      stage.reduction.init = part.init.value();
      Expr old = MakeLoad(part.store.buffer(), part.store.indices());
      std::optional<Expr> term = ReadPart(part.value, old, &stage);
      if (!term || UsesAny(*term, accumulators)) {
        Throw(Code::kTupleReduction, "stores " + Print(part.value) + " to " +
                                         Quoted(part.store.buffer()) +
                                         ", which is neither the chosen key nor its value");
      }
      std::swap(stage, stage_);
      Finish(*term);
      std::swap(stage, stage_);
      stages.push_back(AsHead(stage));
    }
    stages[0].parts = stages.size();
    stages[0].update = Substitute(Pinned(block_.body()), stage_.axes);
    return stages;
  }

  void CheckForm() {
    if (parts_.empty() && !As<BufferStore>(block_.body())) {
      Throw(Code::kCascadeForm, "accumulates under a condition");
    }
    if (stage_.reduction.subtracts) Throw(Code::kCascadeForm, "subtracts its terms");
    if (block_.alloc_buffers().size() != 0 || block_.match_buffers().size() != 0) {
      Throw(Code::kCascadeForm, "has buffers of its own");
    }
    for (const IterVar& iter : block_.iter_vars()) {
      if (IsConst(iter.dom().min(), 0)) continue;
      Throw(Code::kCascadeForm, "has axis " + Quoted(iter.var()) + ", which does not start at 0");
    }
    CheckReductionLoops(stage_.reduction);
    CheckPure(block_);
    for (const For& loop : stage_.reduction.site->Loops()) {
      auto notes = ObjectIn(loop.annotations());
      auto map = notes ? notes->as<ffi::Map<ffi::String, ffi::Any>>() : std::nullopt;
      if (loop.kind() == kSerial && (!map || map->size() == 0)) continue;
      Throw(Code::kCascadeLoops,
            "is in loop " + Quoted(loop.loop_var()) + ", which is not serial or has annotations");
    }
  }

  void CheckNotEmpty(const std::vector<Axis>& keys) {
    if (keys.empty()) Throw(Code::kCascadeForm, "has no reduction axis");
    std::vector<Expr> assumptions = AssumptionsBefore(*stage_.reduction.site);
    for (const Var& size : options_.sizes) {
      assumptions.push_back(
          CallGlobal(Fn::GreaterEqual, size, MakeInt(0, size), nullptr).cast<Expr>());
    }
    Prover prover;
    for (const Axis& key : keys) {
      Expr some =
          CallGlobal(Fn::GreaterEqual, key.extent, MakeInt(1, key.extent), nullptr).cast<Expr>();
      for (const Expr& given : assumptions) {
        Expr otherwise = CallGlobal(Fn::Not, given, nullptr).cast<Expr>();
        some = CallGlobal(Fn::Or, otherwise, some, nullptr).cast<Expr>();
      }
      if (prover.True(some)) continue;
      Refuse(Code::kCascadeEmpty, block_,
             "block " + Quoted(block_) + " reduces over " + Print(key.extent) +
                 " keys, which may be none");
    }
  }

  std::optional<Expr> TermOf(const Expr& update) const {
    auto term = WithoutAccumulator(update, stage_.reduction);
    if (term) return term;
    Throw(Code::kCascadeForm, "combines no term with its accumulator");
  }

  // Stages that share a loop may divide alike.
  template <typename T>
  T Pinned(const T& node) const {
    return PinDivisions(node, {}, AssumptionsBefore(*stage_.reduction.site));
  }

  void Finish(const Expr& term) {
    const Reduction& reduction = stage_.reduction;
    stage_.term = Substitute(Pinned(term), stage_.axes);
    stage_.init = Substitute(reduction.init, stage_.axes);
    stage_.indices = Substitute(reduction.indices, stage_.axes);
    VarSet seen;
    for (const Expr& index : stage_.indices) {
      bool plain = index.kind() == NodeKind::kVar && seen.insert(index.get()).second;
      if (plain || index.kind() == NodeKind::kIntImm) continue;
      Throw(Code::kCascadeForm, "stores to " + Quoted(reduction.accumulator) + " at " +
                                    Print(index) + ", which is not an axis");
    }
    auto operands = reduction.update.defined() ? Operands(reduction.update) : std::nullopt;
    if (operands) {
      stage_.accumulator_first = !LoadsOf(operands->first, reduction.accumulator).empty();
    }
    std::string name = reduction.accumulator.name();
    stage_.value = MakeVar(name, stage_.term);
    stage_.previous = MakeVar(name + "_before", stage_.term);
    stage_.accumulated = MakeVar(name + "_state", stage_.term);
    stage_.finished = MakeVar(name + "_finished", stage_.term);
  }

  const CascadeOptions& options_;
  SBlock block_;
  std::vector<PartUpdate> parts_;
  CascadeStage stage_;
};

}  // namespace

std::vector<CascadeStage> ReadHeadStages(const Site& site, const CascadeOptions& options,
                                         std::vector<Axis>* rows, std::vector<Axis>* keys) {
  return StageReader(site, options).ReadHead(rows, keys);
}

CascadeStage ReadStage(const Site& site, const CascadeOptions& options, const Dataflow& flow,
                       const Cascade& cascade) {
  return StageReader(site, options).Read(flow, cascade);
}

}  // namespace fuse_epilogue
