// Elementary operations on integers and floats that need no approximation: rounding, comparison, division, bits.
#pragma once
#include "prelude_cast.h"

SDX_STRICT_BEGIN
namespace sdx {

// --- floats: f32 and f64; f16 and bf16 through f32 ---

SDX_FN f32 fabs(f32 x) { return bit_cast<f32>(bit_cast<u32>(x) & 0x7fffffffu); }
SDX_FN f64 fabs(f64 x) { return bit_cast<f64>(bit_cast<u64>(x) & 0x7fffffffffffffffu); }
SDX_FN bool signbit(f32 x) { return bit_cast<i32>(x) < 0; }
SDX_FN bool signbit(f64 x) { return bit_cast<i64>(x) < 0; }
/// x with the sign of s.
// The builtins, not masks: for `c ? (y & 0x7fffffff) | (x & 0x80000000) : x` LLVM 22 selects a masked vpternlogd with
// swapped operands on AVX-512, and gives other numbers.
SDX_FN f32 copysign(f32 x, f32 s) { return __builtin_copysignf(x, s); }
SDX_FN f64 copysign(f64 x, f64 s) { return __builtin_copysign(x, s); }
SDX_FN bool isnan(f32 x) { return x != x; }
SDX_FN bool isnan(f64 x) { return x != x; }
SDX_FN bool isinf(f32 x) { return fabs(x) == inf32(); }
SDX_FN bool isinf(f64 x) { return fabs(x) == inf64(); }
/// ONNX IsInf with its attributes detect_positive and detect_negative.
template <class F>
SDX_FN bool isinf(F x, bool positive, bool negative) {
  return (positive && x == F(inf32())) || (negative && x == -F(inf32()));
}

/// a * b + c: one rounding where the target has the instruction, else two.
SDX_FN f32 fma(f32 a, f32 b, f32 c) {
#if SDX_HAS_FMA
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}
SDX_FN f64 fma(f64 a, f64 b, f64 c) {
#if SDX_HAS_FMA
  return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}

/// Correctly rounded square root; NaN for x < 0.
SDX_FN f32 sqrt(f32 x) { return __builtin_elementwise_sqrt(x); }
SDX_FN f64 sqrt(f64 x) { return __builtin_elementwise_sqrt(x); }

#if SDX_HAS_ROUND
SDX_FN f32 floor(f32 x) { return __builtin_elementwise_floor(x); }
SDX_FN f64 floor(f64 x) { return __builtin_elementwise_floor(x); }
SDX_FN f32 ceil(f32 x) { return __builtin_elementwise_ceil(x); }
SDX_FN f64 ceil(f64 x) { return __builtin_elementwise_ceil(x); }
SDX_FN f32 trunc(f32 x) { return __builtin_elementwise_trunc(x); }
SDX_FN f64 trunc(f64 x) { return __builtin_elementwise_trunc(x); }
/// To the nearest integer, halves to the even one (ONNX Round).
SDX_FN f32 round(f32 x) { return __builtin_elementwise_roundeven(x); }
SDX_FN f64 round(f64 x) { return __builtin_elementwise_roundeven(x); }
#else
// Adding and subtracting 2^23 (2^52) rounds |x| below it to an integer; values from there on are integers already.
SDX_FN f32 round(f32 x) {
  const f32 a = fabs(x);
  const f32 r = (a + 0x1p23f) - 0x1p23f;
  return copysign(a < 0x1p23f ? r : a, x);
}
SDX_FN f64 round(f64 x) {
  const f64 a = fabs(x);
  const f64 r = (a + 0x1p52) - 0x1p52;
  return copysign(a < 0x1p52 ? r : a, x);
}
template <class F>
SDX_FN F floor(F x) {
  const F r = round(x);
  return copysign(r - (r > x ? F(1) : F(0)), x);
}
template <class F>
SDX_FN F ceil(F x) {
  const F r = round(x);
  return copysign(r + (r < x ? F(1) : F(0)), x);
}
template <class F>
SDX_FN F trunc(F x) {
  const F a = fabs(x), r = round(a);
  return copysign(r - (r > a ? F(1) : F(0)), x);
}
#endif

/// -1, 0 or 1; NaN for NaN (ONNX Sign).
SDX_FN f32 sign(f32 x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }
SDX_FN f64 sign(f64 x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : x; }

/// Minimum and maximum. For floats NaN if either is NaN (ONNX Min, Max, numpy.minimum).
template <class T>
SDX_FN T min(T x, T y) {
#if defined(SDX_NATIVE_MAXIMUM)  // the chip's own; elsewhere it would take three instructions, and this takes two
  if constexpr (is_same<T, f32>) return __builtin_elementwise_minimum(x, y);
#elif defined(__AMDGCN__)  // three vector instructions; this takes three and a scalar one, but two if y is known
  if constexpr (is_same<T, f32>)
    if (!__builtin_constant_p(y)) return __builtin_elementwise_minimum(x, y);
#endif
  return ((x < y) | (x != x)) ? x : y;
}
template <class T>
SDX_FN T max(T x, T y) {
#if defined(SDX_NATIVE_MAXIMUM)
  if constexpr (is_same<T, f32>) return __builtin_elementwise_maximum(x, y);
#elif defined(__AMDGCN__)
  if constexpr (is_same<T, f32>)
    if (!__builtin_constant_p(y)) return __builtin_elementwise_maximum(x, y);
#endif
  return ((x > y) | (x != x)) ? x : y;
}
#if !SDX_GPU
/// N numbers in vector registers; min() and max() take them too.
template <class T, int N>
using VectorOf = T __attribute__((ext_vector_type(N)));
#endif
/// max(lo, min(x, hi)) as ONNX Clip: hi wins if lo > hi; NaN in x stays NaN.
template <class T>
SDX_FN T clamp(T x, T lo, T hi) {
  const T y = x < lo ? lo : x;
  return y > hi ? hi : y;
}

// --- integers: any built-in integer type T. Overflow wraps ---

/// |x|; the minimum of a signed type stays itself.
template <class T>
SDX_FN T abs(T x) {
  if constexpr (is_signed_int<T>) {
    using U = unsigned_of<T>;
    return T(x < 0 ? U(U(0) - U(x)) : U(x));
  } else if constexpr (is_int<T>)
    return x;
  else
    return cast<T>(fabs(cast<compute_of<T>>(x)));
}
template <class T>
  requires is_int<T>
SDX_FN T sign(T x) {
  return T(x > 0) - T(x < T(0));
}

namespace detail {
// A divisor that can't trap: 1 in place of 0 and -1.
template <class T>
SDX_FN T safe_divisor(T y) {
  return y == T(0) || (is_signed_int<T> && y == T(-1)) ? T(1) : y;
}
template <class T>
SDX_FN T negate(T x) {
  using U = unsigned_of<T>;
  return T(U(U(0) - U(x)));
}
}  // namespace detail

/// x / y towards zero (ONNX Div). x / 0 is 0, the minimum / -1 is the minimum.
template <class T>
SDX_FN T div_trunc(T x, T y) {
  const T q = T(x / detail::safe_divisor(y));
  if constexpr (is_signed_int<T>)
    return y == T(0) ? T(0) : y == T(-1) ? detail::negate(x) : q;
  else
    return y == T(0) ? T(0) : q;
}
/// x / y towards minus infinity, with the same exceptions.
template <class T>
SDX_FN T div_floor(T x, T y) {
  if constexpr (is_signed_int<T>) {
    const T d = detail::safe_divisor(y);
    const T q = T(x / d), r = T(x % d);
    const T f = T(q - T(r != 0 && (r < 0) != (d < 0)));
    return y == T(0) ? T(0) : y == T(-1) ? detail::negate(x) : f;
  } else
    return div_trunc(x, y);
}
/// Remainder with the sign of x (ONNX Mod with fmod = 1). x mod 0 is 0.
template <class T>
  requires is_int<T>
SDX_FN T mod_trunc(T x, T y) {
  const T r = T(x % detail::safe_divisor(y));
  return y == T(0) ? T(0) : r;
}
/// Remainder with the sign of y (ONNX Mod with fmod = 0, Python's %). x mod 0 is 0.
template <class T>
  requires is_int<T>
SDX_FN T mod_floor(T x, T y) {
  const T r = mod_trunc(x, y);
  if constexpr (is_signed_int<T>)
    return T(r + (r != 0 && (r < 0) != (y < 0) ? y : T(0)));
  else
    return r;
}

/// Shifts of unsigned integers (ONNX BitShift); counting the type's width or more gives 0. x is replaced by 0 before
/// the shift: if instead the result is selected after it, clang 22 for NVPTX takes the selection for the clamping that
/// the instruction does itself, which looks only at the low 32 bits of a 64-bit count.
template <class T>
SDX_FN T shl(T x, T n) {
  using U = unsigned_of<T>;
  constexpr U width = U(8 * sizeof(T));
  const U y = U(n) < width ? U(x) : U(0);
  return T(U(y << (U(n) & U(width - 1))));
}
template <class T>
SDX_FN T shr(T x, T n) {
  using U = unsigned_of<T>;
  constexpr U width = U(8 * sizeof(T));
  const U y = U(n) < width ? U(x) : U(0);
  return T(U(y >> (U(n) & U(width - 1))));
}
template <class T>
SDX_FN T bit_and(T x, T y) {
  return T(x & y);
}
template <class T>
SDX_FN T bit_or(T x, T y) {
  return T(x | y);
}
template <class T>
SDX_FN T bit_xor(T x, T y) {
  return T(x ^ y);
}
template <class T>
SDX_FN T bit_not(T x) {
  return T(~x);
}

/// x^n by squaring, wrapping. For n < 0: 1 and -1 keep their powers, everything else (also 0) gives 0. Contains a loop,
/// which a constant n unrolls.
template <class T, class N>
  requires is_int<T> && is_int<N>
SDX_FN T ipow(T x, N n) {
  using U = select_type<sizeof(T) == 8, u64, u32>;
  U r = 1, b = U(x);
  if constexpr (is_signed_int<N>)
    if (n < 0) return x == T(1) ? T(1) : is_signed_int<T> && x == T(-1) ? (n & 1 ? T(-1) : T(1)) : T(0);
  for (unsigned_of<N> e = unsigned_of<N>(n); e != 0; e = unsigned_of<N>(e >> 1)) {
    r = e & 1 ? U(r * b) : r;
    b *= b;
  }
  return T(r);
}

// --- remainders of floats. These loop once per 11 (f64) or 40 (f32) bits of the quotient, so they don't vectorise ---

namespace detail {
template <class F>
SDX_FN F fmod_exact(F x, F y) {
  using U = unsigned_of<F>;
  constexpr int M = sizeof(F) == 8 ? 52 : 23;
  constexpr int step = 63 - M;
  constexpr U one = U(1) << M, mask = one - 1;
  constexpr U infinity = sizeof(F) == 8 ? U(0x7ff0000000000000u) : U(0x7f800000u);
  const U ax = bit_cast<U>(fabs(x)), ay = bit_cast<U>(fabs(y));
  if (ax >= infinity || ay > infinity || ay == 0) return F(nan32());
  if (ax < ay) return x;
  int ex = int(ax >> M), ey = int(ay >> M);
  u64 mx = ex ? (ax & mask) | one : ax, my = ey ? (ay & mask) | one : ay;
  ex = ex ? ex : 1;
  ey = ey ? ey : 1;
  // Invariant: |x| mod |y| = (mx * 2^(ex - ey) mod my) * 2^ey in units of the last place.
  int shift = ex - ey;
  mx %= my;
  while (shift > 0 && mx != 0) {
    const int k = shift < step ? shift : step;
    mx = (mx << k) % my;
    shift -= k;
  }
  if (mx == 0) return copysign(F(0), x);
  // Bring the leading bit back to place M, or as far as the subnormals go.
  const int up = __builtin_clzll(mx) - (63 - M);
  const int k = up < ey - 1 ? up : ey - 1;
  mx <<= k;
  const int e = mx >= u64(one) ? ey - k : 0;
  return copysign(bit_cast<F>(U((U(mx) & mask) | U(U(e) << M))), x);
}
}  // namespace detail

/// C's fmod, exact: the sign of x; NaN for x infinite or y zero; x for y infinite.
SDX_FN f32 fmod(f32 x, f32 y) { return detail::fmod_exact(x, y); }
SDX_FN f64 fmod(f64 x, f64 y) { return detail::fmod_exact(x, y); }
/// Names shared with the integers: mod_trunc is fmod, mod_floor Python's % (the sign of y, also on a zero result).
SDX_FN f32 mod_trunc(f32 x, f32 y) { return fmod(x, y); }
SDX_FN f64 mod_trunc(f64 x, f64 y) { return fmod(x, y); }
template <class F>
  requires is_same<F, f32> || is_same<F, f64>
SDX_FN F mod_floor(F x, F y) {
  const F r = fmod(x, y);
  return r == F(0) ? copysign(F(0), y) : (r < F(0)) != (y < F(0)) ? r + y : r;
}

}  // namespace sdx
SDX_STRICT_END
