// How vector handlers read operands and write results, a whole row of lanes at a time, so that a handler is one
// arithmetic expression. Rows hold raw bits; float handlers go through readF32 and its like, which apply neg, abs and
// the mode register's denormal rule, and through writeF32 and its like, which apply output modifiers, clamp and the
// active mask.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "sim/exec/fault.h"
#include "sim/exec/wave.h"

namespace sardonyx::sim {

using Row = std::uint32_t[64];
using Row64 = std::uint64_t[64];

inline float asF32(std::uint32_t v) { return std::bit_cast<float>(v); }
inline std::uint32_t bitsOf(float v) { return std::bit_cast<std::uint32_t>(v); }
inline double asF64(std::uint64_t v) { return std::bit_cast<double>(v); }
inline std::uint64_t bitsOf(double v) { return std::bit_cast<std::uint64_t>(v); }

/// Runs f(lane) for every lane of the wave, active or not, in blocks that the compiler vectorises.
template <class F>
inline __attribute__((always_inline)) void forLanes(int lanes, F&& f) {
  for (int b = 0; b < lanes; b += 32) {
#pragma GCC ivdep
    for (int l = b; l < b + 32; ++l) f(l);
  }
}
/// Runs f(lane) for active lanes only: for handlers with side effects.
template <class F>
inline void forActive(std::uint64_t mask, F&& f) {
  for (; mask; mask &= mask - 1) f(std::countr_zero(mask));
}

/// Value of a scalar, constant or special operand (never a vector register).
std::uint32_t scalar32(const Wave& w, const Operand& o);
std::uint64_t scalar64(const Wave& w, const Operand& o);
/// 1 to 2 registers of a scalar destination; writing VCC or EXEC of a wave32 touches the low half only.
inline void setScalar32(Wave& w, const Operand& o, std::uint32_t v) { w.s[o.index] = v; }
inline void setScalar64(Wave& w, const Operand& o, std::uint64_t v) { w.setPair(o.index, v); }
/// A lane mask operand: one register for wave32, two for wave64.
inline std::uint64_t maskOf(const Wave& w, const Operand& o) { return w.wave32 ? scalar32(w, o) : scalar64(w, o); }
inline void setMask(Wave& w, const Operand& o, std::uint64_t v) {
  if (w.wave32)
    w.s[o.index] = static_cast<std::uint32_t>(v);
  else
    w.setPair(o.index, v);
}

inline bool isRow(const Operand& o) {
  return o.file == RegFile::kVgpr || o.file == RegFile::kAgpr || o.file == RegFile::kTemp;
}

/// 32-bit row of an operand; a pointer into the register file or to `tmp`.
inline const std::uint32_t* readB32(Wave& w, const Operand& o, Row& tmp, int dword = 0) {
  if (isRow(o)) return w.row(o, dword);
  std::uint32_t value = dword ? static_cast<std::uint32_t>(scalar64(w, o) >> 32) : scalar32(w, o);
  for (int l = 0; l < 64; ++l) tmp[l] = value;
  return tmp;
}
/// 32-bit floats as bits, after neg, abs and flushing of input denormals.
const std::uint32_t* readF32(Wave& w, const Operand& o, Row& tmp);
/// 64-bit values; a constant of a 64-bit operand is already its 64-bit pattern.
void readB64(Wave& w, const Operand& o, Row64& out);
void readF64(Wave& w, const Operand& o, Row64& out);
/// 16-bit values, zero-extended, from the half that op_sel or the register name chooses.
const std::uint32_t* readB16(Wave& w, const Operand& o, Row& tmp);
/// Half floats widened to f32 bits, after neg, abs and flushing of input denormals.
void readF16(Wave& w, const Operand& o, Row& out);

/// Writes the active lanes of a 32-bit destination.
void writeB32(Wave& w, const Operand& o, const std::uint32_t* v, int dword = 0);
/// As writeB32, after omod, clamp and flushing of output denormals.
void writeF32(Wave& w, const Inst& in, const Operand& o, Row& v);
void writeB64(Wave& w, const Operand& o, const std::uint64_t* v);
void writeF64(Wave& w, const Inst& in, const Operand& o, Row64& v);
/// A register after a load of 16 bits into one of its halves.
inline std::uint32_t withLoadedHalf(const Wave& w, std::uint32_t old, std::uint32_t v, bool high) {
  if (w.chip->d16LoadsZeroOtherHalf) old = 0;
  return high ? (old & 0xffff) | v << 16 : (old & 0xffff0000) | (v & 0xffff);
}
/// Writes 16 bits to the half the operand names; the other half is kept or cleared as chip and instruction say.
void writeB16(Wave& w, const Inst& in, const Operand& o, const std::uint32_t* v);
/// Rounds f32 bits to half under the mode's rounding and writes them. `v` must be exact or rounded so that a second
/// rounding is harmless (a sum or product of two halves in f32 is).
void writeF16(Wave& w, const Inst& in, const Operand& o, Row& v);

/// Half conversions of single values, for handlers that are not row-wise. Rounding: MODE's two-bit code.
float halfToFloat(std::uint16_t h);
std::uint16_t floatToHalf(float f, unsigned rounding = 0);
std::uint16_t doubleToHalf(double f, unsigned rounding = 0);

/// Host rounding for the life of the object, from MODE's two-bit code (0 nearest even, 1 up, 2 down, 3 to zero).
class RoundingScope {
 public:
  explicit RoundingScope(unsigned code) : code_(code) {
    if (code_) set(code_);
  }
  ~RoundingScope() {
    if (code_) set(0);
  }
  RoundingScope(const RoundingScope&) = delete;
  RoundingScope& operator=(const RoundingScope&) = delete;

