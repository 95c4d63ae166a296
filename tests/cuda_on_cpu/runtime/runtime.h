// What the parts of the runtime share. One process executes one program; it ends with the first
// fault, which the parent reads from standard output.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <tvm/ffi/c_api.h>

#include <string>
#include <vector>

namespace on_cpu {

[[noreturn]] void fault(const char* kind, const void* pc, int line, const std::string& message);
std::string format(const char* pattern, ...) __attribute__((format(__printf__, 1, 2)));

// --- kernels: a table that Python generates -----------------------------------------------------

struct Kernel {
  const char* name;
  int parameters;
  const char* const* names;   // of the parameters
  const size_t* elements;     // bytes of what a parameter points to; 0 for a scalar
  int tags;                   // the launch parameters behind them
  const char* const* launch;  // "blockIdx.x", "threadIdx.y", "tirx.use_dyn_shared_memory", ...
  unsigned most_threads;      // of __launch_bounds__
  void (*call)(const TVMFFIAny*);
};
extern const Kernel kKernels[];
extern const int kNumKernels;
extern const size_t kSharedLimit;  // bytes of shared memory that a block can have

// --- the order of execution ---------------------------------------------------------------------

struct Order {
  const char* name;
  unsigned char poison;  // what memory holds that nobody wrote
  std::vector<unsigned> operator()(unsigned count) const;
  mutable uint64_t state;
};

// --- one launch (block.cc) ---------------------------------------------------------------------

void launch(const Kernel& kernel, const TVMFFIAny* arguments, const Order& order);
std::string place();  // "kernel k, block (0, 0, 0), thread (1, 0, 0)"; empty outside kernels
std::string thread_name(unsigned number);
bool on_a_stack(uintptr_t address);
void blocked();  // memory.cc: before another thread continues

// --- memory (memory.cc) ------------------------------------------------------------------------

// Allocates `size` bytes far from everything else, filled with `poison`.
char* allocate(const std::string& name, size_t size, size_t element, bool shared, int poison);
void release(char* base);
void name_argument(void* base, const char* name, size_t element);

// A load or a store of the running thread; `pc` is where the kernel makes it.
void read(const void* where, size_t size, const void* pc);
void write(void* where, size_t size, const void* pc);

// What an asynchronous copy asks of the memory: `pc` is where the kernel does. Between its begin
// and its end, nobody may read or write what it copies to.
uint32_t shared_address(const void* where, const void* pc);  // 32 bits, as on a GPU
char* at_shared_address(uint32_t address, const void* pc);
void begin_copy(char* to, const char* from, size_t size, const void* pc);
void end_copy(char* to, const char* from, const char* begun, size_t size, const void* pc);

// --- asynchronous copies (copies.cc) -----------------------------------------------------------

void forget_copies();  // of the block before

// The running thread, for races: where it is, and how often all have waited for one another.
struct Running {
  uint16_t thread = 0;
  uint16_t warp_interval = 0;  // barriers of the warp in this block
  uint32_t interval = 1;       // grows with every barrier of a block, and with every block
  uint32_t first_of_block = 1, first_of_launch = 1;
  bool inside = false;
};
extern Running running;

}  // namespace on_cpu
