#include "transform/fuse.h"

#include <algorithm>

#include "ir/functor.h"
#include "transform/blocks.h"
#include "transform/regions.h"
#include "transform/tail.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// The body of the reduction with H applied to its terms, accumulating in `result`.
class UpdateRewriter : public StmtExprMutator {
 public:
  UpdateRewriter(const Reduction& reduction, const PeelSteps& steps, const Produced& result)
      : reduction_(reduction), steps_(steps), result_(result) {}

 protected:
  using StmtExprMutator::VisitExpr_;
  using StmtExprMutator::VisitStmt_;
  Expr VisitExpr_(const TensorLoad& op) override {
    if (op.source().same_as(reduction_.accumulator)) {
      return MakeLoad(result_.buffer, result_.indices);
    }
    return StmtExprMutator::VisitExpr_(op);
  }
  Stmt VisitStmt_(const BufferStore& op) override {
    Expr value = MapTerms(op.value(), reduction_, steps_);
    return MakeStore(result_.buffer, Rewrite(value), result_.indices);
  }

 private:
  const Reduction& reduction_;
  const PeelSteps& steps_;
  const Produced& result_;
};

// Puts the new blocks in their places and drops the old ones with the loops that were only their
// own. Only the statements on the way to them are rebuilt.
class ScopeRewriter {
 public:
  ScopeRewriter(const FusionPlan& plan, const SBlock& reduction, const std::optional<Stmt>& tail)
      : plan_(plan), site_(*plan.region.reduction.site), reduction_(reduction), tail_(tail) {
    Remove(*plan.epilogue.site);
    for (const Tail* merged : plan.merged) Remove(*merged->site);
    for (const Step& step : site_.path) on_the_way_.insert(step.stmt.get());
    FindTailPlace();
  }

  // Nothing where the statement goes away.
  std::optional<Stmt> Rewrite(const Stmt& stmt) {
    auto rewritten = RewriteItself(stmt);
    bool nest = tail_ && !sequence_ && stmt.same_as(nest_);
    if (!nest) return rewritten;
    return CallGlobal(Fn::SeqStmt, ffi::Array<Stmt>{*rewritten, *tail_}, nullptr).cast<Stmt>();
  }

 private:
  void Remove(const Site& site) {
    removed_.insert(site.realize.get());
    for (const Step& step : site.path) on_the_way_.insert(step.stmt.get());
  }

  // Behind the nest and the tails that are there; an epilogue that stands there already is replaced
  // where it stands.
  void FindTailPlace() {
    const Place& place = plan_.region.place;
    const std::vector<Step>& path = site_.path;
    nest_ = place.nest < path.size() ? path[place.nest].stmt : Stmt(site_.realize);
    if (!place.in_sequence) return;
    sequence_ = path[place.nest - 1].stmt;
    after_ = path[place.nest - 1].child;
    for (const Tail& tail : plan_.region.tails)
      after_ = std::max(after_, place.ChildOf(*tail.site));
    if (place.Holds(*plan_.epilogue.site, site_)) after_ = place.ChildOf(*plan_.epilogue.site);
  }

  std::optional<Stmt> RewriteItself(const Stmt& stmt) {
    if (auto realize = As<SBlockRealize>(stmt)) {
      if (removed_.count(realize->get())) return std::nullopt;
      if (!realize->same_as(site_.realize) || reduction_.same_as(realize->block())) return stmt;
      return CallGlobal(Fn::SBlockRealize, realize->iter_values(), realize->predicate(), reduction_,
                        nullptr)
          .cast<Stmt>();
    }
    if (!on_the_way_.count(stmt.get())) return stmt;
    if (auto loop = As<For>(stmt)) {
      auto body = Rewrite(loop->body());
      if (!body) return std::nullopt;
      if (body->same_as(loop->body())) return stmt;
      return CallGlobal(Fn::For, loop->loop_var(), loop->min(), loop->extent(), loop->kind(), *body,
                        loop->thread_binding(), loop->annotations(), loop->step(), nullptr)
          .cast<Stmt>();
    }
    ffi::Array<Stmt> kept;
    bool place = tail_ && sequence_ && stmt.same_as(*sequence_);
    size_t child = 0;
    for (const Stmt& old : SeqStmt(stmt).seq()) {
      if (auto rewritten = Rewrite(old)) kept.push_back(*rewritten);
      if (place && child == after_) kept.push_back(*tail_);
      ++child;
    }
    if (kept.size() == 0) return std::nullopt;
    if (kept.size() == 1) return kept[0];
    return CallGlobal(Fn::SeqStmt, kept, nullptr).cast<Stmt>();
  }

  const FusionPlan& plan_;
  const Site& site_;
  SBlock reduction_;
  std::optional<Stmt> tail_;
  VarSet on_the_way_;
  VarSet removed_;
  Stmt nest_;
  std::optional<Stmt> sequence_;
  size_t after_ = 0;
};

// The reduction after the fusion; the old one if nothing of the epilogue goes into it. It declares
// what is left of the old one's reads: see Fuse.
SBlock RewriteReduction(const FusionPlan& plan, const Produced& result) {
  const Reduction& reduction = plan.region.reduction;
  const SBlock old = reduction.site->block();
  if (plan.peeled.steps.empty() && !plan.gone) return old;
  Stmt init = MakeStore(result.buffer, ApplyAll(plan.peeled.steps, reduction.init), result.indices);
  Stmt body = UpdateRewriter(reduction, plan.peeled.steps, result).Rewrite(old.body());
  Regions reads;
  for (const TensorRegion& region : old.reads()) {
    if (!region.source().same_as(reduction.accumulator)) reads.push_back(region);
  }
  return WithParts(old, reads, {PointRegion(result.buffer, result.indices)}, init, body);
}

}  // namespace

Fused Fuse(const Scope& scope, const FusionPlan& plan) {
  const Region& region = plan.region;
  const SBlock old = region.reduction.site->block();
  const SBlock epilogue = plan.epilogue.site->block();
  Produced result = region.produced[0];
  if (plan.gone) result = Produced{plan.epilogue.output, plan.indices};

  Fused fused;
  SBlock reduction = RewriteReduction(plan, result);
  if (!reduction.same_as(old)) fused.blocks.emplace_back(old, reduction);
  std::optional<Stmt> tail;
  VarSet gone;
  if (plan.gone) {
    gone.insert(region.reduction.accumulator.get());
  } else {
    Substitution finished{{plan.hole.get(), MakeLoad(result.buffer, result.indices)}};
    Expr value = Substitute(plan.peeled.rest, finished);
    TailNest nest = MakeTail(region.reduction, region.place, epilogue, plan.epilogue.output,
                             plan.indices, value);
    fused.tail = KnownTail{nest.block, plan.epilogue.output, plan.indices, value};
    fused.blocks.emplace_back(epilogue, nest.block);
    tail = nest.stmt;
  }
  for (const Tail* merged : plan.merged) gone.insert(merged->output.get());

  auto body = ScopeRewriter(plan, reduction, tail).Rewrite(scope.root.body());
  ffi::Array<Var> buffers;
  for (const Var& buffer : scope.root.alloc_buffers()) {
    if (!gone.count(buffer.get())) buffers.push_back(buffer);
  }
  const SBlock& root = scope.root;
  fused.scope_root =
      CallGlobal(Fn::SBlock, root.iter_vars(), root.reads(), root.writes(), root.name_hint(), *body,
                 root.init(), buffers, root.match_buffers(), root.annotations(), nullptr)
          .cast<SBlock>();
  return fused;
}

}  // namespace fuse_epilogue
