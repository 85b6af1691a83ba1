// cast<>() between every two element types, after one function. SUFFIX tells the instruction sets apart that this file
// is compiled for.
#include "prelude.h"

using namespace sdx;

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)

namespace {

template <class To, bool Saturate, Round Mode, class From>
void loop(const void* x, void* y, i64 n) {
  // The types here are known to the tests only; a loop that is not vectorised compiles faster.
#pragma clang loop vectorize(disable) unroll(disable)
  for (i64 i = 0; i < n; i++) static_cast<To*>(y)[i] = cast<To, Saturate, Mode>(static_cast<const From*>(x)[i]);
}

// variant: bit 0 not saturating, 2 round down, 4 round to nearest.
template <class To, class From>
void by_variant(int variant, const void* x, void* y, i64 n) {
  constexpr bool f8 =
      is_same<To, f8e4m3fn> || is_same<To, f8e4m3fnuz> || is_same<To, f8e5m2> || is_same<To, f8e5m2fnuz>;
  if constexpr (f8 || is_same<To, f8e8m0>)
    if (variant == 1) return loop<To, false, Round::kUp, From>(x, y, n);
  if constexpr (is_same<To, f8e8m0>) {
    if (variant == 2) return loop<To, true, Round::kDown, From>(x, y, n);
    if (variant == 3) return loop<To, false, Round::kDown, From>(x, y, n);
    if (variant == 4) return loop<To, true, Round::kNearest, From>(x, y, n);
    if (variant == 5) return loop<To, false, Round::kNearest, From>(x, y, n);
  }
  loop<To, true, Round::kUp, From>(x, y, n);
}

// The order of sardonyx::DType.
// clang-format off
#define TYPES(F) \
  F(0, bool) F(1, i8) F(2, i16) F(3, i32) F(4, i64) F(5, u8) F(6, u16) F(7, u32) F(8, u64) F(9, f16) F(10, bf16) F(11, f32) \
  F(12, f64) F(13, f8e4m3fn) F(14, f8e4m3fnuz) F(15, f8e5m2) F(16, f8e5m2fnuz) F(17, f8e8m0) F(18, f4e2m1) F(19, i4) F(20, u4) \
  F(21, i2) F(22, u2)
// clang-format on

template <class To>
void by_source(int from, int variant, const void* x, void* y, i64 n) {
  switch (from) {
#define CASE(number, T) \
  case number:          \
    return by_variant<To, T>(variant, x, y, n);
    TYPES(CASE)
#undef CASE
  }
}

}  // namespace

extern "C" void JOIN(cast_any, SUFFIX)(int to, int from, int variant, const void* x, void* y, i64 n) {
  switch (to) {
#define CASE(number, T) \
  case number:          \
    return by_source<T>(from, variant, x, y, n);
    TYPES(CASE)
#undef CASE
  }
}

// Casts that quantised and half-precision models are made of; these must vectorise.
#define LOOP(To, From)                                                                                  \
  extern "C" void JOIN(cast_##To##_##From, SUFFIX)(const From* __restrict x, To* __restrict y, i64 n) { \
    for (i64 i = 0; i < n; i++) y[i] = cast<To>(x[i]);                                                  \
  }
LOOP(f32, f16)
LOOP(f16, f32)
LOOP(f32, bf16)
LOOP(bf16, f32)
LOOP(f32, i8)
LOOP(i8, f32)
LOOP(f32, u8)
LOOP(u8, f32)
LOOP(i32, f32)
LOOP(f32, i32)
LOOP(f32, i64)
LOOP(f32, f8e4m3fn)
LOOP(f8e4m3fn, f32)
LOOP(f32, f8e5m2)
LOOP(f8e5m2, f32)
LOOP(f32, f8e8m0)
LOOP(f32, f4e2m1)
LOOP(f32, i4)
LOOP(f64, f32)
LOOP(f32, f64)
