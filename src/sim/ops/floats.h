// Float selections that the C++ library defines differently from the ISA: minima and maxima, medians, classes.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

namespace sardonyx::sim {

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

template <class T>
inline bool signOf(T v) {
  return std::bit_cast<BitsOf<T>>(v) >> (sizeof(T) * 8 - 1);
}
template <class T>
inline T quiet(T v) {
  constexpr BitsOf<T> bit = BitsOf<T>{1} << (sizeof(T) == 8 ? 51 : 22);
  return v != v ? std::bit_cast<T>(std::bit_cast<BitsOf<T>>(v) | bit) : v;
}
/// IEEE 754-2008 minNum and maxNum: of a number and a NaN, the number; -0 is less than +0.
template <class T>
inline T minNum(T a, T b) {
  T r = a < b || (a == b && signOf(a)) ? a : b;
  r = b != b ? a : r;
  r = a != a ? b : r;
  return quiet(r);
}
template <class T>
inline T maxNum(T a, T b) {
  T r = a > b || (a == b && !signOf(a)) ? a : b;
  r = b != b ? a : r;
  r = a != a ? b : r;
  return quiet(r);
}
/// IEEE 754-2019 minimum and maximum: if either is a NaN, a NaN.
template <class T>
inline T minimum(T a, T b) {
  T r = a < b || (a == b && signOf(a)) ? a : b;
  r = b != b ? b : r;
  r = a != a ? a : r;
  return quiet(r);
}
template <class T>
inline T maximum(T a, T b) {
  T r = a > b || (a == b && !signOf(a)) ? a : b;
  r = b != b ? b : r;
  r = a != a ? a : r;
  return quiet(r);
}
/// V_MED3: the minimum of the three when one is a NaN, else the middle one.
template <class T>
inline T med3(T a, T b, T c) {
  T low = minNum(minNum(a, b), c);
  T middle = maxNum(minNum(a, b), minNum(maxNum(a, b), c));
  return a != a || b != b || c != c ? low : middle;
}

/// Bit of V_CMP_CLASS' mask that a value belongs to. kFraction: explicit significand bits.
template <class U, int kExponent, int kFraction>
inline unsigned classBit(U v) {
  constexpr U expMask = ((U{1} << kExponent) - 1) << kFraction, fracMask = (U{1} << kFraction) - 1;
  bool negative = v >> (kExponent + kFraction) & 1;
  U e = v & expMask, f = v & fracMask;
  if (e == expMask) {
    if (f) return f >> (kFraction - 1) & 1 ? 1u << 1 : 1u << 0;  // quiet, signalling
    return negative ? 1u << 2 : 1u << 9;
  }
  if (e) return negative ? 1u << 3 : 1u << 8;
  if (f) return negative ? 1u << 4 : 1u << 7;
  return negative ? 1u << 5 : 1u << 6;
}

}  // namespace sardonyx::sim
