// V_MFMA_*: layouts against the formulas of AMD's "Matrix Instruction Calculator" (A[i][k] to lane and
// register) and the CDNA3 and CDNA4 ISA documents, "Matrix Arithmetic Instructions"; modifiers; numerics.
#include <cmath>
#include <cstring>

#include "matrix_reference.h"

namespace {

struct Case {
  const char* chip;
  const char* name;
  int m, k, blocks;
  Format a, b;
};

void PrintTo(const Case& c, std::ostream* os) { *os << c.chip << " " << c.name; }

std::vector<Case> cases() {
  std::vector<Case> out = {
      {"gfx90a", "v_mfma_f32_32x32x1f32", 32, 1, 2, kF32Format, kF32Format},
      {"gfx90a", "v_mfma_f32_16x16x1f32", 16, 1, 4, kF32Format, kF32Format},
      {"gfx90a", "v_mfma_f32_4x4x1f32", 4, 1, 16, kF32Format, kF32Format},
      {"gfx90a", "v_mfma_f32_32x32x2f32", 32, 2, 1, kF32Format, kF32Format},
      {"gfx90a", "v_mfma_f32_16x16x4f32", 16, 4, 1, kF32Format, kF32Format},
      {"gfx90a", "v_mfma_f32_32x32x4f16", 32, 4, 2, kF16Format, kF16Format},
      {"gfx90a", "v_mfma_f32_16x16x4f16", 16, 4, 4, kF16Format, kF16Format},
      {"gfx90a", "v_mfma_f32_4x4x4f16", 4, 4, 16, kF16Format, kF16Format},
      {"gfx90a", "v_mfma_f32_32x32x8f16", 32, 8, 1, kF16Format, kF16Format},
      {"gfx90a", "v_mfma_f32_16x16x16f16", 16, 16, 1, kF16Format, kF16Format},
      {"gfx90a", "v_mfma_f32_32x32x2bf16", 32, 2, 2, kBf16Format, kBf16Format},
      {"gfx90a", "v_mfma_f32_16x16x2bf16", 16, 2, 4, kBf16Format, kBf16Format},
      {"gfx90a", "v_mfma_f32_4x4x2bf16", 4, 2, 16, kBf16Format, kBf16Format},
      {"gfx90a", "v_mfma_f32_32x32x4bf16", 32, 4, 1, kBf16Format, kBf16Format},
      {"gfx90a", "v_mfma_f32_16x16x8bf16", 16, 8, 1, kBf16Format, kBf16Format},
      {"gfx90a", "v_mfma_f32_32x32x4bf16_1k", 32, 4, 2, kBf16Format, kBf16Format},
      {"gfx90a", "v_mfma_f32_16x16x4bf16_1k", 16, 4, 4, kBf16Format, kBf16Format},
      {"gfx90a", "v_mfma_f32_4x4x4bf16_1k", 4, 4, 16, kBf16Format, kBf16Format},
      {"gfx90a", "v_mfma_f32_32x32x8bf16_1k", 32, 8, 1, kBf16Format, kBf16Format},
      {"gfx90a", "v_mfma_f32_16x16x16bf16_1k", 16, 16, 1, kBf16Format, kBf16Format},
      {"gfx90a", "v_mfma_i32_32x32x4i8", 32, 4, 2, kI8Format, kI8Format},
      {"gfx90a", "v_mfma_i32_16x16x4i8", 16, 4, 4, kI8Format, kI8Format},
      {"gfx90a", "v_mfma_i32_4x4x4i8", 4, 4, 16, kI8Format, kI8Format},
      {"gfx90a", "v_mfma_i32_32x32x8i8", 32, 8, 1, kI8Format, kI8Format},
      {"gfx90a", "v_mfma_i32_16x16x16i8", 16, 16, 1, kI8Format, kI8Format},
      {"gfx942", "v_mfma_f32_16x16x8_xf32", 16, 8, 1, kF32Format, kF32Format},
      {"gfx942", "v_mfma_f32_32x32x4_xf32", 32, 4, 1, kF32Format, kF32Format},
      {"gfx950", "v_mfma_f32_16x16x32_f16", 16, 32, 1, kF16Format, kF16Format},
      {"gfx950", "v_mfma_f32_32x32x16_f16", 32, 16, 1, kF16Format, kF16Format},
      {"gfx950", "v_mfma_f32_16x16x32_bf16", 16, 32, 1, kBf16Format, kBf16Format},
      {"gfx950", "v_mfma_f32_32x32x16_bf16", 32, 16, 1, kBf16Format, kBf16Format},
      {"gfx950", "v_mfma_i32_16x16x64_i8", 16, 64, 1, kI8Format, kI8Format},
      {"gfx950", "v_mfma_i32_32x32x32_i8", 32, 32, 1, kI8Format, kI8Format},
  };
  for (const char* chip : {"gfx942", "gfx950"}) {
    bool fnuz = std::string(chip) == "gfx942";
    Format fp8 = fnuz ? kFp8FnuzFormat : kFp8Format, bf8 = fnuz ? kBf8FnuzFormat : kBf8Format;
    for (const Case& c : std::initializer_list<Case>{
             {chip, "v_mfma_f32_32x32x1_2b_f32", 32, 1, 2, kF32Format, kF32Format},
             {chip, "v_mfma_f32_16x16x1_4b_f32", 16, 1, 4, kF32Format, kF32Format},
             {chip, "v_mfma_f32_4x4x1_16b_f32", 4, 1, 16, kF32Format, kF32Format},
             {chip, "v_mfma_f32_32x32x2_f32", 32, 2, 1, kF32Format, kF32Format},
             {chip, "v_mfma_f32_16x16x4_f32", 16, 4, 1, kF32Format, kF32Format},
             {chip, "v_mfma_f32_32x32x4_2b_f16", 32, 4, 2, kF16Format, kF16Format},
             {chip, "v_mfma_f32_16x16x4_4b_f16", 16, 4, 4, kF16Format, kF16Format},
             {chip, "v_mfma_f32_4x4x4_16b_f16", 4, 4, 16, kF16Format, kF16Format},
             {chip, "v_mfma_f32_32x32x8_f16", 32, 8, 1, kF16Format, kF16Format},
             {chip, "v_mfma_f32_16x16x16_f16", 16, 16, 1, kF16Format, kF16Format},
             {chip, "v_mfma_f32_32x32x4_2b_bf16", 32, 4, 2, kBf16Format, kBf16Format},
             {chip, "v_mfma_f32_16x16x4_4b_bf16", 16, 4, 4, kBf16Format, kBf16Format},
             {chip, "v_mfma_f32_4x4x4_16b_bf16", 4, 4, 16, kBf16Format, kBf16Format},
             {chip, "v_mfma_f32_32x32x8_bf16", 32, 8, 1, kBf16Format, kBf16Format},
             {chip, "v_mfma_f32_16x16x16_bf16", 16, 16, 1, kBf16Format, kBf16Format},
             {chip, "v_mfma_i32_32x32x4_2b_i8", 32, 4, 2, kI8Format, kI8Format},
             {chip, "v_mfma_i32_16x16x4_4b_i8", 16, 4, 4, kI8Format, kI8Format},
             {chip, "v_mfma_i32_4x4x4_16b_i8", 4, 4, 16, kI8Format, kI8Format},
             {chip, "v_mfma_i32_32x32x16_i8", 32, 16, 1, kI8Format, kI8Format},
             {chip, "v_mfma_i32_16x16x32_i8", 16, 32, 1, kI8Format, kI8Format},
             {chip, "v_mfma_f32_16x16x32_fp8_fp8", 16, 32, 1, fp8, fp8},
             {chip, "v_mfma_f32_16x16x32_fp8_bf8", 16, 32, 1, fp8, bf8},
             {chip, "v_mfma_f32_16x16x32_bf8_fp8", 16, 32, 1, bf8, fp8},
             {chip, "v_mfma_f32_16x16x32_bf8_bf8", 16, 32, 1, bf8, bf8},
             {chip, "v_mfma_f32_32x32x16_fp8_fp8", 32, 16, 1, fp8, fp8},
             {chip, "v_mfma_f32_32x32x16_fp8_bf8", 32, 16, 1, fp8, bf8},
             {chip, "v_mfma_f32_32x32x16_bf8_fp8", 32, 16, 1, bf8, fp8},
             {chip, "v_mfma_f32_32x32x16_bf8_bf8", 32, 16, 1, bf8, bf8},
         })
      out.push_back(c);
  }
  return out;
}

/// The matrices of one instruction, and where their elements go.
struct Problem {
  int m, k, blocks;
  Format fa, fb;
  bool integer;
  std::vector<double> a, b, c;  // [block][i][k], [block][k][j], [block][i][j]
  Problem(int rows, int depth, int count, const Format& ta, const Format& tb, std::uint32_t seed = 7)
      : m(rows), k(depth), blocks(count), fa(ta), fb(tb), integer(!ta.exponentBits) {
    Numbers numbers{seed * 2654435761u + 1};
    for (int n = 0; n < blocks * m * k; ++n) a.push_back(pick(fa, numbers.next()));
    for (int n = 0; n < blocks * m * k; ++n) b.push_back(pick(fb, numbers.next()));
    for (int n = 0; n < blocks * m * m; ++n) c.push_back(static_cast<double>(numbers.next() % 64) - 32);
  }
  double& at(std::vector<double>& x, int block, int row, int column, int columns) const {
    return x[static_cast<std::size_t>((block * (static_cast<int>(x.size()) / blocks / columns) + row) * columns +
                                      column)];
  }
  int perLane() const { return m * k * blocks / 64; }
  int laneOfA(int block, int i, int kk) const { return blocks == 1 ? m * (kk / perLane()) + i : m * block + i; }
  int elementOf(int kk) const { return blocks == 1 ? kk % perLane() : kk; }
  int registerOfD(int block, int i) const {
    return m == 32 ? 16 * block + 4 * (i / 8) + i % 4 : m == 16 ? 4 * block + i % 4 : i;
  }
  int laneOfD(int block, int i, int j) const {
    return m == 32 ? (32 * (i / 4)) % 64 + j : m == 16 ? 16 * (i / 4) + j : 4 * block + j;
  }
  int registersA() const { return std::max(1, perLane() * fa.bits / 32); }
  int registersB() const { return std::max(1, perLane() * fb.bits / 32); }
  int registersD() const { return m * m * blocks / 64; }

