#include "schedule/bind.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "analysis/scope.h"
#include "ir/functor.h"
#include "schedule/peeled_init.h"
#include "transform/blocks.h"
#include "transform/privatize.h"
#include "transform/regions.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// The spatial loops around a reduction end where its reduction loops begin.
struct Nest {
  For outermost_reduction;
  VarSet reduction_vars;
};

// Nothing if spatial and reduction loops are mixed, or the loop is not one of the latter.
std::optional<Nest> NestOf(const PeeledInit& peeled, const For& bound) {
  const Site& site = *peeled.reduction.site;
  VarSet spatial, reduce;
  auto values = site.realize.iter_values();
  size_t place = 0;
  for (const IterVar& iter : peeled.block().iter_vars()) {
    VarSet& kind = iter.iter_type() == kDataPar ? spatial : reduce;
    for (VarKey var : VarsIn(values[place++])) kind.insert(var);
  }
  std::optional<Nest> nest;
  for (const For& loop : site.Loops()) {
    VarKey var = loop.loop_var().get();
    if (nest && spatial.count(var)) return std::nullopt;
    if (!nest && (spatial.count(var) || !reduce.count(var))) {
      if (loop.same_as(bound)) return std::nullopt;
      continue;
    }
    if (!nest) nest = Nest{loop, {}};
    nest->reduction_vars.insert(var);
  }
  return nest;
}

// The reduction in another buffer, and a statement after its outermost reduction loop.
class NestRewriter : public StmtExprMutator {
 public:
  NestRewriter(const PeeledInit& peeled, const Nest& nest, const SBlock& block, const Stmt& after)
      : old_(peeled.block()), nest_(nest.outermost_reduction), block_(block), after_(after) {}

 protected:
  using StmtExprMutator::VisitStmt_;
  Stmt VisitStmt_(const SBlockRealize& op) override {
    if (!op.block().same_as(old_)) return op;
    return CallGlobal(Fn::SBlockRealize, op.iter_values(), op.predicate(), block_, nullptr)
        .cast<Stmt>();
  }
  Stmt VisitStmt_(const SeqStmt& op) override {
    std::vector<Stmt> all;
    for (const Stmt& each : op.seq()) {
      if (each.same_as(nest_)) {
        all.push_back(MutateChildren(For(each)).cast<Stmt>());
        all.push_back(after_);
      } else {
        all.push_back(Rewrite(each));
      }
    }
    return MakeSequence(all);
  }
  Stmt VisitStmt_(const For& op) override {
    Stmt same = MutateChildren(op).cast<Stmt>();
    return op.same_as(nest_) ? MakeSequence({same, after_}) : same;
  }

 private:
  SBlock old_;
  For nest_;
  SBlock block_;
  Stmt after_;
};

// Puts a buffer in the place of the accumulator.
class AccumulatorMover : public StmtExprMutator {
 public:
  AccumulatorMover(const Var& from, const Var& to) : from_(from), to_(to) {}

 protected:
  using StmtExprMutator::VisitExpr_;
  using StmtExprMutator::VisitStmt_;
  Expr VisitExpr_(const TensorLoad& op) override {
    Expr moved = StmtExprMutator::VisitExpr_(op);
    if (!op.source().same_as(from_)) return moved;
    return MakeLoad(to_, As<TensorLoad>(moved)->indices());
  }
  Stmt VisitStmt_(const BufferStore& op) override {
    return MakeStore(op.buffer().same_as(from_) ? to_ : op.buffer(), Rewrite(op.value()),
                     op.indices());
  }

 private:
  Var from_, to_;
};

// acc[i] = init(i) (+) sum[i], with axes of its own.
Stmt MakeLast(const PeeledInit& peeled, const Var& sum) {
  const Reduction& reduction = peeled.reduction;
  const SBlockRealize& realize = reduction.site->realize;
  BlockParts parts;
  Substitution at;
  size_t place = 0;
  for (const IterVar& iter : peeled.block().iter_vars()) {
    Expr value = realize.iter_values()[place++];
    if (iter.iter_type() != kDataPar) continue;
    Axis axis{MakeVar(iter.var().name(), iter.var()), iter.dom().min(), iter.dom().extent()};
    at[iter.var().get()] = axis.var;
    parts.axes.push_back(BoundAxis{axis, kDataPar, value});
  }
  ffi::Array<Expr> element = Substitute(reduction.indices, at);
  Expr finished =
      reduction.monoid->make_node(Substitute(reduction.init, at), MakeLoad(sum, element));
  parts.name = std::string(peeled.block().name_hint()) + "_from_init";
  parts.predicate = realize.predicate();
  parts.body = MakeStore(reduction.accumulator, finished, element);
  return MakeBlock(parts);
}

std::optional<PeeledInit> FindBound(const ffi::ObjectRef& schedule, const ffi::Any& loop_rv) {
  auto peeled = FindPeeledInit(schedule, loop_rv);
  if (!peeled) return std::nullopt;
  const Reduction& reduction = peeled->reduction;
  For loop(StmtOf(SRefOf(schedule, *ObjectIn(loop_rv))));
  auto nest = NestOf(*peeled, loop);
  // Every thread runs the last block: it must not read what it writes.
  bool in_place = !LoadsOf(reduction.init, reduction.accumulator).empty();
  if (!nest || in_place || UsesAny(reduction.site->realize.predicate(), nest->reduction_vars)) {
    return std::nullopt;
  }
  for (const Site& other : peeled->scope->sites) {
    std::vector<For> loops = other.Loops();
    bool beside = std::any_of(loops.begin(), loops.end(), [&](const For& each) {
      return each.same_as(nest->outermost_reduction);
    });
    if (beside && &other != reduction.site) return std::nullopt;
  }
  return peeled;
}

