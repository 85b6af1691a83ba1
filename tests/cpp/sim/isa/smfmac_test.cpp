// V_SMFMAC_*: products with a sparse A, for every set of indices in a register.
#include <cmath>

#include "matrix_reference.h"

namespace {

struct SparseCase {
  const char* chip;
  const char* name;
  int m, k;
  Format a, b;
  int sets;  ///< of indices in the register
};
std::vector<SparseCase> sparseCases() {
  std::vector<SparseCase> out;
  for (const char* chip : {"gfx942", "gfx950"}) {
    bool fnuz = std::string(chip) == "gfx942";
    Format fp8 = fnuz ? kFp8FnuzFormat : kFp8Format, bf8 = fnuz ? kBf8FnuzFormat : kBf8Format;
    for (const SparseCase& c :
         std::initializer_list<SparseCase>{{chip, "v_smfmac_f32_16x16x32_f16", 16, 32, kF16Format, kF16Format, 4},
                                           {chip, "v_smfmac_f32_32x32x16_f16", 32, 16, kF16Format, kF16Format, 4},
                                           {chip, "v_smfmac_f32_16x16x32_bf16", 16, 32, kBf16Format, kBf16Format, 4},
                                           {chip, "v_smfmac_f32_32x32x16_bf16", 32, 16, kBf16Format, kBf16Format, 4},
                                           {chip, "v_smfmac_i32_16x16x64_i8", 16, 64, kI8Format, kI8Format, 2},
                                           {chip, "v_smfmac_i32_32x32x32_i8", 32, 32, kI8Format, kI8Format, 2},
                                           {chip, "v_smfmac_f32_16x16x64_fp8_fp8", 16, 64, fp8, fp8, 2},
                                           {chip, "v_smfmac_f32_16x16x64_fp8_bf8", 16, 64, fp8, bf8, 2},
                                           {chip, "v_smfmac_f32_16x16x64_bf8_fp8", 16, 64, bf8, fp8, 2},
                                           {chip, "v_smfmac_f32_16x16x64_bf8_bf8", 16, 64, bf8, bf8, 2},
                                           {chip, "v_smfmac_f32_32x32x32_fp8_fp8", 32, 32, fp8, fp8, 2},
                                           {chip, "v_smfmac_f32_32x32x32_fp8_bf8", 32, 32, fp8, bf8, 2},
                                           {chip, "v_smfmac_f32_32x32x32_bf8_fp8", 32, 32, bf8, fp8, 2},
                                           {chip, "v_smfmac_f32_32x32x32_bf8_bf8", 32, 32, bf8, bf8, 2}})
      out.push_back(c);
  }
  for (const SparseCase& c : std::initializer_list<SparseCase>{
           {"gfx950", "v_smfmac_f32_16x16x64_f16", 16, 64, kF16Format, kF16Format, 2},
           {"gfx950", "v_smfmac_f32_32x32x32_f16", 32, 32, kF16Format, kF16Format, 2},
           {"gfx950", "v_smfmac_f32_16x16x64_bf16", 16, 64, kBf16Format, kBf16Format, 2},
           {"gfx950", "v_smfmac_f32_32x32x32_bf16", 32, 32, kBf16Format, kBf16Format, 2},
           {"gfx950", "v_smfmac_i32_16x16x128_i8", 16, 128, kI8Format, kI8Format, 1},
           {"gfx950", "v_smfmac_i32_32x32x64_i8", 32, 64, kI8Format, kI8Format, 1},
           {"gfx950", "v_smfmac_f32_16x16x128_fp8_fp8", 16, 128, kFp8Format, kFp8Format, 1},
           {"gfx950", "v_smfmac_f32_16x16x128_fp8_bf8", 16, 128, kFp8Format, kBf8Format, 1},
           {"gfx950", "v_smfmac_f32_16x16x128_bf8_fp8", 16, 128, kBf8Format, kFp8Format, 1},
           {"gfx950", "v_smfmac_f32_16x16x128_bf8_bf8", 16, 128, kBf8Format, kBf8Format, 1},
           {"gfx950", "v_smfmac_f32_32x32x64_fp8_fp8", 32, 64, kFp8Format, kFp8Format, 1},
           {"gfx950", "v_smfmac_f32_32x32x64_fp8_bf8", 32, 64, kFp8Format, kBf8Format, 1},
           {"gfx950", "v_smfmac_f32_32x32x64_bf8_fp8", 32, 64, kBf8Format, kFp8Format, 1},
           {"gfx950", "v_smfmac_f32_32x32x64_bf8_bf8", 32, 64, kBf8Format, kBf8Format, 1}})
    out.push_back(c);
  return out;
}

class Smfmac : public testing::TestWithParam<SparseCase> {};
INSTANTIATE_TEST_SUITE_P(All, Smfmac, testing::ValuesIn(sparseCases()),
                         [](const auto& info) { return std::string(info.param.chip) + "_" + (info.param.name + 2); });

// CDNA3 ISA document, "Sparse matrix multiplication": of each four K elements two are stored; the calculator's layouts.
TEST_P(Smfmac, ProductForEverySetOfIndices) {
  const SparseCase& c = GetParam();
  for (int set = 0; set < c.sets; ++set) {
    Lab lab(c.chip);
    Numbers numbers{99u + static_cast<std::uint32_t>(set)};
    int stored = c.k / 2, groups = 64 / c.m, heldA = stored / groups, heldB = c.k / groups;
    bool integer = !c.a.exponentBits;
    std::vector<double> dense(static_cast<std::size_t>(c.m * c.k)), b(static_cast<std::size_t>(c.k * c.m)),
        d(static_cast<std::size_t>(c.m * c.m));
    for (int l = 0; l < 64; ++l) lab.v(200, l) = numbers.next();  // the other sets hold anything
    for (int i = 0; i < c.m; ++i)
      for (int four = 0; four < c.k / 4; ++four) {
        int first = static_cast<int>(numbers.next() >> 8) % 3,
            second = first + 1 + static_cast<int>(numbers.next() >> 8) % (3 - first);
        int lane = c.m * (four * 2 / heldA) + i, element = four * 2 % heldA;
        for (int which = 0; which < 2; ++which) {
          int position = which ? second : first;
          double v = pick(c.a, numbers.next());
          dense[static_cast<std::size_t>(i * c.k + four * 4 + position)] = v;
          putElement(lab, kA, lane, element + which, c.a.bits, encode(c.a, v));
          int at = set * 2 * heldA + 2 * (element + which);
          lab.v(200, lane) = (lab.v(200, lane) & ~(3u << at)) | static_cast<std::uint32_t>(position) << at;
        }
      }
    for (int k = 0; k < c.k; ++k)
      for (int j = 0; j < c.m; ++j) {
        double v = b[static_cast<std::size_t>(k * c.m + j)] = pick(c.b, numbers.next());
        putElement(lab, kB, c.m * (k / heldB) + j, k % heldB, c.b.bits, encode(c.b, v));
      }
    auto registerOf = [&](int i) { return c.m == 32 ? 4 * (i / 8) + i % 4 : i % 4; };
    auto laneOf = [&](int i, int j) { return c.m == 32 ? (32 * (i / 4)) % 64 + j : 16 * (i / 4) + j; };
    for (int i = 0; i < c.m; ++i)
      for (int j = 0; j < c.m; ++j) {
        double v = d[static_cast<std::size_t>(i * c.m + j)] = i - j;
        lab.v(kD + registerOf(i), laneOf(i, j)) =
            integer ? static_cast<std::uint32_t>(i - j) : std::bit_cast<std::uint32_t>(static_cast<float>(v));
      }
    lab.run(std::string(c.name) + " " + regs("v", kD, c.m * c.m / 64) + ", " + regs("v", kA, heldA * c.a.bits / 32) +
            ", " + regs("v", kB, heldB * c.b.bits / 32) + ", v200 abid:" + std::to_string(set));
    for (int i = 0; i < c.m; ++i)
      for (int j = 0; j < c.m; ++j) {
        double want = d[static_cast<std::size_t>(i * c.m + j)];
        for (int k = 0; k < c.k; ++k)
          want += dense[static_cast<std::size_t>(i * c.k + k)] * b[static_cast<std::size_t>(k * c.m + j)];
        ASSERT_EQ(value(integer, lab.v(kD + registerOf(i), laneOf(i, j))), want)
            << "set " << set << " row " << i << " column " << j;
      }
  }
}

// An infinity of B at a k that A does not hold is not multiplied by zero.
TEST(SmfmacNumerics, UnstoredElementsAreNotMultiplied) {
  Lab lab("gfx942");
  for (int r = 0; r < 2; ++r) lab.fill(kA + r, 0x3c003c00u);                        // ones at k = 0 and 1 of each four
  for (int r = 0; r < 4; ++r) lab.fill(kB + r, r % 2 ? 0x7c007c00u : 0x3c003c00u);  // infinity at k = 2 and 3
  lab.fill(200, 0x44444444u);
  lab.run("v_smfmac_f32_16x16x32_f16 v[128:131], v[2:3], v[34:37], v200");
  EXPECT_EQ(lab.f(128, 0), 16.0f);
  EXPECT_EQ(lab.f(131, 63), 16.0f);
}

}  // namespace
