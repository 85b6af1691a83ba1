// The compiled kernels (device/*.cpp) as the tests call them: each exists for two instruction sets, _wide and _base.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

using f32 = float;
using f64 = double;
using i8 = std::int8_t;
using u8 = std::uint8_t;
using i16 = std::int16_t;
using u16 = std::uint16_t;
using i32 = std::int32_t;
using u32 = std::uint32_t;
using i64 = std::int64_t;
using u64 = std::uint64_t;

extern "C" {
#define UNARY_OF(name, T)                    \
  void name##_##T##_wide(const T*, T*, i64); \
  void name##_##T##_base(const T*, T*, i64);
#define BINARY_OF(name, T)                             \
  void name##_##T##_wide(const T*, const T*, T*, i64); \
  void name##_##T##_base(const T*, const T*, T*, i64);
#define UNARY(name) UNARY_OF(name, f32) UNARY_OF(name, f64)
#define BINARY(name) BINARY_OF(name, f32) BINARY_OF(name, f64)
#define INTEGER(name) \
  BINARY_OF(name, i8) \
  BINARY_OF(name, u8) BINARY_OF(name, i32) BINARY_OF(name, u32) BINARY_OF(name, i64) BINARY_OF(name, u64)
#include "integer_kernels.inc"
#include "math_kernels.inc"
UNARY_OF(bounded_sin, f32)
UNARY_OF(bounded_cos, f32)
#undef UNARY
#undef BINARY
#undef INTEGER
#undef UNARY_OF
#undef BINARY_OF
void clamp_f32_wide(const f32*, f32*, i64);
void clamp_f32_base(const f32*, f32*, i64);
void philox_wide(u32, u32, u32, u32, u32, u32, u32*, i64);
void philox_base(u32, u32, u32, u32, u32, u32, u32*, i64);
void normal_wide(u64, f32*, i64);
void random_uniform_base(u64, f32*, i64);
void uniform_wide(u64, f32*, f64*, i64);
void cast_any_wide(int to, int from, int variant, const void*, void*, i64);
void cast_any_base(int to, int from, int variant, const void*, void*, i64);
}

/// Whether this CPU can run the _wide kernels.
inline bool has_wide() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
#else
  return true;
#endif
}

/// Random bits that are the same on every machine (splitmix64).
struct Random {
  u64 state;
  u64 operator()() {
    u64 z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// Uniform in [-1, 1).
  double symmetric() { return static_cast<double>(static_cast<i64>((*this)()) >> 11) * 0x1p-52; }
};

template <class To, class From>
To bits_as(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To y;
  std::memcpy(&y, &x, sizeof y);
  return y;
}
