#include "analysis/lifetime.h"

#include <algorithm>
#include <unordered_set>

#include "analysis/refusal.h"
#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// The loads of a buffer inside a block, as they stand there and as functions of loop variables.
class LoadCollector : public StmtExprVisitor {
 public:
  explicit LoadCollector(const Var& buffer) : buffer_(buffer) {}

  struct Load {
    TensorLoad load;
    ffi::Array<Expr> indices;
  };
  std::vector<Load> loads;
  // The loops inside the block.
  std::vector<Axis> loops;

 protected:
  using StmtExprVisitor::VisitExpr_;
  using StmtExprVisitor::VisitStmt_;
  void VisitStmt_(const For& op) override {
    loops.push_back(Axis{op.loop_var(), op.min(), op.extent()});
    VisitChildren(op);
  }
  void VisitStmt_(const SBlockRealize& op) override {
    size_t i = 0;
    auto values = op.iter_values();
    for (const IterVar& iter : op.block().iter_vars()) {
      axes_[iter.var().get()] = Substitute(values[i++], axes_);
    }
    VisitChildren(op);
  }
  void VisitExpr_(const TensorLoad& op) override {
    if (op.source().same_as(buffer_)) loads.push_back({op, Substitute(op.indices(), axes_)});
    (*this)(op.indices());
  }

 private:
  Var buffer_;
  Substitution axes_;
};

class AllocationFinder : public StmtExprVisitor {
 public:
  explicit AllocationFinder(const Var& buffer) : buffer_(buffer) {}
  bool found = false;

 protected:
  using StmtExprVisitor::VisitStmt_;
  void VisitStmt_(const SBlock& op) override {
    found = found || Owns(op, buffer_);
    VisitChildren(op);
  }

 private:
  Var buffer_;
};

bool Touches(const Site& site, const Var& buffer) {
  return site.Touches(buffer.get(), Use::kRead) || site.Touches(buffer.get(), Use::kWrite);
}

// Whether all uses of a buffer are in the scope, and TVM chooses where it is allocated.
bool LivesInScope(const Scope& scope, const SBlock& root, const Var& buffer) {
  if (Owns(scope.root, buffer)) return true;
  AllocationFinder allocation(buffer);
  allocation(root);
  if (!allocation.found) return false;
  const Scope whole(root);
  return std::count_if(whole.sites.begin(), whole.sites.end(),
                       [&](const Site& site) { return Touches(site, buffer); }) == 1;
}

// The first loops of the reduction, as many as the first steps of its path hold.
std::vector<For> LoopsOfSteps(const Site& site, size_t steps) {
  std::vector<For> loops = site.Loops();
  loops.resize(loops.size() - site.Loops(steps).size());
  return loops;
}

class LifetimeCheck {
 public:
  LifetimeCheck(const Region& region, const Produced& produced, const std::vector<For>& loops)
      : region_(region), produced_(produced), loops_(loops) {
    Invert();
  }

  // The first load of a block that need not be of an element that the same iteration of the loops
  // computes; nothing if all are.
  std::optional<TensorLoad> FirstCarried(const Site& site) const {
    const Reduction& reduction = region_.reduction;
    LoadCollector collector(produced_.buffer);
    collector(site.realize);
    Prover prover;
    for (const For& loop : site.Loops()) {
      prover.Bind(Axis{loop.loop_var(), loop.min(), loop.extent()});
    }
    for (const Axis& loop : collector.loops) prover.Bind(loop);
    for (const LoadCollector::Load& one : collector.loads) {
      bool itself = &site == reduction.site && DeepEqual(one.load.indices(), produced_.indices);
      if (!itself && !IsOfIteration(one.indices, prover)) return one.load;
    }
    return std::nullopt;
  }

 private:
  // The loops as functions of the reduction's axes, and the map from those to the element.
  void Invert() {
    const Reduction& reduction = region_.reduction;
    ffi::Array<Expr> vars;
    for (const IterVar& iter : reduction.site->block().iter_vars()) vars.push_back(iter.var());
    iterations_ = region_.loops.Inverse(vars);
    // An axis of one value is that value: TVM calls a map with a multiple of it not invertible.
    for (const Axis& axis : reduction.spatial) {
      if (IsConst(axis.extent, 1)) {
        single_[axis.var.get()] = axis.min;
      } else {
        several_.push_back(axis);
      }
    }
    elements_ = InjectiveMap::Detect(Substitute(produced_.indices, single_), several_, true);
  }

