#include "schedule/guards.h"

#include "schedule/init_reads.h"
#include "schedule/shared_loops.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

using Anys = ffi::Array<ffi::Any>;

// The init becomes a nested block of its own, without reads.
void Blockize(const ffi::ObjectRef& schedule, const Anys& arguments) {
  CheckInits(schedule, "blockize", arguments[0], InitInTheWay::kReadsAnything);
}
void Tensorize(const ffi::ObjectRef& schedule, const Anys& arguments) {
  CheckInits(schedule, "tensorize", arguments[0], InitInTheWay::kReadsAnything);
}

// The output gets another name, in the init as well as in the update.
void CacheWrite(const ffi::ObjectRef& schedule, const Anys& arguments) {
  CheckInits(schedule, "cache-write", arguments[0], InitInTheWay::kReadsItsOutput);
}
void CacheInplace(const ffi::ObjectRef& schedule, const Anys& arguments) {
  CheckInits(schedule, "cache-inplace", arguments[0], InitInTheWay::kReadsItsOutput);
}
void ReindexCacheWrite(const ffi::ObjectRef& schedule, const Anys& arguments) {
  CheckInits(schedule, "reindex-cache-write", arguments[0], InitInTheWay::kReadsItsOutput);
}
void ReIndex(const ffi::ObjectRef& schedule, const Anys& arguments) {
  CheckInits(schedule, "reindex", arguments[0], InitInTheWay::kReadsItsOutput);
}
void ReindexCacheRead(const ffi::ObjectRef& schedule, const Anys& arguments) {
  CheckInits(schedule, "reindex-cache-read", arguments[0], InitInTheWay::kReadsItsOutput);
}
void WriteAt(const ffi::ObjectRef& schedule, const Anys& arguments) {
  CheckInits(schedule, "write-at", arguments[1], InitInTheWay::kReadsItsOutput);
}
void PadEinsum(const ffi::ObjectRef& schedule, const Anys& arguments) {
  CheckInits(schedule, "pad-einsum", arguments[0], InitInTheWay::kReadsItsOutput);
  CheckPadding(schedule, arguments[0], arguments[1]);
}

// Several blocks in the loops that the primitive changes.
void Vectorize(const ffi::ObjectRef& schedule, const Anys& arguments) {
  CheckLanes(schedule, arguments[0]);
}
void RFactor(const ffi::ObjectRef& schedule, const Anys& arguments) {
  CheckAlone(schedule, arguments[0]);
}

}  // namespace

const std::vector<Guard>& Guards() {
  static const std::vector<Guard> guards = {
      {Fn::Blockize, "Blockize", Blockize, 1},
      {Fn::Tensorize, kTensorizeInstruction, Tensorize, 1},
      {Fn::CacheWrite, "CacheWrite", CacheWrite, 1},
      {Fn::CacheInplace, "CacheInplace", CacheInplace, 1},
      {Fn::ReindexCacheWrite, "ReindexCacheWrite", ReindexCacheWrite, 1},
      {Fn::ReIndex, "ReIndex", ReIndex, 1},
      {Fn::ReindexCacheRead, "ReindexCacheRead", ReindexCacheRead, 1},
      {Fn::WriteAt, "WriteAt", WriteAt, 2},
      {Fn::PadEinsum, "PadEinsum", PadEinsum, 2},
      {Fn::Vectorize, "Vectorize", Vectorize, 1},
      {Fn::RFactor, "RFactor", RFactor, 1},
  };
  return guards;
}

void CheckGuard(const Guard& guard, const ffi::ObjectRef& schedule, const Anys& arguments) {
  if (arguments.size() >= guard.needs) guard.check(schedule, arguments);
}

}  // namespace fuse_epilogue
