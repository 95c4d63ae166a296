#include "schedule/guarded_call.h"

#include <vector>

#include "schedule/bind.h"
#include "schedule/init_reads.h"
#include "schedule/rewriting.h"
#include "schedule/rfactor.h"

namespace fuse_epilogue {

namespace {

// A primitive on another schedule than the one that it is called with.
ffi::Any CallOn(ir::Fn function, const ffi::ObjectRef& schedule, ffi::PackedArgs args) {
  std::vector<ffi::AnyView> views;
  for (int i = 0; i < args.size(); ++i) views.push_back(args[i]);
  views[0] = schedule;
  ffi::Any result;
  ir::Global(function).CallPacked(ffi::PackedArgs(views.data(), args.size()), &result);
  return result;
}

}  // namespace

void CallGuarded(const Guard& guard, ffi::PackedArgs args, ffi::Any* result) {
  ffi::Array<ffi::Any> arguments;
  for (int i = 1; i < args.size(); ++i) arguments.push_back(ffi::Any(args[i]));
  if (guard.function == ir::Fn::Tensorize && arguments.size() > 1 && NamesRewriting(arguments[1])) {
    Rewrite(args[0].cast<ffi::ObjectRef>(), arguments[0].cast<ffi::ObjectRef>(),
            arguments[1].cast<ffi::String>());
    return;
  }
  if (args.size() > 0) CheckGuard(guard, args[0].cast<ffi::ObjectRef>(), arguments);
  if (guard.function == ir::Fn::RFactor && args.size() > 1) {
    *result = RFactor(args[0].cast<ffi::ObjectRef>(), arguments[0], [&](const ffi::ObjectRef& on) {
      return CallOn(guard.function, on, args).cast<ffi::ObjectRef>();
    });
    return;
  }
  ir::Global(guard.function).CallPacked(args, result);
}

void CallBind(ffi::PackedArgs args) {
  auto thread = args.size() == 3 ? args[2].as<ffi::String>() : std::nullopt;
  auto bind = [&](const ffi::ObjectRef& on) { CallOn(ir::Fn::BindLoop, on, args); };
  if (!thread) return bind(args[0].cast<ffi::ObjectRef>());
  BindLoop(args[0].cast<ffi::ObjectRef>(), ffi::Any(args[1]), *thread, bind);
}

ffi::ObjectRef CallDecomposeReduction(const ffi::ObjectRef& schedule, const ffi::ObjectRef& block,
                                      const ffi::ObjectRef& loop) {
  return DecomposeReduction(schedule, block, loop, [&] {
    return ir::CallGlobal(ir::Fn::DecomposeReduction, schedule, block, loop).cast<ffi::ObjectRef>();
  });
}

}  // namespace fuse_epilogue