  void load(Lab& lab, int va, int vb, int vc) {
    for (int block = 0; block < blocks; ++block)
      for (int i = 0; i < m; ++i) {
        for (int kk = 0; kk < k; ++kk) {
          putElement(lab, va, laneOfA(block, i, kk), elementOf(kk), fa.bits, encode(fa, at(a, block, i, kk, k)));
          putElement(lab, vb, laneOfA(block, i, kk), elementOf(kk), fb.bits, encode(fb, at(b, block, kk, i, m)));
        }
        for (int j = 0; j < m; ++j) {
          double v = at(c, block, i, j, m);
          lab.v(vc + registerOfD(block, i), laneOfD(block, i, j)) =
              integer ? static_cast<std::uint32_t>(static_cast<int>(v)) : encode(kF32Format, v);
        }
      }
  }
  double expected(int block, int i, int j) {
    double s = at(c, block, i, j, m);
    for (int kk = 0; kk < k; ++kk) s += at(a, block, i, kk, k) * at(b, block, kk, j, m);
    return s;
  }
};

class Mfma : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, Mfma, testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.chip) + "_" + (info.param.name + 2); });

TEST_P(Mfma, ProductInVectorRegisters) {
  const Case& c = GetParam();
  Problem p(c.m, c.k, c.blocks, c.a, c.b);
  Lab lab(c.chip);
  p.load(lab, kA, kB, kC);
  lab.setExec(0x1);  // EXEC is ignored: every lane is written
  lab.run(std::string(c.name) + " " + regs("v", kD, p.registersD()) + ", " + regs("v", kA, p.registersA()) + ", " +
          regs("v", kB, p.registersB()) + ", " + regs("v", kC, p.registersD()));
  for (int block = 0; block < p.blocks; ++block)
    for (int i = 0; i < p.m; ++i)
      for (int j = 0; j < p.m; ++j)
        ASSERT_EQ(value(p.integer, lab.v(kD + p.registerOfD(block, i), p.laneOfD(block, i, j))),
                  p.expected(block, i, j))
            << "block " << block << " row " << i << " column " << j;
}