  bool IsOfIteration(const ffi::Array<Expr>& element, const Prover& prover) const {
    auto point = elements_ ? elements_->Inverse(element) : std::nullopt;
    if (!point || !iterations_) return false;
    Substitution axes = single_;
    for (size_t i = 0; i < several_.size(); ++i) axes[several_[i].var.get()] = (*point)[i];
    VarSet steps;
    for (const Axis& axis : region_.reduction.reduce) steps.insert(axis.var.get());
    for (size_t i = 0; i < loops_.size(); ++i) {
      if (IsConst(loops_[i].extent(), 1)) continue;
      Expr computed = (*iterations_)[i];
      if (UsesAny(computed, steps)) return false;
      if (!prover.Equal(Substitute(computed, axes), loops_[i].loop_var())) return false;
    }
    return true;
  }

  const Region& region_;
  const Produced& produced_;
  const std::vector<For>& loops_;
  std::optional<ffi::Array<Expr>> iterations_;
  Substitution single_;
  std::vector<Axis> several_;
  std::optional<InjectiveMap> elements_;
};

// Whether TVM starts a new buffer in more loops than before.
bool IsShorter(const std::vector<For>& after, size_t num_before) {
  return std::any_of(after.begin() + num_before, after.end(),
                     [](const For& loop) { return !IsConst(loop.extent(), 1); });
}

}  // namespace

void CheckLifetimes(const Scope& scope, const SBlock& root, const Region& region,
                    const Site& epilogue, const std::vector<const Tail*>& merged,
                    const RegionCover& region_cover) {
  const Site& reduction = *region.reduction.site;
  auto goes_away = [&](const Site& site) {
    return std::any_of(merged.begin(), merged.end(),
                       [&](const Tail* tail) { return tail->site == &site; });
  };
  std::unordered_set<const Site*> tails;
  for (const Tail& tail : region.tails) tails.insert(tail.site);
  for (size_t i = 0; i < region.produced.size(); ++i) {
    const Produced& one = region.produced[i];
    const Site& writer = i == 0 ? reduction : *region.tails[i - 1].site;
    if (&writer == &epilogue || goes_away(writer)) continue;
    if (!epilogue.Touches(one.buffer.get(), Use::kRead)) continue;

    size_t after = region.place.nest;
    std::vector<const Site*> readers;
    for (const Site& site : scope.sites) {
      if (&site == &epilogue || goes_away(site) || !Touches(site, one.buffer)) continue;
      after = std::min(after, CommonSteps(site, reduction));
      bool reads = site.Touches(one.buffer.get(), Use::kRead) || &site == &reduction;
      if (reads && !tails.count(&site)) readers.push_back(&site);
    }
    size_t before = std::min(after, CommonSteps(epilogue, reduction));
    std::vector<For> loops = LoopsOfSteps(reduction, after);
    if (!IsShorter(loops, LoopsOfSteps(reduction, before).size())) continue;
    if (!LivesInScope(scope, root, one.buffer)) continue;

    LifetimeCheck check(region, one, loops);
    for (const Site* site : readers) {
      bool itself = site == &reduction;
      bool late = site->is_block() && (itself || site->position > writer.position);
      std::optional<TensorLoad> carried;
      if (late) carried = check.FirstCarried(*site);
      if (late && (!carried || (!itself && region_cover(site->block())))) continue;
      std::string who = site->is_block() ? "block " + Quoted(site->block()) : "a statement";
      SBlock block = epilogue.block();
      std::string what = carried ? Print(*carried) : Quoted(one.buffer);
      Refuse(Code::kCarriedValue, site->is_block() ? site->block() : block,
             who + " in loop " + Quoted(loops.back().loop_var()) + " reads " + what +
                 ", which another iteration may have computed, and but for block " + Quoted(block) +
                 " all that uses " + Quoted(one.buffer) + " is in that loop",
             carried ? std::vector<ffi::ObjectRef>{*carried} : std::vector<ffi::ObjectRef>{});
    }
  }
}

}  // namespace fuse_epilogue
