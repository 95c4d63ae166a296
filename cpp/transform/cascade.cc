#include "transform/cascade.h"

#include <algorithm>
#include <string>

#include "analysis/cascade_parts.h"
#include "ir/calls.h"
#include "ir/functor.h"
#include "transform/blocks.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// An expression of the keys and of results that is computed once for a block of keys, because
// several stages use it, or one of them for each of its own axes.
struct Weight {
  Expr value;
  size_t stage;  // the first one that uses it
  size_t uses = 0;
  bool repeated = false;
  Var buffer;
};

// The parts of a step that read results, call a function and do not use the stage's own axes.
class WeightFinder : public StmtExprVisitor {
 public:
  WeightFinder(const VarSet& results, const VarSet& own) : results_(results), own_(own) {}
  std::vector<Expr> found;

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const Var&) override {}
  void VisitExpr_(const TensorLoad&) override {}
  void VisitExpr_(const Call& op) override { VisitNode(op); }
  void VisitOther(const Node& op) override { VisitNode(op); }

 private:
  void VisitNode(const Node& op) {
    if (!UsesAny(op, results_)) return;
    if (!UsesAny(op, own_)) {
      if (Calls(op)) found.push_back(Expr(op));
      return;
    }
    // What a condition on the stage's own axes guards stays under it.
    if (ChoiceOf(Expr(op))) return;
    VisitChildren(op);
  }

  static bool Calls(const Node& op) {
    class Finder : public StmtExprVisitor {
     public:
      bool found = false;

     protected:
      using StmtExprVisitor::VisitExpr_;
      void VisitExpr_(const Call&) override { found = true; }
    };
    Finder finder;
    finder(op);
    return finder.found;
  }

  const VarSet& results_;
  const VarSet& own_;
};

// Puts loads of the weights in the place of their values.
class WeightReader : public StmtExprMutator {
 public:
  WeightReader(const std::vector<Weight>& weights, const ffi::Array<Expr>& indices)
      : weights_(weights), indices_(indices) {}

 protected:
  using StmtExprMutator::VisitExpr_;
  Expr VisitExpr_(const Call& op) override { return VisitOther(op).cast<Expr>(); }
  ffi::Any VisitOther(const Node& op) override {
    for (const Weight& weight : weights_) {
      if (op.kind() == weight.value.kind() && DeepEqual(Expr(op), weight.value)) {
        return MakeLoad(weight.buffer, indices_);
      }
    }
    return MutateChildren(op);
  }

 private:
  const std::vector<Weight>& weights_;
  const ffi::Array<Expr>& indices_;
};

// Puts elements of other buffers in the place of accumulators.
class PartMover : public StmtExprMutator {
 public:
  void Move(const Var& from, const Var& to, const Expr& index) {
    to_.emplace(from.get(), to);
    index_ = index;
  }

 protected:
  using StmtExprMutator::VisitExpr_;
  using StmtExprMutator::VisitStmt_;
  Expr VisitExpr_(const TensorLoad& op) override {
    auto to = to_.find(op.source().get());
    return to == to_.end() ? StmtExprMutator::VisitExpr_(op) : MakeLoad(to->second, {index_});
  }
  Stmt VisitStmt_(const BufferStore& op) override {
    auto to = to_.find(op.buffer().get());
    return MakeStore(to == to_.end() ? op.buffer() : to->second, Rewrite(op.value()), {index_});
  }

 private:
  std::unordered_map<VarKey, Var> to_;
  Expr index_;
};

