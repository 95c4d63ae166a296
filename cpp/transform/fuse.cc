#include "transform/fuse.h"

#include "analysis/algebra.h"
#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

using Regions = ffi::Array<TensorRegion>;

Stmt MakeStore(const Var& buffer, const Expr& value, const ffi::Array<Expr>& indices) {
  return CallGlobal(Fn::BufferStore, buffer, value, indices, nullptr).cast<Stmt>();
}

Expr MakeLoad(const Var& buffer, const ffi::Array<Expr>& indices) {
  return CallGlobal(Fn::BufferLoad, buffer, indices, nullptr).cast<Expr>();
}

TensorRegion Point(const Var& buffer, const ffi::Array<Expr>& indices) {
  ffi::Array<ffi::ObjectRef> ranges;
  for (const Expr& index : indices) {
    ranges.push_back(
        CallGlobal(Fn::Range, index, MakeInt(1, index), nullptr).cast<ffi::ObjectRef>());
  }
  return CallGlobal(Fn::TensorRegion, buffer, ranges).cast<TensorRegion>();
}

// Redirects the accesses to the accumulator to the output; all of them are at one element.
class AccumulatorRedirect : public StmtExprMutator {
 public:
  AccumulatorRedirect(const Var& accumulator, const Var& output, const ffi::Array<Expr>& indices)
      : accumulator_(accumulator), output_(output), indices_(indices) {}

 protected:
  using StmtExprMutator::VisitExpr_;
  using StmtExprMutator::VisitStmt_;
  Expr VisitExpr_(const TensorLoad& op) override {
    if (op.source().same_as(accumulator_)) return MakeLoad(output_, indices_);
    return StmtExprMutator::VisitExpr_(op);
  }
  Stmt VisitStmt_(const BufferStore& op) override {
    if (op.buffer().same_as(accumulator_)) {
      return MakeStore(output_, Rewrite(op.value()), indices_);
    }
    return StmtExprMutator::VisitStmt_(op);
  }

 private:
  Var accumulator_;
  Var output_;
  ffi::Array<Expr> indices_;
};

// Puts the fused block in the reduction's place and drops the epilogue with the loops that were
// only its own. Only the statements on the way to the two blocks are rebuilt.
class ScopeRewriter {
 public:
  ScopeRewriter(const Site& producer, const Site& consumer, const SBlock& fused)
      : producer_(producer), consumer_(consumer), fused_(fused) {
    for (const Site* site : {&producer, &consumer}) {
      for (const Step& step : site->path) on_the_way_.insert(step.stmt.get());
    }
  }

  // Nothing where the statement goes away.
  std::optional<Stmt> Rewrite(const Stmt& stmt) {
    if (auto realize = As<SBlockRealize>(stmt)) {
      if (realize->same_as(consumer_.realize)) return std::nullopt;
      if (!realize->same_as(producer_.realize)) return stmt;
      return CallGlobal(Fn::SBlockRealize, realize->iter_values(), realize->predicate(), fused_,
                        nullptr)
          .cast<Stmt>();
    }
    if (!on_the_way_.count(stmt.get())) return stmt;
    if (auto loop = As<For>(stmt)) {
      auto body = Rewrite(loop->body());
      if (!body) return std::nullopt;
      return CallGlobal(Fn::For, loop->loop_var(), loop->min(), loop->extent(), loop->kind(), *body,
                        loop->thread_binding(), loop->annotations(), loop->step(), nullptr)
          .cast<Stmt>();
    }
    ffi::Array<Stmt> kept;
    for (const Stmt& child : SeqStmt(stmt).seq()) {
      if (auto rewritten = Rewrite(child)) kept.push_back(*rewritten);
    }
    if (kept.size() == 0) return std::nullopt;
    if (kept.size() == 1) return kept[0];
    return CallGlobal(Fn::SeqStmt, kept, nullptr).cast<Stmt>();
  }

 private:
  const Site& producer_;
  const Site& consumer_;
  SBlock fused_;
  VarSet on_the_way_;
};

class BufferCollector : public StmtExprVisitor {
 public:
  ffi::Map<Var, Var> buffers;

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const Var& op) override {
    if (ExprBase(op).ty().kind() == NodeKind::kBufferType) buffers.Set(op, op);
  }
};

