// Matrix products of RDNA: V_WMMA_* of gfx11 and gfx12 and V_SWMMAC_* (a sparse A) of gfx12, for waves of 32 and 64.
// RDNA3 and RDNA4 ISA documents, "Wave Matrix Multiply Accumulate"; arithmetic and rounding in matrix.h. M and N
// are 16.
//
// gfx11: a lane holds all k of row lane % 16 of A (column of B); lanes 16 apart repeat each other. D[i][j] is in
// register i / G of lane 16 * (i % G) + j, where G = lanes / 16; 16-bit results use one half of each register. gfx12:
// groups of 16 lanes hold parts of k (KMap below). D[i][j] is in register i % 8 of lane 16 * (i / 8) + j of a wave32;
// a wave64 keeps rows with bit 2 of i set in its upper half. 16-bit results are packed.
#include <algorithm>
#ifdef __F16C__
#include <immintrin.h>
#endif

#include "sim/ops/families.h"
#include "sim/ops/matrix.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;
using enum Element;

enum class Out : std::uint8_t { kF32, kF16, kBf16, kI32 };

struct Form {
  const char* name;
  int k;
  Element a, b;
  Out out;
  bool sparse;
};

constexpr Form kForms[] = {
    {"v_wmma_f32_16x16x16_f16", 16, kF16, kF16, Out::kF32, false},
    {"v_wmma_f32_16x16x16_bf16", 16, kBf16, kBf16, Out::kF32, false},
    {"v_wmma_f16_16x16x16_f16", 16, kF16, kF16, Out::kF16, false},
    {"v_wmma_bf16_16x16x16_bf16", 16, kBf16, kBf16, Out::kBf16, false},
    {"v_wmma_i32_16x16x16_iu8", 16, kU8, kU8, Out::kI32, false},
    {"v_wmma_i32_16x16x16_iu4", 16, kU4, kU4, Out::kI32, false},
    {"v_wmma_i32_16x16x32_iu4", 32, kU4, kU4, Out::kI32, false},
    {"v_wmma_f32_16x16x16_fp8_fp8", 16, kFp8, kFp8, Out::kF32, false},
    {"v_wmma_f32_16x16x16_fp8_bf8", 16, kFp8, kBf8, Out::kF32, false},
    {"v_wmma_f32_16x16x16_bf8_fp8", 16, kBf8, kFp8, Out::kF32, false},
    {"v_wmma_f32_16x16x16_bf8_bf8", 16, kBf8, kBf8, Out::kF32, false},
    {"v_swmmac_f32_16x16x32_f16", 32, kF16, kF16, Out::kF32, true},
    {"v_swmmac_f32_16x16x32_bf16", 32, kBf16, kBf16, Out::kF32, true},
    {"v_swmmac_f16_16x16x32_f16", 32, kF16, kF16, Out::kF16, true},
    {"v_swmmac_bf16_16x16x32_bf16", 32, kBf16, kBf16, Out::kBf16, true},
    {"v_swmmac_i32_16x16x32_iu8", 32, kU8, kU8, Out::kI32, true},
    {"v_swmmac_i32_16x16x32_iu4", 32, kU4, kU4, Out::kI32, true},
    {"v_swmmac_i32_16x16x64_iu4", 64, kU4, kU4, Out::kI32, true},
    {"v_swmmac_f32_16x16x32_fp8_fp8", 32, kFp8, kFp8, Out::kF32, true},
    {"v_swmmac_f32_16x16x32_fp8_bf8", 32, kFp8, kBf8, Out::kF32, true},
    {"v_swmmac_f32_16x16x32_bf8_fp8", 32, kBf8, kFp8, Out::kF32, true},
    {"v_swmmac_f32_16x16x32_bf8_bf8", 32, kBf8, kBf8, Out::kF32, true},
};

/// gfx12: which k the e-th element of a lane is. Lanes fall into groups of 16; runs of consecutive k alternate between
/// the groups with the weights given by the group's two bits.
struct KMap {
  int groups, run, stride, low, high;
  int k(int group, int e) const { return (group & 1) * low + (group >> 1) * high + e / run * stride + e % run; }
};

/// Of a dense operand with k elements, or the B of a sparse product.
KMap mapOf(int bits, int k, bool sparse, bool wave32) {
  int perLane = k / (wave32 ? 2 : 4);
  if (bits == 16 && !sparse) return wave32 ? KMap{2, 4, 8, 4, 0} : KMap{4, 4, 0, 4, 8};
  if (bits == 16) return wave32 ? KMap{2, 8, 16, 8, 0} : KMap{4, 8, 0, 8, 16};
  if (bits == 4 && k == 16) return {2, 8, 0, 8, 0};  // the upper half of a wave64 is not read
  return wave32 ? KMap{2, perLane, 0, perLane, 0} : KMap{4, perLane, 0, 2 * perLane, perLane};
}

