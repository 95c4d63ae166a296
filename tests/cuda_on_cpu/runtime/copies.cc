// Asynchronous copies ("cp.async"): a thread begins some, ends a group of them, and waits until all
// groups but the last few have come. What is copied is there from the wait on, and for other
// threads from a barrier behind it on; who looks before that gets a fault, see runtime/memory.cc.
#include <string.h>

#include <deque>

#include "runtime.h"
#include "thread.h"

namespace on_cpu {

namespace {

constexpr unsigned kMostThreads = 1024;
constexpr size_t kMostBytes = 16;

struct Copy {
  char* to;
  const char* from;
  size_t size;
  char begun[kMostBytes];  // what was to be copied when it began
};
struct Copies {
  std::vector<Copy> group;
  std::deque<std::vector<Copy>> groups;
};
Copies copies[kMostThreads];

void end(const std::vector<Copy>& group, const void* pc) {
  for (const Copy& copy : group) end_copy(copy.to, copy.from, copy.begun, copy.size, pc);
}

}  // namespace

void forget_copies() {
  for (Copies& each : copies) each = Copies();
}

// --- what thread.h declares ---------------------------------------------------------------------

#define CALLER __builtin_return_address(0)

uint32_t shared_address(const void* where) { return shared_address(where, CALLER); }

void copy_async(uint32_t to, const void* from, size_t size) {
  Copy copy{at_shared_address(to, CALLER), static_cast<const char*>(from), size, {}};
  begin_copy(copy.to, copy.from, size, CALLER);
  memcpy(copy.begun, copy.from, size);
  copies[running.thread].group.push_back(copy);
}

void commit_copies() {
  Copies& own = copies[running.thread];
  own.groups.push_back(std::move(own.group));
  own.group.clear();
}

void wait_for_copies(size_t left) {
  Copies& own = copies[running.thread];
  while (own.groups.size() > left) {
    end(own.groups.front(), CALLER);
    own.groups.pop_front();
  }
}

void wait_for_all_copies() {
  commit_copies();
  wait_for_copies(0);
}

}  // namespace on_cpu
