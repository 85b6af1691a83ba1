// Conversions between 8-, 16-, 32- and 64-bit integers and floats (fp8 and bf16 are in files of their own). Float to
// integer saturates; NaN gives 0.
#include <algorithm>
#include <limits>

#include "sim/ops/families.h"
#include "sim/ops/lanes.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;
using UL = std::uint64_t;
using I = std::int32_t;

template <class T, class F>
inline T saturate(F v) {
  constexpr F lo = static_cast<F>(std::numeric_limits<T>::min());
  // The first float above the largest integer: exact in F.
  constexpr F top = static_cast<F>(std::numeric_limits<T>::max() / 2 + 1) * 2;
  if (v != v) return 0;
  if (v >= top) return std::numeric_limits<T>::max();
  if (v < lo) return std::numeric_limits<T>::min();
  return static_cast<T>(v);
}

/// f32 result from 32 bits of anything.
template <auto F>
void toF32(Wave& w, const Inst& in) {
  Row t0, out;
  const U* a = readB32(w, in.src[0], t0);
  RoundingScope rounding(round32(w));
  forLanes(w.lanes, [&](int l) { out[l] = bitsOf(static_cast<float>(F(a[l]))); });
  writeF32(w, in, in.dst[0], out);
}
/// Integer bits from f32.
template <auto F>
void fromF32(Wave& w, const Inst& in) {
  Row t0, out;
  const U* a = readF32(w, in.src[0], t0);
  forLanes(w.lanes, [&](int l) { out[l] = static_cast<U>(F(asF32(a[l]))); });
  writeB32(w, in.dst[0], out);
}
/// Packs two results of F from two f32 sources.
template <auto F>
void pack2(Wave& w, const Inst& in) {
  Row t0, t1, out;
  const U* a = readF32(w, in.src[0], t0);
  const U* b = readF32(w, in.src[1], t1);
  forLanes(w.lanes, [&](int l) { out[l] = (F(asF32(a[l])) & 0xffff) | F(asF32(b[l])) << 16; });
  writeB32(w, in.dst[0], out);
}
template <auto F>
void pack2F16(Wave& w, const Inst& in) {
  Row a, b, out;
  readF16(w, in.src[0], a);
  readF16(w, in.src[1], b);
  forLanes(w.lanes, [&](int l) { out[l] = (F(asF32(a[l])) & 0xffff) | F(asF32(b[l])) << 16; });
  writeB32(w, in.dst[0], out);
}
U snorm16(float f) {
  return f != f ? 0 : static_cast<U>(static_cast<I>(__builtin_roundevenf(std::clamp(f, -1.0f, 1.0f) * 32767.0f)));
}
U unorm16(float f) { return f != f ? 0 : static_cast<U>(__builtin_roundevenf(std::clamp(f, 0.0f, 1.0f) * 65535.0f)); }

