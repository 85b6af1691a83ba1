// Every post-operation, and 16-bit floats.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "host/convert.h"
#include "host/simd.h"
#include "reference.h"

namespace sardonyx::host::test {
namespace {

using Kind = PostOp::Kind;

struct Case {
  const char* name;
  PostOp op;
  double tolerance;  // of max(1, |result|)
  float low = -10, high = 10;
};

// Steps of comparisons, one addition or one product are right to half a unit in the last place (2^-24), several
// of them to a few. oneDNN's exp, tanh and erf are polynomials with errors of a few 1e-7; pow multiplies an
// error by the exponent.
const Case kCases[] = {
    {"relu", {.kind = Kind::kRelu}, 0},
    {"leaky relu", {.kind = Kind::kLeakyRelu, .alpha = 0.1f}, 0x1p-23},
    {"clip", {.kind = Kind::kClip, .alpha = -1.5f, .beta = 4}, 0},
    {"sigmoid", {.kind = Kind::kSigmoid}, 5e-7},
    {"tanh", {.kind = Kind::kTanh}, 5e-7},
    {"swish", {.kind = Kind::kSwish, .alpha = 1.7f}, 1e-6},
    {"hard swish", {.kind = Kind::kHardSwish, .alpha = 1.f / 6, .beta = 0.5f}, 4 * 0x1p-23},
    {"hard sigmoid", {.kind = Kind::kHardSigmoid, .alpha = 0.2f, .beta = 0.5f}, 2 * 0x1p-23},
    {"gelu erf", {.kind = Kind::kGeluErf}, 1e-6},
    {"gelu tanh", {.kind = Kind::kGeluTanh}, 1e-6},
    {"elu", {.kind = Kind::kElu, .alpha = 0.7f}, 5e-7},
    {"mish", {.kind = Kind::kMish}, 2e-6},
    {"exp", {.kind = Kind::kExp}, 1e-6},
    {"sqrt", {.kind = Kind::kSqrt}, 0x1p-23, 0, 20},
    {"abs", {.kind = Kind::kAbs}, 0},
    {"square", {.kind = Kind::kSquare}, 0x1p-23},
    {"linear", {.kind = Kind::kLinear, .alpha = 1.5f, .beta = -0.3f}, 2 * 0x1p-23},
    {"pow", {.kind = Kind::kPow, .alpha = 2, .beta = 3}, 4e-6, 0.1f, 5},
    {"pow -1", {.kind = Kind::kPow, .alpha = 1, .beta = -1}, 1e-6, 0.1f, 5},
    {"pow 1/2", {.kind = Kind::kPow, .alpha = 1, .beta = 0.5f}, 1e-6, 0.1f, 5},
    {"round", {.kind = Kind::kRound}, 0},
};

/// The worst error of `c` in units of max(1, |result|), over kernels whose sum is the input itself: a product with
/// the identity.
void expect_close(const Case& c, const float* got, const std::vector<float>& in, const std::string& where) {
  double worst = 0;
  float at = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double expected = apply(c.op, in[i], 0);
    const double error = std::abs(got[i] - expected) / std::max(1.0, std::abs(expected));
    if (!(error <= worst)) worst = error, at = in[i];
  }
  EXPECT_LE(worst, c.tolerance) << c.name << " at " << at << " in " << where;
}

std::vector<float> identity(std::int64_t n) {
  std::vector<float> eye(static_cast<std::size_t>(n * n), 0.f);
  for (std::int64_t i = 0; i < n; ++i) eye[static_cast<std::size_t>(i * n + i)] = 1;
  return eye;
}

std::vector<float> inputs(const Case& c, std::int64_t count) {
  auto in = uniform(count, c.low, c.high, 11);
  // Ties of round, and where the pieces of approximations meet.
  const float special[] = {0.5f, 1.5f, 2.5f, 1, 3, 4};
  std::copy(std::begin(special), std::end(special), in.begin());
  if (c.low < 0) in[6] = 0, in[7] = -0.5f, in[8] = -1.5f, in[9] = -3;
  return in;
}

class PostOpTest : public testing::TestWithParam<Case> {};

// m rows of n times the identity, with the operation after it, for each of `inputs`.
void expect_in_gemm(const Case& c, std::int64_t m, std::int64_t n, bool constant,
                    const std::vector<std::vector<float>>& inputs) {
  const auto eye = identity(n);
  GemmDesc d;
  d.m = m, d.n = d.k = n;
  d.b_constant = constant;
  d.threads = 2;
  d.post = {c.op};
  std::string why;
  auto kernel = find_gemm(d, why);
  ASSERT_TRUE(kernel) << c.name << why;
  auto packed = kernel->pack(eye.data());
  Buffer out(static_cast<std::size_t>(m * n) * sizeof(float)), scratch(kernel->scratch_bytes());
  for (const std::vector<float>& in : inputs) {
    kernel->run({.src = in.data(),
                 .weights = eye.data(),
                 .packed = packed.get(),
                 .out = out.data(),
                 .scratch = scratch.data()});
    expect_close(c, static_cast<const float*>(out.data()), in, kernel->name());
  }
}

TEST_P(PostOpTest, InGemm) {
  const Case& c = GetParam();
  for (bool constant : {true, false}) expect_in_gemm(c, 37, 19, constant, {inputs(c, std::int64_t{37} * 19)});
}

// Weights that are large enough for the panel kernel.
TEST_P(PostOpTest, InGemmWithManyWeights) {
  const Case& c = GetParam();
  constexpr std::int64_t n = 513, m = 9;
  std::vector<std::vector<float>> in = {inputs(c, m * n)};
  if (c.op.kind == Kind::kGeluErf) {
    // Where the two terms of its formula are 0, infinite or cancel.
    std::vector<float> ends(static_cast<std::size_t>(m * n), 0.f);
    ends[0] = 1e30f;
    for (std::int64_t i = 1; i < m; ++i) ends[static_cast<std::size_t>(i * n)] = -std::ldexp(1.f, static_cast<int>(i));
    in.push_back(std::move(ends));
  }
  expect_in_gemm(c, m, n, true, in);
}

TEST_P(PostOpTest, InConvolution) {
  const Case& c = GetParam();
  for (std::int64_t groups : {1, 20}) {
    ConvDesc d;
    d.in_channels = d.out_channels = 20;
    d.groups = groups;
    d.in = {6, 7, 0};
    d.kernel = {1, 1, 0};
    d.threads = 2;
    set_out(d);
    d.post = {c.op};
    std::string why;
    auto kernel = find_convolution(d, why);
    ASSERT_TRUE(kernel) << c.name << why;
    const auto in = inputs(c, 6 * 7 * 20);
    auto packed = kernel->pack(groups == 1 ? identity(20).data() : std::vector<float>(20, 1.f).data());
    Buffer out(in.size() * sizeof(float)), scratch(kernel->scratch_bytes());
    kernel->run({.src = in.data(), .packed = packed.get(), .out = out.data(), .scratch = scratch.data()});
    expect_close(c, static_cast<const float*>(out.data()), in, kernel->name());
  }
}

INSTANTIATE_TEST_SUITE_P(All, PostOpTest, testing::ValuesIn(kCases));

TEST(Half, ConversionsKeepEveryValueAndRoundToEven) {
  for (DType type : {DType::kFloat16, DType::kBFloat16}) {
    std::vector<std::uint16_t> halves(65536), back(65536);
    for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
    std::vector<float> wide(halves.size());
    to_float32(type, halves.data(), wide.data(), 65536, 2);
    from_float32(type, wide.data(), back.data(), 65536, 2);
    const int mantissa = type == DType::kFloat16 ? 10 : 7;
    const int bias = type == DType::kFloat16 ? 15 : 127;
    for (std::size_t i = 0; i < halves.size(); ++i) {
      const int exponent = static_cast<int>(i >> mantissa) & (type == DType::kFloat16 ? 31 : 255);
      const auto fraction = static_cast<double>(i & ((1u << mantissa) - 1));
      const bool special = exponent == 2 * bias + 1;
      const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias - mantissa)
                                             : std::ldexp(fraction + std::exp2(mantissa), exponent - bias - mantissa);
      if (special && fraction != 0) {
        ASSERT_TRUE(std::isnan(wide[i]));
        ASSERT_EQ((back[i] & 0x7fff) > (halves[i] & 0x7fff & ~((1u << mantissa) - 1)), true) << i;
        continue;
      }
      ASSERT_EQ(wide[i], (i >> 15 ? -1 : 1) * (special ? INFINITY : magnitude)) << i;
      ASSERT_EQ(back[i], halves[i]);
    }
    // Between each two neighbours: below the middle down, at the middle to even, above it up.
    std::vector<float> between;
    std::vector<std::uint16_t> expected;
    for (std::uint16_t i = 0; i < (type == DType::kFloat16 ? 0x7bff : 0x7f7f); ++i) {
      const double middle = (double{wide[i]} + wide[i + 1u]) / 2;
      const auto m = static_cast<float>(middle);
      between.insert(between.end(), {std::nextafter(m, -INFINITY), m, std::nextafter(m, INFINITY)});
      expected.insert(expected.end(), {i, static_cast<std::uint16_t>(i + (i & 1)), static_cast<std::uint16_t>(i + 1)});
      // Where float32 itself has no value at the middle (its subnormals), all three may be the middle's neighbours.
      if (m != middle) expected.resize(expected.size() - 3), between.resize(between.size() - 3);
    }
    std::vector<std::uint16_t> rounded(between.size());
    from_float32(type, between.data(), rounded.data(), static_cast<std::int64_t>(between.size()), 1);
    for (std::size_t i = 0; i < rounded.size(); ++i) ASSERT_EQ(rounded[i], expected[i]) << between[i];
    const float large[] = {65519.99f, 65520.f, 3.4e38f, -INFINITY};
    std::uint16_t r[4];
    from_float32(type, large, r, 4, 1);
    EXPECT_EQ(r[3], type == DType::kFloat16 ? 0xfc00 : 0xff80);
    EXPECT_EQ(r[2], type == DType::kFloat16 ? 0x7c00 : 0x7f80);
    if (type == DType::kFloat16) {
      EXPECT_EQ(r[0], 0x7bff);
      EXPECT_EQ(r[1], 0x7c00);
    }
  }
}

