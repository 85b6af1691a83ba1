// Scalar moves, arithmetic and bit operations: SOP1, SOP2 and SOPK of the ISA documents.
#include <bit>

#include "sim/ops/families.h"
#include "sim/ops/lanes.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;
using UL = std::uint64_t;
using I = std::int32_t;
using IL = std::int64_t;

I simm16(const Inst& in) { return static_cast<std::int16_t>(in.imm); }

/// D = F(S0); SCC unchanged, or D != 0.
template <auto F, bool kScc = false>
void u1(Wave& w, const Inst& in) {
  U r = F(scalar32(w, in.src[0]));
  setScalar32(w, in.dst[0], r);
  if (kScc) w.scc = r != 0;
}
template <auto F, bool kScc = false>
void ul1(Wave& w, const Inst& in) {
  UL r = F(scalar64(w, in.src[0]));
  setScalar64(w, in.dst[0], r);
  if (kScc) w.scc = r != 0;
}
/// 32-bit result of a 64-bit source.
template <auto F, bool kScc = false>
void uFromUl(Wave& w, const Inst& in) {
  U r = F(scalar64(w, in.src[0]));
  setScalar32(w, in.dst[0], r);
  if (kScc) w.scc = r != 0;
}
/// D = F(S0, S1); SCC = D != 0 where kScc.
template <auto F, bool kScc = true>
void u2(Wave& w, const Inst& in) {
  U r = F(scalar32(w, in.src[0]), scalar32(w, in.src[1]));
  setScalar32(w, in.dst[0], r);
  if (kScc) w.scc = r != 0;
}
template <auto F, bool kScc = true>
void ul2(Wave& w, const Inst& in) {
  UL r = F(scalar64(w, in.src[0]), scalar64(w, in.src[1]));
  setScalar64(w, in.dst[0], r);
  if (kScc) w.scc = r != 0;
}
/// 64-bit by a 32-bit count.
template <auto F, bool kScc = true>
void ulShift(Wave& w, const Inst& in) {
  UL r = F(scalar64(w, in.src[0]), scalar32(w, in.src[1]));
  setScalar64(w, in.dst[0], r);
  if (kScc) w.scc = r != 0;
}
/// F(a, b, scc&) sets SCC itself.
template <auto F>
void u2Carry(Wave& w, const Inst& in) {
  bool scc = w.scc;
  U r = F(scalar32(w, in.src[0]), scalar32(w, in.src[1]), scc);
  setScalar32(w, in.dst[0], r);
  w.scc = scc;
}

/// EXEC is saved in D and combined with S0; SCC = EXEC != 0. 64-bit forms on wave64, 32-bit forms on wave32.
template <auto F, bool kSave = true>
void saveExec64(Wave& w, const Inst& in) {
  UL old = w.pair(kExec), source = scalar64(w, in.src[0]);
  UL now = F(source, old);
  setScalar64(w, in.dst[0], kSave ? old : now);
  w.setPair(kExec, now);
  w.scc = now != 0;
}
template <auto F, bool kSave = true>
void saveExec32(Wave& w, const Inst& in) {
  U old = w.s[kExec], source = scalar32(w, in.src[0]);
  U now = static_cast<U>(F(source, old));
  setScalar32(w, in.dst[0], kSave ? old : now);
  w.s[kExec] = now;
  w.scc = now != 0;
}