void f16FromF32(Wave& w, const Inst& in) {
  Row t0, out;
  const U* a = readF32(w, in.src[0], t0);
  std::memcpy(out, a, static_cast<std::size_t>(w.lanes) * 4);
  writeF16(w, in, in.dst[0], out);
}
void f32FromF16(Wave& w, const Inst& in) {
  Row a;
  readF16(w, in.src[0], a);
  writeF32(w, in, in.dst[0], a);
}
void pkRtz(Wave& w, const Inst& in) {
  Row t0, t1, out;
  const U* a = readF32(w, in.src[0], t0);
  const U* b = readF32(w, in.src[1], t1);
  for (int l = 0; l < w.lanes; ++l)
    out[l] = floatToHalf(asF32(a[l]), 3) | static_cast<U>(floatToHalf(asF32(b[l]), 3)) << 16;
  writeB32(w, in.dst[0], out);
}
void f64FromF32(Wave& w, const Inst& in) {
  Row t0;
  Row64 out;
  const U* a = readF32(w, in.src[0], t0);
  forLanes(w.lanes, [&](int l) { out[l] = bitsOf(static_cast<double>(asF32(a[l]))); });
  writeF64(w, in, in.dst[0], out);
}
void f32FromF64(Wave& w, const Inst& in) {
  Row64 a;
  Row out;
  readF64(w, in.src[0], a);
  RoundingScope rounding(round32(w));
  forLanes(w.lanes, [&](int l) { out[l] = bitsOf(static_cast<float>(asF64(a[l]))); });
  writeF32(w, in, in.dst[0], out);
}
template <auto F>
void fromF64(Wave& w, const Inst& in) {
  Row64 a;
  Row out;
  readF64(w, in.src[0], a);
  for (int l = 0; l < w.lanes; ++l) out[l] = static_cast<U>(F(asF64(a[l])));
  writeB32(w, in.dst[0], out);
}
template <auto F>
void toF64(Wave& w, const Inst& in) {
  Row t0;
  Row64 out;
  const U* a = readB32(w, in.src[0], t0);
  forLanes(w.lanes, [&](int l) { out[l] = bitsOf(static_cast<double>(F(a[l]))); });
  writeF64(w, in, in.dst[0], out);
}
template <auto F>
void toF16(Wave& w, const Inst& in) {
  Row t0, out;
  const U* a = readB16(w, in.src[0], t0);
  forLanes(w.lanes, [&](int l) { out[l] = bitsOf(static_cast<float>(F(a[l]))); });
  writeF16(w, in, in.dst[0], out);
}
template <auto F>
void fromF16(Wave& w, const Inst& in) {
  Row a, out;
  readF16(w, in.src[0], a);
  forLanes(w.lanes, [&](int l) { out[l] = static_cast<U>(F(asF32(a[l]))) & 0xffff; });
  writeB16(w, in, in.dst[0], out);
}
/// V_CVT_PK_U8_F32: byte S1 of S2 becomes the rounded S0.
void pkU8(Wave& w, const Inst& in) {
  Row t0, t1, t2, out;
  const U* a = readF32(w, in.src[0], t0);
  const U* b = readB32(w, in.src[1], t1);
  const U* c = readB32(w, in.src[2], t2);
  RoundingScope rounding(round32(w));
  for (int l = 0; l < w.lanes; ++l) {
    float f = asF32(a[l]);
    U byte = f != f ? 0 : static_cast<U>(std::clamp(std::nearbyint(f), 0.0f, 255.0f)), shift = 8 * (b[l] & 3);
    out[l] = (c[l] & ~(255u << shift)) | byte << shift;
  }
  writeB32(w, in.dst[0], out);
}

}  // namespace

