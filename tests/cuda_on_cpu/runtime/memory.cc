// Every load and store of a kernel ends up here (see sanitizer.cc). Each access must lie inside one
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

// How many had read before the last one, in a way that the last one does not stand for. Of a write:
// whether it has come to an end, or is an asynchronous copy that nobody has waited for.
enum Many : uint16_t { kOne, kLanes, kWarps, kBlocks, kOnTheWay };

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
  if (touch.many == kOnTheWay) return true;
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
  std::string what = element_of(region, address);
  if (other.many == kOnTheWay) {
    fault("race", pc, 0,
          format("%s %s, which %s copies with no wait and barrier between", verb, what.c_str(),
                 who.c_str()));
  }
  fault("race", pc, 0,
        format("%s %s, which %s %s with no barrier between", verb, what.c_str(), who.c_str(), did));
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

}  // namespace

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
    if (!unordered(*region, other)) continue;
    if (other.many == kOnTheWay) race(*region, address, "writes", other, "copies", pc);
    pending.push_back({region, address + i, address[i], other, pc});
  }
  for (size_t i = 0; i < size; ++i) touches[i].write = now();
}

void blocked() { settle(); }

// --- asynchronous copies ------------------------------------------------------------------------

// An address of shared memory is the number of its array, and a place in it.
constexpr long kPlaces = 1 << 24;

uint32_t shared_address(const void* where, const void* pc) {
  const char* address = static_cast<const char*>(where);
  long number = 0;
  for (const auto& region : regions) {
    if (!region->shared) continue;
    ++number;
    long offset = long(address - region->base);
    if (offset >= -kPlaces / 2 && offset < kPlaces / 2) {
      return uint32_t(number * kPlaces + kPlaces / 2 + offset);
    }
  }
  fault("out-of-bounds", pc, 0, format("%p is no address of shared memory", where));
}

char* at_shared_address(uint32_t address, const void* pc) {
  long number = 0;
  for (const auto& region : regions) {
    if (!region->shared || ++number != long(address / kPlaces)) continue;
    return region->base + long(address % kPlaces) - kPlaces / 2;
  }
  fault("out-of-bounds", pc, 0, format("%#x is no address of shared memory", address));
}

void begin_copy(char* to, const char* from, size_t size, const void* pc) {
  settle();
  for (const char* each : {static_cast<const char*>(to), from}) {
    if (uintptr_t(each) % size != 0) {
      fault("misaligned", pc, 0,
            format("a copy of %zu bytes needs addresses that are multiples of as many", size));
    }
  }
  read(from, size, pc);
  Region* region = region_of(to, size, "copies", pc);
  if (!region) fault("out-of-bounds", pc, 0, "copies to an array of a thread");
  Touches* touches = region->touches + (to - region->base);
  for (size_t i = 0; i < size; ++i) {
    const Touches& before = touches[i];
    if (unordered(*region, before.read)) race(*region, to, "copies to", before.read, "reads", pc);
    if (unordered(*region, before.write)) {
      race(*region, to, "copies to", before.write, "writes", pc);
    }
  }
  for (size_t i = 0; i < size; ++i) touches[i].write = now(kOnTheWay);
}

void end_copy(char* to, const char* from, const char* begun, size_t size, const void* pc) {
  read(from, size, pc);
  if (memcmp(from, begun, size) != 0) {
    Region* region = region_of(from, size, "copies", pc);
    fault("race", pc, 0,
          format("copies %s, which has changed since the copy began",
                 element_of(*region, from).c_str()));
  }
  memcpy(to, from, size);
  Region* region = region_of(to, size, "copies", pc);
  Touches* touches = region->touches + (to - region->base);
  for (size_t i = 0; i < size; ++i) touches[i].write = now();
}

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
