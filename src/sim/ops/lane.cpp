// Moving values between lanes, and between vector, accumulation and scalar registers.
#include <bit>

#include "sim/exec/checks.h"
#include "sim/ops/families.h"
#include "sim/ops/lanes.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;
using UL = std::uint64_t;

void readfirstlane(Wave& w, const Inst& in) {
  // With no active lane, lane 0 is read.
  int lane = w.mask ? std::countr_zero(w.mask) : 0;
  setScalar32(w, in.dst[0], isRow(in.src[0]) ? w.row(in.src[0])[lane] : scalar32(w, in.src[0]));
}
void readlane(Wave& w, const Inst& in) {
  U lane = scalar32(w, in.src[1]) & static_cast<U>(w.lanes - 1);
  setScalar32(w, in.dst[0], isRow(in.src[0]) ? w.row(in.src[0])[lane] : scalar32(w, in.src[0]));
}
void writelane(Wave& w, const Inst& in) {
  U lane = scalar32(w, in.src[1]) & static_cast<U>(w.lanes - 1);
  w.row(in.dst[0])[lane] = scalar32(w, in.src[0]);
  auto& written = in.dst[0].file == RegFile::kAgpr ? w.checks->accumWritten : w.checks->vectorWritten;
  written[in.dst[0].index] |= 1ull << lane;
}

/// Counts the mask's bits below each lane, in the lower or the upper 32 lanes, and adds S1.
template <int kFirst>
void mbcnt(Wave& w, const Inst& in) {
  Row t0, t1, out;
  const U* mask = readB32(w, in.src[0], t0);
  const U* base = readB32(w, in.src[1], t1);
  for (int l = 0; l < w.lanes; ++l) {
    int below = l - kFirst;
    U bits = below <= 0 ? 0 : below >= 32 ? ~0u : (1u << below) - 1;
    out[l] = static_cast<U>(std::popcount(mask[l] & bits)) + base[l];
  }
  writeB32(w, in.dst[0], out);
}

/// V_PERMLANE16: lane i of each row of 16 reads the lane that nibble i of {S2, S1} names, in its own row or the other
/// row of the pair (X16). op_sel[0] reads inactive lanes too (FI), op_sel[1] makes unreadable lanes give 0
/// (BOUND_CTRL).
template <bool kOtherRow>
void permlane16(Wave& w, const Inst& in) {
  UL selectors = scalar32(w, in.src[1]) | static_cast<UL>(scalar32(w, in.src[2])) << 32;
  bool fetchInactive = in.src[0].opSel, boundCtrl = in.src[1].opSel;
  Row out;
  const U* from = w.row(in.src[0]);
  const U* old = w.row(in.dst[0]);
  for (int l = 0; l < w.lanes; ++l) {
    int row = (l & ~15) ^ (kOtherRow ? 16 : 0);
    int source = row | static_cast<int>(selectors >> (4 * (l & 15)) & 15);
    bool readable = fetchInactive || (w.mask >> source & 1);
    out[l] = readable ? from[source] : boundCtrl ? 0 : old[l];
  }
  writeB32(w, in.dst[0], out);
}
/// gfx12's form with a selector per lane.
template <bool kOtherRow>
void permlane16Var(Wave& w, const Inst& in) {
  Row t1, out;
  const U* from = w.row(in.src[0]);
  const U* selector = readB32(w, in.src[1], t1);
  const U* old = w.row(in.dst[0]);
  bool fetchInactive = in.src[0].opSel, boundCtrl = in.src[1].opSel;
  for (int l = 0; l < w.lanes; ++l) {
    int row = (l & ~15) ^ (kOtherRow ? 16 : 0);
    int source = row | static_cast<int>(selector[l] & 15);
    bool readable = fetchInactive || (w.mask >> source & 1);
    out[l] = readable ? from[source] : boundCtrl ? 0 : old[l];
  }
  writeB32(w, in.dst[0], out);
}
/// V_PERMLANE64: swaps the halves of a wave64; nothing on wave32.
void permlane64(Wave& w, const Inst& in) {
  if (w.wave32) return;
  Row out;
  const U* from = w.row(in.src[0]);
  for (int l = 0; l < w.lanes; ++l) out[l] = from[l ^ 32];
  writeB32(w, in.dst[0], out);
}
/// gfx950: swaps odd rows of the first register with even rows of the second, rows of kRow lanes.
template <int kRow>
void permlaneSwap(Wave& w, const Inst& in) {
  Row a, b;
  const U* x = w.row(in.dst[0]);
  const U* y = w.row(in.dst[1]);
  for (int l = 0; l < w.lanes; ++l) {
    bool odd = l & kRow;
    a[l] = odd ? y[l - kRow] : x[l];
    b[l] = odd ? y[l] : x[l + kRow];
  }
  writeB32(w, in.dst[0], a);
  writeB32(w, in.dst[1], b);
}

void accMove(Wave& w, const Inst& in) {
  Row t0;
  writeB32(w, in.dst[0], readB32(w, in.src[0], t0));
}

}  // namespace

void addLane(OpTable& t) {
  t.add("v_readfirstlane_b32", readfirstlane);
  t.add("v_readlane_b32", readlane, kReadsLane);
  t.add("v_writelane_b32", writelane, kWritesLane | kNoCheckReads);
  t.add("v_mbcnt_lo_u32_b32", mbcnt<0>);
  t.add("v_mbcnt_hi_u32_b32", mbcnt<32>);
  t.add("v_permlane16_b32", permlane16<false>, kReadsLane);
  t.add("v_permlanex16_b32", permlane16<true>, kReadsLane);
  t.add("v_permlane16_var_b32", permlane16Var<false>, kReadsLane);
  t.add("v_permlanex16_var_b32", permlane16Var<true>, kReadsLane);
  t.add("v_permlane64_b32", permlane64, kReadsLane);
  t.add("v_permlane16_swap_b32", permlaneSwap<16>, kReadsLane);
  t.add("v_permlane32_swap_b32", permlaneSwap<32>, kReadsLane);
  t.add("v_accvgpr_read_b32|v_accvgpr_write_b32|v_accvgpr_mov_b32", accMove, kNoCheckReads);
}

}  // namespace sardonyx::sim