class Builder {
 public:
  explicit Builder(const Cascade& cascade) : cascade_(cascade) {
    const Axis& key = cascade.keys[cascade.shared];
    // Of the first block of each part.
    int64_t together = cascade.factor * cascade.parts;
    blocks_ = MakeAxis(
        "block",
        CallGlobal(Fn::CeilDiv, key.extent, MakeInt(together, key.var), nullptr).cast<Expr>());
    auto extent = As<IntImm>(key.extent);
    divides_ = extent && extent->value() % together == 0;
    one_ = MakeInt(1, key.var);
    zero_ = MakeInt(0, key.var);
    if (IsSplit()) part_ = MakeAxis("part", MakeInt(cascade.parts, key.var));
    for (const CascadeStage& stage : cascade.stages) {
      const Var& accumulator = stage.reduction.accumulator;
      std::string name = accumulator.name();
      states_.push_back(stage.tail ? MakeBuffer(name + "_state", accumulator, stage.term,
                                                BufferTypeOf(accumulator).shape())
                                   : accumulator);
      if (IsSplit()) {
        ffi::Array<Expr> of_parts{part_.extent};
        for (const Expr& extent : BufferTypeOf(accumulator).shape()) of_parts.push_back(extent);
        part_states_.push_back(MakeBuffer(name + "_part", accumulator, stage.term, of_parts));
      }
      ffi::Array<Expr> shape;
      for (const Axis& own : stage.own_axes) shape.push_back(own.extent);
      if (shape.empty()) shape.push_back(one_);
      next_.push_back(MakeBuffer(name + "_next", accumulator, stage.term, shape));
    }
    FindWeights();
  }

  // The loops over rows and blocks of keys, and the block in them.
  Stmt MakeFused(SBlock* block) {
    std::vector<Stmt> init, body;
    for (size_t i = 0; i < cascade_.stages.size(); ++i) {
      init.push_back(Start(i));
      for (const Weight& weight : weights_) {
        if (weight.stage == i) body.push_back(ComputeWeight(weight));
      }
      if (cascade_.stages[i].part == Part::kAll) {
        body.push_back(Advance(i));
      } else if (cascade_.stages[i].parts > 1) {
        body.push_back(AdvanceParts(i));
      }
    }
    for (size_t i = 0; i < cascade_.stages.size(); ++i) body.push_back(Keep(i));
    std::vector<Axis> axes = cascade_.rows;
    if (IsSplit()) axes.push_back(part_);
    std::vector<IterType> types(axes.size(), kDataPar);
    axes.push_back(blocks_);
    types.push_back(kCommReduce);
    BlockParts parts;
    parts.name = std::string(cascade_.stages[0].block().name_hint()) + "_cascade";
    parts.init = MakeSequence(init);
    parts.body = MakeSequence(body);
    for (const Var& buffer : next_) parts.buffers.push_back(buffer);
    for (const Weight& weight : weights_) parts.buffers.push_back(weight.buffer);
    Stmt nest = MakeNest(axes, types, parts);
    *block = BlockIn(nest);
    return nest;
  }

  // The states of all parts of one stage, each corrected to the carriers of all keys.
  Stmt MakeMerge(size_t i, SBlock* block) const {
    const CascadeStage& stage = cascade_.stages[i];
    Substitution at;
    std::vector<Axis> axes = Renamed(cascade_.rows, &at);
    std::vector<IterType> types(axes.size(), kDataPar);
    Axis part = Renamed({part_}, &at)[0];
    axes.push_back(part);
    types.push_back(kCommReduce);
    for (const Axis& own : Renamed(stage.own_axes, &at)) {
      axes.push_back(own);
      types.push_back(kDataPar);
    }
    ffi::Array<Expr> element = Substitute(stage.indices, at);
    at[stage.accumulated.get()] = MakeLoad(part_states_[i], InPart(part.var, element));
    for (size_t k = 0; k < i; ++k) {
      const CascadeStage& other = cascade_.stages[k];
      if (!other.own_axes.empty()) continue;
      ffi::Array<Expr> row = Substitute(other.indices, at);
      at[other.previous.get()] = MakeLoad(part_states_[k], InPart(part.var, row));
      at[other.value.get()] = MakeLoad(states_[k], row);
    }
    Expr all = cascade_.keys[cascade_.shared].extent;
    at[cascade_.count.get()] = WithOtherKeys(KeysInPart(part.var, KeysOfPart()));
    at[cascade_.total.get()] = WithOtherKeys(all);
    Expr merged = MakeLoad(states_[i], element);
    Expr corrected = Substitute(stage.correction, at);
    BlockParts parts;
    parts.name = std::string(stage.block().name_hint()) + "_merge";
    parts.init = MakeStore(states_[i], Substitute(stage.state_init, at), element);
    parts.body =
        MakeStore(states_[i], stage.reduction.monoid->make_node(merged, corrected), element);
    Stmt nest = MakeNest(axes, types, parts);
    *block = BlockIn(nest);
    return nest;
  }