/// NEG_LO and NEG_HI of A and B: the even and the odd element of each register.
void negateHalves(const Operand& o, int index, int count, float* v) {
  if (index & 1 ? o.negHi : o.neg)
    for (int i = 0; i < count; ++i) v[i] = -v[i];
}

void rowsOf(Wave& w, const Operand& o, int registers, const U** rows) {
  if (!isRow(o)) throw Fault("a matrix operand is not in vector registers");
  for (int r = 0; r < registers; ++r) rows[r] = w.row(o, r);
}

void unpackGfx11(Wave& w, const Operand& o, Element e, int k, float* out) {
  const U* rows[8];
  int registers = k * bitsOf(e) / 32;
  rowsOf(w, o, registers, rows);
  for (int r = 0; r < registers; ++r)
    for (int g = 16; g < w.lanes; g += 16)
      if (std::memcmp(rows[r], rows[r] + g, 64) != 0)
        throw Fault(
            "a matrix operand does not repeat its lanes 0 to 15 in the other lanes, as WMMA of this chip requires");
  for (int i = 0; i < k; ++i) {
    unpack(e, rows, i, 16, out + i * 16);
    if (bitsOf(e) == 16) negateHalves(o, i, 16, out + i * 16);
  }
}

void unpackGfx12(Wave& w, const Operand& o, Element e, const KMap& map, int k, float* out) {
  const U* rows[8];
  int perLane = k / map.groups;
  rowsOf(w, o, std::max(1, perLane * bitsOf(e) / 32), rows);
  alignas(64) float lane[64];
  for (int i = 0; i < perLane; ++i) {
    unpack(e, rows, i, w.lanes, lane);
    if (bitsOf(e) == 16) negateHalves(o, i, w.lanes, lane);
    for (int g = 0; g < map.groups; ++g) std::memcpy(out + map.k(g, i) * 16, lane + g * 16, 64);
  }
}

/// A of a sparse product and its indices, two bits an element: which of four consecutive k it is.
void unpackSparse(Wave& w, const Inst& in, Element e, int k, Tile& t) {
  bool wave32 = w.wave32;
  // With 4-bit elements and k = 32, the lower half of a wave64 holds all of A.
  KMap map = bitsOf(e) == 4 && k == 32 ? mapOf(4, k, true, true) : mapOf(bitsOf(e), k, true, wave32);
  int held = k / 2 / map.groups;
  const U* rows[8];
  rowsOf(w, in.src[0], std::max(1, held * bitsOf(e) / 32), rows);
  alignas(64) float lane[64];
  Row tmp;
  const U* indices = readB32(w, in.src[3], tmp);                      // src[2] is D, tied
  int shift = static_cast<int>(in.raw[0] >> 11 & 3) * 2 * held & 31;  // op_sel: which set of indices
  for (int s = 0; s < held; ++s) {
    unpack(e, rows, s, w.lanes, lane);
    if (bitsOf(e) == 16) negateHalves(in.src[0], s, w.lanes, lane);
    for (int g = 0; g < map.groups; ++g)
      for (int i = 0; i < 16; ++i) {
        int step = g * held + s, l = g * 16 + i;
        t.a[step * 16 + i] = lane[l];
        int which = static_cast<int>(indices[l] >> (shift + 2 * s) & 3);
        t.index[step * 16 + i] = static_cast<std::uint8_t>(map.k(g, s / 2 * 4) + which);
      }
  }
}

/// Calls f(row, register, first of 16 lanes, half) for each row of D; half is 0 or 1 of 16-bit results.
template <class F>
void forRows(const Wave& w, Out out, bool highHalf, F f) {
  bool half = out == Out::kF16 || out == Out::kBf16;
  for (int i = 0; i < 16; ++i) {
    if (w.chip->gen == Gen::kGfx11) {
      int groups = w.lanes / 16;
      f(i, i / groups, 16 * (i % groups), highHalf ? 1 : 0);
    } else {
      int r = w.wave32 ? i % 8 : i % 4, lane = 16 * (i / 8) + (w.wave32 ? 0 : 32 * (i / 4 % 2));
      f(i, half ? r / 2 : r, lane, half ? r % 2 : 0);
    }
  }
}

