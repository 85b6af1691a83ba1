// Matrix products of CDNA: V_MFMA_*, and gfx950's V_MFMA_*_F8F6F4 with and without block scales. Layouts are in
// mfma_lanes.h, arithmetic and its rounding in matrix.h.
#include "sim/ops/families.h"
#include "sim/ops/mfma_lanes.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;

struct Form {
  const char* names;
  int m, k, blocks;  ///< n is m
  Element a, b;
};

using enum Element;

/// gfx90a names first; gfx942 puts the blocks and the type apart.
constexpr Form kForms[] = {
    {"v_mfma_f32_32x32x1f32|v_mfma_f32_32x32x1_2b_f32", 32, 1, 2, kF32, kF32},
    {"v_mfma_f32_16x16x1f32|v_mfma_f32_16x16x1_4b_f32", 16, 1, 4, kF32, kF32},
    {"v_mfma_f32_4x4x1f32|v_mfma_f32_4x4x1_16b_f32", 4, 1, 16, kF32, kF32},
    {"v_mfma_f32_32x32x2f32|v_mfma_f32_32x32x2_f32", 32, 2, 1, kF32, kF32},
    {"v_mfma_f32_16x16x4f32|v_mfma_f32_16x16x4_f32", 16, 4, 1, kF32, kF32},
    {"v_mfma_f32_16x16x8_xf32", 16, 8, 1, kXf32, kXf32},
    {"v_mfma_f32_32x32x4_xf32", 32, 4, 1, kXf32, kXf32},
    {"v_mfma_f32_32x32x4f16|v_mfma_f32_32x32x4_2b_f16", 32, 4, 2, kF16, kF16},
    {"v_mfma_f32_16x16x4f16|v_mfma_f32_16x16x4_4b_f16", 16, 4, 4, kF16, kF16},
    {"v_mfma_f32_4x4x4f16|v_mfma_f32_4x4x4_16b_f16", 4, 4, 16, kF16, kF16},
    {"v_mfma_f32_32x32x8f16|v_mfma_f32_32x32x8_f16", 32, 8, 1, kF16, kF16},
    {"v_mfma_f32_16x16x16f16|v_mfma_f32_16x16x16_f16", 16, 16, 1, kF16, kF16},
    {"v_mfma_f32_16x16x32_f16", 16, 32, 1, kF16, kF16},
    {"v_mfma_f32_32x32x16_f16", 32, 16, 1, kF16, kF16},
    {"v_mfma_f32_32x32x2bf16", 32, 2, 2, kBf16, kBf16},
    {"v_mfma_f32_16x16x2bf16", 16, 2, 4, kBf16, kBf16},
    {"v_mfma_f32_4x4x2bf16", 4, 2, 16, kBf16, kBf16},
    {"v_mfma_f32_32x32x4bf16", 32, 4, 1, kBf16, kBf16},
    {"v_mfma_f32_16x16x8bf16", 16, 8, 1, kBf16, kBf16},
    {"v_mfma_f32_32x32x4bf16_1k|v_mfma_f32_32x32x4_2b_bf16", 32, 4, 2, kBf16, kBf16},
    {"v_mfma_f32_16x16x4bf16_1k|v_mfma_f32_16x16x4_4b_bf16", 16, 4, 4, kBf16, kBf16},
    {"v_mfma_f32_4x4x4bf16_1k|v_mfma_f32_4x4x4_16b_bf16", 4, 4, 16, kBf16, kBf16},
    {"v_mfma_f32_32x32x8bf16_1k|v_mfma_f32_32x32x8_bf16", 32, 8, 1, kBf16, kBf16},
    {"v_mfma_f32_16x16x16bf16_1k|v_mfma_f32_16x16x16_bf16", 16, 16, 1, kBf16, kBf16},
    {"v_mfma_f32_16x16x32_bf16", 16, 32, 1, kBf16, kBf16},
    {"v_mfma_f32_32x32x16_bf16", 32, 16, 1, kBf16, kBf16},
    {"v_mfma_i32_32x32x4i8|v_mfma_i32_32x32x4_2b_i8", 32, 4, 2, kI8, kI8},
    {"v_mfma_i32_16x16x4i8|v_mfma_i32_16x16x4_4b_i8", 16, 4, 4, kI8, kI8},
    {"v_mfma_i32_4x4x4i8|v_mfma_i32_4x4x4_16b_i8", 4, 4, 16, kI8, kI8},
    {"v_mfma_i32_32x32x8i8", 32, 8, 1, kI8, kI8},
    {"v_mfma_i32_16x16x16i8", 16, 16, 1, kI8, kI8},
    {"v_mfma_i32_32x32x16_i8", 32, 16, 1, kI8, kI8},
    {"v_mfma_i32_16x16x32_i8", 16, 32, 1, kI8, kI8},
    {"v_mfma_i32_16x16x64_i8", 16, 64, 1, kI8, kI8},
    {"v_mfma_i32_32x32x32_i8", 32, 32, 1, kI8, kI8},
    {"v_mfma_f32_16x16x32_fp8_fp8", 16, 32, 1, kFp8, kFp8},
    {"v_mfma_f32_16x16x32_fp8_bf8", 16, 32, 1, kFp8, kBf8},
    {"v_mfma_f32_16x16x32_bf8_fp8", 16, 32, 1, kBf8, kFp8},
    {"v_mfma_f32_16x16x32_bf8_bf8", 16, 32, 1, kBf8, kBf8},
    {"v_mfma_f32_32x32x16_fp8_fp8", 32, 16, 1, kFp8, kFp8},
    {"v_mfma_f32_32x32x16_fp8_bf8", 32, 16, 1, kFp8, kBf8},
    {"v_mfma_f32_32x32x16_bf8_fp8", 32, 16, 1, kBf8, kFp8},
    {"v_mfma_f32_32x32x16_bf8_bf8", 32, 16, 1, kBf8, kBf8},
};
constexpr int kFormCount = static_cast<int>(std::size(kForms));

