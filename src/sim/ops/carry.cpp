// Adds and subtracts with carry out or in, and wide multiply-adds. The carry is one bit a lane in a scalar mask; bits
// of inactive lanes are zero.
#include "sim/ops/families.h"
#include "sim/ops/lanes.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;
using UL = std::uint64_t;

/// F(a, b, carryIn) gives 33 bits; bit 32 is the carry or borrow. src[2] is the carry-in mask where kIn.
template <auto F, bool kIn, U kOnCarry>
void addCarry(Wave& w, const Inst& in) {
  Row t0, t1, out, carry;
  const U* a = readB32(w, in.src[0], t0);
  const U* b = readB32(w, in.src[1], t1);
  UL mask = kIn ? maskOf(w, in.src[2]) : 0;
  for (int l = 0; l < w.lanes; ++l) {
    UL r = F(static_cast<UL>(a[l]), static_cast<UL>(b[l]), mask >> l & 1);
    // Clamp: the largest number on a carry, zero on a borrow.
    out[l] = in.clamp && (r >> 32 & 1) ? kOnCarry : static_cast<U>(r);
    carry[l] = static_cast<U>(r >> 32 & 1);
  }
  UL carries = 0;
  for (int l = 0; l < w.lanes; ++l) carries |= static_cast<UL>(carry[l]) << l;
  writeB32(w, in.dst[0], out);
  setMask(w, in.dst[1], carries & w.mask);
}

/// D(64) = S0 * S1 + S2(64); carry out of bit 63.
template <bool kSigned>
void mad64(Wave& w, const Inst& in) {
  Row t0, t1;
  Row64 c;
  const U* a = readB32(w, in.src[0], t0);
  const U* b = readB32(w, in.src[1], t1);
  readB64(w, in.src[2], c);
  UL carries = 0;
  for (int l = 0; l < w.lanes; ++l) {
    UL product = kSigned ? static_cast<UL>(static_cast<std::int64_t>(static_cast<std::int32_t>(a[l])) *
                                           static_cast<std::int32_t>(b[l]))
                         : static_cast<UL>(a[l]) * b[l];
    UL sum = product + c[l];
    bool carry = sum < product;
    if (kSigned) {
      __int128 wide = static_cast<__int128>(static_cast<std::int64_t>(product)) + static_cast<std::int64_t>(c[l]);
      carry = wide >> 64 & 1;
    }
    carries |= static_cast<UL>(carry) << l;
    c[l] = sum;
  }
  writeB64(w, in.dst[0], c);
  setMask(w, in.dst[1], carries & w.mask);
}

}  // namespace

void addCarry(OpTable& t) {
  t.add("v_add_co_u32", addCarry<([](UL a, UL b, UL) { return a + b; }), false, ~0u>);
  t.add("v_sub_co_u32", addCarry<([](UL a, UL b, UL) { return a - b; }), false, 0u>);
  t.add("v_subrev_co_u32", addCarry<([](UL a, UL b, UL) { return b - a; }), false, 0u>);
  t.add("v_addc_co_u32|v_add_co_ci_u32", addCarry<([](UL a, UL b, UL c) { return a + b + c; }), true, ~0u>);
  t.add("v_subb_co_u32|v_sub_co_ci_u32", addCarry<([](UL a, UL b, UL c) { return a - b - c; }), true, 0u>);
  t.add("v_subbrev_co_u32|v_subrev_co_ci_u32", addCarry<([](UL a, UL b, UL c) { return b - a - c; }), true, 0u>);
  t.add("v_mad_u64_u32|v_mad_co_u64_u32", mad64<false>);
  t.add("v_mad_i64_i32|v_mad_co_i64_i32", mad64<true>);
}

}  // namespace sardonyx::sim
