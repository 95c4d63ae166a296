#include "transform/regions.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "analysis/scope.h"
#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

TensorRegion PointRegion(const Var& buffer, const ffi::Array<Expr>& indices) {
  ffi::Array<ffi::ObjectRef> ranges;
  for (const Expr& index : indices) {
    ranges.push_back(
        CallGlobal(Fn::Range, index, MakeInt(1, index), nullptr).cast<ffi::ObjectRef>());
  }
  return CallGlobal(Fn::TensorRegion, buffer, ranges).cast<TensorRegion>();
}

namespace {

TensorRegion Whole(const Var& buffer) {
  ffi::Array<ffi::ObjectRef> ranges;
  for (const Expr& extent : BufferTypeOf(buffer).shape()) {
    ranges.push_back(
        CallGlobal(Fn::Range, MakeInt(0, extent), extent, nullptr).cast<ffi::ObjectRef>());
  }
  return CallGlobal(Fn::TensorRegion, buffer, ranges).cast<TensorRegion>();
}

// The buffers that a statement loads from, as whole ones, and the elements that it stores.
class AccessCollector : public StmtExprVisitor {
 public:
  Regions loaded, stored;

 protected:
  using StmtExprVisitor::VisitExpr_;
  using StmtExprVisitor::VisitStmt_;
  void VisitExpr_(const TensorLoad& op) override {
    if (seen_.insert(op.source().get()).second) loaded.push_back(Whole(Var(op.source())));
    VisitChildren(op);
  }
  void VisitStmt_(const BufferStore& op) override {
    stored.push_back(PointRegion(op.buffer(), op.indices()));
    VisitChildren(op);
  }

 private:
  VarSet seen_;
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

class LoadFinder : public StmtExprVisitor {
 public:
  explicit LoadFinder(const Expr& buffer) : buffer_(buffer) {}
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

// Whether every declared region is among the computed ones; that of the accumulator may be missing.
bool ContainAll(const Regions& computed, const Regions& declared, const Var& accumulator) {
  std::unordered_map<VarKey, std::vector<TensorRegion>> of_buffer;
  for (const TensorRegion& region : computed) of_buffer[region.source().get()].push_back(region);
  for (const TensorRegion& region : declared) {
    bool found = region.source().same_as(accumulator);
    for (const TensorRegion& other : of_buffer[region.source().get()]) {
      found = found || SameRegions({region}, {other});
    }
    if (!found) return false;
  }
  return true;
}

}  // namespace

SBlock WithParts(const SBlock& block, const Regions& reads, const Regions& writes,
                 const ffi::Any& init, const Stmt& body) {
  return CallGlobal(Fn::SBlock, block.iter_vars(), reads, writes, block.name_hint(), body, init,
                    block.alloc_buffers(), block.match_buffers(), block.annotations(), nullptr)
      .cast<SBlock>();
}

namespace {

std::pair<Regions, Regions> RegionsByTvm(const SBlock& block) {
  BufferCollector collector;
  collector(block);
  auto both = CallGlobal(Fn::ReadWriteRegion, block, collector.buffers).cast<ffi::Array<Regions>>();
  return {both[0], both[1]};
}

// Larger regions than TVM would say, but right ones.
std::pair<Regions, Regions> RegionsByBuffer(const SBlock& block) {
  AccessCollector accesses;
  accesses(block.body());
  Regions reads;
  for (const TensorRegion& region : accesses.loaded) {
    bool updated = false;
    for (const TensorRegion& store : accesses.stored) {
      updated = updated || (block.init() != nullptr && store.source().same_as(region.source()));
    }
    if (!updated) reads.push_back(region);
  }
  return {reads, accesses.stored};
}

std::pair<Regions, Regions> AccessedBy(const SBlock& block) {
  try {
    return RegionsByTvm(block);
  } catch (const ffi::Error& error) {
    // TVM bounds each index and simplifies conditions, and folds constants on the way: those of an
    // unsigned difference that wraps end in one error, a product that no int64 holds in the other.
    if (error.kind() != "InternalError" && error.kind() != "ValueError") throw;
    return RegionsByBuffer(block);
  }
}

}  // namespace

std::pair<Regions, Regions> RegionsOf(const SBlock& block) {
  auto [reads, writes] = AccessedBy(block);
  auto init = As<BufferStore>(block.init());
  if (init) {
    LoadFinder in_place(init->buffer());
    in_place(init->value());
    if (in_place.found) {
      reads.insert(reads.begin(), PointRegion(init->buffer(), in_place.found->indices()));
    }
  }
  return {reads, writes};
}

bool DeclaresItsReads(const SBlock& block) {
  return !HasNestedBlock(block) && SameRegions(RegionsOf(block).first, block.reads());
}

Regions MergeReads(const SBlock& old, const Regions& computed, const Var& gone) {
  const Regions declared = old.reads();
  const Regions before = RegionsOf(old).first;
  if (ContainAll(computed, declared, gone) || SameRegions(before, declared)) {
    return computed;
  }
  Regions merged;
  VarSet in_merged;
  for (const TensorRegion& region : declared) {
    if (region.source().same_as(gone)) continue;
    merged.push_back(region);
    in_merged.insert(region.source().get());
  }
  for (const TensorRegion& region : computed) {
    // What it read before as well, it declares in its own way.
    bool known = std::any_of(before.begin(), before.end(), [&](const TensorRegion& other) {
      return SameRegions({region}, {other});
    });
    if (!known || in_merged.count(region.source().get()) == 0) merged.push_back(region);
  }
  return merged;
}

SBlock WithItsRegions(const SBlock& old, const SBlock& block, const Var& gone) {
  auto [reads, writes] = RegionsOf(block);
  return WithParts(block, MergeReads(old, reads, gone), writes, block.init(), block.body());
}

}  // namespace fuse_epilogue
