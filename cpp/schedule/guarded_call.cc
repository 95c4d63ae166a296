#include "schedule/guarded_call.h"

#include "schedule/init_reads.h"
#include "schedule/rewriting.h"

namespace fuse_epilogue {

void CallGuarded(const Guard& guard, ffi::PackedArgs args, ffi::Any* result) {
  ffi::Array<ffi::Any> arguments;
  for (int i = 1; i < args.size(); ++i) arguments.push_back(ffi::Any(args[i]));
  if (guard.function == ir::Fn::Tensorize && arguments.size() > 1 && NamesRewriting(arguments[1])) {
    Rewrite(args[0].cast<ffi::ObjectRef>(), arguments[0].cast<ffi::ObjectRef>(),
            arguments[1].cast<ffi::String>());
    return;
  }
  if (args.size() > 0) CheckGuard(guard, args[0].cast<ffi::ObjectRef>(), arguments);
  ir::Global(guard.function).CallPacked(args, result);
}

ffi::ObjectRef CallDecomposeReduction(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block,
                                      const ffi::ObjectRef& loop) {
  return DecomposeReduction(schedule, block, loop, [&] {
    return ir::CallGlobal(ir::Fn::DecomposeReduction, schedule, block, loop).cast<ffi::ObjectRef>();
  });
}

}  // namespace fuse_epilogue
