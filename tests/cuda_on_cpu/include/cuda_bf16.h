// bfloat16: the upper half of a float.
#pragma once
#include "cuda_fp16.h"

namespace on_cpu {

inline float bfloat16_to_float(uint16_t bits) {
  uint32_t out = uint32_t(bits) << 16;
  float value;
  memcpy(&value, &out, 4);
  return value;
}

inline uint16_t float_to_bfloat16(float value) {
  uint32_t in;
  memcpy(&in, &value, 4);
  if ((in & 0x7fffffffu) > 0x7f800000u) return uint16_t(0x7fffu);  // NaN
  return uint16_t((in + 0x7fffu + ((in >> 16) & 1u)) >> 16);
}

}  // namespace on_cpu

ON_CPU_FLOAT16(__nv_bfloat16, __nv_bfloat162, on_cpu::bfloat16_to_float, on_cpu::float_to_bfloat16)
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

inline float __bfloat162float(nv_bfloat16 a) { return a; }
inline nv_bfloat16 __float2bfloat16(float a) { return nv_bfloat16(a); }
inline nv_bfloat16 __float2bfloat16_rn(float a) { return nv_bfloat16(a); }
inline nv_bfloat162 __halves2bfloat162(nv_bfloat16 x, nv_bfloat16 y) { return nv_bfloat162(x, y); }
