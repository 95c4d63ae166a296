// Every load and store of a kernel ends up here: the kernels are compiled with -fsanitize=thread
// and linked against these functions instead of the sanitizer's. Each access must lie inside one
// array and must not race with another thread's.
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <memory>

#include "runtime.h"

namespace on_cpu {

Running running;

namespace {

// The distance between arrays: what misses one must not hit another.
constexpr size_t kGap = size_t(1) << 30;

// How many had read before the last one, in a way that the last one does not stand for.
enum Many : uint16_t { kOne, kLanes, kWarps, kBlocks };

// The last access of a kind to a byte.
struct Touch {
  uint32_t interval;
  uint16_t thread : 12, many : 4;
  uint16_t warp_interval;
};
struct Touches {
  Touch write, read;
};

struct Region {
  std::string name;
  char* base;
  size_t size, element;
  bool shared;
  char* mapped;
  size_t mapped_size;
  Touches* touches;
  size_t touches_size;
};
std::vector<std::unique_ptr<Region>> regions;
Region* last = nullptr;

char* reserve(size_t size) {
  void* found = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) fault("harness", nullptr, 0, "no address space for an array");
  return static_cast<char*>(found);
}

std::string element_of(const Region& region, const char* address) {
  long offset = long(address - region.base), element = long(region.element);
  long index = offset >= 0 ? offset / element : -((-offset + element - 1) / element);
  return format("%s[%ld]", region.name.c_str(), index);
}

[[noreturn]] void out_of_bounds(const char* address, size_t size, const char* verb,
                                const void* pc) {
  for (const auto& region : regions) {
    if (address >= region->mapped && address < region->mapped + region->mapped_size) {
      fault("out-of-bounds", pc, 0,
            format("%s %zu bytes at %s, but %s%s has %zu elements", verb, size,
                   element_of(*region, address).c_str(), region->shared ? "shared " : "",
                   region->name.c_str(), region->size / region->element));
    }
  }
  fault("out-of-bounds", pc, 0,
        format("%s %zu bytes at %p, which is no array", verb, size, address));
}

Region* region_of(const char* address, size_t size, const char* verb, const void* pc) {
  auto inside = [&](const Region& region) {
    return address >= region.base && address + size <= region.base + region.size;
  };
  if (last && inside(*last)) return last;
  for (const auto& region : regions) {
    if (inside(*region)) return last = region.get();
  }
  // A local array that the compiler keeps in memory.
  if (on_a_stack(uintptr_t(address))) return nullptr;
  out_of_bounds(address, size, verb, pc);
}

bool same_warp(const Touch& touch) { return touch.thread / 32 == running.thread / 32; }

// Since when an access to the array matters: shared memory is another one in every block.
uint32_t since(const Region& region) {
  return region.shared ? running.first_of_block : running.first_of_launch;
}

// Whether nothing orders an earlier access before the one of the running thread.
bool unordered(const Region& region, const Touch& touch) {
  if (touch.interval < since(region)) return false;
  if (touch.many == kBlocks || touch.interval < running.first_of_block) return true;
  if (touch.interval < running.interval) return false;
  if (touch.many == kWarps) return true;
  if (touch.thread == running.thread && touch.many == kOne) return false;
  return !same_warp(touch) || touch.warp_interval == running.warp_interval;
}

Touch now(Many many = kOne) {
  return {running.interval, uint16_t(running.thread & 0xfff), many, running.warp_interval};
}

[[noreturn]] void race(const Region& region, const char* address, const char* verb,
                       const Touch& other, const char* did, const void* pc) {
  std::string who =
      other.interval < running.first_of_block ? "another block" : thread_name(other.thread);
  fault("race", pc, 0,
        format("%s %s, which %s %s with no barrier between", verb,
               element_of(region, address).c_str(), who.c_str(), did));
}

// A byte that another thread has stored in the same interval, and that is stored again: a race
// unless both store the same. What is stored shows only afterwards.
struct Pending {
  const Region* region;
  const char* address;
  char before;
  Touch other;
  const void* pc;
};
std::vector<Pending> pending;

void settle() {
  for (const Pending& store : pending) {
    if (*store.address != store.before) {
      race(*store.region, store.address, "stores another value to", store.other, "has written",
           store.pc);
    }
  }
  pending.clear();
}

void read(const void* where, size_t size, const void* pc) {
  if (!running.inside) return;
  const char* address = static_cast<const char*>(where);
  Region* region = region_of(address, size, "reads", pc);
  if (!region) return;
  Touches* touches = region->touches + (address - region->base);
  for (size_t i = 0; i < size; ++i) {
    if (unordered(*region, touches[i].write))
      race(*region, address, "reads", touches[i].write, "writes", pc);
    Touch& touch = touches[i].read;
    Many many = kOne;
    if (touch.interval >= since(*region)) {
      if (touch.many == kBlocks || touch.interval < running.first_of_block) {
        many = kBlocks;
      } else if (unordered(*region, touch)) {
        many = touch.many == kWarps || !same_warp(touch) ? kWarps : kLanes;
      }
    }
    touch = now(many);
  }
}

void write(void* where, size_t size, const void* pc) {
  if (!running.inside) return;
  settle();
  char* address = static_cast<char*>(where);
  Region* region = region_of(address, size, "writes", pc);
  if (!region) return;
  Touches* touches = region->touches + (address - region->base);
  for (size_t i = 0; i < size; ++i) {
    if (unordered(*region, touches[i].read)) {
      race(*region, address, "writes", touches[i].read, "reads", pc);
    }
    const Touch& other = touches[i].write;
    if (unordered(*region, other)) pending.push_back({region, address + i, address[i], other, pc});
  }
  for (size_t i = 0; i < size; ++i) touches[i].write = now();
}

}  // namespace

