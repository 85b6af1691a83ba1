// Kernels compiled by clang at three levels for every chip; each result is compared with the same computation on the
// CPU.
#include <algorithm>
#include <cmath>

#include "harness.h"

namespace {

/// All checks are on: sound kernels must pass every one of them.
class Corpus : public SimTest {
 protected:
  std::string options() const override {
    return ", \"check_waits\": true, \"check_races\": true, \"check_global_races\": true, "
           "\"check_uninitialized\": true, \"max_instructions_per_wave\": 200000000";
  }
};
SIM_TESTS(Corpus);
SIM_WAVE64_TESTS(Corpus);

TEST_P(Corpus, VectorAdd) {
  load("basic");
  const std::uint32_t n = 1000;  // not a multiple of the workgroup: the last wave is partly off
  Random r(1);
  std::vector<float> a(n), b(n);
  for (auto& v : a) v = static_cast<float>(r.real(10));
  for (auto& v : b) v = static_cast<float>(r.real(10));
  Buffer<float> da(a), db(b), dc(n);
  HIP_OK(launch("vectorAdd", {4}, {256}, da.get(), db.get(), dc.get(), n));
  auto c = dc.read();
  for (std::uint32_t i = 0; i < n; ++i) ASSERT_EQ(c[i], a[i] + b[i]) << i;
}

TEST_P(Corpus, SaxpyStride) {
  load("basic");
  const std::uint32_t n = 3000;
  std::vector<float> x(n), y(n);
  for (std::uint32_t i = 0; i < n; ++i) x[i] = static_cast<float>(i), y[i] = 1.0f;
  Buffer<float> dx(x), dy(y);
  HIP_OK(launch("saxpyStride", {4}, {128}, 2.0f, dx.get(), dy.get(), n));
  auto out = dy.read();
  for (std::uint32_t i = 0; i < n; ++i) ASSERT_EQ(out[i], 2.0f * static_cast<float>(i) + 1.0f) << i;
}

TEST_P(Corpus, DivergentLoop) {
  load("basic");
  const std::uint32_t n = 200;
  std::vector<std::uint32_t> in(n);
  for (std::uint32_t i = 0; i < n; ++i) in[i] = i + 1;
  Buffer<std::uint32_t> din(in), dout(n);
  HIP_OK(launch("collatz", {2}, {128}, din.get(), dout.get(), n));
  auto out = dout.read();
  for (std::uint32_t i = 0; i < n; ++i) {
    std::uint32_t v = in[i], steps = 0;
    while (v != 1) v = v & 1 ? 3 * v + 1 : v / 2, ++steps;
    ASSERT_EQ(out[i], steps) << i;
  }
}

TEST_P(Corpus, ScratchSort) {
  load("basic");
  const std::uint32_t n = 128;
  Random r(2);
  std::vector<std::uint32_t> in(n * 16);
  for (auto& v : in) v = r.u32();
  Buffer<std::uint32_t> din(in), dout(n * 16);
  HIP_OK(launch("scratchSort", {2}, {64}, din.get(), dout.get()));
  auto out = dout.read();
  for (std::uint32_t i = 0; i < n; ++i) {
    std::sort(in.begin() + i * 16, in.begin() + i * 16 + 16);
    for (std::uint32_t k = 0; k < 16; ++k) ASSERT_EQ(out[i * 16 + k], in[i * 16 + k]) << i << " " << k;
  }
}

TEST_P(Corpus, FunctionCall) {
  load("basic");
  Buffer<std::uint32_t> dout(128);
  HIP_OK(launch("callFunction", {2}, {64}, dout.get()));
  auto out = dout.read();
  for (std::uint32_t i = 0; i < 128; ++i) {
    std::uint32_t a = 0, b = 1;
    for (std::uint32_t k = 0; k < i % 40; ++k) std::swap(a, b), b += a;
    ASSERT_EQ(out[i], a + 2) << i;
  }
}

TEST_P(Corpus, NarrowTypes) {
  load("basic");
  const std::uint32_t n = 300;
  Random r(3);
  std::vector<unsigned char> a(n);
  std::vector<short> b(n);
  for (auto& v : a) v = static_cast<unsigned char>(r.u32());
  for (auto& v : b) v = static_cast<short>(r.u32());
  Buffer<unsigned char> da(a);
  Buffer<short> db(b);
  Buffer<signed char> dc(n);
  Buffer<unsigned short> dd(n);
  HIP_OK(launch("narrow", {3}, {128}, da.get(), db.get(), dc.get(), dd.get(), n));
  auto c = dc.read();
  auto d = dd.read();
  for (std::uint32_t i = 0; i < n; ++i) {
    ASSERT_EQ(c[i], static_cast<signed char>(a[i] - 7));
    ASSERT_EQ(d[i], static_cast<unsigned short>(b[i] * 3));
  }
}

TEST_P(Corpus, GlobalsAndConstants) {
  load("basic");
  void* p = nullptr;
  std::size_t size = 0;
  HIP_OK(hipModuleGetGlobal(&p, &size, module_, "globalTable"));
  ASSERT_EQ(size, 256u);
  std::vector<std::uint32_t> table(64);
  for (std::uint32_t i = 0; i < 64; ++i) table[i] = i * i;
  HIP_OK(hipMemcpy(p, table.data(), 256, hipMemcpyHostToDevice));
  Buffer<std::uint32_t> dout(64);
  HIP_OK(launch("readTables", {1}, {64}, dout.get()));
  auto out = dout.read();
  for (std::uint32_t i = 0; i < 64; ++i) ASSERT_EQ(out[i], i * i + 10 * (i % 4 + 1));
}

TEST_P(Corpus, TiledTranspose) {
  load("shared");
  const std::uint32_t rows = 70, columns = 50;
  std::vector<float> in(rows * columns);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
  Buffer<float> din(in), dout(in.size());
  HIP_OK(launch("transpose", {2, 3}, {32, 8}, din.get(), dout.get(), rows, columns));
  auto out = dout.read();
  for (std::uint32_t y = 0; y < rows; ++y)
    for (std::uint32_t x = 0; x < columns; ++x) ASSERT_EQ(out[x * rows + y], in[y * columns + x]) << y << " " << x;
}

TEST_P(Corpus, ReductionThroughLds) {
  load("shared");
  std::vector<float> in(1024);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 17);
  Buffer<float> din(in), dout(4);
  HIP_OK(launch("reduceLds", {4}, {256}, din.get(), dout.get()));
  auto out = dout.read();
  for (std::size_t g = 0; g < 4; ++g) {
    float sum = 0;  // whole numbers: exact in any order
    for (std::size_t i = 0; i < 256; ++i) sum += in[g * 256 + i];
    ASSERT_EQ(out[g], sum) << g;
  }
}

