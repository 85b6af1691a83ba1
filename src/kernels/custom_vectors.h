// CUDA's vector types: float4, int2 and so on, with their alignment, make_float4() and so on, and dim3.
#pragma once
#include "custom_std.h"

// clang-format off
#define SDX_VECTORS(T, name, a2, a4)                                                             \
  struct name##1 { T x; };                                                                       \
  struct __attribute__((aligned(a2))) name##2 { T x, y; };                                       \
  struct name##3 { T x, y, z; };                                                                 \
  struct __attribute__((aligned(a4))) name##4 { T x, y, z, w; };                                 \
  SDX_FN constexpr name##1 make_##name##1(T x) { return {x}; }                                   \
  SDX_FN constexpr name##2 make_##name##2(T x, T y) { return {x, y}; }                           \
  SDX_FN constexpr name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                   \
  SDX_FN constexpr name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
SDX_VECTORS(signed char, char, 2, 4)
SDX_VECTORS(unsigned char, uchar, 2, 4)
SDX_VECTORS(short, short, 4, 8)
SDX_VECTORS(unsigned short, ushort, 4, 8)
SDX_VECTORS(int, int, 8, 16)
SDX_VECTORS(unsigned int, uint, 8, 16)
SDX_VECTORS(long, long, 16, 16)
SDX_VECTORS(unsigned long, ulong, 16, 16)
SDX_VECTORS(long long, longlong, 16, 16)
SDX_VECTORS(unsigned long long, ulonglong, 16, 16)
SDX_VECTORS(float, float, 8, 16)
SDX_VECTORS(double, double, 16, 16)
#undef SDX_VECTORS
// clang-format on

struct dim3 {
  unsigned x, y, z;
  SDX_FN constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  SDX_FN constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  SDX_FN constexpr operator uint3() const { return {x, y, z}; }
};
