// Runs a launch: one block after another, and of a block one thread at a time, each until it waits
// for others. Threads are fibres: their order is chosen, nothing depends on the machine.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <map>

#include "runtime.h"
#include "thread.h"

namespace on_cpu {

namespace {

constexpr size_t kStack = 128 * 1024, kPage = 4096;
constexpr unsigned kWarp = 32, kMostThreads = 1024;
constexpr size_t kStaticShared = 48 * 1024;

struct Index3 {
  unsigned v[3] = {1, 1, 1};
  unsigned count() const { return v[0] * v[1] * v[2]; }
  Index3 at(unsigned linear) const {
    Index3 out;
    out.v[0] = linear % v[0];
    out.v[1] = linear / v[0] % v[1];
    out.v[2] = linear / v[0] / v[1];
    return out;
  }
};

enum Wait { kNothing, kBarrier, kExchange, kVote, kWarpBarrier, kActiveMask, kFinished };
const char* const kWaitNames[] = {"runs",
                                  "waits at __syncthreads()",
                                  "waits at a shuffle",
                                  "waits at a vote",
                                  "waits at __syncwarp()",
                                  "waits at __activemask()",
                                  "has finished"};

// A switch by _setjmp/_longjmp keeps the signal mask out of it: 10 times as fast as swapcontext.
struct Fibre {
  ucontext_t context;
  jmp_buf at;
  bool started = false;
  Wait wait = kFinished;
  int line = 0;
  unsigned mask = 0, source = 0;
  uint64_t value = 0, result = 0;
  uint16_t warp_interval = 0;
  Index3 thread;
};

char* stacks = nullptr;
Fibre fibres[kMostThreads];
Fibre* current = nullptr;
unsigned current_number = 0;
jmp_buf scheduler;

const Kernel* kernel = nullptr;
const TVMFFIAny* arguments = nullptr;
const Order* order = nullptr;
Index3 grid, block, block_index;
size_t dynamic_size = 0;
bool in_block = false;

struct Shared {
  char* base;
  size_t size;
  bool fresh;
};
std::map<std::string, Shared> shared_arrays;  // of this launch
size_t shared_size = 0;

void body() {
  for (;;) {
    kernel->call(arguments);
    current->wait = kFinished;
    if (_setjmp(current->at) == 0) _longjmp(scheduler, 1);
  }
}

void prepare(Fibre& fibre, unsigned number) {
  if (!stacks) {
    size_t size = kMostThreads * kStack;
    void* found = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) fault("harness", nullptr, 0, "no memory for the threads' stacks");
    stacks = static_cast<char*>(found);
  }
  char* stack = stacks + number * kStack;
  mprotect(stack, kPage, PROT_NONE);  // what is too deep must not reach the neighbour
  getcontext(&fibre.context);
  fibre.context.uc_stack.ss_sp = stack + kPage;
  fibre.context.uc_stack.ss_size = kStack - kPage;
  fibre.context.uc_link = nullptr;
  makecontext(&fibre.context, body, 0);
}

void resume(unsigned number) {
  current_number = number;
  current = &fibres[number];
  running.thread = uint16_t(number);
  running.warp_interval = current->warp_interval;
  running.inside = true;
  if (_setjmp(scheduler) == 0) {
    if (current->started) _longjmp(current->at, 1);
    prepare(*current, number);
    current->started = true;
    setcontext(&current->context);
  }
  blocked();
  running.inside = false;
}

void wait(Wait what, int line) {
  current->wait = what;
  current->line = line;
  if (_setjmp(current->at) == 0) _longjmp(scheduler, 1);
}

void go_on(Fibre& fibre) { fibre.wait = kNothing; }

// --- a warp -------------------------------------------------------------------------------------

unsigned lanes_of(unsigned warp) { return std::min(block.count() - warp * kWarp, kWarp); }

// Lets the lanes go that wait at the same operation, where all of its mask are there.
bool release_group(unsigned first, unsigned lanes, unsigned leader) {
  Fibre& asked = fibres[first + leader];
  unsigned mask = asked.mask & (lanes == kWarp ? ~0u : (1u << lanes) - 1);
  if (!(mask >> leader & 1)) {
    fault("deadlock", nullptr, asked.line,
          thread_name(first + leader) + " is not in the mask of the operation it takes part in");
  }
  uint64_t votes = 0;
  for (unsigned lane = 0; lane < lanes; ++lane) {
    const Fibre& other = fibres[first + lane];
    if (!(mask >> lane & 1)) continue;
    if (other.wait != asked.wait || other.mask != asked.mask) return false;
    if (other.wait == kVote && other.value) votes |= 1ull << lane;
  }
  for (unsigned lane = 0; lane < lanes; ++lane) {
    Fibre& fibre = fibres[first + lane];
    if (!(mask >> lane & 1)) continue;
    // The value of a lane that takes no part is anything.
    bool takes_part = fibre.source < lanes && (mask >> fibre.source & 1);
    fibre.result = fibre.wait == kVote ? votes
                   : takes_part        ? fibres[first + fibre.source].value
                                       : order->poison * 0x0101010101010101ull;
    ++fibre.warp_interval;
  }
  for (unsigned lane = 0; lane < lanes; ++lane) {
    if (mask >> lane & 1) go_on(fibres[first + lane]);
  }
  return true;
}

bool release_warps() {
  bool any = false;
  for (unsigned first = 0; first < block.count(); first += kWarp) {
    unsigned lanes = lanes_of(first / kWarp);
    for (unsigned lane = 0; lane < lanes; ++lane) {
      Wait what = fibres[first + lane].wait;
      if (what == kExchange || what == kVote || what == kWarpBarrier) {
        any |= release_group(first, lanes, lane);
      }
    }
  }
  return any;
}

// Nobody of the warp can go on: it has converged as far as it can. The lanes at the same place are
// the active ones.
bool release_active_masks() {
  bool any = false;
  for (unsigned first = 0; first < block.count(); first += kWarp) {
    unsigned lanes = lanes_of(first / kWarp);
    for (unsigned lane = 0; lane < lanes; ++lane) {
      if (fibres[first + lane].wait != kActiveMask) continue;
      unsigned mask = 0;
      for (unsigned other = lane; other < lanes; ++other) {
        const Fibre& fibre = fibres[first + other];
        if (fibre.wait == kActiveMask && fibre.line == fibres[first + lane].line) {
          mask |= 1u << other;
        }
      }
      for (unsigned other = lane; other < lanes; ++other) {
        if (mask >> other & 1) fibres[first + other].result = mask, go_on(fibres[first + other]);
      }
      any = true;
    }
  }
  return any;
}

// --- a block ------------------------------------------------------------------------------------

[[noreturn]] void stuck() {
  unsigned waiting = block.count();
  for (unsigned i = 0; i < block.count(); ++i) {
    if (fibres[i].wait == kFinished) continue;
    if (waiting == block.count() || fibres[i].wait != kBarrier) waiting = i;
    if (fibres[i].wait != kBarrier) break;
  }
  const Fibre& one = fibres[waiting];
  for (unsigned i = 0; i < block.count(); ++i) {
    const Fibre& other = fibres[i];
    if (other.wait == one.wait && other.line == one.line) continue;
    std::string where = other.wait == kFinished ? "" : format(" in line %d", other.line);
    fault(one.wait == kBarrier ? "divergent barrier" : "deadlock", nullptr, one.line,
          thread_name(waiting) + " " + kWaitNames[one.wait] + ", but " + thread_name(i) + " " +
              kWaitNames[other.wait] + where);
  }
  fault("deadlock", nullptr, one.line,
        thread_name(waiting) + " " + kWaitNames[one.wait] + " for lanes that never come");
}

// All threads wait at the same barrier.
bool release_block() {
  for (unsigned i = 0; i < block.count(); ++i) {
    if (fibres[i].wait != kBarrier || fibres[i].line != fibres[0].line) return false;
  }
  for (unsigned i = 0; i < block.count(); ++i) go_on(fibres[i]);
  ++running.interval;
  return true;
}

void run_block(unsigned number) {
  block_index = grid.at(number);
  in_block = true;
  running.first_of_block = ++running.interval;
  forget_copies();
  for (auto& array : shared_arrays) array.second.fresh = false;
  for (unsigned i = 0; i < block.count(); ++i) {
    fibres[i].wait = kNothing;
    fibres[i].warp_interval = 0;
    fibres[i].thread = block.at(i);
  }
  for (;;) {
    for (unsigned i : (*order)(block.count())) {
      if (fibres[i].wait == kNothing) resume(i);
    }
    if (release_warps() || release_active_masks()) continue;
    bool finished = std::all_of(fibres, fibres + block.count(),
                                [](const Fibre& fibre) { return fibre.wait == kFinished; });
    if (finished) break;
    if (!release_block()) stuck();
  }
  in_block = false;
}

void check_limits() {
  auto refuse = [](const std::string& why) { fault("launch", nullptr, 0, why); };
  std::string size = format("blocks of %u x %u x %u threads", block.v[0], block.v[1], block.v[2]);
  if (block.count() == 0 || grid.count() == 0) refuse("an empty grid or block");
  if (uint64_t(block.v[0]) * block.v[1] * block.v[2] > kMostThreads || block.v[2] > 64) {
    refuse(size + ": a block has at most 1024, and 64 in z");
  }
  if (block.count() > kernel->most_threads) {
    refuse(size + format(" exceed __launch_bounds__(%u)", kernel->most_threads));
  }
  if (grid.v[0] > 0x7fffffffu || grid.v[1] > 65535 || grid.v[2] > 65535) {
    refuse(format("a grid of %u x %u x %u: y and z are at most 65535", grid.v[0], grid.v[1],
                  grid.v[2]));
  }
  if (dynamic_size > kSharedLimit) {
    refuse(format("%zu bytes of dynamic shared memory; a block has at most %zu", dynamic_size,
                  kSharedLimit));
  }
}

}  // namespace