/// Fields of VOP3P-MAI, from its two dwords.
struct Fields {
  int cbsz, abid, blgp;
  Fields(U word0, U word1)
      : cbsz(static_cast<int>(word0 >> 8 & 7)),
        abid(static_cast<int>(word0 >> 11 & 15)),
        blgp(static_cast<int>(word1 >> 29)) {}
};

void flushInputs(float* v, int count, float smallest) {
  for (int i = 0; i < count; ++i) v[i] = std::fabs(v[i]) < smallest ? 0.0f : v[i];
}

/// CBSZ and ABID: one block of A stands for 2^CBSZ consecutive ones.
void broadcastBlocks(Tile& t, const Fields& f) {
  if (!f.cbsz) return;
  int size = t.steps * t.m, together = 1 << f.cbsz;
  if (together > t.blocks || f.abid >= together) throw Fault("CBSZ or ABID is beyond the number of blocks");
  alignas(64) float old[2048];
  std::memcpy(old, t.a, sizeof(float) * static_cast<std::size_t>(size * t.blocks));
  for (int b = 0; b < t.blocks; ++b) {
    int from = (b & ~(together - 1)) | f.abid;
    std::memcpy(t.a + b * size, old + from * size, sizeof(float) * static_cast<std::size_t>(size));
  }
}

template <int kForm>
void mfma(Wave& w, const Inst& in) {
  constexpr const Form& form = kForms[kForm];
  constexpr int kPerLane = form.m * form.k * form.blocks / 64;
  Fields f(in.raw[0], in.raw[1]);
  bool mi200 = w.chip->mi200Matrix;
  bool half = form.a == kF16 || form.a == kBf16;
  // BLGP is known on the forms with several blocks, on f32, and on MI200 everywhere.
  if (f.blgp && !(mi200 || form.blocks > 1 || form.a == kF32)) throw Fault("BLGP is not known for this instruction");
  if (f.cbsz && form.blocks == 1) throw Fault("CBSZ is not known for this instruction");
  Tile t;
  t.m = t.n = form.m, t.blocks = form.blocks, t.steps = t.bRows = form.k;
  Element ea = on(*w.chip, form.a), eb = on(*w.chip, form.b);
  if (form.a == kI8) {
    t.sum = Sum::kExactInteger;
  } else if (half && mi200) {
    t.sum = Sum::kPairs;
    // One register of A is two bf16 on the older forms, which add in pairs; the others have four elements a lane.
    t.group = in.src[0].dwords == 1 ? 2 : 4;
  } else if (half || bitsOf(ea) == 8) {
    t.sum = Sum::kGroups;
    t.group = groupOf(ea, form.k);
  }
  Rows a(w, in.src[0], kPerLane * bitsOf(ea) / 32), b(w, in.src[1], kPerLane * bitsOf(eb) / 32);
  b.permute(f.blgp);
  unpackSide(a, ea, form.m, form.blocks, form.k, false, t.a);
  unpackSide(b, eb, form.m, form.blocks, form.k, false, t.b);
  broadcastBlocks(t, f);
  readAccumulator(w, in.src[2], t);
  if (t.sum == Sum::kPairs) {
    float smallest = form.a == kF16 ? 0x1p-14f : 0x1p-126f;
    flushInputs(t.a, form.m * form.k * form.blocks, smallest);
    flushInputs(t.b, form.m * form.k * form.blocks, smallest);
    flushInputs(t.c, form.m * form.m * form.blocks, 0x1p-126f);
  }
  accumulate(t);
  writeAccumulator(w, in.dst[0], t);
}

