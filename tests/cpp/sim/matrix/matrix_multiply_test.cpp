// Matrix products by MFMA and WMMA in every type, compiled by clang for every chip, wave size and level, against the
// CPU. Inputs are chosen so that every sum is exact in the type of C, whatever the order; f32 and f64 also take any
// numbers, since their order is known (ops/matrix.h of the simulator).
#include <chrono>
#include <cmath>
#include <cstdio>

#include "formats.h"
#include "harness.h"

namespace {

struct Product {
  const char* target;  ///< chip, with "w32" or "w64" for RDNA
  const char* kernel;
  Format a, b;
  const char* c;  ///< "f32", "i32", "f16", "bf16"
  int tile;
  int level;
};
void PrintTo(const Product& p, std::ostream* os) { *os << p.target << " " << p.kernel << " -O" << p.level; }

std::vector<Product> products() {
  std::vector<Product> out;
  auto add = [&](std::initializer_list<const char*> targets, const char* kernel, Format a, Format b, const char* c,
                 int tile) {
    for (const char* target : targets)
      for (int level : {0, 2, 3}) out.push_back({target, kernel, a, b, c, tile, level});
  };
  const auto cdna = {"gfx90a", "gfx942", "gfx950"};
  add(cdna, "f32_16x16x4", kF32Format, kF32Format, "f32", 16);
  add(cdna, "f32_32x32x2", kF32Format, kF32Format, "f32", 32);
  add(cdna, "f16_16x16x16", kF16Format, kF16Format, "f32", 16);
  add(cdna, "f16_32x32x8", kF16Format, kF16Format, "f32", 32);
  add(cdna, "bf16_16x16x16", kBf16Format, kBf16Format, "f32", 16);
  add(cdna, "bf16_32x32x8", kBf16Format, kBf16Format, "f32", 32);
  add({"gfx90a"}, "bf16_16x16x8", kBf16Format, kBf16Format, "f32", 16);
  add({"gfx90a"}, "i8_16x16x16", kI8Format, kI8Format, "i32", 16);
  add({"gfx90a"}, "i8_32x32x8", kI8Format, kI8Format, "i32", 32);
  for (const char* chip : {"gfx942", "gfx950"}) {
    bool fnuz = std::string(chip) == "gfx942";
    Format fp8 = fnuz ? kFp8FnuzFormat : kFp8Format, bf8 = fnuz ? kBf8FnuzFormat : kBf8Format;
    add({chip}, "i8_16x16x32", kI8Format, kI8Format, "i32", 16);
    add({chip}, "i8_32x32x16", kI8Format, kI8Format, "i32", 32);
    add({chip}, "fp8_fp8_16x16x32", fp8, fp8, "f32", 16);
    add({chip}, "fp8_bf8_16x16x32", fp8, bf8, "f32", 16);
    add({chip}, "bf8_fp8_16x16x32", bf8, fp8, "f32", 16);
    add({chip}, "bf8_bf8_32x32x16", bf8, bf8, "f32", 32);
    add({chip}, "sparse_f16_16x16x32", kF16Format, kF16Format, "f32", 16);
  }
  add({"gfx942"}, "xf32_16x16x8", kF32Format, kF32Format, "f32", 16);
  add({"gfx942"}, "xf32_32x32x4", kF32Format, kF32Format, "f32", 32);
  add({"gfx950"}, "f16_16x16x32", kF16Format, kF16Format, "f32", 16);
  add({"gfx950"}, "f16_32x32x16", kF16Format, kF16Format, "f32", 32);
  add({"gfx950"}, "bf16_16x16x32", kBf16Format, kBf16Format, "f32", 16);
  add({"gfx950"}, "i8_16x16x64", kI8Format, kI8Format, "i32", 16);
  add({"gfx950"}, "scaled_fp8", kFp8Format, kFp8Format, "f32", 16);
  add({"gfx950"}, "scaled_bf8", kBf8Format, kBf8Format, "f32", 16);
  add({"gfx950"}, "scaled_fp6", kFp6Format, kFp6Format, "f32", 16);
  add({"gfx950"}, "scaled_bf6", kBf6Format, kBf6Format, "f32", 16);
  add({"gfx950"}, "scaled_fp4", kFp4Format, kFp4Format, "f32", 16);
  const auto rdna = {"gfx1100w32", "gfx1100w64", "gfx1201w32", "gfx1201w64"};
  add(rdna, "f16_f32", kF16Format, kF16Format, "f32", 16);
  add(rdna, "bf16_f32", kBf16Format, kBf16Format, "f32", 16);
  add(rdna, "f16_f16", kF16Format, kF16Format, "f16", 16);
  add(rdna, "bf16_bf16", kBf16Format, kBf16Format, "bf16", 16);
  add(rdna, "i8_i32", kI8Format, kI8Format, "i32", 16);
  add(rdna, "u8_i32", kU8Format, kU8Format, "i32", 16);
  add(rdna, "i4_i32", kI4Format, kI4Format, "i32", 16);
  add(rdna, "u4_i32", kU4Format, kU4Format, "i32", 16);
  const auto gfx12 = {"gfx1201w32", "gfx1201w64"};
  add(gfx12, "i4_i32_deep", kI4Format, kI4Format, "i32", 16);
  add(gfx12, "fp8_fp8_f32", kFp8Format, kFp8Format, "f32", 16);
  add(gfx12, "fp8_bf8_f32", kFp8Format, kBf8Format, "f32", 16);
  add(gfx12, "bf8_fp8_f32", kBf8Format, kFp8Format, "f32", 16);
  add(gfx12, "bf8_bf8_f32", kBf8Format, kBf8Format, "f32", 16);
  add({"gfx1201w32"}, "sparse_f16_f32", kF16Format, kF16Format, "f32", 16);
  return out;
}

/// A matrix of codes as the kernels expect it in memory.
std::vector<std::uint8_t> packed(const Format& f, const std::vector<double>& values) {
  int bytes = f.bits <= 8 ? 1 : f.bits / 8;
  std::vector<std::uint8_t> out(f.bits == 4 ? values.size() / 2 : values.size() * static_cast<std::size_t>(bytes));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint32_t code = encode(f, values[i]);
    if (f.bits == 4)
      out[i / 2] = static_cast<std::uint8_t>(out[i / 2] | code << (4 * (i & 1)));
    else
      std::memcpy(&out[i * static_cast<std::size_t>(bytes)], &code, static_cast<std::size_t>(bytes));
  }
  return out;
}

