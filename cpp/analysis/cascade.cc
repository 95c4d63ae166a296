#include "analysis/cascade.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "analysis/cascade_laws.h"
#include "analysis/dataflow.h"
#include "analysis/defined.h"
#include "analysis/domain.h"
#include "analysis/hazards.h"
#include "analysis/purity.h"
#include "analysis/region.h"
#include "analysis/row_factors.h"
#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

constexpr int64_t kDefaultFactor = 64;
// So that no index of 32 bits overflows.
constexpr int64_t kLargestFactor = int64_t{1} << 30;

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

// A block that reduces several values at once, like an argmax: what each part starts from and
// becomes.
struct PartUpdate {
  BufferStore init, store;
  Expr value;
};

std::vector<PartUpdate> PartsOf(const SBlock& block) {
  auto body = As<SeqStmt>(block.body());
  auto init = ObjectIn(block.init()) ? As<SeqStmt>(block.init()) : std::nullopt;
  if (!body || !init) return {};
  Substitution bound;
  std::vector<PartUpdate> parts;
  for (const Stmt& stmt : body->seq()) {
    if (auto bind = As<Bind>(stmt)) {
      bound[bind->var().get()] = Substitute(bind->value(), bound);
      continue;
    }
    auto store = As<BufferStore>(stmt);
    auto start = parts.size() < init->seq().size() ? As<BufferStore>(init->seq()[parts.size()])
                                                   : std::nullopt;
    if (!store || !start || !store->buffer().same_as(start->buffer())) return {};
    if (!DeepEqual(store->indices(), start->indices())) return {};
    parts.push_back(PartUpdate{*start, *store, Substitute(store->value(), bound)});
  }
  return parts.size() == init->seq().size() ? parts : std::vector<PartUpdate>();
}