template <class T>
T bitfieldMask(U count, U offset) {
  constexpr U bits = sizeof(T) * 8;
  count &= bits - 1, offset &= bits - 1;
  return ((T{1} << count) - 1) << offset;
}
U bfe32(U v, U control, bool isSigned) {
  U offset = control & 31, count = control >> 16 & 127;
  if (!count) return 0;
  if (count > 32) count = 32;
  UL wide = isSigned ? static_cast<UL>(static_cast<IL>(static_cast<I>(v))) : v;
  wide >>= offset;
  // Bits past the top are zero, or copies of the sign.
  if (isSigned) return static_cast<U>(static_cast<IL>(wide << (64 - count)) >> (64 - count));
  return static_cast<U>(wide & ((1ull << count) - 1));
}
UL bfe64(UL v, U control, bool isSigned) {
  U offset = control & 63, count = control >> 16 & 127;
  if (!count) return 0;
  if (count > 64 - offset) count = 64 - offset;
  UL top = v << (64 - count - offset);
  return isSigned ? static_cast<UL>(static_cast<IL>(top) >> (64 - count)) : top >> (64 - count);
}
U reverse32(U v) {
  U r = 0;
  for (int i = 0; i < 32; ++i) r = r << 1 | (v >> i & 1);
  return r;
}
UL reverse64(UL v) { return static_cast<UL>(reverse32(static_cast<U>(v))) << 32 | reverse32(static_cast<U>(v >> 32)); }
/// In whole quads: a quad's bit is on when any of its lanes is (s_wqm), or the low bits say (s_quadmask).
UL wqm(UL v) {
  UL any = (v | v >> 1 | v >> 2 | v >> 3) & 0x1111111111111111ull;
  return any * 15;
}
UL quadmask(UL v) {
  UL r = 0;
  for (int i = 0; i < 16; ++i) r |= static_cast<UL>((v >> (4 * i) & 15) != 0) << i;
  return r;
}
UL bitReplicate(U v) {
  UL r = 0;
  for (int i = 0; i < 32; ++i) r |= static_cast<UL>(v >> i & 1) * 3 << (2 * i);
  return r;
}

void sMovk(Wave& w, const Inst& in) { setScalar32(w, in.dst[0], static_cast<U>(simm16(in))); }
void sCmovk(Wave& w, const Inst& in) {
  if (w.scc) setScalar32(w, in.dst[0], static_cast<U>(simm16(in)));
}
void sCmov32(Wave& w, const Inst& in) {
  if (w.scc) setScalar32(w, in.dst[0], scalar32(w, in.src[0]));
}
void sCmov64(Wave& w, const Inst& in) {
  if (w.scc) setScalar64(w, in.dst[0], scalar64(w, in.src[0]));
}
void sAddk(Wave& w, const Inst& in) {
  I r;
  w.scc = __builtin_add_overflow(static_cast<I>(w.s[in.dst[0].index]), simm16(in), &r);
  setScalar32(w, in.dst[0], static_cast<U>(r));
}
void sMulk(Wave& w, const Inst& in) { setScalar32(w, in.dst[0], w.s[in.dst[0].index] * static_cast<U>(simm16(in))); }
void sBitset(Wave& w, const Inst& in, bool on) {
  U bit = 1u << (scalar32(w, in.src[0]) & 31);
  U& d = w.s[in.dst[0].index];
  d = on ? d | bit : d & ~bit;
}
void sBitset64(Wave& w, const Inst& in, bool on) {
  UL bit = 1ull << (scalar32(w, in.src[0]) & 63), d = w.pair(in.dst[0].index);
  w.setPair(in.dst[0].index, on ? d | bit : d & ~bit);
}
void sBitReplicate(Wave& w, const Inst& in) { setScalar64(w, in.dst[0], bitReplicate(scalar32(w, in.src[0]))); }
void sBfm64(Wave& w, const Inst& in) {
  setScalar64(w, in.dst[0], bitfieldMask<UL>(scalar32(w, in.src[0]), scalar32(w, in.src[1])));
}

/// Scalar floats of gfx11.5 and gfx12, under the mode register's rounding; denormals as the mode says.
float flushed(const Wave& w, U bits, bool keep) {
  return (bits & 0x7f800000) == 0 && !keep ? asF32(bits & 0x80000000) : asF32(bits);
}
template <auto F>
void sF32(Wave& w, const Inst& in) {
  float x[3] = {};
  bool nan = false;
  for (int i = 0; i < in.nsrc && i < 3; ++i) {
    x[i] = flushed(w, scalar32(w, in.src[i]), keepsIn32(w));
    nan |= x[i] != x[i];
  }
  float r;
  {
    RoundingScope rounding(round32(w));
    r = here(F(here(x[0]), here(x[1]), here(x[2])));
  }
  U bits = canonical(bitsOf(r), nan);
  setScalar32(w, in.dst[0], bitsOf(flushed(w, bits, keepsOut32(w))));
}

