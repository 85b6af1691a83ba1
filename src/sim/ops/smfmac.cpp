// Matrix products of CDNA3 and CDNA4 with a sparse A: V_SMFMAC_*. Of every four consecutive elements along K, A holds
// two; two bits of the index register say which each of them is. D is also C.
#include "sim/ops/families.h"
#include "sim/ops/mfma_lanes.h"

namespace sardonyx::sim {
namespace {

struct Form {
  const char* name;
  int m, k;  ///< k of B
  Element a, b;
};

using enum Element;

constexpr Form kForms[] = {
    {"v_smfmac_f32_16x16x32_f16", 16, 32, kF16, kF16},       {"v_smfmac_f32_32x32x16_f16", 32, 16, kF16, kF16},
    {"v_smfmac_f32_16x16x32_bf16", 16, 32, kBf16, kBf16},    {"v_smfmac_f32_32x32x16_bf16", 32, 16, kBf16, kBf16},
    {"v_smfmac_i32_16x16x64_i8", 16, 64, kI8, kI8},          {"v_smfmac_i32_32x32x32_i8", 32, 32, kI8, kI8},
    {"v_smfmac_f32_16x16x64_fp8_fp8", 16, 64, kFp8, kFp8},   {"v_smfmac_f32_16x16x64_fp8_bf8", 16, 64, kFp8, kBf8},
    {"v_smfmac_f32_16x16x64_bf8_fp8", 16, 64, kBf8, kFp8},   {"v_smfmac_f32_16x16x64_bf8_bf8", 16, 64, kBf8, kBf8},
    {"v_smfmac_f32_32x32x32_fp8_fp8", 32, 32, kFp8, kFp8},   {"v_smfmac_f32_32x32x32_fp8_bf8", 32, 32, kFp8, kBf8},
    {"v_smfmac_f32_32x32x32_bf8_fp8", 32, 32, kBf8, kFp8},   {"v_smfmac_f32_32x32x32_bf8_bf8", 32, 32, kBf8, kBf8},
    {"v_smfmac_f32_16x16x64_f16", 16, 64, kF16, kF16},       {"v_smfmac_f32_32x32x32_f16", 32, 32, kF16, kF16},
    {"v_smfmac_f32_16x16x64_bf16", 16, 64, kBf16, kBf16},    {"v_smfmac_f32_32x32x32_bf16", 32, 32, kBf16, kBf16},
    {"v_smfmac_i32_16x16x128_i8", 16, 128, kI8, kI8},        {"v_smfmac_i32_32x32x64_i8", 32, 64, kI8, kI8},
    {"v_smfmac_f32_16x16x128_fp8_fp8", 16, 128, kFp8, kFp8}, {"v_smfmac_f32_16x16x128_fp8_bf8", 16, 128, kFp8, kBf8},
    {"v_smfmac_f32_16x16x128_bf8_fp8", 16, 128, kBf8, kFp8}, {"v_smfmac_f32_16x16x128_bf8_bf8", 16, 128, kBf8, kBf8},
    {"v_smfmac_f32_32x32x64_fp8_fp8", 32, 64, kFp8, kFp8},   {"v_smfmac_f32_32x32x64_fp8_bf8", 32, 64, kFp8, kBf8},
    {"v_smfmac_f32_32x32x64_bf8_fp8", 32, 64, kBf8, kFp8},   {"v_smfmac_f32_32x32x64_bf8_bf8", 32, 64, kBf8, kBf8},
};

template <int kForm>
void smfmac(Wave& w, const Inst& in) {
  constexpr const Form& form = kForms[kForm];
  constexpr int kGroups = 64 / form.m, kHeld = form.k / 2 / kGroups;  // elements of A a lane holds
  Element ea = on(*w.chip, form.a), eb = on(*w.chip, form.b);
  Tile t;
  t.m = t.n = form.m, t.steps = form.k / 2, t.bRows = form.k, t.sparse = true;
  t.sum = isInteger(ea) ? Sum::kExactInteger : Sum::kGroups;
  t.group = groupOf(ea, t.steps);
  unpackSide(Rows(w, in.src[0], kHeld * bitsOf(ea) / 32), ea, form.m, 1, t.steps, false, t.a);
  unpackSide(Rows(w, in.src[1], 2 * kHeld * bitsOf(eb) / 32), eb, form.m, 1, form.k, false, t.b);
  // A lane's indices are 2 * kHeld bits; ABID chooses one of the sets that fit into the register when CBSZ is 0.
  constexpr int kBits = 2 * kHeld;
  unsigned cbsz = in.raw[0] >> 8 & 7, abid = in.raw[0] >> 11 & 15;
  int shift = cbsz ? 0 : static_cast<int>(abid) * kBits & 31;
  Row tmp;
  const std::uint32_t* indices = readB32(w, in.src[2], tmp);
  for (int l = 0; l < 64; ++l) {
    std::uint32_t bits = indices[l] >> shift;
    int group = l / form.m, row = l % form.m;
    for (int s = 0; s < kHeld; ++s)
      t.index[(group * kHeld + s) * form.m + row] =
          static_cast<std::uint8_t>(group * 2 * kHeld + s / 2 * 4 + static_cast<int>(bits >> (2 * s) & 3));
  }
  readAccumulator(w, in.dst[0], t);
  accumulate(t);
  writeAccumulator(w, in.dst[0], t);
}

template <int kForm = 0>
void addForms(OpTable& t) {
  t.add(kForms[kForm].name, smfmac<kForm>, kMatrix | kIgnoresExec);
  if constexpr (kForm + 1 < static_cast<int>(std::size(kForms))) addForms<kForm + 1>(t);
}

}  // namespace

void addSmfmac(OpTable& t) { addForms(t); }

}  // namespace sardonyx::sim