void addConvert(OpTable& t) {
  t.add("v_cvt_f32_i32", toF32<([](U a) { return static_cast<I>(a); })>);
  t.add("v_cvt_f32_u32", toF32<([](U a) { return a; })>);
  t.add("v_cvt_f32_ubyte0", toF32<([](U a) { return a & 255; })>);
  t.add("v_cvt_f32_ubyte1", toF32<([](U a) { return a >> 8 & 255; })>);
  t.add("v_cvt_f32_ubyte2", toF32<([](U a) { return a >> 16 & 255; })>);
  t.add("v_cvt_f32_ubyte3", toF32<([](U a) { return a >> 24; })>);
  t.add("v_cvt_off_f32_i4", toF32<([](U a) { return static_cast<float>(static_cast<I>(a << 28) >> 28) / 16.0f; })>);
  t.add("v_cvt_i32_f32", fromF32<([](float a) { return saturate<I>(a); })>);
  t.add("v_cvt_u32_f32", fromF32<([](float a) { return saturate<U>(a); })>);
  t.add("v_cvt_rpi_i32_f32|v_cvt_nearest_i32_f32",
        fromF32<([](float a) { return saturate<I>(std::floor(static_cast<double>(a) + 0.5)); })>);
  t.add("v_cvt_flr_i32_f32|v_cvt_floor_i32_f32", fromF32<([](float a) { return saturate<I>(std::floor(a)); })>);
  t.add("v_cvt_f16_f32", f16FromF32);
  t.add("v_cvt_f32_f16", f32FromF16);
  t.add("v_cvt_pkrtz_f16_f32|v_cvt_pk_rtz_f16_f32", pkRtz);
  t.add("v_cvt_f64_f32", f64FromF32);
  t.add("v_cvt_f32_f64", f32FromF64);
  t.add("v_cvt_f64_i32", toF64<([](U a) { return static_cast<I>(a); })>);
  t.add("v_cvt_f64_u32", toF64<([](U a) { return a; })>);
  t.add("v_cvt_i32_f64", fromF64<([](double a) { return saturate<I>(a); })>);
  t.add("v_cvt_u32_f64", fromF64<([](double a) { return saturate<U>(a); })>);
  t.add("v_cvt_f16_u16", toF16<([](U a) { return a; })>);
  t.add("v_cvt_f16_i16", toF16<([](U a) { return static_cast<std::int16_t>(a); })>);
  t.add("v_cvt_u16_f16", fromF16<([](float a) { return saturate<std::uint16_t>(a); })>);
  t.add("v_cvt_i16_f16", fromF16<([](float a) { return saturate<std::int16_t>(a); })>);
  t.add("v_cvt_pknorm_i16_f32|v_cvt_pk_norm_i16_f32", pack2<snorm16>);
  t.add("v_cvt_pknorm_u16_f32|v_cvt_pk_norm_u16_f32", pack2<unorm16>);
  t.add("v_cvt_pknorm_i16_f16|v_cvt_pk_norm_i16_f16", pack2F16<snorm16>);
  t.add("v_cvt_pknorm_u16_f16|v_cvt_pk_norm_u16_f16", pack2F16<unorm16>);
  t.add("v_cvt_norm_i16_f16", fromF16<snorm16>);
  t.add("v_cvt_norm_u16_f16", fromF16<unorm16>);
  t.add("v_cvt_pk_i16_f32", pack2<([](float a) { return static_cast<U>(saturate<std::int16_t>(a)); })>);
  t.add("v_cvt_pk_u16_f32", pack2<([](float a) { return static_cast<U>(saturate<std::uint16_t>(a)); })>);
  t.add("v_cvt_pk_u16_u32", b32x2<([](U a, U b) { return std::min(a, 0xffffu) | std::min(b, 0xffffu) << 16; })>);
  t.add("v_cvt_pk_i16_i32", b32x2<([](U a, U b) {
          return (static_cast<U>(std::clamp(static_cast<I>(a), -32768, 32767)) & 0xffff) |
                 static_cast<U>(std::clamp(static_cast<I>(b), -32768, 32767)) << 16;
        })>);
  t.add("v_cvt_pk_u8_f32", pkU8);
  t.add("v_cvt_u32_u16", [](Wave& w, const Inst& in) {
    Row t0;
    writeB32(w, in.dst[0], readB16(w, in.src[0], t0));
  });
  t.add("v_cvt_i32_i16", [](Wave& w, const Inst& in) {
    Row t0, out;
    const U* a = readB16(w, in.src[0], t0);
    forLanes(w.lanes, [&](int l) { out[l] = static_cast<U>(static_cast<std::int16_t>(a[l])); });
    writeB32(w, in.dst[0], out);
  });
  t.add("v_pack_b32_f16", [](Wave& w, const Inst& in) {
    Row t0, t1, out;
    const U* a = readB16(w, in.src[0], t0);
    const U* b = readB16(w, in.src[1], t1);
    auto keep = [](const Operand& o) { return o.abs ? 0x7fffu : 0xffffu; };
    auto flip = [](const Operand& o) { return o.neg ? 0x8000u : 0u; };
    U ka = keep(in.src[0]), fa = flip(in.src[0]), kb = keep(in.src[1]), fb = flip(in.src[1]);
    forLanes(w.lanes, [&](int l) { out[l] = ((a[l] & ka) ^ fa) | ((b[l] & kb) ^ fb) << 16; });
    writeB32(w, in.dst[0], out);
  });
}

}  // namespace sardonyx::sim