void moves(OpTable& t) {
  t.add("s_mov_b32", u1<([](U a) { return a; })>);
  t.add("s_mov_b64", ul1<([](UL a) { return a; })>);
  t.add("s_cmov_b32", sCmov32);
  t.add("s_cmov_b64", sCmov64);
  t.add("s_movk_i32", sMovk);
  t.add("s_cmovk_i32", sCmovk);
  t.add("s_addk_i32|s_addk_co_i32", sAddk);
  t.add("s_mulk_i32", sMulk);
  t.add("s_not_b32", u1<([](U a) { return ~a; }), true>);
  t.add("s_not_b64", ul1<([](UL a) { return ~a; }), true>);
  t.add("s_wqm_b32", u1<([](U a) { return static_cast<U>(wqm(a)); }), true>);
  t.add("s_wqm_b64", ul1<wqm, true>);
  t.add("s_quadmask_b32", u1<([](U a) { return static_cast<U>(quadmask(a)); }), true>);
  t.add("s_quadmask_b64", ul1<quadmask, true>);
  t.add("s_brev_b32", u1<reverse32>);
  t.add("s_brev_b64", ul1<reverse64>);
  t.add("s_bcnt0_i32_b32", u1<([](U a) { return static_cast<U>(std::popcount(~a)); }), true>);
  t.add("s_bcnt0_i32_b64", uFromUl<([](UL a) { return static_cast<U>(std::popcount(~a)); }), true>);
  t.add("s_bcnt1_i32_b32", u1<([](U a) { return static_cast<U>(std::popcount(a)); }), true>);
  t.add("s_bcnt1_i32_b64", uFromUl<([](UL a) { return static_cast<U>(std::popcount(a)); }), true>);
  t.add("s_ff0_i32_b32", u1<([](U a) { return ~a ? static_cast<U>(std::countr_one(a)) : ~0u; })>);
  t.add("s_ff0_i32_b64", uFromUl<([](UL a) { return ~a ? static_cast<U>(std::countr_one(a)) : ~0u; })>);
  t.add("s_ff1_i32_b32|s_ctz_i32_b32", u1<([](U a) { return a ? static_cast<U>(std::countr_zero(a)) : ~0u; })>);
  t.add("s_ff1_i32_b64|s_ctz_i32_b64", uFromUl<([](UL a) { return a ? static_cast<U>(std::countr_zero(a)) : ~0u; })>);
  t.add("s_flbit_i32_b32|s_clz_i32_u32", u1<([](U a) { return a ? static_cast<U>(std::countl_zero(a)) : ~0u; })>);
  t.add("s_flbit_i32_b64|s_clz_i32_u64", uFromUl<([](UL a) { return a ? static_cast<U>(std::countl_zero(a)) : ~0u; })>);
  t.add("s_flbit_i32|s_cls_i32", u1<([](U a) {
          U x = static_cast<I>(a) < 0 ? ~a : a;
          return x ? static_cast<U>(std::countl_zero(x)) : ~0u;
        })>);
  t.add("s_flbit_i32_i64|s_cls_i32_i64", uFromUl<([](UL a) {
          UL x = static_cast<IL>(a) < 0 ? ~a : a;
          return x ? static_cast<U>(std::countl_zero(x)) : ~0u;
        })>);
  t.add("s_sext_i32_i8", u1<([](U a) { return static_cast<U>(static_cast<std::int8_t>(a)); })>);
  t.add("s_sext_i32_i16", u1<([](U a) { return static_cast<U>(static_cast<std::int16_t>(a)); })>);
  t.add("s_abs_i32", u1<([](U a) { return static_cast<I>(a) < 0 ? 0u - a : a; }), true>);
  t.add("s_bitset0_b32", [](Wave& w, const Inst& in) { sBitset(w, in, false); });
  t.add("s_bitset1_b32", [](Wave& w, const Inst& in) { sBitset(w, in, true); });
  t.add("s_bitset0_b64", [](Wave& w, const Inst& in) { sBitset64(w, in, false); });
  t.add("s_bitset1_b64", [](Wave& w, const Inst& in) { sBitset64(w, in, true); });
  t.add("s_bitreplicate_b64_b32", sBitReplicate);
}

