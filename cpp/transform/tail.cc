#include "transform/tail.h"

#include "analysis/block_loops.h"
#include "analysis/refusal.h"
#include "transform/regions.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

bool HoldsBools(const Var& buffer) { return IsBool(BufferTypeOf(buffer).dtype().dtype()); }

// The loops of a tail, and where it stands in them.
class LoopCopier {
 public:
  LoopCopier(const Reduction& reduction, const Place& place, const SBlock& like, const Var& output)
      : reduction_(reduction),
        like_(like),
        reduce_loops_(ReductionLoops(reduction)),
        with_bools_(HoldsBools(reduction.accumulator) || HoldsBools(output)) {
    for (const For& loop : reduction.site->Loops()) all_loops_.insert(loop.loop_var().get());
    ReadAxes();
    ReadPredicate();
    for (const For& loop : reduction.site->Loops(place.nest)) {
      if (used_.count(loop.loop_var().get())) Copy(loop);
    }
  }

  // The block inside the loops.
  Stmt Wrap(const SBlock& block) const {
    ffi::Any predicate = true;
    for (const Expr& condition : conditions_) {
      Expr copied = Substitute(condition, copies_);
      auto before = predicate.as<Expr>();
      predicate = before ? CallGlobal(Fn::And, *before, copied, nullptr) : ffi::Any(copied);
    }
    Stmt stmt =
        CallGlobal(Fn::SBlockRealize, Substitute(values_, copies_), predicate, block, nullptr)
            .cast<Stmt>();
    for (auto it = own_loops_.rbegin(); it != own_loops_.rend(); ++it) {
      stmt = CallGlobal(Fn::For, it->var, it->min, it->extent, int64_t{kSerial}, stmt, nullptr,
                        ffi::Map<ffi::String, ffi::Any>(), nullptr, nullptr)
                 .cast<Stmt>();
    }
    for (auto it = loops_.rbegin(); it != loops_.rend(); ++it) {
      stmt = CallGlobal(Fn::For, copies_.at(it->loop_var().get()), Substitute(it->min(), copies_),
                        Substitute(it->extent(), copies_), KindOf(*it), stmt, it->thread_binding(),
                        ffi::Map<ffi::String, ffi::Any>(), it->step(), nullptr)
                 .cast<Stmt>();
    }
    return stmt;
  }

 private:
  // TVM's code for vectors of booleans does not pass LLVM's verifier; LLVM vectorizes by itself.
  int64_t KindOf(const For& loop) const {
    return loop.kind() == kVectorized && with_bools_ ? int64_t{kSerial} : loop.kind();
  }

  void RefuseLoops(const std::string& what) const {
    Refuse(Code::kTailPlace, like_,
           "the loops of block " + Quoted(reduction_.site->block()) + " mix " + what);
  }

  // The values of the spatial axes. A loop that a reduction axis uses too cannot be copied.
  void ReadAxes() {
    auto values = reduction_.site->realize.iter_values();
    size_t i = 0;
    for (const IterVar& iter : reduction_.site->block().iter_vars()) {
      Expr value = values[i++];
      if (iter.iter_type() != kDataPar) continue;
      VarSet vars = VarsIn(value);
      if (!UsesAny(value, reduce_loops_)) {
        used_.insert(vars.begin(), vars.end());
        values_.push_back(value);
        continue;
      }
      for (VarKey var : vars) {
        if (all_loops_.count(var) && !reduce_loops_.count(var)) {
          RefuseLoops("spatial and reduction axes in the value " + Print(value) + " of axis " +
                      Quoted(iter.var()));
        }
      }
      Axis own{MakeVar(iter.var().name(), iter.var()), iter.dom().min(), iter.dom().extent()};
      own_loops_.push_back(own);
      values_.push_back(own.var);
    }
  }

  // The conditions on spatial loops. Those on reduction loops alone say nothing about elements.
  void ReadPredicate() {
    Expr predicate = reduction_.site->realize.predicate();
    if (IsConst(predicate, 1)) return;
    for (const Expr& condition : Conjuncts(predicate)) {
      VarSet loops;
      bool reduces = false;
      for (VarKey var : VarsIn(condition)) {
        if (reduce_loops_.count(var)) {
          reduces = true;
        } else if (all_loops_.count(var)) {
          loops.insert(var);
        }
      }
      if (reduces && !loops.empty()) {
        RefuseLoops("spatial and reduction axes in the predicate " + Print(condition));
      }
      if (reduces) continue;
      conditions_.push_back(condition);
      used_.insert(loops.begin(), loops.end());
    }
  }

  void Copy(const For& loop) {
    copies_[loop.loop_var().get()] = MakeVar(loop.loop_var().name(), loop.loop_var());
    loops_.push_back(loop);
  }

  const Reduction& reduction_;
  SBlock like_;
  VarSet reduce_loops_;
  bool with_bools_;
  VarSet all_loops_;
  VarSet used_;
  ffi::Array<Expr> values_;
  std::vector<Expr> conditions_;
  std::vector<For> loops_;
  std::vector<Axis> own_loops_;
  Substitution copies_;
};

}  // namespace

TailNest MakeTail(const Reduction& reduction, const Place& place, const SBlock& like,
                  const Var& output, const ffi::Array<Expr>& indices, const Expr& value) {
  LoopCopier loops(reduction, place, like, output);
  ffi::Array<IterVar> iters;
  Substitution axes;
  for (const IterVar& iter : reduction.site->block().iter_vars()) {
    if (iter.iter_type() != kDataPar) continue;
    Var var = MakeVar(iter.var().name(), iter.var());
    axes[iter.var().get()] = var;
    iters.push_back(
        CallGlobal(Fn::IterVar, iter.dom(), var, int64_t{kDataPar}, "", nullptr).cast<IterVar>());
  }
  Stmt store = CallGlobal(Fn::BufferStore, output, Substitute(value, axes),
                          Substitute(indices, axes), nullptr)
                   .cast<Stmt>();
  ffi::Array<TensorRegion> none;
  SBlock block =
      CallGlobal(Fn::SBlock, iters, none, none, like.name_hint(), store, nullptr, ffi::Array<Var>(),
                 ffi::Array<MatchBufferRegion>(), like.annotations(), nullptr)
          .cast<SBlock>();
  auto [reads, writes] = RegionsOf(block);
  block = WithParts(block, reads, writes, nullptr, store);
  return TailNest{block, loops.Wrap(block)};
}

}  // namespace fuse_epilogue
