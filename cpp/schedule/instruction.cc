#include "schedule/instruction.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/error.h>

#include "schedule/bind.h"
#include "schedule/cascade.h"
#include "schedule/guards.h"
#include "schedule/init_reads.h"
#include "schedule/needs_package.h"
#include "schedule/primitive.h"
#include "schedule/rewriting.h"
#include "schedule/rfactor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// An instruction kind is {name, is_pure, apply, as_python, attrs_as_json, attrs_from_json}. Only
// the first two are reflected; the four functors are one reference each behind them.
constexpr int64_t kPureOffset = 40;
constexpr int64_t kFirstFunctor = 48;
constexpr int64_t kTotalSize = 80;
enum Functor { kApply = 0, kAsPython = 1 };

using Anys = ffi::Array<ffi::Any>;

ffi::ObjectRef KindNamed(const char* name) {
  return CallGlobal(Fn::InstructionKindGet, name).cast<ffi::ObjectRef>();
}

ffi::Function* FunctorOf(const ffi::ObjectRef& kind, int which) {
  char* base = reinterpret_cast<char*>(const_cast<ffi::Object*>(kind.get()));
  return reinterpret_cast<ffi::Function*>(base + kFirstFunctor) + which;
}

bool HasExpectedLayout(const ffi::ObjectRef& kind) {
  const TVMFFITypeInfo* type = TVMFFIGetTypeInfo(kind.type_index());
  if (type->metadata == nullptr || type->metadata->total_size != kTotalSize) return false;
  bool pure_at_offset = false;
  for (int32_t i = 0; i < type->num_fields; ++i) {
    std::string name(type->fields[i].name.data, type->fields[i].name.size);
    if (name == "_is_pure") pure_at_offset = type->fields[i].offset == kPureOffset;
  }
  if (!pure_at_offset) return false;
  for (int which : {kApply, kAsPython}) {
    // Within the object, by its size; what is there must be a reference to a function.
    const ffi::Object* value = FunctorOf(kind, which)->get();
    if (value == nullptr || value->type_index() != TVMFFITypeIndex::kTVMFFIFunction) return false;
  }
  return true;
}

// What AttrsOf in primitive.cc has written, or what somebody has put into a trace.
Options OptionsOf(const Anys& attrs) {
  const std::string instruction = std::string("the attributes of ") + kFuseInstruction;
  if (attrs.size() == 0) return {};
  if (attrs.size() != 2) {
    TVM_FFI_THROW(ValueError) << instruction << " must be none, or numerics and distribute, not "
                              << attrs.size();
  }
  Options options;
  auto text = attrs[0].as<ffi::String>();
  std::string numerics = text ? std::string(*text) : "";
  // For printing, TVM puts strings into quotes.
  if (numerics.size() > 1 && numerics.front() == '"') {
    numerics = numerics.substr(1, numerics.size() - 2);
  }
  if (numerics != "exact" && numerics != "reassociate") {
    TVM_FFI_THROW(ValueError) << instruction
                              << ": numerics must be \"reassociate\" or \"exact\", not "
                              << (text ? "\"" + numerics + "\"" : attrs[0].GetTypeKey());
  }
  options.exact = numerics == "exact";
  // From JSON it comes back as an IntImm.
  auto number = attrs[1].as<int64_t>();
  if (ObjectIn(attrs[1])) {
    if (auto imm = As<IntImm>(attrs[1])) number = imm->value();
  }
  if (!number || (*number != 0 && *number != 1)) {
    TVM_FFI_THROW(ValueError) << instruction << ": distribute must be 0 or 1, not "
                              << (number ? std::to_string(*number) : attrs[1].GetTypeKey());
  }
  options.distribute = *number != 0;
  return options;
}

Anys ReplayFuse(const ffi::ObjectRef& schedule, const Anys& inputs, const Anys& attrs,
                const ffi::Any&) {
  if (auto cascade = CascadeOptionsOf(attrs)) {
    FuseCascadedReductions(schedule, inputs[0].cast<ffi::ObjectRef>(),
                           inputs.size() > 1 ? ffi::Any(inputs[1]) : ffi::Any(nullptr), *cascade);
    return {};
  }
  FuseReductionEpilogue(schedule, inputs[0].cast<ffi::ObjectRef>(),
                        inputs.size() > 1 ? ffi::Any(inputs[1]) : ffi::Any(nullptr),
                        OptionsOf(attrs));
  return {};
}

ffi::String PrintCascade(const Anys& inputs, const CascadeOptions& options) {
  std::string text =
      "sch.fuse_cascaded_reductions(block=" + std::string(inputs[0].cast<ffi::String>());
  if (inputs.size() > 1) text += ", loop=" + std::string(inputs[1].cast<ffi::String>());
  if (options.factor > 0) text += ", factor=" + std::to_string(options.factor);
  if (options.parts > 1) text += ", parts=" + std::to_string(options.parts);
  if (options.exact) text += ", numerics=\"exact\"";
  return text + ")";
}

ffi::String PrintFuse(const Anys& inputs, const Anys& attrs, const ffi::Any&,
                      const ffi::Array<ffi::String>&) {
  if (auto cascade = CascadeOptionsOf(attrs)) return PrintCascade(inputs, *cascade);
  std::string text = "sch.fuse_reduction_epilogue(";
  std::string first = inputs[0].cast<ffi::String>();
  if (inputs.size() == 1) {
    text += "block=" + first;
  } else {
    std::string second = inputs[1].cast<ffi::String>();
    text += "reduction_block=" + first + ", epilogue_block=" + second;
  }
  Options options = OptionsOf(attrs);
  if (options.exact) text += ", numerics=\"exact\"";
  if (options.distribute) text += ", distribute=True";
  return text + ")";
}

