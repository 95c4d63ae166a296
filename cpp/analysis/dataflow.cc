#include "analysis/dataflow.h"

#include <algorithm>

#include "analysis/block_loops.h"
#include "analysis/folding.h"
#include "analysis/purity.h"
#include "analysis/refusal.h"
#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

Expr InlineLoad(const Between& block, const ffi::Array<Expr>& indices) {
  Substitution axes;
  for (const IterVar& iter : block.site->block().iter_vars()) {
    axes[iter.var().get()] = MakeInt(0, iter.var());
  }
  for (size_t d = 0; d < indices.size(); ++d) {
    if (block.indices[d].kind() == NodeKind::kVar) axes[block.indices[d].get()] = indices[d];
  }
  return Substitute(block.value, axes);
}

// Puts values in the place of loads.
class LoadRewriter : public StmtExprMutator {
 public:
  explicit LoadRewriter(const Dataflow::Reader& value) : value_(value) {}

 protected:
  using StmtExprMutator::VisitExpr_;
  Expr VisitExpr_(const TensorLoad& op) override {
    // What the indices read is rewritten first: the load is made anew only if one has changed.
    Expr load = StmtExprMutator::VisitExpr_(op);
    auto value = value_(TensorLoad(load));
    if (!value) return load;
    return value->same_as(load) ? load : Rewrite(*value);
  }

 private:
  const Dataflow::Reader& value_;
};

bool StoresWholeBuffer(const Epilogue& block) {
  ffi::Array<Expr> shape = BufferTypeOf(block.output).shape();
  Prover prover;
  VarSet used;
  for (size_t d = 0; d < shape.size(); ++d) {
    const Expr& index = block.out_indices[d];
    if (index.kind() == NodeKind::kIntImm) {
      if (!IsConst(index, 0) || !IsConst(shape[d], 1)) return false;
      continue;
    }
    auto axis = std::find_if(block.axes.begin(), block.axes.end(),
                             [&](const Axis& one) { return one.var.same_as(index); });
    if (axis == block.axes.end() || !used.insert(index.get()).second) return false;
    if (!IsConst(axis->min, 0) || !prover.Equal(axis->extent, shape[d])) return false;
  }
  return std::all_of(block.axes.begin(), block.axes.end(), [&](const Axis& axis) {
    return used.count(axis.var.get()) > 0 || (IsConst(axis.min, 0) && IsConst(axis.extent, 1));
  });
}

// Of a float, another rounding may come out; everything else is equal bit for bit.
void CheckFolding(const SBlock& between, const Expr& f, const Var& hole, const Expr& inner) {
  bool rounds = IsFloat(DTypeOf(f)) && IsFloat(DTypeOf(inner));
  bool folds = rounds ? CancelsTogether(f, hole, inner) : FoldsTogether(f, hole, inner, {});
  if (!folds) return;
  Refuse(Code::kCascadeForm, between,
         "block " + Quoted(between) + " stores " + Print(inner) +
             ", by which a reduction reads another one's result: without the store, TVM would "
             "compute something else");
}

}  // namespace

Dataflow::Dataflow(const Scope& scope) : scope_(scope) {
  for (const Site& site : scope.sites) {
    std::vector<const Site*>& before = before_[&site];
    for (const Access& access : site.accesses) {
      if (access.use != Use::kRead) continue;
      auto writers = writers_.find(access.buffer);
      if (writers == writers_.end()) continue;
      for (const Site* writer : writers->second) {
        if (writer->is_block() && LooksLikeReduction(writer->block())) {
          before.push_back(writer);
        } else {
          before.insert(before.end(), before_[writer].begin(), before_[writer].end());
        }
      }
    }
    std::sort(before.begin(), before.end(),
              [](const Site* a, const Site* b) { return a->position < b->position; });
    before.erase(std::unique(before.begin(), before.end()), before.end());
    for (const Access& access : site.accesses) {
      if (access.use == Use::kWrite) writers_[access.buffer].push_back(&site);
    }
  }
}

