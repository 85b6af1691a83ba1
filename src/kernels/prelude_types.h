// Element types of kernels, bit casts and type traits.
#pragma once

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "compile kernels without -ffast-math: the prelude relies on IEEE arithmetic, infinities and NaN"
#endif

#define SDX_FN inline __attribute__((always_inline))
/// For lambdas, before the `{`.
#define SDX_LAMBDA __attribute__((always_inline))

#if defined(__AMDGCN__) || defined(__NVPTX__)
#define SDX_GPU 1
#else
#define SDX_GPU 0
#endif

// Whether a fused multiply-add is an instruction. Where it is not, __builtin_fma would call libm.
#if SDX_GPU || defined(__FMA__) || defined(__aarch64__)
#define SDX_HAS_FMA 1
#else
#define SDX_HAS_FMA 0
#endif

// Whether rounding to an integral float (floor, ...) is an instruction; before SSE4.1 it would call libm.
#if SDX_GPU || defined(__SSE4_1__) || defined(__aarch64__)
#define SDX_HAS_ROUND 1
#else
#define SDX_HAS_ROUND 0
#endif

// Whether float16 <-> float32 is an instruction; on x86 without F16C it would call compiler-rt.
#if SDX_GPU || defined(__F16C__) || defined(__aarch64__)
#define SDX_HAS_F16 1
#else
#define SDX_HAS_F16 0
#endif

// Around every header of the prelude: floating-point expressions keep their exact meaning, whatever the flags and
// pragmas of the kernel. In particular, contraction across statements would break the error-free sums and products.
// Clang can't save and restore this state for GPUs; there, kernels contract after the prelude, which they want anyway.
#if SDX_GPU
#define SDX_STRICT_BEGIN _Pragma("clang fp contract(on) reassociate(off)")
#define SDX_STRICT_END _Pragma("clang fp contract(fast)")
#else
#define SDX_STRICT_BEGIN _Pragma("float_control(push)") _Pragma("clang fp contract(on) reassociate(off)")
#define SDX_STRICT_END _Pragma("float_control(pop)")
#endif

namespace sdx {

using i8 = __INT8_TYPE__;
using i16 = __INT16_TYPE__;
using i32 = __INT32_TYPE__;
using i64 = __INT64_TYPE__;
using u8 = __UINT8_TYPE__;
using u16 = __UINT16_TYPE__;
using u32 = __UINT32_TYPE__;
using u64 = __UINT64_TYPE__;
using f16 = _Float16;
using f32 = float;
using f64 = double;

/// Type of element offsets. A kernel whose buffers all have fewer than 2^31 elements may define SDX_INDEX_T as int.
#ifndef SDX_INDEX_T
#define SDX_INDEX_T __INT64_TYPE__
#endif
using index_t = SDX_INDEX_T;

// Types that the compiler has no arithmetic for. They hold the bits; cast<>() (prelude_cast.h) converts them.
// clang-format off
struct bf16 { u16 bits; };  ///< bfloat16
struct f8e4m3fn { u8 bits; };  ///< no infinity, NaN 0x7f/0xff, largest 448
struct f8e4m3fnuz { u8 bits; };  ///< no infinity, no -0, NaN 0x80, largest 240
struct f8e5m2 { u8 bits; };  ///< infinities, largest 57344
struct f8e5m2fnuz { u8 bits; };  ///< no infinity, no -0, NaN 0x80, largest 57344
struct f8e8m0 { u8 bits; };  ///< 2^(bits - 127), NaN 0xff; no sign, no zero
struct f4e2m1 { u8 bits; };  ///< in the low 4 bits; no infinity, no NaN, largest 6
struct i4 { i8 bits; };  ///< -8..7, one per byte
struct u4 { u8 bits; };  ///< 0..15, one per byte
struct i2 { i8 bits; };  ///< -2..1, one per byte
struct u2 { u8 bits; };  ///< 0..3, one per byte
// clang-format on

template <class To, class From>
SDX_FN constexpr To bit_cast(const From& x) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, x);
}

template <class A, class B>
inline constexpr bool is_same = __is_same(A, B);

/// Built-in integers, without bool.
template <class T>
inline constexpr bool is_int = __is_integral(T) && !__is_same(T, bool);
template <class T>
inline constexpr bool is_signed_int = is_int<T> ? __is_signed(T) : false;
/// i4, u4, i2, u2.
template <class T>
inline constexpr bool is_narrow_int = is_same<T, i4> || is_same<T, u4> || is_same<T, i2> || is_same<T, u2>;
/// Floats with fewer bits than f32.
template <class T>
inline constexpr bool is_small_float =
    is_same<T, f16> || is_same<T, bf16> || is_same<T, f8e4m3fn> || is_same<T, f8e4m3fnuz> || is_same<T, f8e5m2> ||
    is_same<T, f8e5m2fnuz> || is_same<T, f8e8m0> || is_same<T, f4e2m1>;

namespace detail {
template <bool B, class T, class F>
struct Select {
  using type = T;
};
template <class T, class F>
struct Select<false, T, F> {
  using type = F;
};
template <int Size>
struct UnsignedOf;
template <>
struct UnsignedOf<1> {
  using type = u8;
};
template <>
struct UnsignedOf<2> {
  using type = u16;
};
template <>
struct UnsignedOf<4> {
  using type = u32;
};
template <>
struct UnsignedOf<8> {
  using type = u64;
};
}  // namespace detail

template <bool B, class T, class F>
using select_type = typename detail::Select<B, T, F>::type;
/// The unsigned integer of T's size.
template <class T>
using unsigned_of = typename detail::UnsignedOf<sizeof(T)>::type;

/// c ? a : b with both evaluated, so that a loop over it becomes a blend.
template <class T>
SDX_FN constexpr T select(bool c, T a, T b) {
  return c ? a : b;
}

SDX_FN constexpr f32 inf32() { return __builtin_inff(); }
SDX_FN constexpr f64 inf64() { return __builtin_inf(); }
SDX_FN constexpr f32 nan32() { return __builtin_nanf(""); }
SDX_FN constexpr f64 nan64() { return __builtin_nan(""); }

}  // namespace sdx
