// Whole algorithms on the simulated device against the CPU: kernels/algorithms.cpp at every level for every chip, and
// as wave64 on the chips that have both sizes. All checks are on.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness.h"

namespace {

using U = std::uint32_t;

class Algorithms : public SimTest {
 protected:
  std::string options() const override {
    return ", \"check_waits\": true, \"check_races\": true, \"check_global_races\": true, "
           "\"check_uninitialized\": true, \"max_instructions_per_wave\": 200000000";
  }
  void scan(const U* in, U* out, U n) {
    U blocks = (n + 1023) / 1024;
    ASSERT_LE(blocks, 256u);
    Buffer<U> totals(blocks);
    HIP_OK(launch("scanBlocks", {blocks}, {256}, in, out, totals.get(), n));
    HIP_OK(launch("scanTotals", {1}, {256}, totals.get(), blocks));
    HIP_OK(launch("scanAdd", {blocks}, {256}, out, static_cast<const U*>(totals.get()), n));
  }
};
SIM_TESTS(Algorithms);
SIM_WAVE64_TESTS(Algorithms);

TEST_P(Algorithms, Scan) {
  load("algorithms");
  const U n = 3333;
  Random r(1);
  std::vector<U> in(n), want(n);
  for (auto& v : in) v = r.u32();
  std::partial_sum(in.begin(), in.end(), want.begin());
  Buffer<U> din(in), dout(n);
  scan(din.get(), dout.get(), n);
  EXPECT_EQ(dout.read(), want);
}

TEST_P(Algorithms, RadixSort) {
  load("algorithms");
  const U n = 1000, blocks = (n + 255) / 256;
  Random r(2);
  std::vector<U> keys(n);
  for (auto& v : keys) v = r.u32() >> (r.u32() % 24);
  Buffer<U> a(keys), b(n), counts(blocks * 16);
  std::vector<U> first(blocks * 16);
  U *from = a.get(), *to = b.get();
  Buffer<U> sums(blocks * 16);
  for (U shift = 0; shift < 32; shift += 4) {
    HIP_OK(launch("radixCount", {blocks}, {256}, from, counts.get(), n, shift));
    scan(counts.get(), sums.get(), blocks * 16);
    // Exclusive: shifted by one place.
    HIP_OK(hipMemcpy(first.data() + 1, sums.get(), (blocks * 16 - 1) * 4, hipMemcpyDeviceToHost));
    Buffer<U> places(first);
    HIP_OK(launch("radixScatter", {blocks}, {256}, from, to, places.get(), n, shift));
    std::swap(from, to);
  }
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(a.read(), keys);  // eight passes end where they began
}

TEST_P(Algorithms, Softmax) {
  load("algorithms");
  const U rows = 3, columns = 600;
  Random r(3);
  std::vector<float> in(rows * columns);
  for (auto& v : in) v = static_cast<float>(r.real(8));
  Buffer<float> din(in), dout(in.size());
  HIP_OK(launch("softmaxRows", {rows}, {256}, din.get(), dout.get(), columns));
  auto out = dout.read();
  for (U y = 0; y < rows; ++y) {
    const float* row = &in[y * columns];
    double top = *std::max_element(row, row + columns), sum = 0;
    for (U c = 0; c < columns; ++c) sum += std::exp(row[c] - top);
    for (U c = 0; c < columns; ++c) {
      double want = std::exp(row[c] - top) / sum;
      // The scaled argument is rounded at 16 * log2(e): about 2e-6 relative in the exponential, 1 ulp in v_exp_f32.
      ASSERT_NEAR(out[y * columns + c], want, 5e-6 * want) << y << " " << c;
    }
  }
}

TEST_P(Algorithms, LayerNorm) {
  load("algorithms");
  const U rows = 3, columns = 500;
  Random r(4);
  auto halves = [&](std::size_t n, double range, double centre) {
    std::vector<_Float16> v(n);
    for (auto& x : v) x = static_cast<_Float16>(r.real(range) + centre);
    return v;
  };
  auto in = halves(rows * columns, 3, 1), scale = halves(columns, 1, 1), bias = halves(columns, 1, 0);
  Buffer<_Float16> din(in), dscale(scale), dbias(bias), dout(in.size());
  HIP_OK(launch("layerNorm", {rows}, {256}, din.get(), dscale.get(), dbias.get(), dout.get(), columns, 1e-5f));
  auto out = dout.read();
  for (U y = 0; y < rows; ++y) {
    double mean = 0, variance = 0;
    for (U c = 0; c < columns; ++c) mean += static_cast<double>(in[y * columns + c]) / columns;
    for (U c = 0; c < columns; ++c) variance += std::pow(static_cast<double>(in[y * columns + c]) - mean, 2) / columns;
    for (U c = 0; c < columns; ++c) {
      double want = (static_cast<double>(in[y * columns + c]) - mean) / std::sqrt(variance + 1e-5) *
                        static_cast<double>(scale[c]) +
                    static_cast<double>(bias[c]);
      // Rounded to 11 bits once, at most 2^-11 relative, and a few float roundings near zero.
      ASSERT_NEAR(static_cast<double>(out[y * columns + c]), want, std::fabs(want) * 5e-4 + 1e-6) << y << " " << c;
    }
  }
}

TEST_P(Algorithms, FlashAttention) {
  load("algorithms");
  const U length = 40, depth = 32;
  Random r(5);
  std::vector<float> q(length * depth), k(length * depth), v(length * depth);
  for (auto* m : {&q, &k, &v})
    for (auto& x : *m) x = static_cast<float>(r.real(1.5));
  Buffer<float> dq(q), dk(k), dv(v), dout(q.size());
  for (U causal : {0u, 1u}) {
    HIP_OK(launch("flashAttention", {1}, {64}, dq.get(), dk.get(), dv.get(), dout.get(), length, causal));
    auto out = dout.read();
    for (U i = 0; i < length; ++i) {
      U keys = causal ? i + 1 : length;
      std::vector<double> weight(keys);
      double sum = 0;
      for (U j = 0; j < keys; ++j) {
        double score = 0;
        for (U d = 0; d < depth; ++d) score += static_cast<double>(q[i * depth + d]) * k[j * depth + d];
        sum += weight[j] = std::exp(score / std::sqrt(32.0));
      }
      for (U d = 0; d < depth; ++d) {
        double want = 0;
        for (U j = 0; j < keys; ++j) want += weight[j] / sum * v[j * depth + d];
        // Forty terms of at most 1.5 with float roundings in scores of about ten.
        ASSERT_NEAR(out[i * depth + d], want, 1e-5) << causal << " " << i << " " << d;
      }
    }
  }
}

}  // namespace
