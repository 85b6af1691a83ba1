// cast<To>(x): conversion between any two element types, as ONNX's Cast (opset 25) defines it.
//
// - float -> float: round to nearest even, once; overflow gives infinity where the type has one.
// - float -> integer: truncation. Out of range and NaN, which ONNX leaves undefined, do what numpy and ONNX Runtime do
//   on x86-64: int32 and int64 give their minimum; narrower integers take the low bits of the int32; uint32 takes the
//   low bits of the int64; uint64 wraps down to -2^63, gives 0 from 2^64 and 2^63 below -2^63 and for NaN.
// - integer -> integer: the low bits (also for int4, uint4, int2, uint2).
// - anything -> bool: x != 0, NaN is true.
// - -> float8: with Saturate (the default) out of range and infinities give the largest finite value of that sign;
//   without it NaN, or infinity for f8e5m2. NaN stays NaN.
// - -> f8e8m0: the rounding mode is an argument (default up); by ONNX's table 0 gives 2^-127 if saturating, else NaN.
//   Negative values, which ONNX leaves undefined, give NaN.
// - -> f4e2m1: always saturates; NaN gives -0, as ml_dtypes and ONNX's tests have it.
#pragma once
#include "prelude_types.h"

SDX_STRICT_BEGIN
namespace sdx {

/// Rounding of cast<f8e8m0>: Cast's round_mode "up" (away from zero), "down" (towards zero), "nearest" (ties up).
enum class Round { kUp, kDown, kNearest };

namespace detail {

// How a small binary float is laid out. kind: what its largest codes mean.
enum class Special { kIeee, kFn, kFnuz, kFinite };
template <int E, int M, int Bias, Special S>
struct Layout {
  static constexpr int exponent = E, mantissa = M, bias = Bias;
  static constexpr Special special = S;
  static constexpr u32 sign = 1u << (E + M);
  static constexpr u32 infinity = ((1u << E) - 1) << M;  // kIeee only
  static constexpr u32 max = S == Special::kIeee ? infinity - 1 : S == Special::kFn ? sign - 2 : sign - 1;
};
template <class T>
struct LayoutOf;
template <>
struct LayoutOf<f16> : Layout<5, 10, 15, Special::kIeee> {};
template <>
struct LayoutOf<f8e4m3fn> : Layout<4, 3, 7, Special::kFn> {};
template <>
struct LayoutOf<f8e4m3fnuz> : Layout<4, 3, 8, Special::kFnuz> {};
template <>
struct LayoutOf<f8e5m2> : Layout<5, 2, 15, Special::kIeee> {};
template <>
struct LayoutOf<f8e5m2fnuz> : Layout<5, 2, 16, Special::kFnuz> {};
template <>
struct LayoutOf<f4e2m1> : Layout<2, 1, 1, Special::kFinite> {};

// 2^e as a float of the normal range.
SDX_FN constexpr f32 pow2_f32(int e) { return bit_cast<f32>(u32(e + 127) << 23); }

// Widens a code of layout L. Exact.
template <class L>
SDX_FN f32 widen(u32 code) {
  const u32 mag = code & (L::sign - 1);
  const u32 sign = (code & L::sign) << (31 - L::exponent - L::mantissa);
  const f32 normal = bit_cast<f32>((mag << (23 - L::mantissa)) + (u32(127 - L::bias) << 23));
  const f32 subnormal = f32(i32(mag)) * pow2_f32(1 - L::bias - L::mantissa);
  f32 r = mag < (1u << L::mantissa) ? subnormal : normal;
  u32 bits = bit_cast<u32>(r);
  if constexpr (L::special == Special::kIeee) {
    // Infinity's code becomes infinity, the codes above it NaN, made quiet.
    const u32 special = 0x7f800000u | ((mag << (23 - L::mantissa)) & 0x7fffffu) | (mag > L::infinity ? 0x400000u : 0u);
    bits = mag >= L::infinity ? special : bits;
  }
  if constexpr (L::special == Special::kFn) bits = mag > L::max ? 0x7fc00000u : bits;
  if constexpr (L::special == Special::kFnuz) return bit_cast<f32>(code == L::sign ? 0x7fc00000u : bits | sign);
  return bit_cast<f32>(bits | sign);
}

// Rounds to nearest even to layout L.
template <class L, bool Saturate>
SDX_FN u32 narrow(f32 x) {
  const u32 all = bit_cast<u32>(x);
  const u32 a = all & 0x7fffffffu;
  const u32 sign = (all >> 31) << (L::exponent + L::mantissa);
  constexpr int drop = 23 - L::mantissa;
  // Normal results: round by adding just under half of the last place kept; a carry moves into the exponent.
  const u32 normal = ((a + (1u << (drop - 1)) - 1 + ((a >> drop) & 1)) >> drop) - (u32(127 - L::bias) << L::mantissa);
  // Subnormal results: adding a power of two whose last place is L's smallest subnormal rounds there.
  constexpr f32 magic = pow2_f32(23 + 1 - L::bias - L::mantissa);
  const u32 subnormal = bit_cast<u32>(bit_cast<f32>(a) + magic) - bit_cast<u32>(magic);
  u32 code = a < (u32(128 - L::bias) << 23) ? subnormal : normal;
  const bool nan = a > 0x7f800000u;
  constexpr u32 overflow = Saturate                       ? L::max
                           : L::special == Special::kIeee ? L::infinity
                           : L::special == Special::kFn   ? L::sign - 1
                           : L::special == Special::kFnuz ? L::sign
                                                          : L::max;
  code = code > L::max ? overflow : code;
  if constexpr (L::special == Special::kIeee) code = nan ? (L::infinity | (1u << (L::mantissa - 1))) : code;
  if constexpr (L::special == Special::kFn) code = nan ? L::sign - 1 : code;
  if constexpr (L::special == Special::kFinite) return nan ? L::sign : code | sign;
  if constexpr (L::special == Special::kFnuz) return nan ? L::sign : code == 0 || code == L::sign ? code : code | sign;
  return code | sign;
}

// f64 -> f32 with the last place of f32's normal range kept odd when bits were lost (round to odd), so that a second
// rounding to at most 22 bits gives the same as one rounding. Source: Boldo and Melquiond, "When double rounding is
// odd".
SDX_FN f32 to_odd(f64 x) {
  constexpr u64 low = (u64(1) << 29) - 1;
  const u64 b = bit_cast<u64>(x);
  return f32(bit_cast<f64>((b & ~low) | ((b & low) != 0 ? low + 1 : u64(0))));
}

// i64, u64 -> f64 with the same property: exact below 2^53, else 53 bits with the last one sticky.
template <class T>
SDX_FN f64 int_to_odd(T x) {
  if constexpr (sizeof(T) < 8) {
    return f64(x);
  } else {
    const u64 magnitude = x < T(0) ? u64(0) - u64(x) : u64(x);
    const u64 squeezed = (magnitude & ~u64(0xfff)) | ((magnitude & 0xfff) != 0 ? u64(0x800) : u64(0));
    const f64 r = f64(magnitude < (u64(1) << 53) ? magnitude : squeezed);
    return x < T(0) ? -r : r;
  }
}

SDX_FN u16 bf16_bits(f32 x) {
#if defined(__AMDGCN__)
  // gfx950 converts two at once. Elsewhere too LLVM combines the stores of what it has rounded itself, and not of this.
  return bit_cast<u16>(static_cast<__bf16>(x));
#else
  const u32 b = bit_cast<u32>(x);
  const u32 rounded = (b + 0x7fffu + ((b >> 16) & 1)) >> 16;
  return u16((b & 0x7fffffffu) > 0x7f800000u ? ((b >> 16) & 0x8000u) | 0x7fc0u : rounded);
#endif
}

SDX_FN u16 bf16_bits(f64 x) {
  const u64 b = bit_cast<u64>(x);
  const u64 a = b & 0x7fffffffffffffffu;
  // Below 2^-126 round at bfloat16's smallest subnormal, 2^-133, where f32 has no full significand to be odd in.
  constexpr u64 magic = u64(1023 + 52 - 133) << 52;
  const u64 subnormal = bit_cast<u64>(bit_cast<f64>(a) + bit_cast<f64>(magic)) - magic;
  const u16 tiny = u16(u16(subnormal) | u16(b >> 48 & 0x8000u));
  return a < (u64(1023 - 126) << 52) ? tiny : bf16_bits(to_odd(x));
}

// f8e8m0 from a value given as f64, in which every f32 is normal.
template <bool Saturate, Round Mode>
SDX_FN u8 e8m0_bits(f64 x) {
  const u64 b = bit_cast<u64>(x);
  const i32 exponent = i32(b >> 52 & 0x7ff) - (1023 - 127);
  const u64 fraction = b & 0xfffffffffffffu;
  const bool up = Mode == Round::kUp ? fraction != 0 : Mode == Round::kNearest ? fraction >= (u64(1) << 51) : false;
  const i32 rounded = exponent + i32(up);
  const bool small = exponent < 0;
  const bool large = exponent > 254 || (exponent == 254 && fraction != 0);
  i32 code = rounded < 0 ? 0 : rounded > 254 ? 254 : rounded;
  if constexpr (!Saturate) code = small || large ? 255 : code;
  const bool negative = x < 0.0;
  return u8(x != x || negative ? 255 : small && Saturate ? 0 : code);
}

// float -> built-in integer. The comparisons keep every conversion in range, so that none is undefined.
template <class F>
SDX_FN i32 to_i32(F x) {
  constexpr F bound = F(2147483648.0);
  const bool ok = x > (sizeof(F) == 8 ? F(-2147483649.0) : F(-2147483904.0)) && x < bound;
  const i32 r = i32(ok ? x : F(0));
  return ok ? r : i32(-2147483647 - 1);
}
template <class F>
SDX_FN i64 to_i64(F x) {
  constexpr F bound = F(9223372036854775808.0);
  const bool ok = x >= -bound && x < bound;
  const i64 r = i64(ok ? x : F(0));
  return ok ? r : i64(u64(1) << 63);
}
template <class F>
SDX_FN u64 to_u64(F x) {
  constexpr F bound = F(9223372036854775808.0);
  const u64 high = u64(to_i64(x - bound)) ^ (u64(1) << 63);
  return x >= bound ? high : u64(to_i64(x));
}
template <class To, class F>
SDX_FN To float_to_int(F x) {
  if constexpr (sizeof(To) < 4 || is_same<To, i32>)
    return To(to_i32(x));
  else if constexpr (sizeof(To) == 4 || is_signed_int<To>)
    return To(to_i64(x));
  else
    return To(to_u64(x));
}

template <class T>
SDX_FN T wrap_narrow(i32 x) {
  if constexpr (is_same<T, i4>) return {i8(i32(u32(x) << 28) >> 28)};
  if constexpr (is_same<T, u4>) return {u8(x & 15)};
  if constexpr (is_same<T, i2>) return {i8(i32(u32(x) << 30) >> 30)};
  if constexpr (is_same<T, u2>) return {u8(x & 3)};
}

#if defined(SDX_F8_CONVERT)
// NVIDIA's conversions of 8-bit floats. Those from float32 saturate; NaN becomes 0x7f.
SDX_FN f32 convert_f8(f8e4m3fn x) {
  u32 pair;
  asm("{\n\t.reg .b16 h;\n\tcvt.u16.u32 h, %1;\n\tcvt.rn.f16x2.e4m3x2 %0, h;\n\t}" : "=r"(pair) : "r"(u32(x.bits)));
  return f32(bit_cast<f16>(u16(pair)));
}
SDX_FN f32 convert_f8(f8e5m2 x) {
  u32 pair;
  asm("{\n\t.reg .b16 h;\n\tcvt.u16.u32 h, %1;\n\tcvt.rn.f16x2.e5m2x2 %0, h;\n\t}" : "=r"(pair) : "r"(u32(x.bits)));
  return f32(bit_cast<f16>(u16(pair)));
}
template <class To>
SDX_FN u32 to_f8(f32 x) {
  u32 code;
  if constexpr (is_same<To, f8e4m3fn>)
    asm("{\n\t.reg .b16 h;\n\tcvt.rn.satfinite.e4m3x2.f32 h, 0f00000000, %1;\n\tcvt.u32.u16 %0, h;\n\t}"
        : "=r"(code)
        : "f"(x));
  else
    asm("{\n\t.reg .b16 h;\n\tcvt.rn.satfinite.e5m2x2.f32 h, 0f00000000, %1;\n\tcvt.u32.u16 %0, h;\n\t}"
        : "=r"(code)
        : "f"(x));
  return code;
}
#endif

// Any element type -> bool, built-in integer, f32 or f64 of the same value.
template <class From>
SDX_FN auto standard(From x) {
  if constexpr (is_narrow_int<From>)
    return i32(x.bits);
  else if constexpr (is_same<From, bf16>)
    return bit_cast<f32>(u32(x.bits) << 16);
  else if constexpr (is_same<From, f8e8m0>)
    // 2^-127 is subnormal in f32: half of the smallest normal number.
    return bit_cast<f32>(x.bits == 0 ? 0x400000u : x.bits == 255 ? 0x7fc00000u : u32(x.bits) << 23);
  else if constexpr (is_same<From, f16>) {
#if SDX_HAS_F16
    return f32(x);
#else
    return widen<LayoutOf<f16>>(bit_cast<u16>(x));
#endif
  } else if constexpr (is_small_float<From>) {
#if defined(SDX_F8_CONVERT)
    if constexpr (is_same<From, f8e4m3fn> || is_same<From, f8e5m2>) return convert_f8(x);
#endif
    return widen<LayoutOf<From>>(x.bits);
  } else
    return x;
}

SDX_FN f16 to_f16(f32 x) {
#if SDX_HAS_F16
  return f16(x);
#else
  return bit_cast<f16>(u16(narrow<LayoutOf<f16>, false>(x)));
#endif
}

// f32, f64 or a built-in integer -> a small float.
template <class To, bool Saturate, Round Mode, class From>
SDX_FN To to_small_float(From x) {
  if constexpr (is_same<To, f8e8m0>) {
    if constexpr (is_int<From> || is_same<From, bool>)
      return {e8m0_bits<Saturate, Mode>(int_to_odd(x))};
    else
      return {e8m0_bits<Saturate, Mode>(f64(x))};
  } else if constexpr (is_same<To, bf16>) {
    // An integer of 24 bits is exact in f32; a wider one takes the way that rounds once.
    if constexpr ((is_int<From> && sizeof(From) < 4) || is_same<From, bool>)
      return {bf16_bits(f32(x))};
    else if constexpr (is_int<From>)
      return {bf16_bits(int_to_odd(x))};
    else
      return {bf16_bits(x)};
  } else {
    // Integers above 2^24, which f32 rounds, overflow all of these types.
    f32 y;
    if constexpr (is_same<From, f64>)
      y = to_odd(x);
    else
      y = f32(x);
#if defined(SDX_F8_CONVERT)
    if constexpr (Saturate && (is_same<To, f8e4m3fn> || is_same<To, f8e5m2>)) return {u8(to_f8<To>(y))};
#endif
    if constexpr (is_same<To, f16>)
      return to_f16(y);
    else
      return {u8(narrow<LayoutOf<To>, Saturate>(y))};
  }
}

}  // namespace detail

/// Converts x to To; see the head of this file. Saturate and Mode matter for 8-bit floats only.
template <class To, bool Saturate = true, Round Mode = Round::kUp, class From>
SDX_FN To cast(From x) {
  if constexpr (is_same<To, From>) {
    return x;
  } else {
    const auto y = detail::standard(x);
    using Y = decltype(detail::standard(x));
    constexpr bool from_int = __is_integral(Y);
    if constexpr (is_same<To, bool>)
      return y != Y(0);
    else if constexpr (is_narrow_int<To>) {
      if constexpr (from_int)
        return detail::wrap_narrow<To>(i32(y));
      else
        return detail::wrap_narrow<To>(detail::to_i32(y));
    } else if constexpr (is_int<To>) {
      if constexpr (from_int)
        return To(y);
      else
        return detail::float_to_int<To>(y);
    } else if constexpr (is_small_float<To>)
      return detail::to_small_float<To, Saturate, Mode>(y);
    else
      return To(y);
  }
}

/// The type in which arithmetic on T is done: f32 for the small floats, i32 for int4 and its kin, else T.
template <class T>
using compute_of = select_type<is_small_float<T>, f32, select_type<is_narrow_int<T>, i32, T>>;

}  // namespace sdx
SDX_STRICT_END
