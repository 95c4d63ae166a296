// float16: stored as 16 bits, computed in float and rounded to nearest even after each operation,
// which for + - * / is the correctly rounded result.
#pragma once
#include "device.h"

namespace on_cpu {

inline float half_to_float(uint16_t bits) {
  uint32_t sign = uint32_t(bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u,
           rest = bits & 1023u;
  if (exponent == 0) {  // zero, or rest * 2**-24
    float magnitude = float(rest) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  uint32_t out = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | rest << 13;
  float value;
  memcpy(&value, &out, 4);
  return value;
}

inline uint16_t float_to_half(float value) {
  uint32_t in;
  memcpy(&in, &value, 4);
  uint32_t sign = (in >> 16) & 0x8000u, magnitude = in & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u);   // NaN
  if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);  // 65520 and more: infinity
  if (magnitude < 0x38800000u) {                                  // less than 2**-14: a denormal
    // Adding 0.5 leaves the multiple of 2**-24, rounded, in the last bits.
    float shifted = fabsf(value) + 0.5f;
    memcpy(&in, &shifted, 4);
    return uint16_t(sign | (in - 0x3f000000u));
  }
  magnitude += 0xfffu + ((magnitude >> 13) & 1u);
  return uint16_t(sign | ((magnitude - (112u << 23)) >> 13));
}

}  // namespace on_cpu

#define ON_CPU_FLOAT16(name, pack, to_float, from_float)                                          \
  struct alignas(2) name {                                                                        \
    uint16_t bits;                                                                                \
    name() = default;                                                                             \
    template <typename T, typename = typename std::enable_if<std::is_arithmetic<T>::value>::type> \
    name(T value) : bits(from_float(float(value))) {}                                             \
    operator float() const { return to_float(bits); }                                             \
    name& operator+=(name b) { return *this = name(float(*this) + float(b)); }                    \
    name& operator-=(name b) { return *this = name(float(*this) - float(b)); }                    \
    name& operator*=(name b) { return *this = name(float(*this) * float(b)); }                    \
    name& operator/=(name b) { return *this = name(float(*this) / float(b)); }                    \
  };                                                                                              \
  struct alignas(4) pack {                                                                        \
    name x, y;                                                                                    \
    pack() = default;                                                                             \
    pack(name x, name y) : x(x), y(y) {}                                                          \
  };                                                                                              \
  inline name operator+(name a, name b) { return name(float(a) + float(b)); }                     \
  inline name operator-(name a, name b) { return name(float(a) - float(b)); }                     \
  inline name operator*(name a, name b) { return name(float(a) * float(b)); }                     \
  inline name operator/(name a, name b) { return name(float(a) / float(b)); }                     \
  inline name operator-(name a) { return name(-float(a)); }                                       \
  inline bool operator<(name a, name b) { return float(a) < float(b); }                           \
  inline bool operator>(name a, name b) { return float(a) > float(b); }                           \
  inline bool operator<=(name a, name b) { return float(a) <= float(b); }                         \
  inline bool operator>=(name a, name b) { return float(a) >= float(b); }                         \
  inline bool operator==(name a, name b) { return float(a) == float(b); }                         \
  inline bool operator!=(name a, name b) { return float(a) != float(b); }                         \
  inline bool __hgt(name a, name b) { return a > b; }                                             \
  inline bool __hlt(name a, name b) { return a < b; }                                             \
  inline name __hmax(name a, name b) { return name(fmaxf(a, b)); }                                \
  inline name __hmin(name a, name b) { return name(fminf(a, b)); }                                \
  inline name __habs(name a) { return name(fabsf(a)); }                                           \
  inline bool __hisnan(name a) { return a != a; }                                                 \
  inline name hexp(name a) { return name(expf(a)); }                                              \
  inline name hexp2(name a) { return name(exp2f(a)); }                                            \
  inline name hlog(name a) { return name(logf(a)); }                                              \
  inline name hlog2(name a) { return name(log2f(a)); }                                            \
  inline name hsin(name a) { return name(sinf(a)); }                                              \
  inline name hcos(name a) { return name(cosf(a)); }                                              \
  inline name hsqrt(name a) { return name(sqrtf(a)); }                                            \
  inline name hrsqrt(name a) { return name(rsqrtf(a)); }                                          \
  inline name hfloor(name a) { return name(floorf(a)); }                                          \
  inline name hceil(name a) { return name(ceilf(a)); }                                            \
  inline name htrunc(name a) { return name(truncf(a)); }                                          \
  inline name hrint(name a) { return name(rintf(a)); }

ON_CPU_FLOAT16(__half, __half2, on_cpu::half_to_float, on_cpu::float_to_half)
using half = __half;
using half2 = __half2;

inline float __half2float(half a) { return a; }
inline half __float2half(float a) { return half(a); }
inline half __float2half_rn(float a) { return half(a); }
inline half2 make_half2(half x, half y) { return half2(x, y); }
inline half2 __halves2half2(half x, half y) { return half2(x, y); }