// One reduction of a cascade, read in the variables of the cascade.
class StageReader {
 public:
  StageReader(const Dataflow& flow, const Cascade& cascade, const Site& site,
              const CascadeOptions& options)
      : flow_(flow), cascade_(cascade), options_(options), block_(site.block()) {
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
        rows->push_back(Renamed(axis));
      }
    }
    for (const Axis& axis : stage_.reduction.reduce) keys->push_back(Renamed(axis));
    CheckNotEmpty(*keys);
    if (!parts_.empty()) return ReadParts();
    Finish(*TermOf(stage_.reduction.update));
    return {AsHead(stage_)};
  }

  CascadeStage Read() {
    if (!parts_.empty()) {
      Throw(Code::kTupleReduction, "reduces several values at once, and reads an earlier result");
    }
    CheckForm();
    Expr term = *TermOf(stage_.reduction.update);
    VarSet results = cascade_.ValueVars();
    auto is_stage = [&](const Site& site) { return IsStage(site); };
    auto read = [&](const TensorLoad& load) { return ReadResult(load); };
    Expr inlined = flow_.Inline(term, is_stage, read);
    if (!UsesAny(inlined, results)) {
      throw Refusal(Code::kNoCascade, block_,
                    "block " + Quoted(block_) + " does not read an earlier result by rows");
    }
    MatchKeys();
    MatchRows();
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
    stages[0].update = Substitute(block_.body(), stage_.axes);
    return stages;
  }

  // The term of one part: the key itself, or what is compared.
  std::optional<Expr> ReadPart(const Expr& value, const Expr& old, CascadeStage* stage) const {
    const std::vector<Axis>& keys = stage_.reduction.reduce;
    if (auto choice = ChoiceOf(value)) {
      bool keeps = DeepEqual(choice->yes, old);
      Expr other = keeps ? choice->no : choice->yes;
      if (!keeps && !DeepEqual(choice->no, old)) return std::nullopt;
      if (keys.size() == 1 && other.same_as(keys[0].var)) {
        stage->part = Part::kIndex;
        return other;
      }
      auto larger = LargerOf(choice->condition);
      if (!larger) return std::nullopt;
      auto [high, low] = *larger;
      bool old_high = DeepEqual(high, old) && DeepEqual(low, other);
      bool old_low = DeepEqual(low, old) && DeepEqual(high, other);
      if (!old_high && !old_low) return std::nullopt;
      stage->part = Part::kValue;
      stage->reduction.monoid = &MonoidOf(old_high == keeps ? MonoidId::kMax : MonoidId::kMin);
      return other;
    }
    if (value.kind() != NodeKind::kMax && value.kind() != NodeKind::kMin) return std::nullopt;
    auto [a, b] = *Operands(value);
    if (!DeepEqual(a, old) && !DeepEqual(b, old)) return std::nullopt;
    stage->part = Part::kValue;
    stage->reduction.monoid = MonoidOf(value);
    return DeepEqual(a, old) ? b : a;
  }

  // The two sides of a comparison, the one that is larger where it holds first.
  static std::optional<std::pair<Expr, Expr>> LargerOf(const Expr& condition) {
    if (auto c = As<Greater>(condition)) return std::make_pair(c->a(), c->b());
    if (auto c = As<GreaterEqual>(condition)) return std::make_pair(c->a(), c->b());
    if (auto c = As<Less>(condition)) return std::make_pair(c->b(), c->a());
    if (auto c = As<LessEqual>(condition)) return std::make_pair(c->b(), c->a());
    return std::nullopt;
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

  Axis Renamed(const Axis& axis) {
    Axis fresh{MakeVar(axis.var.name(), axis.var), axis.min, axis.extent};
    stage_.axes[axis.var.get()] = fresh.var;
    return fresh;
  }

  std::optional<Expr> TermOf(const Expr& update) const {
    auto term = WithoutAccumulator(update, stage_.reduction);
    if (term) return term;
    Throw(Code::kCascadeForm, "combines no term with its accumulator");
  }

  // The variable of an earlier result for its load, whose indices say which rows are whose.
  bool IsStage(const Site& site) const {
    return std::any_of(cascade_.stages.begin(), cascade_.stages.end(),
                       [&](const CascadeStage& stage) { return stage.reduction.site == &site; });
  }

  std::optional<Expr> ReadResult(const TensorLoad& load) {
    for (const CascadeStage& earlier : cascade_.stages) {
      if (!load.source().same_as(earlier.reduction.accumulator)) continue;
      if (!earlier.own_axes.empty()) {
        Throw(Code::kCascadeRow, "reads " + Print(load) + ", of which a row has several elements");
      }
      for (size_t d = 0; d < earlier.indices.size(); ++d) {
        MatchRow(load, earlier.indices[d], load.indices()[d]);
      }
      return earlier.value;
    }
    return std::nullopt;
  }

  void MatchRow(const TensorLoad& load, const Expr& row, const Expr& index) {
    auto is_row = [&](const Axis& axis) { return axis.var.same_as(row); };
    auto axis = std::find_if(cascade_.rows.begin(), cascade_.rows.end(), is_row);
    if (axis == cascade_.rows.end()) {
      bool unit = false;
      for (const Axis& own : stage_.reduction.spatial) {
        unit = unit || (own.var.same_as(index) && IsConst(own.extent, 1));
      }
      if (unit || prover_.Equal(row, index)) return;
    }
    for (const Axis& own : stage_.reduction.spatial) {
      if (axis == cascade_.rows.end() || !own.var.same_as(index)) continue;
      auto& known = row_of_[own.var.get()];
      if (known.defined() && !known.same_as(axis->var)) break;
      if (!prover_.Equal(own.extent, axis->extent)) {
        Throw(Code::kCascadeDomain, "has other rows than " + Print(load) + ": " +
                                        Print(own.extent) + " instead of " + Print(axis->extent));
      }
      known = axis->var;
      return;
    }
    Throw(Code::kCascadeRow, "reads " + Print(load) + ", which is not the result of its own row");
  }

  void MatchRows() {
    VarSet used;
    for (const Axis& own : stage_.reduction.spatial) {
      auto row = row_of_.find(own.var.get());
      if (row == row_of_.end()) {
        if (IsConst(own.extent, 1)) {
          stage_.axes[own.var.get()] = MakeInt(0, own.var);
        } else {
          stage_.own_axes.push_back(Renamed(own));
        }
        continue;
      }
      if (!SameType(DTypeOf(own.var), DTypeOf(row->second))) {
        Refuse(Code::kIndexType, block_,
               "block " + Quoted(block_) + " has axis " + Quoted(own.var) + " in another type");
      }
      if (!used.insert(row->second.get()).second) {
        Throw(Code::kCascadeRow, "reads an earlier result along a diagonal");
      }
      stage_.axes[own.var.get()] = row->second;
    }
    for (const Axis& row : cascade_.rows) {
      if (used.count(row.var.get())) continue;
      Throw(Code::kCascadeRow, "reads an earlier result at one row only");
    }
  }

  // The keys in the order of the first reduction, or as their extents tell.
  void MatchKeys() {
    std::vector<Axis> mine = stage_.reduction.reduce;
    if (mine.size() != cascade_.keys.size()) {
      Throw(Code::kCascadeDomain, "reduces over another number of axes");
    }
    std::vector<bool> used(mine.size(), false);
    for (size_t i = 0; i < mine.size(); ++i) {
      size_t found = mine.size();
      for (size_t n = 0; n < mine.size() && found == mine.size(); ++n) {
        size_t k = (i + n) % mine.size();
        if (!used[k] && prover_.Equal(mine[i].extent, cascade_.keys[k].extent)) found = k;
      }
      if (found == mine.size()) {
        Throw(Code::kCascadeDomain, "reduces over " + Print(mine[i].extent) +
                                        " keys, not over those of block " +
                                        Quoted(cascade_.stages[0].block()));
      }
      if (!SameType(DTypeOf(mine[i].var), DTypeOf(cascade_.keys[found].var))) {
        Refuse(Code::kIndexType, block_,
               "block " + Quoted(block_) + " has axis " + Quoted(mine[i].var) + " in another type");
      }
      used[found] = true;
      stage_.axes[mine[i].var.get()] = cascade_.keys[found].var;
    }
  }

  void Finish(const Expr& term) {
    const Reduction& reduction = stage_.reduction;
    stage_.term = Substitute(term, stage_.axes);
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

  const Dataflow& flow_;
  const Cascade& cascade_;
  const CascadeOptions& options_;
  SBlock block_;
  std::vector<PartUpdate> parts_;
  CascadeStage stage_;
  std::unordered_map<VarKey, Var> row_of_;
  Prover prover_;
};

class Finder {
 public:
  Finder(const Scope& scope, const SBlock& block, const CascadeOptions& options)
      : scope_(scope), flow_(scope), block_(block), options_(options) {}

  Cascade Find() {
    const Site* named = scope_.Find(block_);
    if (named == nullptr) {
      throw Refusal(Code::kStructure, block_,
                    "block " + Quoted(block_) + " is not directly in the root block");
    }
    const Site& wanted = LooksLikeReduction(block_) ? *named : NearestReduction(*named);
    const Site& head = HeadOf(wanted);
    ReadHead(head);
    std::optional<Refusal> of_wanted;
    for (const Site& site : scope_.sites) {
      if (site.position <= head.position || !site.is_block()) continue;
      if (!LooksLikeReduction(site.block()) || !ReadsStage(site)) continue;
      try {
        AddStage(site);
      } catch (const Refusal& refusal) {
        bool unrelated = refusal.code == Code::kNoCascade && &site != &wanted;
        if (!unrelated && !cascade_.stopped) cascade_.stopped = refusal;
        if (&site == &wanted) of_wanted = refusal;
      }
    }
    if (of_wanted && of_wanted->code == Code::kNoCascade && cascade_.stopped) {
      throw *cascade_.stopped;
    }
    if (of_wanted) throw *of_wanted;
    if (cascade_.stages.size() == num_heads_) {
      if (cascade_.stopped) throw *cascade_.stopped;
      if (why_) throw *why_;
      throw Refusal(Code::kNoCascade, block_,
                    "no reduction reads the result of block " + Quoted(head.block()) + " by rows");
    }
    Block();
    SortBetween();
    cascade_.expand = nullptr;
    return std::move(cascade_);
  }

 private:
  const Site& NearestReduction(const Site& site) {
    const Site* nearest = nullptr;
    for (const Site* source : flow_.ReductionsBefore(site)) nearest = source;
    if (nearest == nullptr) {
      throw Refusal(Code::kNoCascade, block_,
                    "block " + Quoted(block_) +
                        " neither is a reduction nor reads a reduction's "
                        "result");
    }
    return *nearest;
  }

  // The first reduction whose result this one reads by rows, through any number of others.
  const Site& HeadOf(const Site& site) {
    for (const Site* source : flow_.ReductionsBefore(site)) {
      if (flow_.ReadsByRows(site, *source, &why_)) return HeadOf(*source);
    }
    return site;
  }

  void ReadHead(const Site& head) {
    Cascade none;
    std::vector<Axis> rows, keys;
    std::vector<CascadeStage> stages =
        StageReader(flow_, none, head, options_).ReadHead(&rows, &keys);
    cascade_.rows = rows;
    cascade_.keys = keys;
    cascade_.count = MakeVar("count", keys[0].var);
    cascade_.total = MakeVar("total", keys[0].var);
    cascade_.expand = [this](const Expr& expr) { return flow_.Expand(expr); };
    for (const CascadeStage& stage : stages) {
      CheckOnlyWriter(scope_, stage.reduction.accumulator, head);
    }
    cascade_.stages = std::move(stages);
    num_heads_ = cascade_.stages.size();
  }

  bool ReadsStage(const Site& site) {
    for (const Site* source : flow_.ReductionsBefore(site)) {
      for (const CascadeStage& stage : cascade_.stages) {
        if (stage.reduction.site == source) return true;
      }
    }
    return false;
  }

  void AddStage(const Site& site) {
    for (const Site* source : flow_.ReductionsBefore(site)) {
      bool is_stage = false, depends = ReadsStage(*source);
      for (const CascadeStage& stage : cascade_.stages) {
        is_stage = is_stage || stage.reduction.site == source;
      }
      if (is_stage || !depends) continue;
      throw Refusal(Code::kNoCascade, site.block(),
                    "block " + Quoted(site.block()) + " reads the result of block " +
                        Quoted(source->block()) + ", which is computed after the cascade");
    }
    CascadeStage stage = StageReader(flow_, cascade_, site, options_).Read();
    CheckOnlyWriter(scope_, stage.reduction.accumulator, site);
    ApplyLaws(cascade_, options_, &stage);
    cascade_.stages.push_back(std::move(stage));
  }

  // Which axis is blocked, and by how many keys.
  void Block() {
    if (options_.loop) FindLoop();
    int64_t factor = options_.factor;
    if (factor < 0 || factor > kLargestFactor) {
      ThrowLoop("the factor is " + std::to_string(factor));
    }
    if (factor == 0) factor = kDefaultFactor;
    auto extent = As<IntImm>(cascade_.keys[cascade_.shared].extent);
    cascade_.factor = extent ? std::min(factor, extent->value()) : factor;
  }

  void FindLoop() {
    for (const CascadeStage& stage : cascade_.stages) {
      auto values = stage.reduction.site->realize.iter_values();
      size_t i = 0;
      for (const IterVar& iter : stage.block().iter_vars()) {
        Expr value = values[i++];
        if (iter.iter_type() != kCommReduce || !value.same_as(*options_.loop)) continue;
        Expr key = stage.axes.at(iter.var().get());
        for (size_t k = 0; k < cascade_.keys.size(); ++k) {
          if (cascade_.keys[k].var.same_as(key)) cascade_.shared = k;
        }
        return;
      }
    }
    ThrowLoop("loop " + Quoted(*options_.loop) + " is not the loop of one of its reduction axes");
  }

  [[noreturn]] void ThrowLoop(const std::string& what) {
    throw Refusal(Code::kCascadeLoop, block_, "block " + Quoted(block_) + ": " + what);
  }

  // Elementwise blocks whose every reader is a reduction of the cascade, or another such block.
  void SortBetween() {
    std::set<const Site*> stages;
    for (const CascadeStage& stage : cascade_.stages) stages.insert(stage.reduction.site);
    std::set<const Site*> gone;
    for (auto it = scope_.sites.rbegin(); it != scope_.sites.rend(); ++it) {
      if (!it->is_block() || stages.count(&*it) || !ReadsStage(*it)) continue;
      auto between = flow_.Elementwise(*it);
      bool inlined = between && Owns(scope_.root, between->output);
      bool read = false;
      for (const Site& reader : scope_.sites) {
        if (!inlined || &reader == &*it || !reader.Touches(between->output.get(), Use::kRead)) {
          continue;
        }
        read = true;
        inlined = stages.count(&reader) > 0 || gone.count(&reader) > 0;
      }
      if (inlined && read) gone.insert(&*it);
    }
    for (const Site& site : scope_.sites) {
      if (gone.count(&site)) {
        cascade_.gone.push_back(&site);
      } else if (site.is_block() && !stages.count(&site) && ReadsStage(site)) {
        cascade_.behind.push_back(&site);
      }
    }
  }

  const Scope& scope_;
  Dataflow flow_;
  SBlock block_;
  const CascadeOptions& options_;
  Cascade cascade_;
  size_t num_heads_ = 1;
  // Why a reduction is not known to read another one by rows.
  std::optional<Refusal> why_;
};

}  // namespace

const char* RuleName(Rule rule) {
  switch (rule) {
    case Rule::kHead:
      return "head";
    case Rule::kDefer:
      return "defer";
    case Rule::kRoll:
      return "roll";
    case Rule::kMix:
      return "mix";
    case Rule::kBasis:
      return "basis";
    case Rule::kSelect:
      return "select";
  }
  return "";
}

VarSet Cascade::KeyVars() const {
  VarSet vars;
  for (const Axis& key : keys) vars.insert(key.var.get());
  return vars;
}

VarSet Cascade::ValueVars() const {
  VarSet vars;
  for (const CascadeStage& stage : stages) vars.insert(stage.value.get());
  return vars;
}

Cascade FindCascade(const Scope& scope, const SBlock& block, const CascadeOptions& options) {
  return Finder(scope, block, options).Find();
}

}  // namespace fuse_epilogue