void readC(Wave& w, const Operand& o, Out out, bool highHalf, Tile& t) {
  forRows(w, out, highHalf, [&](int i, int r, int lane, int half) {
    U constant = isRow(o) ? 0 : scalar32(w, o);
    const U* row = isRow(o) ? w.row(o, r) + lane : nullptr;
    for (int j = 0; j < 16; ++j) {
      U v = row ? row[j] >> (16 * half) : constant;
      if (out == Out::kI32) {
        t.ci[i * 16 + j] = static_cast<std::int32_t>(v);
        continue;
      }
      float f = out == Out::kF32   ? asF32(v)
                : out == Out::kF16 ? halfToFloat(static_cast<std::uint16_t>(v))
                                   : asF32(v << 16);
      // NEG_HI of C means absolute value.
      if (o.negHi) f = std::fabs(f);
      t.c[i * 16 + j] = o.neg ? -f : f;
    }
  });
}

/// `v` as an f32 that rounds to the same 16-bit float: to odd.
inline float toOdd(double v) {
  float f = static_cast<float>(v);
  if (static_cast<double>(f) == v || f != f || std::isinf(f)) return f;
  U bits = bitsOf(f);
  if (std::fabs(static_cast<double>(f)) > std::fabs(v)) --bits;
  return asF32(bits | 1);
}
inline U toHalf(float f) {
  if (f != f) return 0x7e00;
#ifdef __F16C__
  return _cvtss_sh(f, 0);
#else
  return floatToHalf(f);
#endif
}
inline U toBf16(float f) {
  if (f != f) return 0x7fc0;
  U bits = bitsOf(f);
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

void writeD(Wave& w, const Operand& o, Out out, bool highHalf, const Tile& t, const double* sums) {
  forRows(w, out, highHalf, [&](int i, int r, int lane, int half) {
    U* row = w.row(o, r) + lane;
    for (int j = 0; j < 16; ++j) {
      if (out == Out::kI32) {
        row[j] = static_cast<U>(t.ci[i * 16 + j]);
      } else if (out == Out::kF32) {
        row[j] = bitsOf(t.c[i * 16 + j]);
      } else {
        float f = toOdd(sums[i * 16 + j]);
        U v = out == Out::kBf16 ? toBf16(f) : toHalf(f);
        row[j] = half ? (row[j] & 0xffff) | v << 16 : (row[j] & 0xffff0000) | v;
      }
    }
  });
  w.mask = w.full;
}

template <int kForm>
void wmma(Wave& w, const Inst& in) {
  constexpr const Form& form = kForms[kForm];
  constexpr bool kIntegers = form.out == Out::kI32;
  Tile t;
  t.m = t.n = 16, t.bRows = form.k, t.steps = form.sparse ? form.k / 2 : form.k, t.sparse = form.sparse;
  Element a = form.a, b = form.b;
  if (kIntegers) {  // NEG_LO says which are signed
    if (in.src[0].neg) a = a == kU8 ? kI8 : kI4;
    if (in.src[1].neg) b = b == kU8 ? kI8 : kI4;
  } else if (in.clamp) {
    throw Fault("clamp is not known for matrix products of floats");
  }
  bool old = w.chip->gen == Gen::kGfx11;
  if (old) {
    unpackGfx11(w, in.src[0], a, form.k, t.a);
    unpackGfx11(w, in.src[1], b, form.k, t.b);
  } else {
    if (form.sparse)
      unpackSparse(w, in, a, form.k, t);
    else
      unpackGfx12(w, in.src[0], a, mapOf(bitsOf(a), form.k, false, w.wave32), form.k, t.a);
    unpackGfx12(w, in.src[1], b, mapOf(bitsOf(b), form.k, form.sparse, w.wave32), form.k, t.b);
  }
  bool highHalf = old && (in.raw[0] >> 13 & 1);  // OPSEL[2]
  readC(w, in.src[2], form.out, highHalf, t);
  t.sum = kIntegers ? Sum::kExactInteger : Sum::kGroups;
  t.saturate = in.clamp;
  t.group = t.steps;
  alignas(64) double sums[256];
  if (form.out == Out::kF16 || form.out == Out::kBf16)
    exactSums(t, sums);
  else
    accumulate(t);
  writeD(w, in.dst[0], form.out, highHalf, t, sums);
}

template <int kForm = 0>
void addForms(OpTable& t) {
  t.add(kForms[kForm].name, wmma<kForm>, kMatrix | kIgnoresExec);
  if constexpr (kForm + 1 < static_cast<int>(std::size(kForms))) addForms<kForm + 1>(t);
}

}  // namespace

void addWmma(OpTable& t) { addForms(t); }

}  // namespace sardonyx::sim
