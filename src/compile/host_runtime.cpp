// The list of functions that compiled host code may call.
#include "compile/host_runtime.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <vector>

#include "compile/host_threads.h"

namespace sardonyx {
namespace {

// Both ABIs (x86-64, aarch64) hand a 16-bit float over in the low bits of the register that a float would use, so these
// functions take and return it inside a float.
std::uint32_t low16(float carrier) { return std::bit_cast<std::uint32_t>(carrier) & 0xffffu; }
float carry16(std::uint32_t bits) { return std::bit_cast<float>(bits & 0xffffu); }

/// Drops the low `shift` bits of `m`, rounding to nearest, ties to even; `sticky`: something below was lost already.
std::uint64_t round_shift(std::uint64_t m, int shift, bool sticky) {
  if (shift > 63) return 0;  // the callers' m stays far below half
  if (shift <= 0) return m << -shift;
  const std::uint64_t low = m & ((std::uint64_t{1} << shift) - 1), half = std::uint64_t{1} << (shift - 1);
  m >>= shift;
  return m + (low > half || (low == half && (sticky || (m & 1))));
}

/// double to a 16-bit float of `exponent_bits` and `mantissa_bits`, one rounding. float converts to double exactly.
std::uint32_t narrow(double x, int exponent_bits, int mantissa_bits) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const std::uint32_t sign = static_cast<std::uint32_t>(bits >> 63) << 15;
  const int max_exponent = (1 << exponent_bits) - 1, bias = max_exponent >> 1;
  const std::uint32_t infinity = static_cast<std::uint32_t>(max_exponent) << mantissa_bits;
  const int e = static_cast<int>(bits >> 52 & 0x7ff);
  const std::uint64_t m = bits & ((std::uint64_t{1} << 52) - 1);
  if (e == 0x7ff) {
    if (m == 0) return sign | infinity;
    return sign | infinity | 1u << (mantissa_bits - 1) | static_cast<std::uint32_t>(m >> (52 - mantissa_bits));
  }
  if (e == 0) return sign;  // double subnormals are below half of the smallest result
  const int target = e - 1023 + bias;
  if (target >= max_exponent) return sign | infinity;
  const std::uint64_t full = m | std::uint64_t{1} << 52;
  const int shift = 52 - mantissa_bits;
  if (target <= 0) return sign | static_cast<std::uint32_t>(round_shift(full, shift + 1 - target, false));
  // Rounding may carry into the exponent, up to infinity: adding does the right thing.
  const std::uint64_t rounded = round_shift(full, shift, false) - (std::uint64_t{1} << mantissa_bits);
  return sign | static_cast<std::uint32_t>((static_cast<std::uint64_t>(target) << mantissa_bits) + rounded);
}

float extend_half(float carrier) {
  const std::uint32_t h = low16(carrier), e = h >> 10 & 31, m = h & 1023;
  const float sign = h & 0x8000 ? -1.0f : 1.0f;
  if (e == 0) return sign * static_cast<float>(m) * 0x1p-24f;
  if (e < 31) return std::bit_cast<float>((h & 0x8000) << 16 | (e + 112) << 23 | m << 13);
  return std::bit_cast<float>((h & 0x8000) << 16 | 0x7f800000u | m << 13 | (m != 0 ? 1u << 22 : 0));
}
float half_of_float(float x) { return carry16(narrow(x, 5, 10)); }
float half_of_double(double x) { return carry16(narrow(x, 5, 10)); }
float bfloat_of_float(float x) { return carry16(narrow(x, 8, 7)); }
float bfloat_of_double(double x) { return carry16(narrow(x, 8, 7)); }

template <typename Function>
void* address(Function* f) {
  return reinterpret_cast<void*>(f);
}

#define SARDONYX_UNARY(name)                                 \
  {#name, address(static_cast<double (*)(double)>(::name))}, \
      {#name "f", address(static_cast<float (*)(float)>(::name##f))},
#define SARDONYX_BINARY(name)                                        \
  {#name, address(static_cast<double (*)(double, double)>(::name))}, \
      {#name "f", address(static_cast<float (*)(float, float)>(::name##f))},
#define SARDONYX_OTHER(name) {#name, address(::name)},

const RuntimeSymbol kSymbols[] = {
    {"memcpy", address(static_cast<void* (*)(void*, const void*, std::size_t)>(::memcpy))},
    {"memmove", address(static_cast<void* (*)(void*, const void*, std::size_t)>(::memmove))},
    {"memset", address(static_cast<void* (*)(void*, int, std::size_t)>(::memset))},
    {"memcmp", address(static_cast<int (*)(const void*, const void*, std::size_t)>(::memcmp))},
    {"bcmp", address(static_cast<int (*)(const void*, const void*, std::size_t)>(::memcmp))},
    // clang-format off
    SARDONYX_UNARY(acos) SARDONYX_UNARY(acosh) SARDONYX_UNARY(asin) SARDONYX_UNARY(asinh) SARDONYX_UNARY(atan)
    SARDONYX_UNARY(atanh) SARDONYX_UNARY(cbrt) SARDONYX_UNARY(ceil) SARDONYX_UNARY(cos) SARDONYX_UNARY(cosh)
    SARDONYX_UNARY(erf) SARDONYX_UNARY(erfc) SARDONYX_UNARY(exp) SARDONYX_UNARY(exp2) SARDONYX_UNARY(expm1)
    SARDONYX_UNARY(fabs) SARDONYX_UNARY(floor) SARDONYX_UNARY(lgamma) SARDONYX_UNARY(log) SARDONYX_UNARY(log10)
    SARDONYX_UNARY(log1p) SARDONYX_UNARY(log2) SARDONYX_UNARY(nearbyint) SARDONYX_UNARY(rint) SARDONYX_UNARY(round)
    SARDONYX_UNARY(roundeven) SARDONYX_UNARY(sin) SARDONYX_UNARY(sinh) SARDONYX_UNARY(sqrt) SARDONYX_UNARY(tan)
    SARDONYX_UNARY(tanh) SARDONYX_UNARY(tgamma) SARDONYX_UNARY(trunc)
    SARDONYX_BINARY(atan2) SARDONYX_BINARY(copysign) SARDONYX_BINARY(fdim) SARDONYX_BINARY(fmax) SARDONYX_BINARY(fmin)
    SARDONYX_BINARY(fmod) SARDONYX_BINARY(hypot) SARDONYX_BINARY(pow) SARDONYX_BINARY(remainder)
    SARDONYX_OTHER(fma) SARDONYX_OTHER(fmaf) SARDONYX_OTHER(frexp) SARDONYX_OTHER(frexpf) SARDONYX_OTHER(ldexp)
    SARDONYX_OTHER(ldexpf) SARDONYX_OTHER(lrint) SARDONYX_OTHER(lrintf) SARDONYX_OTHER(llrint) SARDONYX_OTHER(llrintf)
    SARDONYX_OTHER(lround) SARDONYX_OTHER(lroundf) SARDONYX_OTHER(modf) SARDONYX_OTHER(modff) SARDONYX_OTHER(sincos)
    SARDONYX_OTHER(sincosf)
    // clang-format on
    {"__extendhfsf2", address(extend_half)},
    {"__truncsfhf2", address(half_of_float)},
    {"__truncdfhf2", address(half_of_double)},
    {"__truncsfbf2", address(bfloat_of_float)},
    {"__truncdfbf2", address(bfloat_of_double)},
};
#undef SARDONYX_UNARY
#undef SARDONYX_BINARY
#undef SARDONYX_OTHER

}  // namespace

std::span<const RuntimeSymbol> host_runtime() {
  static const std::vector<RuntimeSymbol> all = [] {
    std::vector<RuntimeSymbol> list(std::begin(kSymbols), std::end(kSymbols));
    list.insert(list.end(), block_runtime().begin(), block_runtime().end());
    return list;
  }();
  return all;
}

}  // namespace sardonyx