// Recurrent cells' functions against double, over all magnitudes and both signs.
TEST(Simd, SigmoidAndTanh) {
  std::vector<float> x;
  for (float m = 1e-30f; m < 1e30f; m *= 1.0137f) x.insert(x.end(), {m, -m});
  x.insert(x.end(), {0.f, INFINITY, -INFINITY});
  for (const bool tanh : {false, true}) {
    std::vector<float> y = x;
    (tanh ? simd().tanh : simd().sigmoid)(y.data(), static_cast<std::int64_t>(y.size()));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = tanh ? std::tanh(double{x[i]}) : 1 / (1 + std::exp(-double{x[i]}));
      const double unit = std::max(std::abs(exact), 0x1p-126) * 0x1p-23;
      // A sigmoid below float32's normal numbers is 0.
      EXPECT_NEAR(y[i], exact, std::max(3 * unit, tanh ? 0.0 : 0x1p-126)) << (tanh ? "tanh " : "sigmoid ") << x[i];
    }
    float nan = NAN;
    (tanh ? simd().tanh : simd().sigmoid)(&nan, 1);
    EXPECT_TRUE(std::isnan(nan));
  }
}

/// Integers that both half types hold, so that only the result's rounding remains.
template <typename Desc>
void expect_rounded_once(Desc d, DType type, const std::vector<float>& src, const std::vector<float>& weights,
                         const std::vector<double>& expected, const std::vector<float>& operand) {
  const auto half = [&](const std::vector<float>& v) {
    std::vector<std::uint16_t> h(v.size());
    from_float32(type, v.data(), h.data(), static_cast<std::int64_t>(v.size()), 1);
    return h;
  };
  const auto s = half(src), w = half(weights), o = half(operand);
  std::string why;
  std::shared_ptr<const TileKernel> kernel;
  if constexpr (std::is_same_v<Desc, GemmDesc>) {
    kernel = find_gemm(d, why);
  } else {
    kernel = find_convolution(d, why);
  }
  ASSERT_TRUE(kernel) << why;
  auto packed = kernel->pack(w.data());
  std::vector<std::uint16_t> out(expected.size()), nearest(expected.size());
  Buffer scratch(kernel->scratch_bytes());
  const void* operands[] = {o.data()};
  kernel->run({.src = s.data(),
               .weights = w.data(),
               .packed = packed.get(),
               .operands = operands,
               .out = out.data(),
               .scratch = scratch.data()});
  const std::vector<float> exact(expected.begin(), expected.end());
  from_float32(type, exact.data(), nearest.data(), static_cast<std::int64_t>(exact.size()), 1);
  EXPECT_EQ(out, nearest) << name(type) << " by " << kernel->name();
}