void execMoves(OpTable& t) {
  auto both = [&](const char* n64, const char* n32, Handler h64, Handler h32) {
    t.add(n64, h64);
    t.add(n32, h32);
  };
  both("s_and_saveexec_b64", "s_and_saveexec_b32", saveExec64<([](UL s, UL e) { return s & e; })>,
       saveExec32<([](UL s, UL e) { return s & e; })>);
  both("s_or_saveexec_b64", "s_or_saveexec_b32", saveExec64<([](UL s, UL e) { return s | e; })>,
       saveExec32<([](UL s, UL e) { return s | e; })>);
  both("s_xor_saveexec_b64", "s_xor_saveexec_b32", saveExec64<([](UL s, UL e) { return s ^ e; })>,
       saveExec32<([](UL s, UL e) { return s ^ e; })>);
  both("s_nand_saveexec_b64", "s_nand_saveexec_b32", saveExec64<([](UL s, UL e) { return ~(s & e); })>,
       saveExec32<([](UL s, UL e) { return ~(s & e); })>);
  both("s_nor_saveexec_b64", "s_nor_saveexec_b32", saveExec64<([](UL s, UL e) { return ~(s | e); })>,
       saveExec32<([](UL s, UL e) { return ~(s | e); })>);
  both("s_xnor_saveexec_b64", "s_xnor_saveexec_b32", saveExec64<([](UL s, UL e) { return ~(s ^ e); })>,
       saveExec32<([](UL s, UL e) { return ~(s ^ e); })>);
  both("s_andn2_saveexec_b64|s_and_not1_saveexec_b64", "s_andn2_saveexec_b32|s_and_not1_saveexec_b32",
       saveExec64<([](UL s, UL e) { return s & ~e; })>, saveExec32<([](UL s, UL e) { return s & ~e; })>);
  both("s_orn2_saveexec_b64|s_or_not1_saveexec_b64", "s_orn2_saveexec_b32|s_or_not1_saveexec_b32",
       saveExec64<([](UL s, UL e) { return s | ~e; })>, saveExec32<([](UL s, UL e) { return s | ~e; })>);
  both("s_andn1_saveexec_b64|s_and_not0_saveexec_b64", "s_andn1_saveexec_b32|s_and_not0_saveexec_b32",
       saveExec64<([](UL s, UL e) { return ~s & e; })>, saveExec32<([](UL s, UL e) { return ~s & e; })>);
  both("s_orn1_saveexec_b64|s_or_not0_saveexec_b64", "s_orn1_saveexec_b32|s_or_not0_saveexec_b32",
       saveExec64<([](UL s, UL e) { return ~s | e; })>, saveExec32<([](UL s, UL e) { return ~s | e; })>);
  both("s_andn1_wrexec_b64|s_and_not0_wrexec_b64", "s_andn1_wrexec_b32|s_and_not0_wrexec_b32",
       saveExec64<([](UL s, UL e) { return ~s & e; }), false>, saveExec32<([](UL s, UL e) { return ~s & e; }), false>);
  both("s_andn2_wrexec_b64|s_and_not1_wrexec_b64", "s_andn2_wrexec_b32|s_and_not1_wrexec_b32",
       saveExec64<([](UL s, UL e) { return s & ~e; }), false>, saveExec32<([](UL s, UL e) { return s & ~e; }), false>);
}