TEST_P(Corpus, ReductionByDpp) {
  load("shared");
  Random r(4);
  std::vector<std::uint32_t> in(256);
  for (auto& v : in) v = r.u32();
  std::size_t wave = waveSize();
  Buffer<std::uint32_t> din(in), dout(256 / wave);
  HIP_OK(launch("reduceDpp", {1}, {256}, din.get(), dout.get()));
  auto out = dout.read();
  for (std::size_t w = 0; w < out.size(); ++w) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < wave; ++i) sum += in[w * wave + i];
    ASSERT_EQ(out[w], sum) << w;
  }
}

TEST_P(Corpus, WaveOperations) {
  load("shared");
  Random r(5);
  std::vector<std::uint32_t> in(256);
  for (auto& v : in) v = r.u32();
  std::size_t wave = waveSize();
  const std::string generation = std::string(GetParam().chip).substr(0, 5);
  const std::size_t reach = generation == "gfx10" || generation == "gfx11" ? 32 : wave;
  Buffer<std::uint32_t> din(in), dout(256);
  Buffer<std::uint64_t> dballots(256 / wave);
  HIP_OK(launch("waveOps", {2}, {128}, din.get(), dout.get(), dballots.get()));
  auto out = dout.read();
  auto ballots = dballots.read();
  for (std::size_t w = 0; w < ballots.size(); ++w) {
    std::uint32_t top[2] = {};  // of the lanes that permutes reach
    std::uint64_t ballot = 0;
    for (std::size_t i = 0; i < wave; ++i) {
      top[i / reach] = std::max(top[i / reach], in[w * wave + i]);
      ballot |= static_cast<std::uint64_t>(in[w * wave + i] & 1) << i;
    }
    ASSERT_EQ(ballots[w], ballot);
    for (std::size_t i = 0; i < wave; ++i) ASSERT_EQ(out[w * wave + i], top[i / reach]);
  }
}