void PeelAndBind(const ffi::ObjectRef& schedule, const ffi::Any& loop_rv, const BindCall& bind) {
  PeeledInit peeled = *FindBound(schedule, loop_rv);
  const Reduction& reduction = peeled.reduction;
  Nest nest = *NestOf(peeled, For(StmtOf(SRefOf(schedule, *ObjectIn(loop_rv)))));
  const Var& accumulator = reduction.accumulator;
  // Not "local": TVM may give a local sum and a local accumulator one memory, and that can be the
  // one in which the threads add, to which every thread would then add the init.
  Var sum = MakeBuffer(std::string(accumulator.name()) + "_sum", accumulator, reduction.update,
                       BufferTypeOf(accumulator).shape(), ffi::String("shared"));
  SBlock old = peeled.block();
  Stmt body = AccumulatorMover(accumulator, sum).Rewrite(old.body());
  SBlock moved = WithParts(old, old.reads(), old.writes(), old.init(), body);
  SBlock block = WithInit(moved, peeled.identity);
  const SBlock& root = peeled.scope->root;
  Stmt rewritten = NestRewriter(peeled, nest, block, MakeLast(peeled, sum)).Rewrite(root.body());
  ffi::Array<Var> buffers = root.alloc_buffers();
  buffers.push_back(sum);
  SBlock now =
      CallGlobal(Fn::SBlock, root.iter_vars(), root.reads(), root.writes(), root.name_hint(),
                 rewritten, root.init(), buffers, root.match_buffers(), root.annotations(), nullptr)
          .cast<SBlock>();
  BlockReuse reuse;
  reuse.Set(old, block);
  ReplaceScope(StateOf(schedule), peeled.scope_sref, now, reuse);
  bind(schedule);
}

// ---- Cascades ----

bool EndsWith(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

// Whether a buffer is one of those that a cascade keeps between two states of a row.
bool IsBetweenStates(const Var& buffer) {
  std::string memory = ScopeOf(buffer), name = buffer.name();
  bool weight = name.find("_weight") != std::string::npos;
  return (memory.empty() || memory == "global") && (weight || EndsWith(name, "_next"));
}

// The blocks in a block, in order, and whether threads run in it.
class BlocksInside : public StmtExprVisitor {
 public:
  explicit BlocksInside(const SBlock& block) { (*this)(block.body()); }
  std::vector<SBlock> blocks;
  bool threads = false;

 protected:
  using StmtExprVisitor::VisitStmt_;
  void VisitStmt_(const SBlock& op) override {
    blocks.push_back(op);
    VisitChildren(op);
  }
  void VisitStmt_(const For& op) override {
    threads = threads || op.kind() == kThread;
    VisitChildren(op);
  }
};

// Threads that have rows of their own have memory of their own for what is between two states,
// unless other threads share the work of a row.
void KeepInThreads(const ffi::ObjectRef& schedule, const ffi::Any& loop_rv) {
  StmtSRef sref = SRefOf(schedule, *ObjectIn(loop_rv));
  StmtSRef scope_sref = ScopeOf(sref);
  if (!scope_sref.defined()) return;
  For loop(StmtOf(sref));
  Scope scope(SBlock(StmtOf(scope_sref)));
  BlockReuse reuse;
  for (const Site& site : scope.sites) {
    std::vector<For> loops = site.Loops();
    bool inside = std::any_of(loops.begin(), loops.end(),
                              [&](const For& each) { return each.same_as(loop); });
    if (!inside || !site.is_block()) continue;
    SBlock block = site.block();
    if (!EndsWith(block.name_hint(), "_cascade")) continue;
    BlocksInside before(block);
    Substitution local;
    for (const Var& buffer : block.alloc_buffers()) {
      if (IsBetweenStates(buffer)) local[buffer.get()] = AsLocal(buffer);
    }
    if (before.threads || local.empty()) continue;
    SBlock now = Substitute(block, local);
    BlocksInside after(now);
    reuse.Set(block, now);
    for (size_t i = 0; i < before.blocks.size(); ++i) {
      if (before.blocks[i].same_as(after.blocks[i])) continue;
      reuse.Set(before.blocks[i], after.blocks[i]);
    }
  }
  if (!reuse.empty()) ReplaceBlocks(StateOf(schedule), scope_sref, reuse);
}

}  // namespace

void BindLoop(const ffi::ObjectRef& schedule, const ffi::Any& loop_rv, const std::string& thread,
              const BindCall& bind) {
  bool is_thread = thread.rfind("threadIdx.", 0) == 0;
  if (!is_thread || !FindBound(schedule, loop_rv)) {
    bind(schedule);
    if (is_thread) KeepInThreads(schedule, loop_rv);
    return;
  }
  // On a copy first: where TVM refuses, nothing has changed.
  PeelAndBind(CallGlobal(Fn::CopySchedule, schedule).cast<ffi::ObjectRef>(), loop_rv, bind);
  PeelAndBind(schedule, loop_rv, bind);
}

}  // namespace fuse_epilogue
