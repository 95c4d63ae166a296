// Dot products of four bytes.
#pragma once
#include "device.h"

inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 32; i += 8) c += int8_t(a >> i) * int8_t(b >> i);
  return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 32; i += 8) c += uint8_t(a >> i) * uint8_t(b >> i);
  return c;
}
