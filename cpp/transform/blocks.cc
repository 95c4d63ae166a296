#include "transform/blocks.h"

#include "transform/regions.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// Regions of buffers that the block itself allocates concern no other.
Regions Without(const Regions& regions, const ffi::Array<Var>& buffers) {
  VarSet own;
  for (const Var& buffer : buffers) own.insert(buffer.get());
  Regions others;
  for (const TensorRegion& region : regions) {
    if (!own.count(region.source().get())) others.push_back(region);
  }
  return others;
}

}  // namespace

Stmt MakeStore(const Var& buffer, const Expr& value, const ffi::Array<Expr>& indices) {
  return CallGlobal(Fn::BufferStore, buffer, value, indices, nullptr).cast<Stmt>();
}

Stmt MakeSequence(const std::vector<Stmt>& statements) {
  if (statements.size() == 1) return statements[0];
  ffi::Array<Stmt> all;
  for (const Stmt& each : statements) all.push_back(each);
  return CallGlobal(Fn::SeqStmt, all, nullptr).cast<Stmt>();
}

Stmt MakeLoops(const std::vector<Axis>& axes, Stmt body) {
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    body = CallGlobal(Fn::For, axis->var, axis->min, axis->extent, int64_t{kSerial}, body, nullptr,
                      ffi::Map<ffi::String, ffi::Any>(), nullptr, nullptr)
               .cast<Stmt>();
  }
  return body;
}

Var MakeBuffer(const std::string& name, const Var& like, const Expr& element,
               const ffi::Array<Expr>& shape, const std::optional<ffi::String>& scope) {
  BufferType type = BufferTypeOf(like);
  auto offset = As<IntImm>(type.elem_offset());
  ffi::Any zero = offset && offset->value() == 0 ? type.elem_offset() : ffi::Any(nullptr);
  ffi::Any made =
      CallGlobal(Fn::BufferType, scope.value_or(type.storage_scope()), ExprBase(element).ty(),
                 shape, ffi::Array<Expr>(), zero, type.data_alignment(), type.offset_factor(),
                 nullptr, ffi::Array<Expr>(), nullptr);
  return CallGlobal(Fn::Var, name, made, nullptr).cast<Var>();
}

SBlockRealize MakeBlock(const BlockParts& parts) {
  ffi::Array<IterVar> iters;
  ffi::Array<Expr> values;
  for (const BoundAxis& bound : parts.axes) {
    auto range = CallGlobal(Fn::Range, bound.axis.min, bound.axis.extent, nullptr);
    iters.push_back(CallGlobal(Fn::IterVar, range, bound.axis.var, int64_t{bound.type}, "", nullptr)
                        .cast<IterVar>());
    values.push_back(bound.value);
  }
  ffi::Array<TensorRegion> none;
  ffi::Map<ffi::String, ffi::Any> no_notes;
  SBlock block = CallGlobal(Fn::SBlock, iters, none, none, parts.name, parts.body, parts.init,
                            parts.buffers, ffi::Array<MatchBufferRegion>(), no_notes, nullptr)
                     .cast<SBlock>();
  auto [reads, writes] = RegionsOf(block);
  block = WithParts(block, Without(reads, parts.buffers), Without(writes, parts.buffers),
                    parts.init, parts.body);
  return CallGlobal(Fn::SBlockRealize, values, parts.predicate, block, nullptr)
      .cast<SBlockRealize>();
}

Stmt MakeNest(const std::vector<Axis>& axes, const std::vector<IterType>& types, BlockParts parts) {
  std::vector<Axis> loops;
  Substitution in_loops;
  for (size_t i = 0; i < axes.size(); ++i) {
    std::string name = axes[i].var.name();
    Axis loop{MakeVar(name.rfind("v_", 0) == 0 ? name.substr(2) : name + "_i", axes[i].var),
              axes[i].min, axes[i].extent};
    parts.axes.push_back(BoundAxis{axes[i], types[i], loop.var});
    loops.push_back(loop);
    in_loops[axes[i].var.get()] = loop.var;
  }
  if (auto condition = parts.predicate.as<Expr>()) {
    parts.predicate = Substitute(*condition, in_loops);
  }
  return MakeLoops(loops, MakeBlock(parts));
}

}  // namespace fuse_epilogue
