// What a running thread asks of its block; defined in runtime/block.cc.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace on_cpu {

// Which variable, and which of its dimensions: fixed for one thread's call of the kernel, hence
// `const`. Without it every read of threadIdx would be a call.
enum Index { kThread, kBlock, kBlockDim, kGridDim };
__attribute__((const)) unsigned index(Index which, int dimension);

void* shared(const char* name, size_t size, size_t element);
void* shared_dynamic(const char* name, size_t element);

// The end of the program, with what was printed last.
int print(const char* pattern, ...) __attribute__((format(__printf__, 1, 2)));
[[noreturn]] void trap(int line);

void barrier(int line);
// Waits for the lanes of `mask`; the value of lane `source`, as 64 bits.
uint64_t exchange(unsigned mask, uint64_t value, unsigned source, int line);
unsigned vote(unsigned mask, bool value, int line);
void warp_barrier(unsigned mask, int line);
unsigned active_mask(int line);
unsigned lane();

// Asynchronous copies to shared memory, whose addresses have 32 bits.
uint32_t shared_address(const void* where);
void copy_async(uint32_t to, const void* from, size_t size);
void commit_copies();
void wait_for_copies(size_t left);
void wait_for_all_copies();

}  // namespace on_cpu