class Kernels : public testing::Test {
 protected:
  void configure(const std::string& target, int level) {
    std::string chip = target.substr(0, target.find('w'));
    ASSERT_EQ(sardonyxSimConfigure(("{\"chips\": [\"" + chip + "\"]}").c_str()), 0) << sardonyxSimLastFailure();
    ASSERT_EQ(hipSetDevice(0), hipSuccess);
    std::string file = std::string(SIM_KERNELS) + "/matrix_multiply." + target + ".O" + std::to_string(level) + ".co";
    ASSERT_EQ(hipModuleLoad(&module_, file.c_str()), hipSuccess) << file << ": " << sardonyxSimLastFailure();
  }
  void TearDown() override {
    if (module_) {
      EXPECT_EQ(hipModuleUnload(module_), hipSuccess);
    }
  }
  unsigned lanes(const std::string& target) const { return target.find("w32") == std::string::npos ? 64 : 32; }
  template <class... Args>
  hipError_t launch(const char* name, dim3 grid, unsigned threads, Args... args) {
    hipFunction_t f = nullptr;
    if (hipError_t e = hipModuleGetFunction(&f, module_, name); e != hipSuccess) return e;
    void* params[] = {&args..., nullptr};
    return hipModuleLaunchKernel(f, grid.x, grid.y, 1, threads, 1, 1, 0, nullptr, params, nullptr);
  }
  hipModule_t module_ = nullptr;
};

