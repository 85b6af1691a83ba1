// GEMM, compared with the reference on small integers: every sum is exact, so results must be equal.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "host/gemm_problem.h"
#include "host/simd.h"
#include "reference.h"

namespace sardonyx::host::test {
namespace {

using Kind = PostOp::Kind;

GemmDesc plain(std::int64_t m, std::int64_t n, std::int64_t k) {
  GemmDesc d;
  d.m = m, d.n = n, d.k = k;
  d.threads = 2;
  return d;
}

void expect_equal(const GemmDesc& d, const std::string& label) {
  const Outcome outcome = compare(d);
  EXPECT_EQ(outcome.worst, 0) << label << " by " << outcome.kernel << outcome.refusal;
}

TEST(Gemm, OddSizesTransposesAndConstantWeights) {
  const std::int64_t sizes[][3] = {{1, 1, 1},     {1, 17, 33},   {5, 3, 7},    {8, 8, 8},     {16, 64, 64},
                                   {31, 65, 100}, {128, 96, 48}, {67, 1, 129}, {1, 1000, 300}};
  for (const auto& [m, n, k] : sizes) {
    for (int bits = 0; bits < 16; ++bits) {
      GemmDesc d = plain(m, n, k);
      d.trans_a = bits & 1, d.trans_b = bits & 2, d.b_constant = bits & 4, d.bias = bits & 8;
      expect_equal(d, fmt::format("{}x{}x{} variant {}", m, n, k, bits));
    }
  }
}

TEST(Gemm, FewRowsOfLargeConstantWeights) {
  for (std::int64_t m : {1, 2, 3, 4, 5}) {
    for (std::int64_t n : {2048, 2100, 2049}) {
      GemmDesc d = plain(m, n, 1033);
      d.b_constant = true;
      d.trans_b = n == 2100;
      d.bias = m > 1;
      expect_equal(d, fmt::format("{} rows, {} columns", m, n));
      d.post = {{.kind = Kind::kAddTensor, .dims = {m, n}}, {.kind = Kind::kRelu}};
      expect_equal(d, fmt::format("{} rows, {} columns with epilogue", m, n));
    }
  }
}

// Rows in tiles and groups, columns in panels, threads that divide either; on CPUs without AVX2 oneDNN's kernel.
TEST(Gemm, ManyRowsOfConstantWeights) {
  for (std::int64_t m : {8, 11, 13, 97, 400}) {
    for (std::int64_t n : {704, 705, 739}) {
      GemmDesc d = plain(m, n, 389);
      d.b_constant = true;
      d.trans_b = n == 705;
      d.bias = m != 11;
      d.threads = m == 97 ? 7 : 2;
      const std::string label = fmt::format("{} rows, {} columns", m, n);
      expect_equal(d, label);
      d.post = {{.kind = Kind::kAddTensor, .dims = {m, n}},
                {.kind = Kind::kMulTensor, .dims = {1, n}},
                {.kind = Kind::kRelu},
                {.kind = Kind::kSubTensor, .dims = {1, 1}}};
      expect_equal(d, label + " with epilogue");
      d.post = {{.kind = Kind::kMulTensor, .dims = {m, 1}}};  // which has no step
      expect_equal(d, label + ", scaled");
    }
  }
  GemmDesc long_rows = plain(300, 256, 2048);  // more than a cache takes: groups of rows
  long_rows.b_constant = true;
  expect_equal(long_rows, "groups of rows");
  GemmDesc batched = plain(20, 704, 389);  // whose axes merge
  batched.batch_a = {3};
  batched.b_constant = true;
  batched.post = {{.kind = Kind::kAddTensor, .dims = {3, 20, 704}}};
  expect_equal(batched, "a batch");
}

// Panels take small weights too if a function with an exponential follows. Sums are multiples of 128, of which tanh is
// -1 or 1 in float32.
TEST(Gemm, SmallConstantWeightsAndTanh) {
  if (!simd().panel_gemm) GTEST_SKIP() << "a kernel of AVX2 and AVX-512";
  for (const std::int64_t m : {9, 300}) {
    for (const std::int64_t n : {64, 100}) {
      GemmDesc d = plain(m, n, 70);
      d.b_constant = true;
      d.bias = true;
      d.post = {{.kind = Kind::kLinear, .alpha = 256, .beta = 128}, {.kind = Kind::kTanh}};
      const Outcome outcome = compare(d);
      EXPECT_TRUE(outcome.kernel.starts_with("panels")) << outcome.kernel;
      EXPECT_EQ(outcome.worst, 0) << m << " rows, " << n << " columns" << outcome.refusal;
    }
  }
}

// Constant weights below 2^-126 count as 0, in oneDNN's layouts and in ours; smaller numbers than that are kept
// elsewhere.
TEST(Gemm, SubnormalWeights) {
  constexpr std::int64_t n = 704, k = 389;
  std::vector<float> b(n * k, 1e-40f);
  for (std::int64_t j = 0; j < n; j += 2) b[static_cast<std::size_t>(j)] = std::numeric_limits<float>::min();  // row 0
  for (std::int64_t m : {1, 3, 20}) {
    for (bool constant : {false, true}) {
      GemmDesc d = plain(m, n, k);
      d.b_constant = constant;
      std::string why;
      const auto kernel = find_gemm(d, why);
      ASSERT_TRUE(kernel) << why;
      const std::vector<float> a(static_cast<std::size_t>(m * k), 1.f);
      const auto packed = constant ? kernel->pack(b.data()) : nullptr;
      std::vector<float> out(static_cast<std::size_t>(m * n));
      Buffer scratch(kernel->scratch_bytes());
      kernel->run(
          {.src = a.data(), .weights = b.data(), .packed = packed.get(), .out = out.data(), .scratch = scratch.data()});
      const float even = std::numeric_limits<float>::min(), tiny = constant ? 0.f : 1e-40f;
      for (std::int64_t j = 0; j < n; ++j) {
        const float want = j % 2 == 0 ? even + tiny * (k - 1) : tiny * k;
        EXPECT_NEAR(out[static_cast<std::size_t>(j)], want, 1e-42) << kernel->name() << ", column " << j;
      }
    }
  }
}

TEST(Gemm, BatchesBroadcast) {
  const Dims batches[][2] = {{{3}, {3}},       {{2, 3}, {2, 3}},          {{2, 3}, {3}}, {{2, 3}, {}}, {{}, {4}},
                             {{2, 1}, {1, 3}}, {{2, 3, 1, 2}, {3, 2, 2}}, {{1}, {1}}};
  for (const auto& [a, b] : batches) {
    for (int bits = 0; bits < 8; ++bits) {
      for (std::int64_t m : {1, 6}) {
        GemmDesc d = plain(m, 5, 9);
        d.batch_a = a, d.batch_b = b;
        d.trans_a = bits & 1, d.trans_b = bits & 2, d.b_constant = bits & 4;
        const Dims out = out_dims(d);
        Dims row(out.size(), 1);
        row.back() = out.back();
        Dims shared = out;  // broadcast over the first batch axis
        shared[0] = 1;
        d.post = {{.kind = Kind::kAddTensor, .dims = out}, {.kind = Kind::kMulTensor, .dims = row}};
        expect_equal(d, fmt::format("batches {} and {}, m {}, variant {}", a.size(), b.size(), m, bits));
        d.post = {{.kind = Kind::kSubTensor, .dims = shared}, {.kind = Kind::kRelu}};
        expect_equal(d,
                     fmt::format("batches {} and {}, m {}, shared operand, variant {}", a.size(), b.size(), m, bits));
      }
    }
  }
}

TEST(Gemm, EveryBroadcastOfAnOperand) {
  for (bool constant : {false, true}) {
    for (int bits = 0; bits < 8; ++bits) {
      GemmDesc d = plain(11, 37, 20);
      d.batch_a = {3};
      d.b_constant = constant;
      if (!constant) d.batch_b = {3};
      d.post = {{.kind = Kind::kAddTensor, .dims = {bits & 1 ? 3 : 1, bits & 2 ? 11 : 1, bits & 4 ? 37 : 1}}};
      expect_equal(d, fmt::format("operand broadcast {}", bits));
    }
  }
}

TEST(Gemm, MergesAxes) {
  GemmDesc d = plain(5, 7, 9);
  d.batch_a = {2, 3};
  d.post = {{.kind = Kind::kAddTensor, .dims = {2, 3, 5, 7}}};
  GemmProblem p = simplify(d);
  EXPECT_EQ(p.m, 30);
  EXPECT_TRUE(p.batch.empty());
  EXPECT_EQ(p.operands[0], (Dims{30, 7}));
  d.post[0].dims = {1, 3, 5, 7};  // not the same for the first axis: that one stays
  p = simplify(d);
  EXPECT_EQ(p.m, 15);
  EXPECT_EQ(p.batch, Dims{2});
  EXPECT_EQ(p.operands[0], (Dims{1, 15, 7}));
  d.post.clear();
  d.trans_a = true;
  EXPECT_EQ(simplify(d).m, 5);
  EXPECT_EQ(simplify(d).batch, Dims{6});
  d.m = 1;
  EXPECT_EQ(simplify(d).m, 6);
  EXPECT_FALSE(simplify(d).trans_a);
}

TEST(Gemm, RandomRealsStayWithinTheBoundOfAnySummationOrder) {
  // |error| <= (k + 1) * 2^-24 * sum |a b| for k products summed in any order (Higham, Accuracy and Stability, 3.5).
  const std::int64_t m = 33, n = 70, k = 517;
  GemmDesc d = plain(m, n, k);
  d.b_constant = true;
  const auto a = uniform(m * k, -1, 1, 1), b = uniform(k * n, -1, 1, 2);
  std::string why;
  auto kernel = find_gemm(d, why);
  ASSERT_TRUE(kernel) << why;
  auto packed = kernel->pack(b.data());
  std::vector<float> out(static_cast<std::size_t>(m * n));
  Buffer scratch(kernel->scratch_bytes());
  kernel->run({.src = a.data(), .packed = packed.get(), .out = out.data(), .scratch = scratch.data()});
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0, size = 0;
      for (std::int64_t l = 0; l < k; ++l) {
        const double t = double{a[static_cast<std::size_t>(i * k + l)]} * b[static_cast<std::size_t>(l * n + j)];
        sum += t, size += std::abs(t);
      }
      ASSERT_NEAR(out[static_cast<std::size_t>(i * n + j)], sum, (k + 1) * 0x1p-24 * size);
    }
  }
}

