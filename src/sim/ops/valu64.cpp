// 64-bit vector integers and floats.
#include "sim/ops/families.h"
#include "sim/ops/floats.h"
#include "sim/ops/lanes.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;
using UL = std::uint64_t;
using IL = std::int64_t;

/// The shift count is a 32-bit operand, the value a 64-bit one.
template <auto F>
void shiftRev(Wave& w, const Inst& in) {
  Row t0;
  Row64 v;
  const U* count = readB32(w, in.src[0], t0);
  readB64(w, in.src[1], v);
  forLanes(w.lanes, [&](int l) { v[l] = F(count[l], v[l]); });
  writeB64(w, in.dst[0], v);
}
void lshlAdd(Wave& w, const Inst& in) {
  Row t1;
  Row64 a, c;
  readB64(w, in.src[0], a);
  const U* b = readB32(w, in.src[1], t1);
  readB64(w, in.src[2], c);
  forLanes(w.lanes, [&](int l) { a[l] = (a[l] << (b[l] & 7)) + c[l]; });
  writeB64(w, in.dst[0], a);
}
void mov64(Wave& w, const Inst& in) {
  Row64 a;
  readB64(w, in.src[0], a);
  writeB64(w, in.dst[0], a);
}

}  // namespace

void addValu64(OpTable& t) {
  t.add("v_mov_b64", mov64, kNoCheckReads);
  t.add("v_lshlrev_b64", shiftRev<([](U n, UL v) { return v << (n & 63); })>);
  t.add("v_lshrrev_b64", shiftRev<([](U n, UL v) { return v >> (n & 63); })>);
  t.add("v_ashrrev_i64", shiftRev<([](U n, UL v) { return static_cast<UL>(static_cast<IL>(v) >> (n & 63)); })>);
  t.add("v_lshl_add_u64", lshlAdd);
  t.add("v_add_f64", f64x2<([](double a, double b) { return a + b; })>);
  t.add("v_mul_f64", f64x2<([](double a, double b) { return a * b; })>);
  t.add("v_fma_f64|v_fmac_f64", f64x3<([](double a, double b, double c) { return std::fma(a, b, c); })>);
  t.add("v_min_f64|v_min_num_f64", f64x2<minNum<double>>);
  t.add("v_max_f64|v_max_num_f64", f64x2<maxNum<double>>);
  t.add("v_minimum_f64", f64x2<minimum<double>>);
  t.add("v_maximum_f64", f64x2<maximum<double>>);
  t.add("v_ceil_f64", f64x1<([](double a) { return std::ceil(a); })>);
  t.add("v_floor_f64", f64x1<([](double a) { return std::floor(a); })>);
  t.add("v_trunc_f64", f64x1<([](double a) { return std::trunc(a); })>);
  t.add("v_rndne_f64", f64x1<([](double a) { return __builtin_roundeven(a); })>);
  t.add("v_fract_f64", f64x1<([](double a) {
          double r = a - std::floor(a);
          return r >= 1.0 ? 0x1.fffffffffffffp-1 : r;
        })>);
}

}  // namespace sardonyx::sim