TEST_P(Mfma, ProductInAccumulationRegistersOntoItself) {
  const Case& c = GetParam();
  Problem p(c.m, c.k, c.blocks, c.a, c.b, 11);
  Lab lab(c.chip);
  p.load(lab, kA, kB, kC);
  for (int r = 0; r < p.registersD(); ++r)
    for (int l = 0; l < 64; ++l) lab.a(10 + r, l) = lab.v(kC + r, l);
  for (int r = 0; r < p.registersB(); ++r)
    for (int l = 0; l < 64; ++l) lab.a(100 + r, l) = lab.v(kB + r, l);
  lab.run(std::string(c.name) + " " + regs("a", 10, p.registersD()) + ", " + regs("v", kA, p.registersA()) + ", " +
          regs("a", 100, p.registersB()) + ", " + regs("a", 10, p.registersD()));
  for (int block = 0; block < p.blocks; ++block)
    for (int i = 0; i < p.m; ++i)
      for (int j = 0; j < p.m; ++j)
        ASSERT_EQ(value(p.integer, lab.a(10 + p.registerOfD(block, i), p.laneOfD(block, i, j))),
                  p.expected(block, i, j))
            << "block " << block << " row " << i << " column " << j;
}

TEST_P(Mfma, ConstantC) {
  const Case& c = GetParam();
  Problem p(c.m, c.k, c.blocks, c.a, c.b, 13);
  Lab lab(c.chip);
  p.load(lab, kA, kB, kC);
  for (double& v : p.c) v = p.integer ? 7 : 0.5;
  lab.run(std::string(c.name) + " " + regs("v", kD, p.registersD()) + ", " + regs("v", kA, p.registersA()) + ", " +
          regs("v", kB, p.registersB()) + ", " + (p.integer ? "7" : "0.5"));
  for (int i = 0; i < p.m; ++i)
    for (int j = 0; j < p.m; ++j)
      ASSERT_EQ(value(p.integer, lab.v(kD + p.registerOfD(p.blocks - 1, i), p.laneOfD(p.blocks - 1, i, j))),
                p.expected(p.blocks - 1, i, j));
}