class MatrixMultiply : public Kernels, public testing::WithParamInterface<Product> {};
INSTANTIATE_TEST_SUITE_P(All, MatrixMultiply, testing::ValuesIn(products()), [](const auto& info) {
  return std::string(info.param.target) + "_" + info.param.kernel + "_O" + std::to_string(info.param.level);
});

TEST_P(MatrixMultiply, AgainstCpu) {
  const Product& p = GetParam();
  configure(p.target, p.level);
  std::string kernel = p.kernel, target = p.target;
  const int m = 2 * p.tile, n = 2 * p.tile, k = 128;
  bool sparse = kernel.compare(0, 6, "sparse") == 0, scaled = kernel.compare(0, 6, "scaled") == 0;
  bool narrow = std::string(p.c) == "bf16" || std::string(p.c) == "f16";
  Random r(static_cast<std::uint64_t>(m) + 77);
  std::vector<double> a(static_cast<std::size_t>(m * k)), b(static_cast<std::size_t>(k * n)),
      want(static_cast<std::size_t>(m * n));
  auto number = [&](const Format& f) {
    if (narrow)
      return static_cast<double>(static_cast<int>(r.u32() % 3) - 1);  // sums of 128 of these are exact in bf16 as well
    return pick(f, r.u32());
  };
  for (double& v : a) v = number(p.a);
  for (double& v : b) v = number(p.b);
  if (sparse)
    for (std::size_t i = 0; i < a.size(); i += 4) {
      std::size_t first = r.u32() % 4, second = (first + 1 + r.u32() % 3) % 4;
      for (std::size_t j = 0; j < 4; ++j)
        if (j != first && j != second) a[i + j] = 0;
    }
  std::vector<std::uint8_t> sa(static_cast<std::size_t>(m * k / 32)), sb(static_cast<std::size_t>(n * k / 32));
  for (auto& v : sa) v = static_cast<std::uint8_t>(scaled ? 125 + r.u32() % 5 : 127);
  for (auto& v : sb) v = static_cast<std::uint8_t>(scaled ? 125 + r.u32() % 5 : 127);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double s = 0;
      for (int kk = 0; kk < k; ++kk)
        s += a[static_cast<std::size_t>(i * k + kk)] * b[static_cast<std::size_t>(kk * n + j)] *
             std::ldexp(1, sa[static_cast<std::size_t>(i * (k / 32) + kk / 32)] +
                               sb[static_cast<std::size_t>(j * (k / 32) + kk / 32)] - 254);
      want[static_cast<std::size_t>(i * n + j)] = s;
    }
  Buffer<std::uint8_t> da(packed(p.a, a)), db(packed(p.b, b)), dsa(sa), dsb(sb);
  Buffer<std::uint32_t> dc(std::vector<std::uint32_t>(static_cast<std::size_t>(m * n)));
  auto tile = static_cast<unsigned>(p.tile), un = static_cast<unsigned>(n), uk = static_cast<unsigned>(k);
  dim3 grid(un / tile, static_cast<unsigned>(m) / tile);
  if (scaled)
    HIP_OK(launch(p.kernel, grid, 64, da.get(), db.get(), dc.get(), un, uk, dsa.get(), dsb.get()));
  else
    HIP_OK(launch(p.kernel, grid, lanes(target), da.get(), db.get(), dc.get(), un, uk));
  std::vector<std::uint32_t> c = dc.read();
  for (std::size_t i = 0; i < want.size(); ++i) {
    double got;
    if (narrow) {
      auto code = static_cast<std::uint16_t>(c[i / 2] >> (16 * (i & 1)));
      const Format& f = std::string(p.c) == "f16" ? kF16Format : kBf16Format;
      ASSERT_EQ(code, encode(f, want[i])) << "element " << i << " should be " << want[i];
      continue;
    }
    if (std::string(p.c) == "i32") {
      got = static_cast<double>(static_cast<std::int32_t>(c[i]));
    } else {
      float f;
      std::memcpy(&f, &c[i], 4);
      got = static_cast<double>(f);
    }
    ASSERT_EQ(got, want[i]) << "row " << i / static_cast<std::size_t>(n) << " column "
                            << i % static_cast<std::size_t>(n);
  }
}

