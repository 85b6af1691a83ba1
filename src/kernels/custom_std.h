// The parts of C++'s standard library that kernels use, for a compiler without system headers.
#pragma once
#include "prelude_types.h"

using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long;
using intptr_t = long;
using uintptr_t = unsigned long;
using size_t = decltype(sizeof 0);
using ptrdiff_t = long;
using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;

#define NULL 0L
#define offsetof(type, member) __builtin_offsetof(type, member)
#define assert(...) ((void)0)

#define INT8_MIN (-128)
#define INT8_MAX 127
#define UINT8_MAX 255
#define INT16_MIN (-32768)
#define INT16_MAX 32767
#define UINT16_MAX 65535
#define INT32_MIN INT_MIN
#define INT32_MAX INT_MAX
#define UINT32_MAX UINT_MAX
#define INT64_MIN LONG_MIN
#define INT64_MAX LONG_MAX
#define UINT64_MAX ULONG_MAX
#define CHAR_BIT 8
#define SCHAR_MIN (-128)
#define SCHAR_MAX 127
#define UCHAR_MAX 255
#define SHRT_MIN (-32768)
#define SHRT_MAX 32767
#define USHRT_MAX 65535
#define INT_MIN (-2147483647 - 1)
#define INT_MAX 2147483647
#define UINT_MAX 4294967295u
#define LONG_MIN (-9223372036854775807l - 1)
#define LONG_MAX 9223372036854775807l
#define ULONG_MAX 18446744073709551615ul
#define LLONG_MIN (-9223372036854775807ll - 1)
#define LLONG_MAX 9223372036854775807ll
#define ULLONG_MAX 18446744073709551615ull
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define SIZE_MAX ULONG_MAX
#define PTRDIFF_MAX LONG_MAX
#define PTRDIFF_MIN LONG_MIN
#define FLT_RADIX 2
#define FLT_TRUE_MIN 1.401298464e-45f
#define FLT_MIN_EXP (-125)
#define FLT_MAX_EXP 128
#define DBL_MIN_EXP (-1021)
#define DBL_MAX_EXP 1024
#define FLT_DIG 6
#define FLT_MANT_DIG 24
#define DBL_MAX 1.7976931348623158e+308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_EPSILON 2.2204460492503131e-16
#define DBL_DIG 15
#define DBL_MANT_DIG 53
#define INFINITY (__builtin_inff())
#define HUGE_VALF (__builtin_inff())
#define HUGE_VAL (__builtin_inf())
#define NAN (__builtin_nanf(""))
#define CUDART_INF_F (__builtin_inff())
#define CUDART_INF (__builtin_inf())
#define CUDART_NAN_F (__builtin_nanf(""))
#define CUDART_NAN (__builtin_nan(""))
#define CUDART_MAX_NORMAL_F FLT_MAX
#define CUDART_PI_F 3.141592654f
#define CUDART_PI 3.1415926535897931
#define CUDART_LN2 0.69314718055994531
#define CUDART_L2T_F 3.321928094f
#define CUDART_LOG2E 1.4426950408889634
#define CUDART_PIO2_F 1.570796327f
#define CUDART_PIO4_F 0.785398163f
#define CUDART_SQRT_TWO_F 1.414213562f
#define CUDART_SQRT_HALF_F 0.707106781f
#define CUDART_ZERO_F 0.0f
#define CUDART_ONE_F 1.0f
#define CUDART_TWO_TO_23_F 8388608.0f
#define CUDART_L2E_F 1.442695041f
#define CUDART_LN2_F 0.693147181f
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440

SDX_FN void* memcpy(void* to, const void* from, size_t n) {
  __builtin_memcpy(to, from, n);
  return to;
}
SDX_FN void* memset(void* to, int value, size_t n) {
  __builtin_memset(to, value, n);
  return to;
}