TEST_P(Corpus, HistogramByAtomics) {
  load("shared");
  const std::uint32_t n = 5000;
  Random r(6);
  std::vector<std::uint32_t> in(n), want(64);
  for (auto& v : in) v = r.u32(), ++want[v & 63];
  Buffer<std::uint32_t> din(in), dbins(std::vector<std::uint32_t>(64));
  HIP_OK(launch("histogram", {4}, {256}, din.get(), dbins.get(), n));
  ASSERT_EQ(dbins.read(), want);
}

TEST_P(Corpus, FloatMath) {
  load("arithmetic");
  const std::uint32_t n = 500;
  Random r(7);
  std::vector<float> a(n), b(n);
  for (std::uint32_t i = 0; i < n; ++i) a[i] = static_cast<float>(r.real(1000)), b[i] = static_cast<float>(r.real(50));
  a[0] = INFINITY, a[1] = NAN, a[2] = 0, b[2] = -0.0f, a[3] = 1e-40f, b[4] = 1e-41f, a[5] = 3e38f, b[5] = 1e-20f,
  b[6] = 0;
  Buffer<float> da(a), db(b), dout(n * 12);
  HIP_OK(launch("floatMath", {4}, {128}, da.get(), db.get(), dout.get(), n));
  auto out = dout.read();
  for (std::uint32_t i = 0; i < n; ++i) {
    float x = a[i], y = b[i];
    auto toInt = [](float v) {
      return v != v ? 0 : v >= 2147483648.0f ? 2147483647 : v < -2147483648.0f ? INT32_MIN : static_cast<int>(v);
    };
    auto toUint = [](float v) { return !(v > 0) ? 0u : v >= 4294967296.0f ? ~0u : static_cast<unsigned>(v); };
    float want[12] = {x - y,
                      x * y,
                      x / y,
                      std::sqrt(std::fabs(x)),
                      std::fma(x, y, -x),
                      std::fmin(x, y),
                      std::fmax(x, -y),
                      std::floor(x) + std::trunc(y),
                      std::nearbyint(x) - std::ceil(y),
                      static_cast<float>(toInt(x)) + static_cast<float>(toUint(std::fabs(y))),
                      x < y ? x : (x != x ? 1.0f : y * 2.5f),
                      std::copysign(x, y)};
    for (int k = 0; k < 12; ++k) {
      float got = out[i * 12 + static_cast<std::uint32_t>(k)];
      // Division and square root are expanded by clang to correctly rounded sequences; all others are single
      // operations.
      if (want[k] != want[k]) {
        ASSERT_TRUE(got != got) << i << " " << k;
        continue;
      }
      ASSERT_EQ(got, want[k]) << "item " << i << " result " << k << " of " << x << ", " << y;
    }
  }
}