class Cdna : public Kernels, public testing::WithParamInterface<Target> {};
INSTANTIATE_TEST_SUITE_P(All, Cdna,
                         testing::ValuesIn(std::vector<Target>(std::begin(kTargets), std::begin(kTargets) + 9)),
                         targetName);

// Any numbers: f32 and f64 are one fused multiply-add an element, in the order of k.
TEST_P(Cdna, OrderOfFloatSums) {
  configure(GetParam().chip, GetParam().level);
  const unsigned n = 32, k = 64;
  Random r(5);
  std::vector<float> a(n * k), b(k * n);
  std::vector<double> ad(n * k), bd(k * n);
  for (std::size_t i = 0; i < a.size(); ++i) {
    ad[i] = r.real(3), bd[i] = r.real(3);
    a[i] = static_cast<float>(ad[i]), b[i] = static_cast<float>(bd[i]);
  }
  Buffer<float> da(a), db(b), dc(n * n);
  Buffer<double> dad(ad), dbd(bd), dcd(n * n);
  HIP_OK(launch("f32_16x16x4", {2, 2}, 64, da.get(), db.get(), dc.get(), n, k));
  HIP_OK(launch("f64_16x16x4", {2, 2}, 64, dad.get(), dbd.get(), dcd.get(), n, k));
  auto c = dc.read();
  auto cd = dcd.read();
  for (unsigned i = 0; i < n; ++i)
    for (unsigned j = 0; j < n; ++j) {
      float s = 0;
      double sd = 0;
      for (unsigned kk = 0; kk < k; ++kk) {
        s = std::fma(a[i * k + kk], b[kk * n + j], s);
        sd = std::fma(ad[i * k + kk], bd[kk * n + j], sd);
      }
      ASSERT_EQ(c[i * n + j], s);
      ASSERT_EQ(cd[i * n + j], sd);
    }
}

// Sixteen products of 4x4 whose A is one block for all: rows 8 to 11 times all 64 columns.
TEST_P(Cdna, BroadcastBlock) {
  configure(GetParam().chip, GetParam().level);
  const unsigned k = 20, n = 64;
  Random r(6);
  std::vector<float> a(64 * k), b(k * n);
  for (auto& v : a) v = static_cast<float>(r.u32() % 9) - 4;
  for (auto& v : b) v = static_cast<float>(r.u32() % 9) - 4;
  Buffer<float> da(a), db(b), dc(4 * n);
  HIP_OK(launch("f32_4x4x1_broadcast", {1}, 64, da.get(), db.get(), dc.get(), n, k));
  auto c = dc.read();
  for (unsigned i = 0; i < 4; ++i)
    for (unsigned j = 0; j < n; ++j) {
      float s = 0;
      for (unsigned kk = 0; kk < k; ++kk) s += a[(8 + i) * k + kk] * b[kk * n + j];
      ASSERT_EQ(c[i * n + j], s) << i << " " << j;
    }
}

// Matrix instructions a second through the whole of the simulator, on all cores. 0.5 million on two idle cores is the
// aim; the test prints what it finds and fails only far below it, since test machines are shared.
TEST_F(Kernels, Speed) {
  for (const char* target : {"gfx90a", "gfx942", "gfx950", "gfx1100w32", "gfx1201w32"}) {
    configure(target, 2);
    Buffer<float> dc(64 * 8);
    const unsigned groups = 8, count = 500;
    HIP_OK(launch("speed", {1}, lanes(target), dc.get(), 1u));  // decodes
    auto start = std::chrono::steady_clock::now();
    HIP_OK(launch("speed", {groups}, lanes(target), dc.get(), count));
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    double rate = groups * count * 8 / seconds;
    std::printf("%-12s %.2f million 16x16x16 f16 instructions a second\n", target, rate / 1e6);
    EXPECT_GT(rate, 10'000) << target;
    ASSERT_EQ(hipModuleUnload(module_), hipSuccess);
    module_ = nullptr;
  }
}

}  // namespace
