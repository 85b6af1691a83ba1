// Rounding, comparison, remainders, integer arithmetic and random numbers of the prelude, against definitions.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels.h"

namespace {

template <class F>
std::vector<F> values(int random_ones) {
  using Limits = std::numeric_limits<F>;
  const double large = sizeof(F) == 8 ? 0x1p52 : 0x1p23;
  std::vector<F> v;
  for (double a : {0.0,
                   0.25,
                   0.5,
                   0.75,
                   1.0,
                   1.5,
                   2.0,
                   2.5,
                   3.5,
                   7.3,
                   1e5,
                   large / 2 - 0.5,
                   large / 2 + 0.5,
                   large - 0.5,
                   large + 1,
                   large * 4,
                   1e30,
                   double(Limits::max()),
                   double(Limits::min()),
                   double(Limits::denorm_min()),
                   0.49999999999999994,
                   1e-10,
                   double(INFINITY),
                   double(NAN)})
    for (double b : {a, -a}) v.push_back(static_cast<F>(b));
  Random random{3};
  for (int i = 0; i < random_ones; i++) {
    v.push_back(static_cast<F>(random.symmetric() * 10));
    v.push_back(bits_as<F>(static_cast<std::conditional_t<sizeof(F) == 8, u64, u32>>(random())));
  }
  return v;
}

template <class F>
bool same(F a, F b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

template <class F, class Want>
void unary(const char* name, void (*kernel)(const F*, F*, i64), Want want) {
  const std::vector<F> x = values<F>(1000);
  std::vector<F> y(x.size());
  kernel(x.data(), y.data(), static_cast<i64>(x.size()));
  for (std::size_t i = 0; i < x.size(); i++)
    ASSERT_TRUE(same(y[i], static_cast<F>(want(x[i]))))
        << name << "(" << x[i] << ") is " << y[i] << ", not " << want(x[i]);
}

template <class T, class Want>
void binary(const char* name, const std::vector<T>& v, void (*kernel)(const T*, const T*, T*, i64), Want want) {
  std::vector<T> x, y;
  for (T a : v)
    for (T b : v) x.push_back(a), y.push_back(b);
  std::vector<T> z(x.size());
  kernel(x.data(), y.data(), z.data(), static_cast<i64>(x.size()));
  for (std::size_t i = 0; i < x.size(); i++) {
    const T w = want(x[i], y[i]);
    if constexpr (std::is_floating_point_v<T>)
      ASSERT_TRUE(same(z[i], w)) << name << "(" << x[i] << ", " << y[i] << ") is " << z[i] << ", not " << w;
    else
      ASSERT_EQ(z[i], w) << name << "(" << +x[i] << ", " << +y[i] << ")";
  }
}

template <class F, class K>
void rounding(K kernels) {
  const auto& [floor_k, ceil_k, trunc_k, round_k, sign_k, abs_k] = kernels;
  unary<F>("floor", floor_k, [](F x) { return std::floor(x); });
  unary<F>("ceil", ceil_k, [](F x) { return std::ceil(x); });
  unary<F>("trunc", trunc_k, [](F x) { return std::trunc(x); });
  unary<F>("round", round_k, [](F x) { return std::nearbyint(x); });
  unary<F>("sign", sign_k, [](F x) { return x > 0 ? F(1) : x < 0 ? F(-1) : x; });
  unary<F>("abs", abs_k, [](F x) { return std::fabs(x); });
}

template <class F>
struct Rounding {
  void (*floor)(const F*, F*, i64);
  void (*ceil)(const F*, F*, i64);
  void (*trunc)(const F*, F*, i64);
  void (*round)(const F*, F*, i64);
  void (*sign)(const F*, F*, i64);
  void (*abs)(const F*, F*, i64);
};
#define ROUNDING(T, isa)                                                                                         \
  Rounding<T> {                                                                                                  \
    floor_##T##_##isa, ceil_##T##_##isa, trunc_##T##_##isa, round_##T##_##isa, sign_##T##_##isa, abs_##T##_##isa \
  }

TEST(Basic, Rounding) {
  if (has_wide()) rounding<f32>(ROUNDING(f32, wide)), rounding<f64>(ROUNDING(f64, wide));
  rounding<f32>(ROUNDING(f32, base)), rounding<f64>(ROUNDING(f64, base));
}

template <class F>
F python_mod(F x, F y) {
  const F r = std::fmod(x, y);
  if (r == 0) return std::copysign(F(0), y);
  return (r < 0) != (y < 0) ? r + y : r;
}
// NaN if either is; of zeros of two signs either may win, so that they are compared as equal by the caller's choice of
// order.
template <class F>
F least(F x, F y) {
  return std::isnan(x) ? x : std::isnan(y) ? y : x < y ? x : y;
}
template <class F>
F greatest(F x, F y) {
  return std::isnan(x) ? x : std::isnan(y) ? y : x > y ? x : y;
}

template <class F>
using Binary = void (*)(const F*, const F*, F*, i64);

template <class F>
void float_pairs(Binary<F> fmod_k, Binary<F> mod_k, Binary<F> min_k, Binary<F> max_k, Binary<F> sign_k) {
  const std::vector<F> v = values<F>(60);
  binary<F>("fmod", v, fmod_k, [](F x, F y) { return std::fmod(x, y); });
  binary<F>("mod_floor", v, mod_k, python_mod<F>);
  binary<F>("min", v, min_k, least<F>);
  binary<F>("max", v, max_k, greatest<F>);
  binary<F>("copysign", v, sign_k, [](F x, F y) { return std::copysign(x, y); });
}

TEST(Basic, FloatPairs) {
#define PAIRS(T, isa) \
  float_pairs<T>(fmod_##T##_##isa, mod_floor_##T##_##isa, min_##T##_##isa, max_##T##_##isa, copysign_##T##_##isa)
  if (has_wide()) PAIRS(f32, wide), PAIRS(f64, wide);
  PAIRS(f32, base), PAIRS(f64, base);
}

TEST(Basic, Clamp) {
  const std::vector<f32> x = values<f32>(1000);
  std::vector<f32> y(x.size());
  for (auto kernel : {clamp_f32_base, has_wide() ? clamp_f32_wide : clamp_f32_base}) {
    kernel(x.data(), y.data(), static_cast<i64>(x.size()));
    for (std::size_t i = 0; i < x.size(); i++)
      ASSERT_TRUE(same(y[i], x[i] < -1 ? -1 : x[i] > 2 ? 2 : x[i])) << x[i] << " gives " << y[i];
  }
}

// --- integers, in 128 bits, reduced to T at the end ---

using Wide = __int128;

Wide floor_quotient(Wide x, Wide y) { return x / y - (x % y != 0 && (x < 0) != (y < 0) ? 1 : 0); }

template <class T>
T power(T x, T n) {
  if (n < 0) {
    if (x == 1) return 1;
    if (std::is_signed_v<T> && x == T(-1)) return n % 2 == 0 ? 1 : -1;
    return 0;
  }
  u64 r = 1, b = static_cast<u64>(x);
  for (u64 e = static_cast<u64>(n); e; e >>= 1, b *= b)
    if (e & 1) r *= b;
  return static_cast<T>(r);
}

template <class T>
std::vector<T> integers() {
  std::vector<T> v;
  if (sizeof(T) == 1) {
    for (int i = 0; i < 256; i++) v.push_back(static_cast<T>(i));
    return v;
  }
  using Limits = std::numeric_limits<T>;
  for (i64 i = -40; i <= 70; i++) v.push_back(static_cast<T>(i));
  for (T a : {Limits::min(), Limits::max(), T(Limits::max() - 1), T(Limits::min() + 1), T(Limits::max() / 2), T(65535)})
    v.push_back(a);
  Random random{4};
  for (int i = 0; i < 60; i++) v.push_back(static_cast<T>(random() >> (random() % 64)));
  return v;
}

template <class T>
void integer_pairs(Binary<T> div_trunc, Binary<T> div_floor, Binary<T> mod_trunc, Binary<T> mod_floor, Binary<T> shl,
                   Binary<T> shr, Binary<T> ipow, Binary<T> min, Binary<T> max, Binary<T> bit_xor) {
  const std::vector<T> v = integers<T>();
  using U = std::make_unsigned_t<T>;
  constexpr int width = 8 * sizeof(T);
  binary<T>("div_trunc", v, div_trunc, [](T x, T y) { return y == 0 ? T(0) : static_cast<T>(Wide(x) / Wide(y)); });
  binary<T>("div_floor", v, div_floor, [](T x, T y) { return y == 0 ? T(0) : static_cast<T>(floor_quotient(x, y)); });
  binary<T>("mod_trunc", v, mod_trunc, [](T x, T y) { return y == 0 ? T(0) : static_cast<T>(Wide(x) % Wide(y)); });
  binary<T>("mod_floor", v, mod_floor,
            [](T x, T y) { return y == 0 ? T(0) : static_cast<T>(Wide(x) - Wide(y) * floor_quotient(x, y)); });
  binary<T>("shl", v, shl, [](T x, T n) { return n < 0 || n >= T(width) ? T(0) : static_cast<T>(u64(x) << int(n)); });
  binary<T>("shr", v, shr, [](T x, T n) { return n < 0 || n >= T(width) ? T(0) : static_cast<T>(U(x) >> int(n)); });
  binary<T>("ipow", v, ipow, power<T>);
  binary<T>("min", v, min, [](T x, T y) { return std::min(x, y); });
  binary<T>("max", v, max, [](T x, T y) { return std::max(x, y); });
  binary<T>("bit_xor", v, bit_xor, [](T x, T y) { return static_cast<T>(x ^ y); });
}

TEST(Basic, Integers) {
#define INTEGERS(T, isa)                                                                                       \
  integer_pairs<T>(div_trunc_##T##_##isa, div_floor_##T##_##isa, mod_trunc_##T##_##isa, mod_floor_##T##_##isa, \
                   shl_##T##_##isa, shr_##T##_##isa, ipow_##T##_##isa, min_##T##_##isa, max_##T##_##isa,       \
                   bit_xor_##T##_##isa)
#define ALL_INTEGERS(isa) \
  INTEGERS(i8, isa), INTEGERS(u8, isa), INTEGERS(i32, isa), INTEGERS(u32, isa), INTEGERS(i64, isa), INTEGERS(u64, isa)
  if (has_wide()) ALL_INTEGERS(wide);
  ALL_INTEGERS(base);
}

// --- random numbers ---

// The known answers that the authors of Philox publish with their library Random123.
TEST(Random, PhiloxKnownAnswers) {
  struct Answer {
    u32 counter[4], key[2], want[4];
  };
  const Answer answers[] = {{{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
                            {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
                            {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                             {0xa4093822, 0x299f31d0},
                             {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
  for (const Answer& a : answers)
    for (auto kernel : {philox_base, has_wide() ? philox_wide : philox_base}) {
      u32 got[4];
      kernel(a.counter[1], a.counter[2], a.counter[3], a.key[0], a.key[1], a.counter[0], got, 1);
      for (int i = 0; i < 4; i++) EXPECT_EQ(got[i], a.want[i]);
    }
}

// A number is the first word of the block of its index, under the seed as the key: that makes runs repeatable
// elsewhere.
TEST(Random, UniformIsTheBlockOfItsIndex) {
  const u64 seed = 0x0123456789abcdef;
  f32 got[8];
  random_uniform_base(seed, got, 8);
  for (u32 i = 0; i < 8; i++) {
    u32 want[4];
    philox_base(0, 0, 0, static_cast<u32>(seed), static_cast<u32>(seed >> 32), i, want, 1);
    EXPECT_EQ(got[i], static_cast<f32>(want[0] >> 8) / 16777216.0f);
  }
}

TEST(Random, UniformAndNormalHaveTheirMoments) {
  if (!has_wide()) GTEST_SKIP() << "compiled for AVX2 and FMA, which this CPU lacks";
  constexpr i64 n = 400'000;
  std::vector<f32> y(n), u(n);
  std::vector<f64> v(n);
  normal_wide(7, y.data(), n);
  uniform_wide(7, u.data(), v.data(), n);
  double mean = 0, square = 0, fourth = 0, mean32 = 0, mean64 = 0, square64 = 0;
  for (i64 i = 0; i < n; i++) {
    mean += y[i];
    square += double(y[i]) * y[i];
    fourth += std::pow(double(y[i]), 4);
    mean32 += u[i];
    mean64 += v[i];
    square64 += v[i] * v[i];
    ASSERT_TRUE(u[i] >= 0 && u[i] < 1 && v[i] >= 0 && v[i] < 1 && std::fabs(y[i]) < 5.8);
  }
  // Five standard deviations of each mean: sqrt(var / n) with var 1, 2, 96, 1/12, 4/45.
  EXPECT_NEAR(mean / n, 0, 5 * std::sqrt(1.0 / n));
  EXPECT_NEAR(square / n, 1, 5 * std::sqrt(2.0 / n));
  EXPECT_NEAR(fourth / n, 3, 5 * std::sqrt(96.0 / n));
  EXPECT_NEAR(mean32 / n, 0.5, 5 * std::sqrt(1.0 / 12 / n));
  EXPECT_NEAR(mean64 / n, 0.5, 5 * std::sqrt(1.0 / 12 / n));
  EXPECT_NEAR(square64 / n, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / n));
}

}  // namespace