TEST_P(Corpus, DoubleMath) {
  load("arithmetic");
  const std::uint32_t n = 300;
  Random r(8);
  std::vector<double> a(n), b(n);
  for (std::uint32_t i = 0; i < n; ++i) a[i] = r.real(1000), b[i] = r.real(50);
  a[0] = 1e300, b[0] = 1e-5, b[1] = 3e-310;
  Buffer<double> da(a), db(b), dout(n * 6);
  HIP_OK(launch("doubleMath", {3}, {128}, da.get(), db.get(), dout.get(), n));
  auto out = dout.read();
  for (std::uint32_t i = 0; i < n; ++i) {
    double x = a[i], y = b[i];
    volatile double product = y * 1.2345;  // keeps the CPU compiler from fusing
    double want[6] = {x + product, x / y, std::sqrt(std::fabs(x)), 0, std::floor(x) - std::fmin(x, y), 0};
    want[3] = static_cast<double>(static_cast<float>(x)) + static_cast<double>(static_cast<int>(y));
    for (int k = 0; k < 5; ++k) ASSERT_EQ(out[i * 6 + static_cast<std::uint32_t>(k)], want[k]) << i << " " << k;
    if (std::fabs(x) >= 1e9) continue;  // the conversion to 64 bits would overflow
    ASSERT_EQ(out[i * 6 + 5], static_cast<double>(static_cast<long long>(x * 1e6)) +
                                  static_cast<double>(static_cast<std::uint64_t>(std::fabs(y))))
        << i;
  }
}

TEST_P(Corpus, HalfMath) {
  load("arithmetic");
  const std::uint32_t n = 400;
  Random r(9);
  // Halves with few bits, so that float arithmetic rounded to half by the conversion below is exact.
  auto toHalf = [](float f) {
    std::uint32_t v;
    std::memcpy(&v, &f, 4);
    std::uint32_t sign = v >> 16 & 0x8000, magnitude = v & 0x7fffffff;
    if (magnitude == 0) return static_cast<std::uint16_t>(sign);
    std::uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return static_cast<std::uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
  };
  std::vector<float> a(n), b(n);
  std::vector<std::uint16_t> ha(n), hb(n);
  for (std::uint32_t i = 0; i < n; ++i) {
    a[i] = static_cast<float>(static_cast<int>(r.u32() % 129) - 64) / 8 + 8.125f;
    b[i] = static_cast<float>(static_cast<int>(r.u32() % 61) + 4) / 4;
    ha[i] = toHalf(a[i]), hb[i] = toHalf(b[i]);
  }
  Buffer<std::uint16_t> da(ha), db(hb), dout(n * 6);
  HIP_OK(launch("halfMath", {4}, {128}, da.get(), db.get(), dout.get(), n));
  auto out = dout.read();
  for (std::uint32_t i = 0; i < n; ++i) {
    float x = a[i], y = b[i];
    auto rounded = [&](float f) {
      std::uint16_t h = toHalf(f);
      std::uint32_t v = h & 0x7fff ? (h & 0x8000u) << 16 | (((h & 0x7fffu) << 13) + (112u << 23)) : (h & 0x8000u) << 16;
      float g;
      std::memcpy(&g, &v, 4);
      return g;
    };
    float third = x * 0.333f;
    std::uint16_t want[6] = {toHalf(x + y), toHalf(rounded(x * y) - 1.5f),
                             toHalf(x / y), toHalf(x > y ? x : -y),
                             toHalf(third), toHalf(static_cast<float>(static_cast<short>(x)))};
    for (int k = 0; k < 6; ++k)
      ASSERT_EQ(out[i * 6 + static_cast<std::uint32_t>(k)], want[k]) << i << " " << k << " " << x << " " << y;
  }
}