void launch(const Kernel& what, const TVMFFIAny* values, const Order& in_order) {
  kernel = &what;
  arguments = values;
  order = &in_order;
  grid = block = Index3();
  dynamic_size = 0;
  for (int i = 0; i < what.tags; ++i) {
    int64_t value = values[what.parameters + i].v_int64;
    std::string tag = what.launch[i];
    if (tag == "tirx.use_dyn_shared_memory") {
      dynamic_size = size_t(value);
    } else if (value < 0 || value > 0x7fffffff) {
      fault("launch", nullptr, 0, format("%s is %ld", tag.c_str(), long(value)));
    } else {
      (tag.rfind("block", 0) == 0 ? grid : block).v[tag.back() - 'x'] = unsigned(value);
    }
  }
  for (int i = 0; i < what.parameters; ++i) {
    if (what.elements[i]) name_argument(values[i].v_ptr, what.names[i], what.elements[i]);
  }
  check_limits();
  running.first_of_launch = ++running.interval;
  for (unsigned number : in_order(grid.count())) run_block(number);
  for (auto& array : shared_arrays) release(array.second.base);
  shared_arrays.clear();
  shared_size = 0;
  kernel = nullptr;
}

std::string thread_name(unsigned number) {
  const unsigned* v = fibres[number].thread.v;
  return format("thread (%u, %u, %u)", v[0], v[1], v[2]);
}

