// Accuracy of the prelude's elementary functions, in ULPs against long double, over all magnitudes of the argument.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "ulp.h"

namespace {

template <class F>
using Kernel = void (*)(const F*, F*, i64);
using Reference = Exact (*)(Exact);

Exact sigmoid_exact(Exact x) { return 1 / (1 + std::exp(-x)); }
// x times a weight that is 0 at minus infinity: the limit is -0.
Exact weighted(Exact x, Exact weight) { return x == -INFINITY ? Exact(-0.0) : x * weight; }

struct Row {
  const char* name;
  Kernel<f32> wide32, base32;
  Kernel<f64> wide64, base64;
  Reference reference;
  double bound32, bound64;  // ulps: what 4 million (f32), 2 million (f64) arguments gave, rounded up to a quarter
  // Errors grow by 1 + |growth(x)| where the function contains the exponential of growth(x), rounded.
  Reference growth = nullptr;
  // Below this multiple of the smallest normal number ulps are counted there: products of subnormal numbers.
  double floor = 0;
};

#define FOUR(name) name##_f32_wide, name##_f32_base, name##_f64_wide, name##_f64_base
#define PLAIN(name, bound32, bound64)                                                  \
  Row {                                                                                \
    #name, FOUR(name), [](Exact x) -> Exact { return std::name(x); }, bound32, bound64 \
  }

const Row kRows[] = {
    PLAIN(exp, 1, 1),
    PLAIN(exp2, 1.25, 1.25),
    PLAIN(expm1, 1.5, 1.5),
    PLAIN(log, 1, 1),
    PLAIN(log2, 1.5, 1.75),
    PLAIN(log10, 0.75, 1.75),
    PLAIN(log1p, 1.5, 1.25),
    PLAIN(sqrt, 0.5, 0.5),
    {"rsqrt", FOUR(rsqrt), [](Exact x) -> Exact { return 1 / std::sqrt(x); }, 1.5, 1.5},
    PLAIN(sin, 1, 1),
    PLAIN(cos, 1, 1),
    PLAIN(tan, 1.75, 2.25),
    PLAIN(asin, 0.75, 2),
    PLAIN(acos, 1, 1.25),
    PLAIN(atan, 2, 1.75),
    PLAIN(sinh, 1.75, 1.75),
    PLAIN(cosh, 1.5, 1.5),
    PLAIN(tanh, 1.5, 2.5),
    PLAIN(asinh, 0.75, 2),
    PLAIN(acosh, 0.75, 2),
    PLAIN(atanh, 0.75, 2),
    PLAIN(erf, 1.5, 1.25),
    {"sigmoid", FOUR(sigmoid), sigmoid_exact, 2.5, 2.5},
    {"silu", FOUR(silu), [](Exact x) { return weighted(x, sigmoid_exact(x)); }, 3.25, 3, nullptr, 0x1p10},
    {"softplus", FOUR(softplus), [](Exact x) -> Exact { return std::log1p(std::exp(-std::fabs(x))) + (x > 0 ? x : 0); },
     1.75, 1.75},
    {"softsign", FOUR(softsign), [](Exact x) -> Exact { return x / (1 + std::fabs(x)); }, 1.5, 1.5},
    {"mish", FOUR(mish), [](Exact x) { return weighted(x, std::tanh(std::log1p(std::exp(x)))); }, 4, 4.25, nullptr,
     0x1p10},
    {"gelu", FOUR(gelu), [](Exact x) { return weighted(x, 0.5L * std::erfc(-x * 0.70710678118654752440L)); }, 4.25,
     4.75, [](Exact x) { return x < 0 ? x * x / 2 : 0; }, 0x1p10},
    {"gelu_tanh", FOUR(gelu_tanh),
     [](Exact x) { return weighted(x, sigmoid_exact(1.5957691216057307117597842L * (x + 0.044715L * x * x * x))); },
     3.25, 4, [](Exact x) { return x < 0 ? 1.6L * (x + 0.044715L * x * x * x) : 0; }, 0x1p10},
};

// Bit patterns at even distances (every exponent alike), the range where functions bend, multiples of pi/2 and their
// neighbours, and special values.
template <class F>
std::vector<F> arguments(int count) {
  using Bits = typename Format<F>::Bits;
  std::vector<F> x;
  Random random{1};
  const Bits step = static_cast<Bits>(~Bits(0)) / static_cast<Bits>(count) | 1;
  Bits bits = 0;
  for (int i = 0; i < count; i++, bits += step) x.push_back(bits_as<F>(bits));
  for (double range : {1.0, 5.0, 20.0, 800.0})
    for (int i = 0; i < count / 4; i++) x.push_back(static_cast<F>(range * random.symmetric()));
  for (int k = 0; k < 3000; k++) {
    const F p = static_cast<F>(k * 1.57079632679489661923L);
    for (F y : {p, std::nextafter(p, F(0)), std::nextafter(p, F(1e9))}) x.push_back(y);
  }
  using Limits = std::numeric_limits<F>;
  for (F v : {F(0), F(1), F(0.5), F(2), F(0.78), F(0.625), F(1e-20), Limits::infinity(), Limits::quiet_NaN(),
              Limits::max(), Limits::min(), Limits::denorm_min(), 1 - Limits::epsilon() / 2, 1 + Limits::epsilon(),
              F(6381956970095103.0 * std::ldexp(1.0, 797)),  // of all f64 the one nearest to a multiple of pi/2
              F(16367173.0 * std::ldexp(1.0, 72))})          // the same of f32
    for (F y : {v, -v}) x.push_back(y);
  return x;
}

template <class F>
void measure(const Row& row, Kernel<F> kernel, double bound, const std::vector<F>& x, const std::vector<Exact>& want,
             const char* what) {
  std::vector<F> y(x.size());
  kernel(x.data(), y.data(), static_cast<i64>(x.size()));
  double worst = 0;
  std::size_t at = 0;
  const Exact floor = row.floor * static_cast<Exact>(std::numeric_limits<F>::min());
  for (std::size_t i = 0; i < x.size(); i++) {
    double error = ulps(y[i], want[i], floor);
    if (row.growth && std::isfinite(x[i])) error /= 1 + static_cast<double>(std::fabs(row.growth(x[i])));
    if (error > worst) worst = error, at = i;
  }
  char text[64];
  std::snprintf(text, sizeof text, "%.3f", worst);
  testing::Test::RecordProperty(std::string(row.name) + "_" + what, text);
  EXPECT_LE(worst, bound) << row.name << " " << what << " of " << std::hexfloat << x[at] << " is " << y[at]
                          << ", should be " << static_cast<F>(want[at]) << " (" << std::defaultfloat << x[at] << ")";
}

template <class F>
void sweep(int count, Kernel<F> Row::* wide, Kernel<F> Row::* base, double Row::* bound, const char* what) {
  const std::vector<F> x = arguments<F>(count);
  std::vector<Exact> want(x.size());
  for (const Row& row : kRows) {
    for (std::size_t i = 0; i < x.size(); i++) want[i] = row.reference(x[i]);
    if (has_wide()) measure(row, row.*wide, row.*bound, x, want, what);
    measure(row, row.*base, row.*bound, x, want, what);
  }
}

// A loop that has tested its angles computes the same.
TEST(Math, BoundedAngles) {
  std::vector<f32> x;
  for (const f32 v : arguments<f32>(400'000))
    if (std::fabs(v) < 16384) x.push_back(v);
  for (const f32 v : {16383.999F, -16383.999F, -0.0F}) x.push_back(v);
  ASSERT_GT(x.size(), 300'000);
  std::vector<f32> got(x.size()), want(x.size());
  const auto n = static_cast<i64>(x.size());
  const std::pair<Kernel<f32>, Kernel<f32>> wide[] = {{bounded_sin_f32_wide, sin_f32_wide},
                                                      {bounded_cos_f32_wide, cos_f32_wide}},
                                            base[] = {{bounded_sin_f32_base, sin_f32_base},
                                                      {bounded_cos_f32_base, cos_f32_base}};
  for (const auto& [bounded, plain] : has_wide() ? wide : base) {
    bounded(x.data(), got.data(), n);
    plain(x.data(), want.data(), n);
    EXPECT_EQ(std::memcmp(got.data(), want.data(), sizeof(f32) * x.size()), 0);
  }
}

TEST(Math, Float32WithinBounds) { sweep(100'000, &Row::wide32, &Row::base32, &Row::bound32, "f32"); }
TEST(Math, Float64WithinBounds) { sweep(40'000, &Row::wide64, &Row::base64, &Row::bound64, "f64"); }

// pow(): special values against IEEE 754, others in four kinds: any bits, small integer exponents, results over the
// whole range, bases near 1.
template <class F>
void power(void (*kernel)(const F*, const F*, F*, i64), double largest, double bound) {
  using Bits = typename Format<F>::Bits;
  std::vector<F> x, y;
  const double special[] = {0.0,
                            1,
                            INFINITY,
                            NAN,
                            0.5,
                            2,
                            3,
                            2.5,
                            1e5,
                            1e30,
                            1e300,
                            16777215.0,
                            16777216.0,
                            33554433.0,
                            1e-3,
                            1e-300,
                            9007199254740991.0,
                            9007199254740992.0,
                            1 + 0x1p-23,
                            1 + 0x1p-52,
                            1 - 0x1p-24};
  for (double a : special)
    for (double b : special)
      for (int signs = 0; signs < 4; signs++) {
        x.push_back(static_cast<F>(signs & 1 ? -a : a));
        y.push_back(static_cast<F>(signs & 2 ? -b : b));
      }
  Random random{2};
  for (int i = 0; i < 50'000; i++) {
    const F any = bits_as<F>(static_cast<Bits>(random()));
    const F positive = std::fabs(any), near = static_cast<F>(1 + 1e-3 * random.symmetric());
    x.insert(x.end(), {any, any, positive, near});
    y.insert(y.end(),
             {bits_as<F>(static_cast<Bits>(random())), static_cast<F>(static_cast<int>(random() % 64) - 32),
              static_cast<F>(largest * random.symmetric() / std::max(std::fabs(std::log(double(positive))), 1e-6)),
              static_cast<F>(1000 * largest * random.symmetric())});
  }
  std::vector<F> z(x.size());
  kernel(x.data(), y.data(), z.data(), static_cast<i64>(x.size()));
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < x.size(); i++) {
    const double error = ulps(z[i], std::pow(Exact(x[i]), Exact(y[i])));
    if (error > worst) worst = error, at = i;
  }
  EXPECT_LE(worst, bound) << std::hexfloat << x[at] << " ^ " << y[at] << " is " << z[at] << ", should be "
                          << static_cast<F>(std::pow(Exact(x[at]), Exact(y[at])));
}

TEST(Math, PowerWithinBounds) {
  if (has_wide()) power<f32>(pow_f32_wide, 88, 1);  // in two f32, where there is an FMA; otherwise in f64
  power<f32>(pow_f32_base, 88, 0.75);
  if (has_wide()) power<f64>(pow_f64_wide, 709, 1.25);
  power<f64>(pow_f64_base, 709, 1.25);
}

}  // namespace