 private:
  static void set(unsigned code);
  unsigned code_;
};
/// `v`, computed before and used after this point: keeps the compiler from moving arithmetic on single values across a
/// change of the rounding mode, of which it knows nothing. (Rows lie in memory that the call might touch.)
inline float here(float v) {
  asm volatile("" : "+m"(v) : : "memory");
  return v;
}
inline unsigned round32(const Wave& w) { return w.mode & 3; }
inline unsigned round64(const Wave& w) { return w.mode >> 2 & 3; }
/// Denormal rules: inputs kept, outputs kept.
inline bool keepsIn32(const Wave& w) { return w.mode & 0x10; }
inline bool keepsOut32(const Wave& w) { return w.mode & 0x20; }
inline bool keepsIn64(const Wave& w) { return w.mode & 0x40; }
inline bool keepsOut64(const Wave& w) { return w.mode & 0x80; }

/// The NaN that an invalid operation on numbers gives is positive and quiet on AMD (negative on x86).
inline std::uint32_t canonical(std::uint32_t r, bool nanInput) {
  return (r & 0x7fffffff) > 0x7f800000 && !nanInput ? 0x7fc00000u : r;
}
inline std::uint64_t canonical(std::uint64_t r, bool nanInput) {
  return (r & 0x7fffffffffffffffull) > 0x7ff0000000000000ull && !nanInput ? 0x7ff8000000000000ull : r;
}

// Handlers from one expression. F takes and returns C++ values.

/// 32-bit integers or untyped bits.
template <auto F>
void b32x1(Wave& w, const Inst& in) {
  Row t0, out;
  const std::uint32_t* a = readB32(w, in.src[0], t0);
  forLanes(w.lanes, [&](int l) { out[l] = F(a[l]); });
  writeB32(w, in.dst[0], out);
}
template <auto F>
void b32x2(Wave& w, const Inst& in) {
  Row t0, t1, out;
  const std::uint32_t* a = readB32(w, in.src[0], t0);
  const std::uint32_t* b = readB32(w, in.src[1], t1);
  forLanes(w.lanes, [&](int l) { out[l] = F(a[l], b[l]); });
  writeB32(w, in.dst[0], out);
}
template <auto F>
void b32x3(Wave& w, const Inst& in) {
  Row t0, t1, t2, out;
  const std::uint32_t* a = readB32(w, in.src[0], t0);
  const std::uint32_t* b = readB32(w, in.src[1], t1);
  const std::uint32_t* c = readB32(w, in.src[2], t2);
  forLanes(w.lanes, [&](int l) { out[l] = F(a[l], b[l], c[l]); });
  writeB32(w, in.dst[0], out);
}
/// 64-bit results of 64-bit sources.
template <auto F>
void b64x2(Wave& w, const Inst& in) {
  Row64 a, b;
  readB64(w, in.src[0], a);
  readB64(w, in.src[1], b);
  forLanes(w.lanes, [&](int l) { a[l] = F(a[l], b[l]); });
  writeB64(w, in.dst[0], a);
}
template <auto F>
void b64x3(Wave& w, const Inst& in) {
  Row64 a, b, c;
  readB64(w, in.src[0], a);
  readB64(w, in.src[1], b);
  readB64(w, in.src[2], c);
  forLanes(w.lanes, [&](int l) { a[l] = F(a[l], b[l], c[l]); });
  writeB64(w, in.dst[0], a);
}
/// f32 arithmetic under the mode register.
template <auto F>
void f32x1(Wave& w, const Inst& in) {
  Row t0, out;
  const std::uint32_t* a = readF32(w, in.src[0], t0);
  RoundingScope rounding(round32(w));
  forLanes(w.lanes, [&](int l) { out[l] = canonical(bitsOf(F(asF32(a[l]))), asF32(a[l]) != asF32(a[l])); });
  writeF32(w, in, in.dst[0], out);
}
template <auto F>
void f32x2(Wave& w, const Inst& in) {
  Row t0, t1, out;
  const std::uint32_t* a = readF32(w, in.src[0], t0);
  const std::uint32_t* b = readF32(w, in.src[1], t1);
  RoundingScope rounding(round32(w));
  forLanes(w.lanes, [&](int l) {
    float x = asF32(a[l]), y = asF32(b[l]);
    out[l] = canonical(bitsOf(F(x, y)), (x != x) | (y != y));
  });
  writeF32(w, in, in.dst[0], out);
}
template <auto F>
void f32x3(Wave& w, const Inst& in) {
  Row t0, t1, t2, out;
  const std::uint32_t* a = readF32(w, in.src[0], t0);
  const std::uint32_t* b = readF32(w, in.src[1], t1);
  const std::uint32_t* c = readF32(w, in.src[2], t2);
  RoundingScope rounding(round32(w));
  forLanes(w.lanes, [&](int l) {
    float x = asF32(a[l]), y = asF32(b[l]), z = asF32(c[l]);
    out[l] = canonical(bitsOf(F(x, y, z)), (x != x) | (y != y) | (z != z));
  });
  writeF32(w, in, in.dst[0], out);
}
template <auto F>
void f64x1(Wave& w, const Inst& in) {
  Row64 a;
  readF64(w, in.src[0], a);
  RoundingScope rounding(round64(w));
  forLanes(w.lanes, [&](int l) {
    double x = asF64(a[l]);
    a[l] = canonical(bitsOf(F(x)), x != x);
  });
  writeF64(w, in, in.dst[0], a);
}
template <auto F>
void f64x2(Wave& w, const Inst& in) {
  Row64 a, b;
  readF64(w, in.src[0], a);
  readF64(w, in.src[1], b);
  RoundingScope rounding(round64(w));
  forLanes(w.lanes, [&](int l) {
    double x = asF64(a[l]), y = asF64(b[l]);
    a[l] = canonical(bitsOf(F(x, y)), (x != x) | (y != y));
  });
  writeF64(w, in, in.dst[0], a);
}
template <auto F>
void f64x3(Wave& w, const Inst& in) {
  Row64 a, b, c;
  readF64(w, in.src[0], a);
  readF64(w, in.src[1], b);
  readF64(w, in.src[2], c);
  RoundingScope rounding(round64(w));
  forLanes(w.lanes, [&](int l) {
    double x = asF64(a[l]), y = asF64(b[l]), z = asF64(c[l]);
    a[l] = canonical(bitsOf(F(x, y, z)), (x != x) | (y != y) | (z != z));
  });
  writeF64(w, in, in.dst[0], a);
}
/// 16-bit integers: F takes and returns uint32, of which only the low 16 bits are used.
template <auto F>
void b16x2(Wave& w, const Inst& in) {
  Row t0, t1, out;
  const std::uint32_t* a = readB16(w, in.src[0], t0);
  const std::uint32_t* b = readB16(w, in.src[1], t1);
  forLanes(w.lanes, [&](int l) { out[l] = F(a[l], b[l]) & 0xffff; });
  writeB16(w, in, in.dst[0], out);
}
template <auto F>
void b16x3(Wave& w, const Inst& in) {
  Row t0, t1, t2, out;
  const std::uint32_t* a = readB16(w, in.src[0], t0);
  const std::uint32_t* b = readB16(w, in.src[1], t1);
  const std::uint32_t* c = readB16(w, in.src[2], t2);
  forLanes(w.lanes, [&](int l) { out[l] = F(a[l], b[l], c[l]) & 0xffff; });
  writeB16(w, in, in.dst[0], out);
}
/// f16 arithmetic done in f32 and rounded once more, which is exact for + - * and conversions (f32 has more than twice
/// the bits of f16; a directed rounding is applied in both). Not for fma: see valu16.cpp.
template <auto F>
void f16x1(Wave& w, const Inst& in) {
  Row a;
  readF16(w, in.src[0], a);
  RoundingScope rounding(round64(w));
  forLanes(w.lanes, [&](int l) {
    float x = asF32(a[l]);
    a[l] = canonical(bitsOf(F(x)), x != x);
  });
  writeF16(w, in, in.dst[0], a);
}
template <auto F>
void f16x2(Wave& w, const Inst& in) {
  Row a, b;
  readF16(w, in.src[0], a);
  readF16(w, in.src[1], b);
  RoundingScope rounding(round64(w));
  forLanes(w.lanes, [&](int l) {
    float x = asF32(a[l]), y = asF32(b[l]);
    a[l] = canonical(bitsOf(F(x, y)), (x != x) | (y != y));
  });
  writeF16(w, in, in.dst[0], a);
}

}  // namespace sardonyx::sim