// CDNA3 ISA document, "Broadcasting values": CBSZ and ABID replace 2^CBSZ consecutive blocks of A by one of them.
TEST_P(Mfma, BroadcastOfBlocks) {
  const Case& c = GetParam();
  if (c.blocks == 1) {
    Lab lab(c.chip);
    Problem p(c.m, c.k, c.blocks, c.a, c.b);
    std::string text = std::string(c.name) + " " + regs("v", kD, p.registersD()) + ", " +
                       regs("v", kA, p.registersA()) + ", " + regs("v", kB, p.registersB()) + ", 0 cbsz:1";
    EXPECT_NE(lab.fault(text).find("CBSZ"), std::string::npos);
    return;
  }
  for (int cbsz = 1; 1 << cbsz <= c.blocks; ++cbsz)
    for (int abid = 0; abid < 1 << cbsz; ++abid) {
      Problem p(c.m, c.k, c.blocks, c.a, c.b, 17);
      Lab lab(c.chip);
      p.load(lab, kA, kB, kC);
      lab.run(std::string(c.name) + " " + regs("v", kD, p.registersD()) + ", " + regs("v", kA, p.registersA()) + ", " +
              regs("v", kB, p.registersB()) + ", " + regs("v", kC, p.registersD()) + " cbsz:" + std::to_string(cbsz) +
              " abid:" + std::to_string(abid));
      std::vector<double> original = p.a;
      std::size_t size = static_cast<std::size_t>(p.m * p.k);
      for (int block = 0; block < p.blocks; ++block) {
        std::size_t from = static_cast<std::size_t>(block / (1 << cbsz) * (1 << cbsz) + abid);
        std::copy_n(original.begin() + static_cast<std::ptrdiff_t>(from * size), size,
                    p.a.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(block) * size));
      }
      for (int block = 0; block < p.blocks; ++block)
        for (int i = 0; i < p.m; ++i)
          for (int j = 0; j < p.m; ++j)
            ASSERT_EQ(value(p.integer, lab.v(kD + p.registerOfD(block, i), p.laneOfD(block, i, j))),
                      p.expected(block, i, j))
                << "cbsz " << cbsz << " abid " << abid << " block " << block;
    }
}

