// Conversions from and to 8-bit floats and bfloat16, to nearest even or stochastically. ISA documents, V_CVT_*_FP8,
// V_CVT_SR_*. Which half or byte is read or written is chosen by op_sel; the rest of the destination is kept.
//
// Numbers too large become NaN (fp8) or infinity (OCP's bf8); with clamp, or with MODE's FP16_OVFL, the largest number.
#include "sim/ops/families.h"
#include "sim/ops/fields.h"
#include "sim/ops/lanes.h"
#include "sim/ops/small_floats.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;

const SmallFormat& fp8(const Wave& w, bool bf8) {
  return w.chip->fp8Fnuz ? (bf8 ? kBf8Fnuz : kFp8Fnuz) : (bf8 ? kBf8 : kFp8);
}
Overflow overflowOf(const Wave& w, const Inst& in) {
  return in.clamp || (w.mode >> 23 & 1) ? Overflow::kSaturate : Overflow::kToNanOrInfinity;
}
/// Puts `bits` of v[l] at `shift` of the destination.
void merge(Wave& w, const Operand& o, const Row& v, int bits, int shift) {
  U mask = ((bits == 32 ? 0 : 1u << bits) - 1) << shift;
  const U* old = w.row(o);
  Row out;
  forLanes(w.lanes, [&](int l) { out[l] = (old[l] & ~mask) | (v[l] << shift & mask); });
  writeB32(w, o, out);
}

template <bool kBf8>
void toF32(Wave& w, const Inst& in) {
  // gfx12: op_sel[0] chooses the word, op_sel[1] the byte in it. SDWA has moved its byte to the bottom.
  unsigned sel = w.chip->gen == Gen::kGfx9 ? 0 : opSelBits(in);
  unsigned byte = (sel & 1) * 2 + (sel >> 1 & 1);
  const float* table = smallTable(fp8(w, kBf8));
  Row t, out;
  const U* a = readB32(w, in.src[0], t);
  for (int l = 0; l < w.lanes; ++l) out[l] = bitsOf(table[a[l] >> (8 * byte) & 255]);
  writeF32(w, in, in.dst[0], out);
}
template <bool kBf8>
void pkToF32(Wave& w, const Inst& in) {
  const float* table = smallTable(fp8(w, kBf8));
  Row t, lo, hi;
  const U* a = readB16(w, in.src[0], t);
  for (int l = 0; l < w.lanes; ++l) lo[l] = bitsOf(table[a[l] & 255]), hi[l] = bitsOf(table[a[l] >> 8]);
  Operand low = in.dst[0], high = in.dst[0];
  low.dwords = high.dwords = 1;
  ++high.index;
  writeF32(w, in, low, lo);
  writeF32(w, in, high, hi);
}
template <bool kBf8>
void pkFromF32(Wave& w, const Inst& in) {
  const SmallFormat& f = fp8(w, kBf8);
  Overflow overflow = overflowOf(w, in);
  Row ta, tb, out;
  const U* a = readF32(w, in.src[0], ta);
  const U* b = readF32(w, in.src[1], tb);
  for (int l = 0; l < w.lanes; ++l)
    out[l] = encodeSmall(f, static_cast<double>(asF32(a[l])), overflow) |
             encodeSmall(f, static_cast<double>(asF32(b[l])), overflow) << 8;
  merge(w, in.dst[0], out, 16, in.dst[0].hi ? 16 : 0);
}
template <bool kBf8>
void srFromF32(Wave& w, const Inst& in) {
  const SmallFormat& f = fp8(w, kBf8);
  Overflow overflow = overflowOf(w, in);
  Row ta, tb, out;
  const U* a = readF32(w, in.src[0], ta);
  const U* random = readB32(w, in.src[1], tb);
  for (int l = 0; l < w.lanes; ++l) out[l] = encodeSmall(f, static_cast<double>(asF32(a[l])), overflow, &random[l]);
  merge(w, in.dst[0], out, 8, static_cast<int>(opSelBits(in) >> 2) * 8);
}
/// Packs two floats as 16-bit floats, to nearest even whatever MODE says.
template <const SmallFormat& kFormat>
void pk16(Wave& w, const Inst& in) {
  Row ta, tb, out;
  const U* a = readF32(w, in.src[0], ta);
  const U* b = readF32(w, in.src[1], tb);
  for (int l = 0; l < w.lanes; ++l)
    out[l] = encodeSmall(kFormat, static_cast<double>(asF32(a[l])), Overflow::kToNanOrInfinity) |
             encodeSmall(kFormat, static_cast<double>(asF32(b[l])), Overflow::kToNanOrInfinity) << 16;
  writeB32(w, in.dst[0], out);
}
template <const SmallFormat& kFormat>
void sr16(Wave& w, const Inst& in) {
  Row ta, tb, out;
  const U* a = readF32(w, in.src[0], ta);
  const U* random = readB32(w, in.src[1], tb);
  for (int l = 0; l < w.lanes; ++l)
    out[l] = encodeSmall(kFormat, static_cast<double>(asF32(a[l])), Overflow::kToNanOrInfinity, &random[l]);
  merge(w, in.dst[0], out, 16, in.dst[0].hi ? 16 : 0);
}
void f32FromBf16(Wave& w, const Inst& in) {
  Row t, out;
  const U* a = readB16(w, in.src[0], t);
  U keep = in.src[0].abs ? 0x7fffffffu : ~0u, flip = in.src[0].neg ? 0x80000000u : 0;
  forLanes(w.lanes, [&](int l) { out[l] = (a[l] << 16 & keep) ^ flip; });
  writeF32(w, in, in.dst[0], out);
}

}  // namespace

void addConvertSmall(OpTable& t) {
  t.add("v_cvt_f32_fp8", toF32<false>);
  t.add("v_cvt_f32_bf8", toF32<true>);
  t.add("v_cvt_pk_f32_fp8", pkToF32<false>);
  t.add("v_cvt_pk_f32_bf8", pkToF32<true>);
  t.add("v_cvt_pk_fp8_f32", pkFromF32<false>);
  t.add("v_cvt_pk_bf8_f32", pkFromF32<true>);
  t.add("v_cvt_sr_fp8_f32", srFromF32<false>);
  t.add("v_cvt_sr_bf8_f32", srFromF32<true>);
  t.add("v_cvt_pk_f16_f32", pk16<kHalf>);
  t.add("v_cvt_pk_bf16_f32", pk16<kBfloat16>);
  t.add("v_cvt_sr_f16_f32", sr16<kHalf>);
  t.add("v_cvt_sr_bf16_f32", sr16<kBfloat16>);
  t.add("v_cvt_f32_bf16", f32FromBf16);
}

}  // namespace sardonyx::sim