namespace std {

using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::int8_t;
using ::memcpy;
using ::memset;
using ::ptrdiff_t;
using ::size_t;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uint8_t;
using ::uintptr_t;
using nullptr_t = decltype(nullptr);

// --- <type_traits>
template <class T, T V>
struct integral_constant {
  static constexpr T value = V;
  using value_type = T;
  using type = integral_constant;
  constexpr operator T() const { return V; }
  constexpr T operator()() const { return V; }
};
template <bool B>
using bool_constant = integral_constant<bool, B>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;
template <bool B, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  using type = T;
};
template <bool B, class T = void>
using enable_if_t = typename enable_if<B, T>::type;
template <bool B, class T, class F>
struct conditional {
  using type = sdx::select_type<B, T, F>;
};
template <bool B, class T, class F>
using conditional_t = sdx::select_type<B, T, F>;
template <class T>
using remove_const_t = __remove_const(T);
template <class T>
using remove_reference_t = __remove_reference_t(T);
template <class T>
using remove_pointer_t = __remove_pointer(T);
template <class T>
using remove_cv_t = __remove_cv(T);
template <class T>
using decay_t = __decay(T);
template <class T>
using make_unsigned_t = __make_unsigned(T);
template <class T>
using make_signed_t = __make_signed(T);
template <class T>
struct remove_const {
  using type = remove_const_t<T>;
};
template <class T>
struct remove_reference {
  using type = remove_reference_t<T>;
};
template <class T>
struct remove_cv {
  using type = remove_cv_t<T>;
};
template <class T>
struct decay {
  using type = decay_t<T>;
};
template <class A, class B>
struct is_same : bool_constant<__is_same(A, B)> {};
template <class T>
struct is_integral : bool_constant<__is_integral(T)> {};
template <class T>
struct is_floating_point : bool_constant<__is_floating_point(T)> {};
template <class T>
struct is_arithmetic : bool_constant<__is_arithmetic(T)> {};
template <class T>
struct is_signed : bool_constant<__is_signed(T)> {};
template <class T>
struct is_unsigned : bool_constant<__is_unsigned(T)> {};
template <class T>
struct is_pointer : bool_constant<__is_pointer(T)> {};
template <class T>
struct is_void : bool_constant<__is_void(T)> {};
template <class T>
struct is_trivially_copyable : bool_constant<__is_trivially_copyable(T)> {};
template <class A, class B>
inline constexpr bool is_same_v = __is_same(A, B);
template <class T>
inline constexpr bool is_integral_v = __is_integral(T);
template <class T>
inline constexpr bool is_floating_point_v = __is_floating_point(T);
template <class T>
inline constexpr bool is_arithmetic_v = __is_arithmetic(T);
template <class T>
inline constexpr bool is_signed_v = __is_signed(T);
template <class T>
inline constexpr bool is_unsigned_v = __is_unsigned(T);
template <class T>
inline constexpr bool is_pointer_v = __is_pointer(T);
template <class T>
T declval();

// --- <utility>
template <class T>
SDX_FN constexpr remove_reference_t<T>&& move(T&& x) {
  return static_cast<remove_reference_t<T>&&>(x);
}
template <class T>
SDX_FN constexpr T&& forward(remove_reference_t<T>& x) {
  return static_cast<T&&>(x);
}
template <class T>
SDX_FN constexpr void swap(T& a, T& b) {
  T c = move(a);
  a = move(b);
  b = move(c);
}
template <class A, class B>
struct pair {
  A first;
  B second;
};
template <class A, class B>
SDX_FN constexpr pair<A, B> make_pair(A a, B b) {
  return {a, b};
}

// --- <algorithm>
template <class T>
SDX_FN constexpr const T& min(const T& a, const T& b) {
  return b < a ? b : a;
}
template <class T>
SDX_FN constexpr const T& max(const T& a, const T& b) {
  return a < b ? b : a;
}
template <class T>
SDX_FN constexpr const T& clamp(const T& x, const T& low, const T& high) {
  return x < low ? low : high < x ? high : x;
}

// --- <array>, which has no bounds checks here
template <class T, size_t N>
struct array {
  T elements[N];
  constexpr T& operator[](size_t k) { return elements[k]; }
  constexpr const T& operator[](size_t k) const { return elements[k]; }
  constexpr size_t size() const { return N; }
  constexpr T* data() { return elements; }
  constexpr const T* data() const { return elements; }
  constexpr T* begin() { return elements; }
  constexpr T* end() { return elements + N; }
  constexpr const T* begin() const { return elements; }
  constexpr const T* end() const { return elements + N; }
};

// --- <limits>
template <class T>
struct numeric_limits {
  static constexpr bool is_integer = true, is_signed = __is_signed(T);
  static constexpr int digits = sizeof(T) * 8 - is_signed;
  static constexpr T max() { return T((((sdx::u64(1) << (digits - 1)) - 1) << 1) + 1); }
  static constexpr T min() { return is_signed ? T(-max() - 1) : T(0); }
  static constexpr T lowest() { return min(); }
};
template <>
struct numeric_limits<float> {
  static constexpr bool is_integer = false, is_signed = true;
  static constexpr bool has_infinity = true, has_quiet_NaN = true;
  static constexpr int max_exponent = FLT_MAX_EXP, min_exponent = FLT_MIN_EXP;
  static constexpr int digits = 24;
  static constexpr float max() { return FLT_MAX; }
  static constexpr float min() { return FLT_MIN; }
  static constexpr float lowest() { return -FLT_MAX; }
  static constexpr float epsilon() { return FLT_EPSILON; }
  static constexpr float infinity() { return __builtin_inff(); }
  static constexpr float quiet_NaN() { return __builtin_nanf(""); }
};
template <>
struct numeric_limits<double> {
  static constexpr bool is_integer = false, is_signed = true;
  static constexpr bool has_infinity = true, has_quiet_NaN = true;
  static constexpr int max_exponent = DBL_MAX_EXP, min_exponent = DBL_MIN_EXP;
  static constexpr int digits = 53;
  static constexpr double max() { return DBL_MAX; }
  static constexpr double min() { return DBL_MIN; }
  static constexpr double lowest() { return -DBL_MAX; }
  static constexpr double epsilon() { return DBL_EPSILON; }
  static constexpr double infinity() { return __builtin_inf(); }
  static constexpr double quiet_NaN() { return __builtin_nan(""); }
};

}  // namespace std