// The same document: BLGP chooses which lanes of B the multiplier sees.
TEST_P(Mfma, LaneGroupPatternsOfB) {
  const Case& c = GetParam();
  bool known = std::string(c.chip) == "gfx90a" ||
               (c.blocks > 1 || (c.a.bits == 32 && std::string(c.name).find("xf32") == std::string::npos));
  for (int blgp = 1; blgp < 8; ++blgp) {
    Problem p(c.m, c.k, c.blocks, c.a, c.b, 19);
    Lab lab(c.chip), moved(c.chip);
    p.load(lab, kA, kB, kC);
    p.load(moved, kA, kB, kC);
    std::string text = std::string(c.name) + " " + regs("v", kD, p.registersD()) + ", " +
                       regs("v", kA, p.registersA()) + ", " + regs("v", kB, p.registersB()) + ", " +
                       regs("v", kC, p.registersD());
    if (!known) {
      EXPECT_NE(lab.fault(text + " blgp:" + std::to_string(blgp)).find("BLGP"), std::string::npos);
      continue;
    }
    lab.run(text + " blgp:" + std::to_string(blgp));
    // Move B by hand, and run without the modifier.
    for (int r = 0; r < p.registersB(); ++r)
      for (int l = 0; l < 64; ++l) {
        static const int firstOf[8] = {0, 0, 32, 16, 0, 16, 32, 48};
        int span = blgp <= 2 ? 32 : blgp == 3 ? 64 : 16;
        moved.v(kB + r, l) = lab.v(kB + r, (firstOf[blgp] + l % span) % 64);
      }
    moved.run(text);
    for (int r = 0; r < p.registersD(); ++r)
      for (int l = 0; l < 64; ++l) ASSERT_EQ(lab.v(kD + r, l), moved.v(kD + r, l)) << "blgp " << blgp;
  }
}