void arithmetic(OpTable& t) {
  t.add("s_add_u32|s_add_co_u32", u2Carry<([](U a, U b, bool& c) {
          U r;
          c = __builtin_add_overflow(a, b, &r);
          return r;
        })>);
  t.add("s_sub_u32|s_sub_co_u32", u2Carry<([](U a, U b, bool& c) {
          c = b > a;
          return a - b;
        })>);
  t.add("s_add_i32|s_add_co_i32", u2Carry<([](U a, U b, bool& c) {
          I r;
          c = __builtin_add_overflow(static_cast<I>(a), static_cast<I>(b), &r);
          return static_cast<U>(r);
        })>);
  t.add("s_sub_i32|s_sub_co_i32", u2Carry<([](U a, U b, bool& c) {
          I r;
          c = __builtin_sub_overflow(static_cast<I>(a), static_cast<I>(b), &r);
          return static_cast<U>(r);
        })>);
  t.add("s_addc_u32|s_add_co_ci_u32", u2Carry<([](U a, U b, bool& c) {
          UL r = static_cast<UL>(a) + b + c;
          c = r >> 32;
          return static_cast<U>(r);
        })>);
  t.add("s_subb_u32|s_sub_co_ci_u32", u2Carry<([](U a, U b, bool& c) {
          UL r = static_cast<UL>(a) - b - c;
          c = r >> 63;
          return static_cast<U>(r);
        })>);
  t.add("s_absdiff_i32", u2<([](U a, U b) {
          IL d = static_cast<IL>(static_cast<I>(a)) - static_cast<I>(b);
          return static_cast<U>(d < 0 ? -d : d);
        })>);
  t.add("s_min_i32", u2Carry<([](U a, U b, bool& c) {
          c = static_cast<I>(a) < static_cast<I>(b);
          return c ? a : b;
        })>);
  t.add("s_max_i32", u2Carry<([](U a, U b, bool& c) {
          c = static_cast<I>(a) > static_cast<I>(b);
          return c ? a : b;
        })>);
  t.add("s_min_u32", u2Carry<([](U a, U b, bool& c) {
          c = a < b;
          return c ? a : b;
        })>);
  t.add("s_max_u32", u2Carry<([](U a, U b, bool& c) {
          c = a > b;
          return c ? a : b;
        })>);
  t.add("s_mul_i32", u2<([](U a, U b) { return a * b; }), false>);
  t.add("s_mul_hi_u32", u2<([](U a, U b) { return static_cast<U>(static_cast<UL>(a) * b >> 32); }), false>);
  t.add("s_mul_hi_i32",
        u2<([](U a, U b) { return static_cast<U>(static_cast<IL>(static_cast<I>(a)) * static_cast<I>(b) >> 32); }),
           false>);
  t.add("s_add_nc_u64|s_add_u64", ul2<([](UL a, UL b) { return a + b; }), false>);
  t.add("s_sub_nc_u64|s_sub_u64", ul2<([](UL a, UL b) { return a - b; }), false>);
  t.add("s_mul_u64", ul2<([](UL a, UL b) { return a * b; }), false>);
  t.add("s_lshl1_add_u32", u2Carry<([](U a, U b, bool& c) {
          UL r = (static_cast<UL>(a) << 1) + b;
          c = r >> 32;
          return static_cast<U>(r);
        })>);
  t.add("s_lshl2_add_u32", u2Carry<([](U a, U b, bool& c) {
          UL r = (static_cast<UL>(a) << 2) + b;
          c = r >> 32;
          return static_cast<U>(r);
        })>);
  t.add("s_lshl3_add_u32", u2Carry<([](U a, U b, bool& c) {
          UL r = (static_cast<UL>(a) << 3) + b;
          c = r >> 32;
          return static_cast<U>(r);
        })>);
  t.add("s_lshl4_add_u32", u2Carry<([](U a, U b, bool& c) {
          UL r = (static_cast<UL>(a) << 4) + b;
          c = r >> 32;
          return static_cast<U>(r);
        })>);
}

void bits(OpTable& t) {
  t.add("s_and_b32", u2<([](U a, U b) { return a & b; })>);
  t.add("s_and_b64", ul2<([](UL a, UL b) { return a & b; })>);
  t.add("s_or_b32", u2<([](U a, U b) { return a | b; })>);
  t.add("s_or_b64", ul2<([](UL a, UL b) { return a | b; })>);
  t.add("s_xor_b32", u2<([](U a, U b) { return a ^ b; })>);
  t.add("s_xor_b64", ul2<([](UL a, UL b) { return a ^ b; })>);
  t.add("s_andn2_b32|s_and_not1_b32", u2<([](U a, U b) { return a & ~b; })>);
  t.add("s_andn2_b64|s_and_not1_b64", ul2<([](UL a, UL b) { return a & ~b; })>);
  t.add("s_orn2_b32|s_or_not1_b32", u2<([](U a, U b) { return a | ~b; })>);
  t.add("s_orn2_b64|s_or_not1_b64", ul2<([](UL a, UL b) { return a | ~b; })>);
  t.add("s_nand_b32", u2<([](U a, U b) { return ~(a & b); })>);
  t.add("s_nand_b64", ul2<([](UL a, UL b) { return ~(a & b); })>);
  t.add("s_nor_b32", u2<([](U a, U b) { return ~(a | b); })>);
  t.add("s_nor_b64", ul2<([](UL a, UL b) { return ~(a | b); })>);
  t.add("s_xnor_b32", u2<([](U a, U b) { return ~(a ^ b); })>);
  t.add("s_xnor_b64", ul2<([](UL a, UL b) { return ~(a ^ b); })>);
  t.add("s_lshl_b32", u2<([](U a, U b) { return a << (b & 31); })>);
  t.add("s_lshl_b64", ulShift<([](UL a, U b) { return a << (b & 63); })>);
  t.add("s_lshr_b32", u2<([](U a, U b) { return a >> (b & 31); })>);
  t.add("s_lshr_b64", ulShift<([](UL a, U b) { return a >> (b & 63); })>);
  t.add("s_ashr_i32", u2<([](U a, U b) { return static_cast<U>(static_cast<I>(a) >> (b & 31)); })>);
  t.add("s_ashr_i64", ulShift<([](UL a, U b) { return static_cast<UL>(static_cast<IL>(a) >> (b & 63)); })>);
  t.add("s_bfm_b32", u2<([](U a, U b) { return bitfieldMask<U>(a, b); }), false>);
  t.add("s_bfm_b64", sBfm64);
  t.add("s_bfe_u32", u2<([](U a, U b) { return bfe32(a, b, false); })>);
  t.add("s_bfe_i32", u2<([](U a, U b) { return bfe32(a, b, true); })>);
  t.add("s_bfe_u64", ulShift<([](UL a, U b) { return bfe64(a, b, false); })>);
  t.add("s_bfe_i64", ulShift<([](UL a, U b) { return bfe64(a, b, true); })>);
  t.add("s_pack_ll_b32_b16", u2<([](U a, U b) { return (a & 0xffff) | b << 16; }), false>);
  t.add("s_pack_lh_b32_b16", u2<([](U a, U b) { return (a & 0xffff) | (b & 0xffff0000); }), false>);
  t.add("s_pack_hh_b32_b16", u2<([](U a, U b) { return a >> 16 | (b & 0xffff0000); }), false>);
  t.add("s_pack_hl_b32_b16", u2<([](U a, U b) { return a >> 16 | b << 16; }), false>);
}