// Replace the functor that replays a kind by one that is given the original.
template <typename Wrapper>
void WrapApply(const char* kind, Wrapper wrapper) {
  ffi::Function* apply = FunctorOf(KindNamed(kind), kApply);
  ffi::Function original = *apply;
  *apply = ffi::Function::FromTyped([original, wrapper](const ffi::ObjectRef& schedule,
                                                        const Anys& inputs, const Anys& attrs,
                                                        const ffi::Any& decision) {
    return wrapper(original, schedule, inputs, attrs, decision);
  });
}

// The step in front of a recorded fusion stays on the trace and does nothing.
void InstallNeedsPackage() {
  WrapApply(kTensorizeInstruction,
            [](const ffi::Function& original, const ffi::ObjectRef& schedule, const Anys& inputs,
               const Anys& attrs, const ffi::Any& decision) {
              if (!SaysNeedsPackage(attrs))
                return original(schedule, inputs, attrs, decision).cast<Anys>();
              RecordNeedsPackage(schedule, inputs[0].cast<ffi::ObjectRef>());
              return Anys{};
            });
  ffi::Function* as_python = FunctorOf(KindNamed(kTensorizeInstruction), kAsPython);
  ffi::Function original = *as_python;
  *as_python = ffi::Function::FromTyped(
      [original](const Anys& inputs, const Anys& attrs, const ffi::Any& decision,
                 const ffi::Array<ffi::String>& outputs) -> ffi::String {
        if (SaysNeedsPackage(attrs)) return "# needs the package fuse_epilogue:";
        return original(inputs, attrs, decision, outputs).cast<ffi::String>();
      });
}

// A rewriting is recorded as a step by the name of an intrinsic; printed, it is that call.
void InstallRewritings() {
  WrapApply(kTensorizeInstruction,
            [](const ffi::Function& original, const ffi::ObjectRef& schedule, const Anys& inputs,
               const Anys& attrs, const ffi::Any& decision) {
              if (attrs.size() == 0 || !NamesRewriting(attrs[0]))
                return original(schedule, inputs, attrs, decision).cast<Anys>();
              Rewrite(schedule, inputs[0].cast<ffi::ObjectRef>(), attrs[0].cast<ffi::String>());
              return Anys{};
            });
}

}  // namespace

std::vector<std::string> CheckInstructionKinds() {
  std::vector<const char*> names = {kFuseInstruction, kDecomposeInstruction, kBindInstruction};
  for (const Guard& guard : Guards()) names.push_back(guard.instruction);
  std::vector<std::string> wrong;
  for (const char* name : names) {
    try {
      if (HasExpectedLayout(KindNamed(name))) continue;
    } catch (const ffi::Error&) {
      // not registered
    }
    wrong.push_back(std::string("instruction kind ") + name);
  }
  return wrong;
}

void InstallInstructionKinds() {
  ffi::ObjectRef fuse = KindNamed(kFuseInstruction);
  *FunctorOf(fuse, kApply) = ffi::Function::FromTyped(ReplayFuse);
  *FunctorOf(fuse, kAsPython) = ffi::Function::FromTyped(PrintFuse);

  WrapApply(
      kDecomposeInstruction, [](const ffi::Function& original, const ffi::ObjectRef& schedule,
                                const Anys& inputs, const Anys& attrs, const ffi::Any& decision) {
        auto decompose = [&] {
          return original(schedule, inputs, attrs, decision).cast<Anys>()[0].cast<ffi::ObjectRef>();
        };
        return Anys{DecomposeReduction(schedule, inputs[0].cast<ffi::ObjectRef>(),
                                       inputs[1].cast<ffi::ObjectRef>(), decompose)};
      });
  WrapApply(kBindInstruction, [](const ffi::Function& original, const ffi::ObjectRef& schedule,
                                 const Anys& inputs, const Anys& attrs, const ffi::Any& decision) {
    BindLoop(schedule, inputs[0], attrs[0].cast<ffi::String>(),
             [&](const ffi::ObjectRef& on) { original(on, inputs, attrs, decision); });
    return Anys{};
  });
  for (const Guard& guard : Guards()) {
    WrapApply(guard.instruction, [guard](const ffi::Function& original,
                                         const ffi::ObjectRef& schedule, const Anys& inputs,
                                         const Anys& attrs, const ffi::Any& decision) {
      Anys arguments(inputs.begin(), inputs.end());
      for (const ffi::Any& attr : attrs) arguments.push_back(attr);
      CheckGuard(guard, schedule, arguments);
      if (guard.function == Fn::RFactor) {
        auto rfactor = [&](const ffi::ObjectRef& on) {
          return original(on, inputs, attrs, decision).cast<Anys>()[0].cast<ffi::ObjectRef>();
        };
        return Anys{RFactor(schedule, inputs[0], rfactor)};
      }
      return original(schedule, inputs, attrs, decision).cast<Anys>();
    });
  }
  // Outside of the guard: these steps have no intrinsic to check a block for.
  InstallNeedsPackage();
  InstallRewritings();
}

}  // namespace fuse_epilogue