// CDNA3 ISA document, V_MFMA_F64: A[i][k] in lane 16 * k + i, D[i][j] in pair i / 4 of lane 16 * (i % 4) + j; the small
// form has four blocks, four lanes apart.
TEST(MfmaDouble, ProductsAndNegation) {
  for (const char* chip : {"gfx90a", "gfx942", "gfx950"})
    for (bool small : {false, true})
      for (int neg = 0; neg < (std::string(chip) == "gfx90a" ? 1 : 8); ++neg) {
        Lab lab(chip);
        int m = small ? 4 : 16, blocks = small ? 4 : 1, pairs = small ? 1 : 4;
        auto a = [&](int block, int i, int k) { return 1.0 / (3 + i + 5 * k + 7 * block); };
        auto b = [&](int block, int k, int j) { return 0.1 * (k - 2) + j * 0.7 - block; };
        auto cc = [&](int block, int i, int j) { return i * 1e-3 - j + block * 0.25; };
        auto put = [&](int reg, int lane, double v) {
          auto bits = std::bit_cast<std::uint64_t>(v);
          lab.v(reg, lane) = static_cast<std::uint32_t>(bits),
                     lab.v(reg + 1, lane) = static_cast<std::uint32_t>(bits >> 32);
        };
        auto pairOf = [&](int i) { return small ? 0 : i / 4; };
        auto laneOf = [&](int block, int i, int j) { return 16 * (i % 4) + 4 * block + j; };
        for (int block = 0; block < blocks; ++block)
          for (int i = 0; i < m; ++i) {
            for (int k = 0; k < 4; ++k) {
              put(2, 16 * k + 4 * block + i, a(block, i, k));
              put(4, 16 * k + 4 * block + i, b(block, k, i));
            }
            for (int j = 0; j < m; ++j) put(8 + 2 * pairOf(i), laneOf(block, i, j), cc(block, i, j));
          }
        std::string name =
            std::string(small ? "v_mfma_f64_4x4x4" : "v_mfma_f64_16x16x4") + (std::string(chip) == "gfx90a" ? "f64"
                                                                              : small                       ? "_4b_f64"
                                                                                                            : "_f64");
        std::string mods = neg ? " neg:[" + std::to_string(neg & 1) + "," + std::to_string(neg >> 1 & 1) + "," +
                                     std::to_string(neg >> 2) + "]"
                               : "";
        lab.run(name + " " + regs("v", 20, 2 * pairs) + ", v[2:3], v[4:5], " + regs("v", 8, 2 * pairs) + mods);
        for (int block = 0; block < blocks; ++block)
          for (int i = 0; i < m; ++i)
            for (int j = 0; j < m; ++j) {
              double s = neg & 4 ? -cc(block, i, j) : cc(block, i, j);
              for (int k = 0; k < 4; ++k)
                s = std::fma(neg & 1 ? -a(block, i, k) : a(block, i, k), neg & 2 ? -b(block, k, j) : b(block, k, j), s);
              ASSERT_EQ(lab.d(20 + 2 * pairOf(i), laneOf(block, i, j)), s) << chip << " " << small << " " << neg;
            }
      }
}

// AMD, "MI200 MFMA behaviour specifics": f16 and bf16 flush denormal inputs and outputs; later chips do not.
TEST(MfmaNumerics, Denormals) {
  for (const char* chip : {"gfx90a", "gfx942", "gfx950"}) {
    bool flushes = std::string(chip) == "gfx90a";
    std::string half = flushes ? "v_mfma_f32_16x16x16f16" : "v_mfma_f32_16x16x16_f16";
    Lab lab(chip);
    for (int r = 0; r < 2; ++r) lab.fill(kA + r, 0x00010001u), lab.fill(kB + r, 0x3c003c00u);  // 2^-24, 1
    lab.run(half + " v[128:131], v[2:3], v[34:35], 0");
    EXPECT_EQ(lab.f(128), flushes ? 0.0f : 0x1p-20f) << chip;
    // A denormal C: kept, or flushed.
    for (int r = 0; r < 2; ++r) lab.fill(kA + r, 0u);
    for (int r = 0; r < 4; ++r) lab.fill(kC + r, 0x00400000u);
    lab.run(half + " v[128:131], v[2:3], v[34:35], v[64:67]");
    EXPECT_EQ(lab.v(128), flushes ? 0u : 0x00400000u) << chip;
    // f32 keeps denormals everywhere.
    lab.fill(2, 0x00400000u), lab.fill(3, 1.0f);
    lab.run(std::string(flushes ? "v_mfma_f32_16x16x4f32" : "v_mfma_f32_16x16x4_f32") + " v[128:131], v2, v3, 0");
    EXPECT_EQ(lab.v(128), 0x01000000u) << chip;
  }
}