/// 16x16x4 and 4x4x4 in four blocks, of doubles. On gfx942 and later BLGP negates A, B and C.
template <bool kSmall>
void mfmaF64(Wave& w, const Inst& in) {
  Fields f(in.raw[0], in.raw[1]);
  if (f.blgp && w.chip->mi200Matrix) throw Fault("BLGP is not known for this instruction");
  auto read = [&](const Operand& o, int pair, bool negate, double* out) {
    Row64 v;
    Operand from = o;
    if (isRow(o)) from.index = static_cast<std::uint16_t>(o.index + 2 * pair);
    readB64(w, from, v);
    for (int l = 0; l < 64; ++l) out[l] = negate ? -asF64(v[l]) : asF64(v[l]);
  };
  double a[64], b[64];
  read(in.src[0], 0, f.blgp & 1, a);
  read(in.src[1], 0, f.blgp & 2, b);
  // A[i][k] is in lane 16 * k + i, C[i][j] in lane 16 * (i % 4) + j of pair i / 4; blocks are 4 neighbouring lanes.
  constexpr int kPairs = kSmall ? 1 : 4;
  double c[kPairs][64];
  for (int p = 0; p < kPairs; ++p) {
    read(in.src[2], p, f.blgp & 4, c[p]);
    for (int l = 0; l < 64; ++l) {
      int group = l / 16, column = l % 16, row = kSmall ? (column & ~3) | group : 4 * p + group;
      double s = c[p][l];
      for (int k = 0; k < 4; ++k) s = std::fma(a[16 * k + row], b[16 * k + column], s);
      c[p][l] = s != s ? asF64(0x7ff8000000000000ull) : s;
    }
  }
  w.mask = w.full;
  for (int p = 0; p < kPairs; ++p) {
    Row64 v;
    for (int l = 0; l < 64; ++l) v[l] = bitsOf(c[p][l]);
    Operand to = in.dst[0];
    to.index = static_cast<std::uint16_t>(to.index + 2 * p);
    writeB64(w, to, v);
  }
}

double blockScale(U e8m0) {
  e8m0 &= 255;
  return e8m0 == 255 ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, static_cast<int>(e8m0) - 127);
}

/// CBSZ and BLGP name the types of A and B. The scale of row (column) i and K elements 32 * b to 32 * b + 31 is a byte
/// of lane i + m * b; two bits of op_sel choose the byte.
template <int kM, bool kScaled>
void mfmaF8f6f4(Wave& w, const Inst& in) {
  constexpr int kK = kM == 16 ? 128 : 64;
  constexpr Element kTypes[] = {kFp8, kBf8, kFp6, kBf6, kFp4};
  Fields f(in.raw[kScaled ? 2 : 0], in.raw[kScaled ? 3 : 1]);
  if (f.cbsz > 4 || f.blgp > 4) throw Fault("CBSZ or BLGP names no matrix type");
  Element ea = kTypes[f.cbsz], eb = kTypes[f.blgp];
  Tile t;
  t.m = t.n = kM, t.steps = t.bRows = kK, t.sum = Sum::kGroups, t.group = 32;
  unpackSide(Rows(w, in.src[0], bitsOf(ea)), ea, kM, 1, kK, bitsOf(ea) == 8, t.a);
  unpackSide(Rows(w, in.src[1], bitsOf(eb)), eb, kM, 1, kK, bitsOf(eb) == 8, t.b);
  readAccumulator(w, in.src[2], t);
  if (kScaled) {
    t.scaled = true;
    U byteA = (in.raw[0] >> 11 & 1) | (in.raw[1] >> 27 & 1) << 1, byteB = (in.raw[0] >> 12 & 1) | (in.raw[1] >> 28 & 1)
                                                                                                      << 1;
    Row ta, tb;
    const U* sa = readB32(w, in.src[3], ta);
    const U* sb = readB32(w, in.src[4], tb);
    for (int l = 0; l < 64; ++l) {
      t.aScale[l / kM][l % kM] = blockScale(sa[l] >> (8 * byteA));
      t.bScale[l / kM][l % kM] = blockScale(sb[l] >> (8 * byteB));
    }
  }
  accumulate(t);
  writeAccumulator(w, in.dst[0], t);
}

template <int kForm = 0>
void addForms(OpTable& t) {
  t.add(kForms[kForm].names, mfma<kForm>, kMatrix | kIgnoresExec);
  if constexpr (kForm + 1 < kFormCount) addForms<kForm + 1>(t);
}

}  // namespace

void addMfma(OpTable& t) {
  addForms(t);
  t.add("v_mfma_f64_16x16x4f64|v_mfma_f64_16x16x4_f64", mfmaF64<false>, kMatrix | kIgnoresExec);
  t.add("v_mfma_f64_4x4x4f64|v_mfma_f64_4x4x4_4b_f64", mfmaF64<true>, kMatrix | kIgnoresExec);
  t.add("v_mfma_f32_16x16x128_f8f6f4", mfmaF8f6f4<16, false>, kMatrix | kIgnoresExec);
  t.add("v_mfma_f32_32x32x64_f8f6f4", mfmaF8f6f4<32, false>, kMatrix | kIgnoresExec);
  t.add("v_mfma_scale_f32_16x16x128_f8f6f4", mfmaF8f6f4<16, true>, kMatrix | kIgnoresExec);
  t.add("v_mfma_scale_f32_32x32x64_f8f6f4", mfmaF8f6f4<32, true>, kMatrix | kIgnoresExec);
}

}  // namespace sardonyx::sim