TEST(Half, GemmAndConvolutionRoundOnce) {
  for (DType type : {DType::kFloat16, DType::kBFloat16}) {
    for (bool constant : {false, true}) {
      GemmDesc d;
      d.m = 23, d.n = 50, d.k = 100;
      d.a = d.b = d.out = type;
      d.b_constant = constant;
      d.threads = 2;
      d.post = {{.kind = Kind::kAddTensor, .dims = {23, 50}, .dtype = type}};
      const auto a = integers(23 * 100, 6, 1), b = integers(100 * 50, 6, 2), c = integers(23 * 50, 6, 3);
      expect_rounded_once(d, type, a, b, gemm(d, a, b, {}, {c}), c);
    }
    ConvDesc d;
    d.in_channels = 24, d.out_channels = 40;
    d.in = {7, 9, 0};
    d.kernel = {3, 3, 0};
    d.threads = 2;
    set_out(d);
    d.src = d.weights = d.dst = type;
    d.post = {{.kind = Kind::kAddTensor, .dims = out_dims(d), .dtype = type}};
    const auto src = integers(7 * 9 * 24, 6, 1), w = integers(24 * 40 * 9, 6, 2),
               c = integers(product(out_dims(d)), 6, 3);
    expect_rounded_once(d, type, src, w, convolution(d, src, w, {}, {c}), c);
  }
}

}  // namespace
}  // namespace sardonyx::host::test