TEST(MfmaNumerics, InfinityAndNan) {
  for (const char* chip : {"gfx90a", "gfx942", "gfx950"}) {
    bool old = std::string(chip) == "gfx90a";
    Lab lab(chip);
    for (int r = 0; r < 2; ++r) lab.fill(kA + r, 0x3c003c00u), lab.fill(kB + r, 0x3c003c00u);
    lab.v(kA, 5) = 0x3c007c00u;  // row 5: infinity
    lab.v(kA, 6) = 0xfc007c00u;  // row 6: infinity - infinity
    lab.v(kA, 7) = 0x3c007e01u;  // row 7: NaN
    lab.run(std::string(old ? "v_mfma_f32_16x16x16f16" : "v_mfma_f32_16x16x16_f16") +
            " v[128:131], v[2:3], v[34:35], 0");
    EXPECT_EQ(lab.f(128, 0), 16.0f);         // row 0
    EXPECT_EQ(lab.v(129, 16), 0x7f800000u);  // row 5
    EXPECT_EQ(lab.v(130, 16), 0x7fc00000u);  // row 6
    EXPECT_EQ(lab.v(131, 16), 0x7fc00000u);  // row 7
  }
}

// The choice that matrix.h documents: an exact sum of a group, then one rounding with C.
TEST(MfmaNumerics, OneRoundingForAGroup) {
  Lab lab("gfx942");
  // k = 0: 2048 * 2048 * 4; k = 1: 2^-1; k = 2: -(2048 * 2048 * 4). Rounded after each addition, the half would be
  // lost.
  lab.v(kA, 0) = 0x38006c00u;  // k = 0: 4096, k = 1: 0.5
  lab.v(kA + 1, 0) = 0xec00u;  // k = 2: -4096
  lab.v(kB, 0) = 0x3c006c00u;  // 4096, 1
  lab.v(kB + 1, 0) = 0x6c00u;
  lab.run("v_mfma_f32_16x16x16_f16 v[128:131], v[2:3], v[34:35], 0");
  EXPECT_EQ(lab.f(128, 0), 0.5f);
}

// xf32 reads the upper 19 bits of its inputs.
TEST(MfmaNumerics, Xf32CutsInputs) {
  Lab lab("gfx942");
  lab.fill(2, 0x3f801fffu), lab.fill(3, 0u), lab.fill(4, 1.0f), lab.fill(5, 0u);
  lab.run("v_mfma_f32_16x16x8_xf32 v[128:131], v[2:3], v[4:5], 0");
  EXPECT_EQ(lab.f(128), 4.0f);
}

TEST(MfmaNumerics, IntegersWrap) {
  Lab lab("gfx942");
  lab.fill(2, 0x7f7f7f7fu), lab.fill(3, 0x7f7f7f7fu), lab.fill(4, 0x7f7f7f7fu), lab.fill(5, 0x7f7f7f7fu);
  for (int r = 0; r < 4; ++r) lab.fill(kC + r, 0x7fffffffu);
  lab.run("v_mfma_i32_16x16x32_i8 v[128:131], v[2:3], v[4:5], v[64:67]");
  EXPECT_EQ(lab.v(128), 0x7fffffffu + 32u * 127 * 127);
}

// Formats of 8 bits without infinity on gfx942 (0x80 is NaN), with OCP's meaning on gfx950 (0x80 is -0, 0x7f NaN).
TEST(MfmaNumerics, EightBitSpecials) {
  for (const char* chip : {"gfx942", "gfx950"}) {
    bool fnuz = std::string(chip) == "gfx942";
    Lab lab(chip);
    std::uint32_t one = fnuz ? 0x40 : 0x38;
    for (int r = 0; r < 2; ++r) lab.fill(kA + r, 0u), lab.fill(kB + r, one * 0x01010101u);
    lab.v(kA, 0) = 0x80;
    lab.v(kA, 1) = 0x7f;
    lab.v(kA, 2) = 0x7e;
    lab.run("v_mfma_f32_16x16x32_fp8_fp8 v[128:131], v[2:3], v[34:35], 0");
    EXPECT_EQ(lab.v(128, 0), fnuz ? 0x7fc00000u : 0u) << chip;
    EXPECT_EQ(lab.v(129, 0), fnuz ? std::bit_cast<std::uint32_t>(240.0f) : 0x7fc00000u) << chip;
    EXPECT_EQ(lab.f(130, 0), fnuz ? 224.0f : 448.0f) << chip;
  }
}

}  // namespace
