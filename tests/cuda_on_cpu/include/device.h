// CUDA C++ as TVM prints it, for a C++ compiler: qualifiers, built-in variables, vector types,
// barriers, shuffles and arithmetic. What is not here is not supported: the compiler's message
// names it and `UnsupportedCuda` passes the name on.
//
// Loads and stores are watched because the kernels are compiled with the calls that a thread
// sanitizer would answer (see runtime/sanitizer.cc); nothing here has to do with that.
#pragma once

#include <math.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "thread.h"

#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

// A text may ask for the version of the compiler; this one has every function that TVM defines for
// older ones. __CUDA_ARCH__ comes from the command line.
#define __CUDACC_VER_MAJOR__ 12
#define __CUDACC_VER_MINOR__ 4

// ---------------------------------------------------------------------------------------------
// Built-in variables, barriers and shuffles
// ---------------------------------------------------------------------------------------------

namespace on_cpu {

// A call that survives optimisation is an error of the compiler, with this text.
void inline_ptx() __attribute__((error("inline PTX")));

template <Index which, int dimension>
struct BuiltIn {
  operator unsigned() const { return index(which, dimension); }
};
template <Index which>
struct BuiltIn3 {
  BuiltIn<which, 0> x;
  BuiltIn<which, 1> y;
  BuiltIn<which, 2> z;
};

template <typename T>
inline T exchange_value(unsigned mask, T value, unsigned source, int line) {
  static_assert(std::is_trivially_copyable<T>::value && sizeof(T) <= 8, "at most 64 bits");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  bits = exchange(mask, bits, source, line);
  memcpy(static_cast<void*>(&value), &bits, sizeof(T));
  return value;
}

}  // namespace on_cpu

static const on_cpu::BuiltIn3<on_cpu::kThread> threadIdx{};
static const on_cpu::BuiltIn3<on_cpu::kBlock> blockIdx{};
static const on_cpu::BuiltIn3<on_cpu::kBlockDim> blockDim{};
static const on_cpu::BuiltIn3<on_cpu::kGridDim> gridDim{};
static const int warpSize = 32;

// `__builtin_LINE` as a default argument is the line of the call.
inline void __syncthreads(int line = __builtin_LINE()) { on_cpu::barrier(line); }
inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
  on_cpu::warp_barrier(mask, line);
}
inline unsigned __activemask(int line = __builtin_LINE()) { return on_cpu::active_mask(line); }
inline unsigned __ballot_sync(unsigned mask, int value, int line = __builtin_LINE()) {
  return on_cpu::vote(mask, value != 0, line);
}
inline int __any_sync(unsigned mask, int value, int line = __builtin_LINE()) {
  return on_cpu::vote(mask, value != 0, line) != 0;
}
inline int __all_sync(unsigned mask, int value, int line = __builtin_LINE()) {
  return on_cpu::vote(mask, value == 0, line) == 0;
}

// The standard output is the program's own: what a thread prints is the message of a fault.
#define printf on_cpu::print
inline void __trap(int line = __builtin_LINE()) { on_cpu::trap(line); }

// A source outside the own section of `width` lanes means the lane itself.
template <typename T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32,
                     int line = __builtin_LINE()) {
  unsigned first = on_cpu::lane() & ~unsigned(width - 1);
  return on_cpu::exchange_value(mask, value, first + (unsigned(source) & (width - 1)), line);
}
template <typename T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                          int line = __builtin_LINE()) {
  unsigned lane = on_cpu::lane();
  bool inside = (lane & (width - 1)) + delta < unsigned(width);
  return on_cpu::exchange_value(mask, value, inside ? lane + delta : lane, line);
}
template <typename T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                        int line = __builtin_LINE()) {
  unsigned lane = on_cpu::lane();
  bool inside = (lane & (width - 1)) >= delta;
  return on_cpu::exchange_value(mask, value, inside ? lane - delta : lane, line);
}
template <typename T>
inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32,
                         int line = __builtin_LINE()) {
  unsigned lane = on_cpu::lane(), source = lane ^ unsigned(bits);
  bool inside = (source & ~unsigned(width - 1)) <= (lane & ~unsigned(width - 1));
  return on_cpu::exchange_value(mask, value, inside ? source : lane, line);
}

inline size_t __cvta_generic_to_shared(const void* pointer) {
  return on_cpu::shared_address(pointer);
}

template <typename T>
inline T __ldg(const T* pointer) {
  return *pointer;
}

// ---------------------------------------------------------------------------------------------
// Vector types, with CUDA's alignment
// ---------------------------------------------------------------------------------------------

#define ON_CPU_VECTORS(type, name, align2, align4)                            \
  struct name##1 { type x; };                                                 \
  struct alignas(align2) name##2 { type x, y; };                              \
  struct name##3 { type x, y, z; };                                           \
  struct alignas(align4) name##4 { type x, y, z, w; };                        \
  inline name##1 make_##name##1(type x) { return {x}; }                       \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }            \
  inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; } \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

ON_CPU_VECTORS(signed char, char, 2, 4)
ON_CPU_VECTORS(unsigned char, uchar, 2, 4)
ON_CPU_VECTORS(short, short, 4, 8)
ON_CPU_VECTORS(unsigned short, ushort, 4, 8)
ON_CPU_VECTORS(int, int, 8, 16)
ON_CPU_VECTORS(unsigned int, uint, 8, 16)
ON_CPU_VECTORS(long, long, 16, 16)
ON_CPU_VECTORS(unsigned long, ulong, 16, 16)
ON_CPU_VECTORS(long long, longlong, 16, 16)
ON_CPU_VECTORS(unsigned long long, ulonglong, 16, 16)
ON_CPU_VECTORS(float, float, 8, 16)
ON_CPU_VECTORS(double, double, 16, 16)
#undef ON_CPU_VECTORS

// ---------------------------------------------------------------------------------------------
// Arithmetic that is not in math.h
// ---------------------------------------------------------------------------------------------

#define ON_CPU_MIN_MAX(type)                                \
  inline type max(type a, type b) { return a > b ? a : b; } \
  inline type min(type a, type b) { return a < b ? a : b; }
ON_CPU_MIN_MAX(int)
ON_CPU_MIN_MAX(unsigned int)
ON_CPU_MIN_MAX(long)
ON_CPU_MIN_MAX(unsigned long)
ON_CPU_MIN_MAX(long long)
ON_CPU_MIN_MAX(unsigned long long)
#undef ON_CPU_MIN_MAX
// CUDA's overloads for floats ignore a NaN.
inline float max(float a, float b) { return fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(double a, double b) { return fmin(a, b); }

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }

// Macros, because the C library declares some of these names.
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(unsigned(x)); }