class LoadsOf : public StmtExprVisitor {
 public:
  explicit LoadsOf(const Expr& buffer) : buffer_(buffer) {}
  std::optional<TensorLoad> found;

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const TensorLoad& op) override {
    if (op.source().same_as(buffer_)) found = op;
    VisitChildren(op);
  }

 private:
  Expr buffer_;
};

bool SameRegions(const Regions& a, const Regions& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    auto x = a[i].region(), y = b[i].region();
    if (!a[i].source().same_as(b[i].source()) || x.size() != y.size()) return false;
    for (size_t d = 0; d < x.size(); ++d) {
      if (!DeepEqual(x[d].min(), y[d].min()) || !DeepEqual(x[d].extent(), y[d].extent())) {
        return false;
      }
    }
  }
  return true;
}

// A user may have declared larger reads than the body has. Then his stay, with the accumulator
// replaced, and what the fusion adds is appended.
Regions MergeReads(const Regions& declared, const Regions& computed, const Var& accumulator) {
  Regions merged;
  auto has = [&](const Expr& buffer) {
    for (const TensorRegion& region : merged) {
      if (region.source().same_as(buffer)) return true;
    }
    return false;
  };
  for (const TensorRegion& region : declared) {
    if (!region.source().same_as(accumulator)) merged.push_back(region);
  }
  for (const TensorRegion& region : computed) {
    if (!has(region.source())) merged.push_back(region);
  }
  return merged;
}

}  // namespace

SBlock WithParts(const SBlock& block, const Regions& reads, const Regions& writes,
                 const ffi::Any& init, const Stmt& body) {
  return CallGlobal(Fn::SBlock, block.iter_vars(), reads, writes, block.name_hint(), body, init,
                    block.alloc_buffers(), block.match_buffers(), block.annotations(), nullptr)
      .cast<SBlock>();
}

std::pair<Regions, Regions> RegionsOf(const SBlock& block) {
  BufferCollector collector;
  collector(block);
  auto both = CallGlobal(Fn::ReadWriteRegion, block, collector.buffers).cast<ffi::Array<Regions>>();
  Regions reads = both[0];
  auto init = As<BufferStore>(block.init());
  if (init) {
    LoadsOf in_place(init->buffer());
    in_place(init->value());
    if (in_place.found) {
      reads.insert(reads.begin(), Point(init->buffer(), in_place.found->indices()));
    }
  }
  return {reads, both[1]};
}

bool DeclaresItsReads(const SBlock& block) {
  return !HasNestedBlock(block) && SameRegions(RegionsOf(block).first, block.reads());
}

Fused Fuse(const Scope& scope, const Reduction& reduction, const Epilogue& epilogue,
           const AxisMap& axes) {
  const SBlock old = reduction.site->block();
  ffi::Array<Expr> indices = axes.Apply(epilogue.out_indices);
  Expr init_value = axes.Apply(Apply(epilogue.value, epilogue.read, reduction.init));
  Stmt init = MakeStore(epilogue.output, init_value, indices);
  AccumulatorRedirect redirect(reduction.accumulator, epilogue.output, indices);
  Stmt body = redirect.Rewrite(old.body());

  SBlock fused = WithParts(old, old.reads(), old.writes(), init, body);
  auto [reads, writes] = RegionsOf(fused);
  if (!SameRegions(RegionsOf(old).first, old.reads())) {
    reads = MergeReads(old.reads(), reads, reduction.accumulator);
  }
  fused = WithParts(fused, reads, writes, init, body);

  ScopeRewriter rewriter(*reduction.site, *epilogue.site, fused);
  auto scope_body = rewriter.Rewrite(scope.root.body());
  ffi::Array<Var> buffers;
  for (const Var& buffer : scope.root.alloc_buffers()) {
    if (!buffer.same_as(reduction.accumulator)) buffers.push_back(buffer);
  }
  const SBlock& root = scope.root;
  SBlock new_root = CallGlobal(Fn::SBlock, root.iter_vars(), root.reads(), root.writes(),
                               root.name_hint(), *scope_body, root.init(), buffers,
                               root.match_buffers(), root.annotations(), nullptr)
                        .cast<SBlock>();
  return {new_root, fused};
}

}  // namespace fuse_epilogue