  // What is deferred, for the finished state of one stage.
  Stmt MakeTail(size_t i, SBlock* block) const {
    const CascadeStage& stage = cascade_.stages[i];
    Substitution at;
    std::vector<Axis> axes = Renamed(cascade_.rows, &at);
    for (const Axis& own : Renamed(stage.own_axes, &at)) axes.push_back(own);
    for (const CascadeStage& other : cascade_.stages) {
      if (&other == &stage) break;
      at[other.value.get()] = MakeLoad(other.reduction.accumulator, Substitute(other.indices, at));
    }
    ffi::Array<Expr> element = Substitute(stage.indices, at);
    at[stage.finished.get()] = MakeLoad(states_[i], element);
    BlockParts parts;
    parts.name = stage.block().name_hint();
    parts.body = MakeStore(stage.reduction.accumulator, Substitute(*stage.tail, at), element);
    Stmt nest = MakeNest(axes, std::vector<IterType>(axes.size(), kDataPar), parts);
    *block = BlockIn(nest);
    return nest;
  }

  const std::vector<Var>& states() const { return states_; }
  const std::vector<Var>& part_states() const { return part_states_; }

 private:
  bool IsSplit() const { return cascade_.parts > 1; }

  // An axis of the blocks of keys.
  Axis MakeAxis(const std::string& suffix, const Expr& extent) const {
    const Var& key = cascade_.keys[cascade_.shared].var;
    return Axis{MakeVar(std::string(key.name()) + "_" + suffix, key), MakeInt(0, key), extent};
  }

  static SBlock BlockIn(Stmt nest) {
    while (auto loop = As<For>(nest)) nest = loop->body();
    return SBlockRealize(nest).block();
  }

  // Where the loop keeps the state of a stage: of its own part.
  Expr StateAt(size_t i, const ffi::Array<Expr>& element) const {
    return MakeLoad(KeptIn(i), PlaceOf(element));
  }
  const Var& KeptIn(size_t i) const { return IsSplit() ? part_states_[i] : states_[i]; }
  ffi::Array<Expr> PlaceOf(const ffi::Array<Expr>& element) const {
    return IsSplit() ? InPart(part_.var, element) : element;
  }
  static ffi::Array<Expr> InPart(const Var& part, const ffi::Array<Expr>& element) {
    ffi::Array<Expr> indices{part};
    for (const Expr& index : element) indices.push_back(index);
    return indices;
  }

  // Values of the shared axis in a part, if the last ones are not missing.
  Expr KeysOfPart() const { return MakeMul(blocks_.extent, MakeInt(cascade_.factor, blocks_.var)); }
  // Of the first so many of a part those that there are.
  Expr KeysInPart(const Var& part, const Expr& so_many) const {
    if (divides_) return so_many;
    Expr left = MakeSub(cascade_.keys[cascade_.shared].extent, MakeMul(part, KeysOfPart()));
    Expr there = CallGlobal(Fn::Min, so_many, left, nullptr).cast<Expr>();
    return CallGlobal(Fn::Max, there, zero_, nullptr).cast<Expr>();
  }
  Expr WithOtherKeys(Expr number) const {
    for (size_t k = 0; k < cascade_.keys.size(); ++k) {
      if (k != cascade_.shared) number = MakeMul(number, cascade_.keys[k].extent);
    }
    return number;
  }

  static std::vector<Axis> Renamed(const std::vector<Axis>& axes, Substitution* at) {
    std::vector<Axis> renamed;
    for (const Axis& axis : axes) {
      renamed.push_back(Axis{MakeVar(axis.var.name(), axis.var), axis.min, axis.extent});
      (*at)[axis.var.get()] = renamed.back().var;
    }
    return renamed;
  }