void blocked() { settle(); }

char* allocate(const std::string& name, size_t size, size_t element, bool shared, int poison) {
  constexpr size_t kPage = 4096;
  size_t pages = (size + kPage - 1) / kPage * kPage;
  auto region = std::make_unique<Region>();
  region->name = name;
  region->size = size;
  region->element = element;
  region->shared = shared;
  region->mapped_size = 2 * kGap + pages;
  region->mapped = reserve(region->mapped_size);
  region->base = region->mapped + kGap;
  region->touches_size = std::max(pages, kPage) * sizeof(Touches);
  region->touches = reinterpret_cast<Touches*>(reserve(region->touches_size));
  if ((pages && mprotect(region->base, pages, PROT_READ | PROT_WRITE)) ||
      mprotect(region->touches, region->touches_size, PROT_READ | PROT_WRITE)) {
    fault("harness", nullptr, 0, format("no memory for %s", name.c_str()));
  }
  memset(region->base, poison, size);
  regions.push_back(std::move(region));
  return regions.back()->base;
}

void release(char* base) {
  last = nullptr;
  for (auto it = regions.begin(); it != regions.end(); ++it) {
    if ((*it)->base != base) continue;
    munmap((*it)->mapped, (*it)->mapped_size);
    munmap((*it)->touches, (*it)->touches_size);
    regions.erase(it);
    return;
  }
}

void name_argument(void* base, const char* name, size_t element) {
  for (auto& region : regions) {
    if (region->base == base) region->name = name, region->element = element;
  }
}

}  // namespace on_cpu

// ---------------------------------------------------------------------------------------------
// What the compiler calls
// ---------------------------------------------------------------------------------------------

#define CALLER __builtin_return_address(0)
#define ACCESS(size)                                                                       \
  void __tsan_read##size(void* address) { on_cpu::read(address, size, CALLER); }           \
  void __tsan_write##size(void* address) { on_cpu::write(address, size, CALLER); }         \
  void __tsan_unaligned_read##size(void* address) { on_cpu::read(address, size, CALLER); } \
  void __tsan_unaligned_write##size(void* address) { on_cpu::write(address, size, CALLER); }

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_read_range(void* address, size_t size) { on_cpu::read(address, size, CALLER); }
void __tsan_write_range(void* address, size_t size) { on_cpu::write(address, size, CALLER); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

// Of -fsanitize=bounds, object-size and alignment: the layout of their data is GCC's and Clang's.
struct Location {
  const char* file;
  unsigned line, column;
};
struct TypeName {
  uint16_t kind, info;
  char name[1];
};
struct OutOfBounds {
  Location location;
  const TypeName *array, *index;
};
struct Mismatch {
  Location location;
  const TypeName* type;
  unsigned char log_alignment, kind;
};

void __ubsan_handle_out_of_bounds(OutOfBounds* data, void* index) {
  on_cpu::fault("out-of-bounds", nullptr, int(data->location.line),
                on_cpu::format("uses index %ld of a local %s", long(index), data->array->name));
}
void __ubsan_handle_type_mismatch_v1(Mismatch* data, void* pointer) {
  uintptr_t address = uintptr_t(pointer);
  size_t alignment = size_t(1) << data->log_alignment;
  if (address % alignment == 0) {
    on_cpu::fault("out-of-bounds", nullptr, int(data->location.line),
                  on_cpu::format("reaches beyond a local array as %s", data->type->name));
  }
  on_cpu::fault("misaligned", nullptr, int(data->location.line),
                on_cpu::format("an access as %s needs an address that is a multiple of %zu",
                               data->type->name, alignment));
}
}
