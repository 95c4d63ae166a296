// The program: reads the arguments of a function from a file, calls TVM's host code once in each
// order of threads, compares, and writes what the arrays hold.
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "runtime.h"

extern "C" int32_t on_cpu_entry(int32_t entry, void* self, void* args, int32_t count, void* result);

namespace on_cpu {

std::string format(const char* pattern, ...) {
  char text[1024];
  va_list values;
  va_start(values, pattern);
  vsnprintf(text, sizeof(text), pattern, values);
  va_end(values);
  return text;
}

static const Order* order = nullptr;

void fault(const char* kind, const void* pc, int line, const std::string& message) {
  // The return address lies behind the call.
  printf("%s\n%lx\n%d\n%s\n%s\n%s\n", kind, pc ? (unsigned long)pc - 1 : 0, line, message.c_str(),
         place().c_str(), order ? order->name : "");
  fflush(stdout);
  _exit(1);
}

std::vector<unsigned> Order::operator()(unsigned count) const {
  std::vector<unsigned> out(count);
  std::iota(out.begin(), out.end(), 0u);
  if (strcmp(name, "forward") == 0) return out;
  std::reverse(out.begin(), out.end());
  if (strcmp(name, "reverse") == 0) return out;
  for (unsigned i = count; i > 1; --i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    std::swap(out[i - 1], out[(state >> 33) % i]);
  }
  return out;
}

namespace {

struct Argument {
  std::string name;
  DLTensor tensor{};
  std::vector<int64_t> shape;
  size_t bytes = 0;
  std::vector<char> before, first;  // what was given, and what the first order made of it
};

template <typename T>
T take(FILE* file) {
  T value;
  if (fread(&value, sizeof(T), 1, file) != 1) fault("harness", nullptr, 0, "arguments end early");
  return value;
}

void crashed(int signal) {
  fault("crash", nullptr, 0, format("signal %d (%s)", signal, strsignal(signal)));
}

void watch_signals() {
  static char stack[64 * 1024];
  stack_t alternative{};
  alternative.ss_sp = stack;
  alternative.ss_size = sizeof(stack);
  sigaltstack(&alternative, nullptr);
  struct sigaction action{};
  action.sa_handler = crashed;
  action.sa_flags = SA_ONSTACK;
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigaction(signal, &action, nullptr);
}

void compare(const Argument& argument, const char* data, const char* first_order) {
  for (size_t i = 0; i < argument.bytes; ++i) {
    if (data[i] == argument.first[i]) continue;
    size_t element = std::max<size_t>(argument.tensor.dtype.bits / 8, 1);
    fault("order", nullptr, 0,
          format("%s differs at element %zu between the orders %s and %s of threads",
                 argument.name.c_str(), i / element, first_order, order->name));
  }
}

}  // namespace
}  // namespace on_cpu

using namespace on_cpu;

// ---------------------------------------------------------------------------------------------
// What TVM's host code calls
// ---------------------------------------------------------------------------------------------

static const Kernel kSetDevice{"__tvm_set_device", 0, nullptr, nullptr, 0, nullptr, 0, nullptr};

