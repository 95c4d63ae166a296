#include "transform/privatize.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

bool RunsInThreads(const Site& site) {
  for (const For& loop : site.Loops()) {
    if (loop.kind() == kThread) return true;
  }
  return false;
}

bool IsReadByTailsOnly(const Scope& scope, const Region& region, const Var& buffer) {
  std::vector<const Site*> readers = ReadersOf(scope, *region.reduction.site, buffer);
  for (const Site* reader : readers) {
    bool tail = false;
    for (const Tail& one : region.tails) tail = tail || one.site == reader;
    if (!tail) return false;
  }
  return !readers.empty();
}

}  // namespace

std::vector<Var> PrivateBuffers(const Scope& scope, const Region& region) {
  std::vector<Var> buffers;
  if (!RunsInThreads(*region.reduction.site)) return buffers;
  for (const Produced& one : region.produced) {
    std::string memory = ScopeOf(one.buffer);
    bool global = memory.empty() || memory == "global";
    if (global && Owns(scope.root, one.buffer) && IsReadByTailsOnly(scope, region, one.buffer)) {
      buffers.push_back(one.buffer);
    }
  }
  return buffers;
}

Var AsLocal(const Var& buffer) {
  BufferType type = BufferTypeOf(buffer);
  ffi::Any local = CallGlobal(Fn::BufferType, "local", type.dtype(), type.shape(), type.strides(),
                              type.elem_offset(), type.data_alignment(), type.offset_factor(),
                              type.layout(), type.allocated_addr(), nullptr);
  return CallGlobal(Fn::Var, std::string(buffer.name()) + "_local", local, nullptr).cast<Var>();
}

}  // namespace fuse_epilogue