  // The axes of a block inside the fused one: keys, then own axes of a stage.
  struct Inside {
    std::vector<Axis> axes;
    std::vector<IterType> types;
    Substitution at;
    ffi::Any predicate = true;
    ffi::Array<Expr> key_indices;
    ffi::Array<Expr> own_indices;
  };

  Inside EnterKeys(IterType type) const {
    Inside inside;
    for (size_t k = 0; k < cascade_.keys.size(); ++k) {
      Axis key = cascade_.keys[k];
      Axis axis{MakeVar(key.var.name(), key.var), key.min, key.extent};
      Expr value = axis.var;
      if (k == cascade_.shared) {
        axis.extent = MakeInt(cascade_.factor, key.var);
        Expr block = blocks_.var;
        if (IsSplit()) block = MakeAdd(MakeMul(part_.var, blocks_.extent), block);
        value = MakeAdd(MakeMul(block, axis.extent), axis.var);
        if (!divides_) inside.predicate = CallGlobal(Fn::Less, value, key.extent, nullptr);
      }
      inside.axes.push_back(axis);
      inside.types.push_back(type);
      inside.at[key.var.get()] = value;
      inside.key_indices.push_back(axis.var);
    }
    return inside;
  }

  void EnterOwn(const CascadeStage& stage, Inside* inside) const {
    for (const Axis& own : Renamed(stage.own_axes, &inside->at)) {
      inside->axes.push_back(own);
      inside->types.push_back(kDataPar);
      inside->own_indices.push_back(own.var);
    }
    if (inside->own_indices.empty()) inside->own_indices.push_back(zero_);
  }

  // Results before and after this block of keys, and the numbers of keys.
  void EnterResults(size_t stage, Inside* inside) const {
    for (size_t i = 0; i <= stage; ++i) {
      const CascadeStage& other = cascade_.stages[i];
      ffi::Array<Expr> row = Substitute(other.indices, inside->at);
      if (i == stage) inside->at[other.accumulated.get()] = StateAt(i, row);
      if (i == stage || !other.own_axes.empty()) continue;
      inside->at[other.previous.get()] = StateAt(i, row);
      inside->at[other.value.get()] = MakeLoad(next_[i], {zero_});
    }
    const Axis& key = cascade_.keys[cascade_.shared];
    Expr factor = MakeInt(cascade_.factor, key.var);
    Expr before = MakeMul(blocks_.var, factor), with = MakeAdd(before, factor);
    if (IsSplit()) {
      before = KeysInPart(part_.var, before);
      with = KeysInPart(part_.var, with);
    } else if (!divides_) {
      with = CallGlobal(Fn::Min, with, key.extent, nullptr).cast<Expr>();
    }
    inside->at[cascade_.count.get()] = WithOtherKeys(before);
    inside->at[cascade_.total.get()] = WithOtherKeys(with);
  }

  // state = identity, in the init of the fused block.
  Stmt Start(size_t i) const {
    const CascadeStage& stage = cascade_.stages[i];
    Substitution at;
    std::vector<Axis> own = Renamed(stage.own_axes, &at);
    Expr start = IsSplit() ? StartOfPart(stage) : stage.state_init;
    return MakeLoops(
        own, MakeStore(KeptIn(i), Substitute(start, at), PlaceOf(Substitute(stage.indices, at))));
  }

  // next = correction (+) step over a block of keys.
  Stmt Advance(size_t i) const {
    const CascadeStage& stage = cascade_.stages[i];
    Inside inside = EnterKeys(kCommReduce);
    EnterOwn(stage, &inside);
    EnterResults(i, &inside);
    Expr step = WeightReader(weights_, cascade_keys_).Rewrite(stage.step);
    step = Substitute(Substitute(step, weight_keys(inside)), inside.at);
    Expr next = MakeLoad(next_[i], inside.own_indices);
    const Monoid& monoid = *stage.reduction.monoid;
    Expr sum =
        stage.accumulator_first ? monoid.make_node(next, step) : monoid.make_node(step, next);
    BlockParts parts;
    parts.name = std::string(stage.block().name_hint()) + "_next";
    parts.predicate = inside.predicate;
    parts.body = MakeStore(next_[i], sum, inside.own_indices);
    if (MayHaveNoKey()) {
      return MakeSequence({Correct(i), MakeNest(inside.axes, inside.types, parts)});
    }
    parts.init = MakeStore(next_[i], Substitute(stage.correction, inside.at), inside.own_indices);
    return MakeNest(inside.axes, inside.types, parts);
  }