/// minNum and maxNum: a number beats a NaN; -0 is below +0.
float minNum(float a, float b) { return a != a ? b : b != b ? a : a < b || (a == b && bitsOf(a) >> 31) ? a : b; }
float maxNum(float a, float b) { return a != a ? b : b != b ? a : a > b || (a == b && !(bitsOf(a) >> 31)) ? a : b; }

void floats(OpTable& t) {
  t.add("s_add_f32", sF32<([](float a, float b, float) { return a + b; })>);
  t.add("s_sub_f32", sF32<([](float a, float b, float) { return a - b; })>);
  t.add("s_mul_f32", sF32<([](float a, float b, float) { return a * b; })>);
  t.add("s_min_f32|s_min_num_f32", sF32<([](float a, float b, float) { return minNum(a, b); })>);
  t.add("s_max_f32|s_max_num_f32", sF32<([](float a, float b, float) { return maxNum(a, b); })>);
  t.add("s_fmac_f32", sF32<([](float a, float b, float c) { return std::fma(a, b, c); })>);
  t.add("s_fmaak_f32", sF32<([](float a, float b, float k) { return std::fma(a, b, k); })>);
  t.add("s_fmamk_f32", sF32<([](float a, float k, float b) { return std::fma(a, k, b); })>);
  t.add("s_ceil_f32", sF32<([](float a, float, float) { return std::ceil(a); })>);
  t.add("s_floor_f32", sF32<([](float a, float, float) { return std::floor(a); })>);
  t.add("s_trunc_f32", sF32<([](float a, float, float) { return std::trunc(a); })>);
  t.add("s_rndne_f32", sF32<([](float a, float, float) { return __builtin_roundevenf(a); })>);
  t.add("s_cvt_f32_i32", [](Wave& w, const Inst& in) {
    RoundingScope rounding(round32(w));
    setScalar32(w, in.dst[0], bitsOf(static_cast<float>(static_cast<I>(scalar32(w, in.src[0])))));
  });
  t.add("s_cvt_f32_u32", [](Wave& w, const Inst& in) {
    RoundingScope rounding(round32(w));
    setScalar32(w, in.dst[0], bitsOf(static_cast<float>(scalar32(w, in.src[0]))));
  });
  t.add("s_cvt_i32_f32", u1<([](U a) {
          float f = asF32(a);
          return f != f ? 0u
                        : static_cast<U>(f >= 0x1p31f   ? 0x7fffffff
                                         : f < -0x1p31f ? I(0x80000000)
                                                        : static_cast<I>(f));
        })>);
  t.add("s_cvt_u32_f32", u1<([](U a) {
          float f = asF32(a);
          return !(f > 0) ? 0u : f >= 0x1p32f ? ~0u : static_cast<U>(f);
        })>);
}

}  // namespace

void addSalu(OpTable& t) {
  moves(t);
  execMoves(t);
  arithmetic(t);
  bits(t);
  floats(t);
}

}  // namespace sardonyx::sim