std::string place() {
  if (!kernel) return "";
  std::string out = format("kernel %s", kernel->name);
  if (!in_block) return out;
  const unsigned* b = block_index.v;
  out += format(", block (%u, %u, %u)", b[0], b[1], b[2]);
  return running.inside ? out + ", " + thread_name(current_number) : out;
}

bool on_a_stack(uintptr_t address) {
  return stacks && address - uintptr_t(stacks) < kMostThreads * kStack;
}

// --- what thread.h declares ---------------------------------------------------------------------

unsigned index(Index which, int dimension) {
  switch (which) {
    case kThread:
      return current->thread.v[dimension];
    case kBlock:
      return block_index.v[dimension];
    case kBlockDim:
      return block.v[dimension];
    default:
      return grid.v[dimension];
  }
}

namespace {
void* shared_array(const char* name, size_t size, size_t element) {
  auto found = shared_arrays.find(name);
  if (found == shared_arrays.end()) {
    char* base = allocate(name, size, element, true, order->poison);
    found = shared_arrays.emplace(name, Shared{base, size, true}).first;
  } else if (!found->second.fresh) {
    memset(found->second.base, order->poison, size);
    found->second.fresh = true;
  }
  return found->second.base;
}
}  // namespace

void* shared(const char* name, size_t size, size_t element) {
  if (!shared_arrays.count(name)) {
    shared_size += size;
    if (shared_size > kStaticShared) {
      fault("launch", nullptr, 0,
            format("more than %zu bytes of static shared memory", kStaticShared));
    }
  }
  return shared_array(name, size, element);
}

void* shared_dynamic(const char* name, size_t element) {
  return shared_array(name, dynamic_size, element);
}

static std::string printed;

int print(const char* pattern, ...) {
  char text[1024];
  va_list values;
  va_start(values, pattern);
  int length = vsnprintf(text, sizeof(text), pattern, values);
  va_end(values);
  printed = text;
  // The fault is read line by line.
  while (!printed.empty() && printed.back() == '\n') printed.pop_back();
  return length;
}

void trap(int line) { fault("trap", nullptr, line, printed); }

void barrier(int line) { wait(kBarrier, line); }

uint64_t exchange(unsigned mask, uint64_t value, unsigned source, int line) {
  current->mask = mask, current->value = value, current->source = source;
  wait(kExchange, line);
  return current->result;
}

unsigned vote(unsigned mask, bool value, int line) {
  current->mask = mask, current->value = value;
  wait(kVote, line);
  return unsigned(current->result);
}

void warp_barrier(unsigned mask, int line) {
  current->mask = mask;
  wait(kWarpBarrier, line);
}

unsigned active_mask(int line) {
  wait(kActiveMask, line);
  return unsigned(current->result);
}

unsigned lane() { return current_number % kWarp; }

}  // namespace on_cpu