// Runs one GEMM after the other with these numbers of rows, all with what the first one packed; its bytes.
void use_one_packing(std::int64_t n, std::int64_t k, bool trans_b, std::initializer_list<std::int64_t> rows,
                     std::size_t& bytes) {
  const auto b = integers(k * n, 4, 3);
  std::shared_ptr<PackedWeights> packed;
  for (const std::int64_t m : rows) {
    GemmDesc d = plain(m, n, k);
    d.b_constant = true;
    d.trans_b = trans_b;
    std::string why;
    auto kernel = find_gemm(d, why);
    ASSERT_TRUE(kernel) << why;
    if (!packed) packed = kernel->pack(b.data());
    const auto a = integers(m * k, 4, static_cast<unsigned>(m));
    std::vector<float> out(static_cast<std::size_t>(m * n));
    Buffer scratch(kernel->scratch_bytes());
    kernel->run({.src = a.data(), .packed = packed.get(), .out = out.data(), .scratch = scratch.data()});
    const auto expected = gemm(d, a, b, {}, {});
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], expected[i]) << m;
  }
  bytes = packed->bytes();
}

TEST(Gemm, OnePackingServesEverySize) {
  const std::size_t n = 200, k = 72;
  std::size_t bytes = 0;
  use_one_packing(n, k, false, {1, 2, 7, 64, 500, 1}, bytes);
  EXPECT_LE(bytes, 2 * sizeof(float) * (n + 64) * (k + 16));
}