std::optional<Between> Dataflow::Elementwise(const Site& site) const {
  if (!site.is_block() || !site.plain || site.may_end) return std::nullopt;
  SBlock block = site.block();
  auto store = As<BufferStore>(block.body());
  if (!store || LooksLikeReduction(block)) return std::nullopt;
  if (block.alloc_buffers().size() != 0 || block.match_buffers().size() != 0) return std::nullopt;
  auto writers = writers_.find(store->buffer().get());
  bool only = writers != writers_.end() && writers->second.size() == 1;
  if (!only || !LoadsOf(block.body(), store->buffer()).empty()) return std::nullopt;
  for (const Site& other : scope_.sites) {
    // Whoever reads the buffer before it is stored reads something else.
    bool earlier = other.position < site.position;
    if (earlier && other.Touches(store->buffer().get(), Use::kRead)) return std::nullopt;
  }
  if (BufferTypeOf(store->buffer()).dtype().dtype().lanes != 1) return std::nullopt;
  Epilogue epilogue{&site, store->buffer(), store->indices(), store->value(), {}};
  for (const IterVar& iter : block.iter_vars()) {
    epilogue.axes.push_back(Axis{iter.var(), iter.dom().min(), iter.dom().extent()});
  }
  if (!StoresWholeBuffer(epilogue)) return std::nullopt;
  for (VarKey var : VarsIn(block.body())) {
    if (scope_.local_vars.count(var)) return std::nullopt;
  }
  try {
    CheckEpilogueLoops(epilogue);
    CheckPure(block);
  } catch (const Refusal&) {
    return std::nullopt;
  }
  return Between{&site, epilogue.output, epilogue.out_indices, epilogue.value};
}

Expr Dataflow::Inline(const Expr& expr, const IsWanted& wanted, const Reader& reader) const {
  struct Inlined {
    Var hole;
    Expr value;
    SBlock block;
  };
  std::vector<Inlined> inlined;
  Reader value = [&](const TensorLoad& load) -> std::optional<Expr> {
    if (auto known = reader(load)) return known;
    auto writers = writers_.find(load.source().get());
    if (writers == writers_.end()) return std::nullopt;
    for (const Site* writer : writers->second) {
      bool reduces = writer->is_block() && LooksLikeReduction(writer->block());
      const std::vector<const Site*>& before = before_.at(writer);
      bool carries =
          std::any_of(before.begin(), before.end(), [&](const Site* one) { return wanted(*one); });
      if (reduces || !carries) continue;
      if (auto block = Elementwise(*writer)) {
        Expr inner = Inline(InlineLoad(*block, load.indices()), wanted, reader);
        for (const Inlined& one : inlined) {
          if (one.block.same_as(writer->block()) && DeepEqual(one.value, inner)) return one.hole;
        }
        inlined.push_back({MakeVar("y", inner), inner, writer->block()});
        return inlined.back().hole;
      }
      SBlock at = writer->is_block() ? writer->block() : scope_.root;
      throw Refusal(
          Code::kCascadeForm, at,
          "what stores " + Quoted(Var(load.source())) +
              ", by which a reduction reads another one's result, is not elementwise, or the "
              "buffer is read before");
    }
    return std::nullopt;
  };
  Expr f = LoadRewriter(value).Rewrite(expr);
  for (const Inlined& one : inlined) {
    CheckFolding(one.block, f, one.hole, one.value);
    f = Substitute(f, {{one.hole.get(), one.value}});
  }
  return f;
}

Expr Dataflow::Expand(const Expr& expr) const {
  Reader value = [&](const TensorLoad& load) -> std::optional<Expr> {
    auto writers = writers_.find(load.source().get());
    if (writers == writers_.end() || writers->second.size() != 1) return std::nullopt;
    const Site* writer = writers->second[0];
    if (!writer->is_block() || LooksLikeReduction(writer->block())) return std::nullopt;
    for (const Access& access : writer->accesses) {
      auto inputs = writers_.find(access.buffer);
      if (access.use != Use::kRead || inputs == writers_.end()) continue;
      bool before = inputs->second.size() == 1 && inputs->second[0]->position < writer->position;
      if (!before) return std::nullopt;
    }
    auto block = Elementwise(*writer);
    if (!block) return std::nullopt;
    return InlineLoad(*block, load.indices());
  };
  return LoadRewriter(value).Rewrite(expr);
}

bool Dataflow::ReadsByRows(const Site& reduction, const Site& source,
                           std::optional<Refusal>* why) const {
  VarSet keys;
  for (const IterVar& iter : reduction.block().iter_vars()) {
    if (iter.iter_type() == kCommReduce) keys.insert(iter.var().get());
  }
  auto store = As<BufferStore>(reduction.block().body());
  if (!store) return false;
  bool read = false, by_rows = true;
  auto wanted = [&](const Site& site) { return &site == &source; };
  Reader reader = [&](const TensorLoad& load) -> std::optional<Expr> {
    if (!source.Touches(load.source().get(), Use::kWrite)) return std::nullopt;
    read = true;
    by_rows = by_rows && !UsesAny(load.indices(), keys);
    return load;
  };
  try {
    Inline(store->value(), wanted, reader);
  } catch (const Refusal& refusal) {
    if (!*why) *why = refusal;
    return false;
  }
  return read && by_rows;
}

}  // namespace fuse_epilogue