extern "C" {
int TVMFFIEnvModLookupFromImports(TVMFFIObjectHandle, const char* name, TVMFFIObjectHandle* out) {
  const Kernel* found = strcmp(name, kSetDevice.name) == 0 ? &kSetDevice : nullptr;
  for (int i = 0; i < kNumKernels; ++i) {
    if (strcmp(kKernels[i].name, name) == 0) found = &kKernels[i];
  }
  if (!found) fault("unsupported", nullptr, 0, format("the host code calls %s", name));
  *out = const_cast<Kernel*>(found);
  return 0;
}

int TVMFFIFunctionCall(TVMFFIObjectHandle function, TVMFFIAny* args, int32_t count, TVMFFIAny*) {
  const Kernel& kernel = *static_cast<Kernel*>(function);
  if (&kernel == &kSetDevice) return 0;
  if (count != kernel.parameters + kernel.tags) {
    fault("harness", nullptr, 0,
          format("%s takes %d values and is given %d", kernel.name, kernel.parameters + kernel.tags,
                 count));
  }
  launch(kernel, args, *order);
  return 0;
}

void* TVMBackendAllocWorkspace(int, int, uint64_t size, int, int) {
  return allocate("workspace", size, 1, false, order->poison);
}

int TVMBackendFreeWorkspace(int, int, void* base) {
  release(static_cast<char*>(base));
  return 0;
}

void TVMFFIErrorSetRaisedFromCStrParts(const char*, const char** parts, int32_t count) {
  std::string message;
  for (int32_t i = 0; i < count; ++i) message += parts[i];
  std::replace(message.begin(), message.end(), '\n', ' ');
  fault("arguments", nullptr, 0, message);
}

void TVMFFIErrorSetRaisedFromCStr(const char*, const char* message) {
  TVMFFIErrorSetRaisedFromCStrParts(nullptr, &message, 1);
}
}

// <program> <arguments> <results> <seed> <entry> <order>...
int main(int count, char** words) {
  watch_signals();
  FILE* file = fopen(words[1], "rb");
  std::vector<Argument> arguments(take<uint32_t>(file));
  std::vector<TVMFFIAny> values(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    Argument& argument = arguments[i];
    TVMFFIAny& value = values[i];
    argument.name = "argument " + std::to_string(i);
    value.zero_padding = 0;
    char kind = take<char>(file);
    if (kind != 't') {
      value.type_index = kind == 'i' ? kTVMFFIInt : kTVMFFIFloat;
      value.v_int64 = take<int64_t>(file);
      continue;
    }
    DLTensor& tensor = argument.tensor;
    tensor.device = {kDLCUDA, 0};
    tensor.dtype.code = take<uint8_t>(file);
    tensor.dtype.bits = take<uint8_t>(file);
    tensor.dtype.lanes = 1;
    tensor.ndim = take<int32_t>(file);
    for (int d = 0; d < tensor.ndim; ++d) argument.shape.push_back(take<int64_t>(file));
    tensor.shape = argument.shape.data();
    argument.bytes = size_t(take<int64_t>(file));
    argument.before.resize(argument.bytes);
    if (fread(argument.before.data(), 1, argument.bytes, file) != argument.bytes) {
      fault("harness", nullptr, 0, "arguments end early");
    }
    size_t element = std::max<size_t>(tensor.dtype.bits / 8, 1);
    tensor.data = allocate(argument.name, argument.bytes, element, false, 0);
    value.type_index = kTVMFFIDLTensorPtr;
    value.v_ptr = &tensor;
  }
  fclose(file);

  const unsigned char poisons[] = {0xff, 0x7f, 0xa5};
  for (int i = 5; i < count; ++i) {
    Order now{words[i], poisons[(i - 5) % 3], strtoull(words[3], nullptr, 10)};
    order = &now;
    for (Argument& argument : arguments) {
      if (argument.bytes) memcpy(argument.tensor.data, argument.before.data(), argument.bytes);
    }
    TVMFFIAny result{};
    if (on_cpu_entry(atoi(words[4]), nullptr, values.data(), int32_t(values.size()), &result) !=
        0) {
      fault("harness", nullptr, 0, "the host code failed");
    }
    for (Argument& argument : arguments) {
      const char* data = static_cast<const char*>(argument.tensor.data);
      if (i == 5) argument.first.assign(data, data + argument.bytes);
      if (i > 5) compare(argument, data, words[5]);
    }
    order = nullptr;
  }

  file = fopen(words[2], "wb");
  for (const Argument& argument : arguments) {
    fwrite(argument.first.data(), 1, argument.first.size(), file);
  }
  return fclose(file) == 0 ? 0 : 2;
}