  // In the last parts, blocks may be empty: their T.init would not run.
  bool MayHaveNoKey() const { return IsSplit() && !divides_; }

  Stmt Correct(size_t i) const {
    const CascadeStage& stage = cascade_.stages[i];
    Inside inside;
    EnterOwn(stage, &inside);
    EnterResults(i, &inside);
    BlockParts parts;
    parts.name = std::string(stage.block().name_hint()) + "_corrected";
    parts.body = MakeStore(next_[i], Substitute(stage.correction, inside.at), inside.own_indices);
    return MakeNest(inside.axes, inside.types, parts);
  }

  // The same for a block that reduces several values at once, by the program's own statement.
  Stmt AdvanceParts(size_t first) const {
    Inside inside = EnterKeys(kCommReduce);
    std::vector<Stmt> init;
    PartMover mover;
    for (size_t i = first; i < first + cascade_.stages[first].parts; ++i) {
      const CascadeStage& stage = cascade_.stages[i];
      ffi::Array<Expr> row = Substitute(stage.indices, inside.at);
      init.push_back(MakeStore(next_[i], MakeLoad(states_[i], row), {zero_}));
      mover.Move(stage.reduction.accumulator, next_[i], zero_);
    }
    BlockParts parts;
    parts.name = std::string(cascade_.stages[first].block().name_hint()) + "_next";
    parts.predicate = inside.predicate;
    parts.init = MakeSequence(init);
    parts.body = Substitute(mover.Rewrite(cascade_.stages[first].update), inside.at);
    return MakeNest(inside.axes, inside.types, parts);
  }

  // state = next.
  Stmt Keep(size_t i) const {
    const CascadeStage& stage = cascade_.stages[i];
    Inside inside;
    EnterOwn(stage, &inside);
    BlockParts parts;
    parts.name = std::string(stage.IsOneOfSeveral() ? stage.reduction.accumulator.name()
                                                    : stage.block().name_hint()) +
                 "_state";
    parts.body = MakeStore(KeptIn(i), MakeLoad(next_[i], inside.own_indices),
                           PlaceOf(Substitute(stage.indices, inside.at)));
    return MakeNest(inside.axes, inside.types, parts);
  }

  // ---- Weights ----

  void FindWeights() {
    VarSet results = cascade_.ValueVars();
    for (size_t i = 0; i < cascade_.stages.size(); ++i) {
      const CascadeStage& stage = cascade_.stages[i];
      VarSet own;
      bool repeats = false;
      for (const Axis& axis : stage.own_axes) {
        own.insert(axis.var.get());
        repeats = repeats || !IsConst(axis.extent, 1);
      }
      WeightFinder finder(results, own);
      finder(stage.step);
      for (const Expr& value : finder.found) AddWeight(value, i, repeats);
    }
    std::vector<Weight> kept;
    for (Weight& weight : weights_) {
      if (weight.uses < 2 && !weight.repeated) continue;
      ffi::Array<Expr> shape;
      for (size_t k = 0; k < cascade_.keys.size(); ++k) {
        const Axis& key = cascade_.keys[k];
        shape.push_back(k == cascade_.shared ? MakeInt(cascade_.factor, key.var) : key.extent);
      }
      std::string number = kept.empty() ? "" : "_" + std::to_string(kept.size());
      weight.buffer =
          MakeBuffer(WeightName() + number, cascade_.stages[weight.stage].reduction.accumulator,
                     weight.value, shape);
      kept.push_back(weight);
    }
    weights_ = std::move(kept);
    // A weight's element is written in the keys of the cascade first.
    for (const Axis& key : cascade_.keys) cascade_keys_.push_back(WeightKey(key));
  }