// Large enough for kernels of few rows, for panels of weights and, with AVX2, for oneDNN's convolution between them.
TEST(Gemm, OnePackingServesEveryKernel) {
  std::size_t bytes = 0;
  for (const bool trans_b : {false, true}) use_one_packing(256, 2048, trans_b, {1, 5, 40, 6, 1}, bytes);
}

TEST(Gemm, OnePackingServesBothTransposes) {
  const std::int64_t k = 48;
  const auto b = integers(k * k, 4, 3);
  std::shared_ptr<PackedWeights> packed;
  for (int round = 0; round < 4; ++round) {
    GemmDesc d = plain(10, k, k);
    d.b_constant = true;
    d.trans_b = round & 1;
    if (round & 2) {  // stays a batch, whose kernel may want another layout
      d.batch_a = {3};
      d.post = {{.kind = Kind::kAddTensor, .dims = {1, 10, k}}};
    }
    std::string why;
    auto kernel = find_gemm(d, why);
    ASSERT_TRUE(kernel) << why;
    if (!packed) packed = kernel->pack(b.data());
    const auto a = integers(30 * k, 4, 5), c = integers(10 * k, 4, 6);
    const auto expected = gemm(d, a, b, {}, {c});
    std::vector<float> out(expected.size());
    Buffer scratch(kernel->scratch_bytes());
    const void* operands[] = {c.data()};
    kernel->run({.src = a.data(),
                 .packed = packed.get(),
                 .operands = {operands, d.post.size()},
                 .out = out.data(),
                 .scratch = scratch.data()});
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], expected[i]) << round;
  }
}

TEST(Gemm, RunsFromManyThreads) {
  GemmDesc d = plain(40, 50, 60);
  d.b_constant = true;
  std::string why;
  auto kernel = find_gemm(d, why);
  ASSERT_TRUE(kernel) << why;
  const auto b = integers(d.k * d.n, 4, 3);
  auto packed = kernel->pack(b.data());
  std::vector<int> wrong(6, 0);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      const auto a = integers(d.m * d.k, 4, 100 + t);
      const auto expected = gemm(d, a, b, {}, {});
      std::vector<float> out(expected.size());
      std::string reason;
      Buffer scratch(kernel->scratch_bytes());
      for (int round = 0; round < 20; ++round) {
        auto mine = find_gemm(d, reason);
        mine->run({.src = a.data(), .packed = packed.get(), .out = out.data(), .scratch = scratch.data()});
        for (std::size_t i = 0; i < out.size(); ++i) wrong[t] += out[i] != expected[i];
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, std::vector<int>(wrong.size(), 0));
}

TEST(Gemm, RefusesWhatItCannotDo) {
  std::string why;
  GemmDesc d = plain(4, 4, 0);
  EXPECT_EQ(find_gemm(d, why), nullptr);
  EXPECT_NE(why, "");
  why.clear();
  d = plain(4, 4, 4);
  d.a = DType::kFloat64;
  EXPECT_EQ(find_gemm(d, why), nullptr);
  EXPECT_NE(why, "");
  d = plain(4, 4, 4);
  d.batch_a = {2}, d.batch_b = {3};
  EXPECT_ANY_THROW(find_gemm(d, why));
}

}  // namespace
}  // namespace sardonyx::host::test