TEST_P(Corpus, IntMath) {
  load("arithmetic");
  using U = std::uint32_t;
  const U n = 500;
  Random r(10);
  std::vector<U> a(n), b(n);
  for (U i = 0; i < n; ++i) a[i] = r.u32(), b[i] = r.u32() >> (i % 32);
  Buffer<U> da(a), db(b), dout(n * 16);
  HIP_OK(launch("intMath", {4}, {128}, da.get(), db.get(), dout.get(), n));
  auto out = dout.read();
  auto reverse = [](U v) {
    U t = 0;
    for (int i = 0; i < 32; ++i) t |= (v >> i & 1) << (31 - i);
    return t;
  };
  for (U i = 0; i < n; ++i) {
    U x = a[i], y = b[i];
    auto sx = static_cast<std::int32_t>(x), sy = static_cast<std::int32_t>(y);
    std::int64_t lx = sx, ly = sy | 1;
    U want[16] = {x / (y | 1),
                  x % (y | 1),
                  static_cast<U>(lx / ly),
                  static_cast<U>(lx % ly),
                  x << (y & 31) | x >> (31 - (y & 31)),
                  static_cast<U>(sx >> (y & 31)),
                  static_cast<U>(__builtin_popcount(x) + __builtin_clz(y | 1) + __builtin_ctz(x | 0x80000000u)),
                  static_cast<U>(static_cast<std::uint64_t>(x) * y >> 32),
                  static_cast<U>(static_cast<std::int64_t>(sx) * sy >> 32),
                  std::min(x, y),
                  static_cast<U>(std::max(sx, sy)),
                  (x & 0xffff) * 3 + ((y >> 8) & 0xff),
                  reverse(x) ^ __builtin_bswap32(y),
                  static_cast<U>(static_cast<short>(x)) + static_cast<U>(static_cast<signed char>(y)),
                  (x & y) | (~x & 0x12345678),
                  (x << 7 | x >> 25) + (x ^ y ^ 0xff00ff)};
    for (U k = 0; k < 16; ++k)
      ASSERT_EQ(out[i * 16 + k], want[k]) << "item " << i << " result " << k << " of " << x << ", " << y;
  }
}

TEST_P(Corpus, LongMath) {
  load("arithmetic");
  using U = std::uint64_t;
  const std::uint32_t n = 200;
  Random r(11);
  std::vector<U> a(n), b(n);
  for (std::uint32_t i = 0; i < n; ++i) a[i] = r.next(), b[i] = r.next() >> (i % 64);
  Buffer<U> da(a), db(b), dout(n * 8);
  HIP_OK(launch("longMath", {2}, {128}, da.get(), db.get(), dout.get(), n));
  auto out = dout.read();
  for (std::uint32_t i = 0; i < n; ++i) {
    U x = a[i], y = b[i];
    U want[8] = {x + y,
                 x - y,
                 x * y,
                 x / (y | 1),
                 static_cast<U>(static_cast<std::int64_t>(x) % (static_cast<std::int64_t>(y) | 1)),
                 x << (y & 63),
                 static_cast<U>(static_cast<std::int64_t>(x) >> (y & 63)) ^ (x >> 3),
                 x < y ? x : static_cast<U>(__builtin_popcountll(y))};
    for (U k = 0; k < 8; ++k) ASSERT_EQ(out[i * 8 + k], want[k]) << i << " " << k;
  }
}

TEST_P(Corpus, DualIssue) {
  if (waveSize() == 64 || std::string(GetParam().chip) == "gfx1030") return;  // waves of 32 from gfx11 on
  load("arithmetic");
  const std::uint32_t n = 64;
  Random r(12);
  std::vector<float> a(n), b(n);
  for (auto& v : a) v = static_cast<float>(r.real(10));
  for (auto& v : b) v = static_cast<float>(r.real(10));
  Buffer<float> da(a), db(b), dout(n * 12);
  HIP_OK(launch("dualIssue", {1}, {n}, da.get(), db.get(), dout.get()));
  auto out = dout.read();
  for (std::uint32_t i = 0; i < n; ++i) {
    float x = a[i], y = b[i];
    float want[12] = {x * y,
                      std::fma(x, y, 2.0f),
                      std::fma(x, y, 1.0f),
                      x * y,
                      std::fma(x, y, 1.0f),
                      std::fma(x, y, 2.0f),
                      2.0f,
                      1.0f + y,
                      std::fma(x, y, 3.0f),
                      std::fma(x, 3.0f, y),
                      x + y,
                      y - x};
    for (std::uint32_t k = 0; k < 12; ++k) ASSERT_EQ(out[i * 12 + k], want[k]) << i << " " << k;
  }
}

}  // namespace