  std::string WeightName() const {
    return std::string(cascade_.stages[0].reduction.accumulator.name()) + "_weight";
  }

  void AddWeight(const Expr& value, size_t stage, bool repeated) {
    for (Weight& weight : weights_) {
      if (!DeepEqual(weight.value, value)) continue;
      ++weight.uses;
      weight.repeated = weight.repeated || repeated;
      return;
    }
    weights_.push_back(Weight{value, stage, 1, repeated, Var()});
  }

  Expr WeightKey(const Axis& key) {
    Var var = MakeVar(key.var.name(), key.var);
    weight_vars_.push_back(var);
    return var;
  }
  Substitution weight_keys(const Inside& inside) const {
    Substitution at;
    for (size_t k = 0; k < weight_vars_.size(); ++k) {
      at[weight_vars_[k].get()] = inside.key_indices[k];
    }
    return at;
  }

  Stmt ComputeWeight(const Weight& weight) const {
    Inside inside = EnterKeys(kDataPar);
    EnterResults(weight.stage, &inside);
    BlockParts parts;
    parts.name = weight.buffer.name();
    parts.predicate = inside.predicate;
    parts.body = MakeStore(weight.buffer, Substitute(weight.value, inside.at), inside.key_indices);
    return MakeNest(inside.axes, inside.types, parts);
  }

  const Cascade& cascade_;
  Axis blocks_, part_;
  bool divides_ = false;
  Expr one_, zero_;
  std::vector<Var> states_, part_states_, next_;
  std::vector<Weight> weights_;
  std::vector<Var> weight_vars_;
  ffi::Array<Expr> cascade_keys_;
};

bool IsIn(const std::vector<Stmt>& statements, const Stmt& stmt) {
  return std::any_of(statements.begin(), statements.end(),
                     [&](const Stmt& one) { return one.same_as(stmt); });
}

}  // namespace

FusedCascade FuseCascade(const Scope& scope, const Cascade& cascade, const CascadeOrder& order) {
  Builder builder(cascade);
  FusedCascade fused;
  std::vector<Stmt> all = order.before;
  all.push_back(builder.MakeFused(&fused.block));
  fused.states = builder.states();
  fused.part_states = builder.part_states();
  fused.blocks.emplace_back(cascade.stages[0].block(), fused.block);
  ffi::Array<Var> buffers;
  VarSet gone;
  for (const Site* site : cascade.gone) {
    ffi::Array<Stmt> sequence = SeqStmt(scope.root.body()).seq();
    Stmt nest = sequence[site->path[0].child];
    if (IsIn(order.before, nest) || IsIn(order.after, nest)) continue;
    Var output = BufferStore(site->block().body()).buffer();
    gone.insert(output.get());
    fused.removed.push_back(output);
  }
  for (const Var& buffer : scope.root.alloc_buffers()) {
    if (!gone.count(buffer.get())) buffers.push_back(buffer);
  }
  for (size_t i = 0; i < fused.part_states.size(); ++i) {
    const CascadeStage& stage = cascade.stages[i];
    SBlock block;
    all.push_back(builder.MakeMerge(i, &block));
    buffers.push_back(fused.part_states[i]);
    if (i > 0 && !stage.tail) fused.blocks.emplace_back(stage.block(), block);
  }
  for (size_t i = 0; i < cascade.stages.size(); ++i) {
    const CascadeStage& stage = cascade.stages[i];
    if (!stage.tail) continue;
    SBlock block;
    all.push_back(builder.MakeTail(i, &block));
    buffers.push_back(fused.states[i]);
    if (i > 0) fused.blocks.emplace_back(stage.block(), block);
  }
  for (const Stmt& stmt : order.after) all.push_back(stmt);
  const SBlock& root = scope.root;
  fused.scope_root = CallGlobal(Fn::SBlock, root.iter_vars(), root.reads(), root.writes(),
                                root.name_hint(), MakeSequence(all), root.init(), buffers,
                                root.match_buffers(), root.annotations(), nullptr)
                         .cast<SBlock>();
  return fused;
}

}  // namespace fuse_epilogue
