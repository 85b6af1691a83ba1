// See lanes.h.
#include "sim/ops/lanes.h"

#include <cfenv>
#ifdef __F16C__
#include <immintrin.h>
#endif

namespace sardonyx::sim {
namespace {

std::uint64_t special(const Wave& w, Special s) {
  switch (s) {
    case Special::kSharedBase:
      return kSharedAperture;
    case Special::kSharedLimit:
      return kSharedAperture | 0xffffffffull;
    case Special::kPrivateBase:
      return kPrivateAperture;
    case Special::kPrivateLimit:
      return kPrivateAperture | 0xffffffffull;
    case Special::kVccz:
      return w.vcc() == 0;
    case Special::kExecz:
      return w.exec() == 0;
    case Special::kScc:
      return w.scc;
  }
  return 0;
}

/// All-ones for active lanes; 32 lanes at a time so that the shift stays 32 bits wide.
inline std::uint32_t laneOn(std::uint32_t half, int l) { return 0u - (half >> (l & 31) & 1); }

/// Halves in the low 16 bits of `h` to f32 bits.
void widenHalves(int lanes, const Row& h, Row& out) {
#ifdef __F16C__
  for (int l = 0; l < lanes; l += 8) {
    __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(h + l));
    __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(x, x), 0x88);
    _mm256_storeu_ps(reinterpret_cast<float*>(out + l), _mm256_cvtph_ps(_mm256_castsi256_si128(packed)));
  }
#else
  for (int l = 0; l < lanes; ++l) out[l] = bitsOf(halfToFloat(static_cast<std::uint16_t>(h[l])));
#endif
}

void narrowToHalves(int lanes, const Row& v, Row& h, unsigned rounding) {
#ifdef __F16C__
  if (rounding == 0) {
    for (int l = 0; l < lanes; l += 8) {
      __m128i x = _mm256_cvtps_ph(_mm256_loadu_ps(reinterpret_cast<const float*>(v + l)), 0);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(h + l), _mm256_cvtepu16_epi32(x));
    }
    return;
  }
#endif
  for (int l = 0; l < lanes; ++l) h[l] = floatToHalf(asF32(v[l]), rounding);
}

/// Output modifiers have no effect in IEEE mode, which gfx12 does not have (ISA documents, "Output modifiers").
bool usesOmod(const Wave& w, const Inst& in) { return in.omod && !(w.mode & 0x200); }

bool isDenormal32(std::uint32_t v) { return (v & 0x7f800000) == 0; }

}  // namespace

std::uint32_t scalar32(const Wave& w, const Operand& o) {
  if (o.file == RegFile::kSgpr) return o.hi ? w.s[o.index] >> 16 : w.s[o.index];
  if (o.file == RegFile::kImm) return static_cast<std::uint32_t>(o.imm);
  if (o.file == RegFile::kSpecial) {
    // The 32-bit form names the aperture's base by its upper half on gfx9 and later.
    std::uint64_t v = special(w, static_cast<Special>(o.index));
    return static_cast<Special>(o.index) <= Special::kPrivateLimit ? static_cast<std::uint32_t>(v >> 32)
                                                                   : static_cast<std::uint32_t>(v);
  }
  throw Fault("a scalar operand was expected");
}

std::uint64_t scalar64(const Wave& w, const Operand& o) {
  if (o.file == RegFile::kSgpr) return w.pair(o.index);
  if (o.file == RegFile::kImm) return o.imm;
  if (o.file == RegFile::kSpecial) return special(w, static_cast<Special>(o.index));
  throw Fault("a scalar operand was expected");
}

const std::uint32_t* readF32(Wave& w, const Operand& o, Row& tmp) {
  const std::uint32_t* a = readB32(w, o, tmp);
  if (!o.neg && !o.abs && keepsIn32(w)) return a;
  std::uint32_t keep = o.abs ? 0x7fffffffu : ~0u, flip = o.neg ? 0x80000000u : 0;
  std::uint32_t flush = keepsIn32(w) ? ~0u : 0x80000000u;
  forLanes(w.lanes, [&](int l) {
    std::uint32_t v = a[l];
    v = isDenormal32(v) ? v & flush : v;
    tmp[l] = (v & keep) ^ flip;
  });
  return tmp;
}

void readB64(Wave& w, const Operand& o, Row64& out) {
  if (isRow(o)) {
    const std::uint32_t* lo = w.row(o, 0);
    const std::uint32_t* hi = w.row(o, 1);
    forLanes(w.lanes, [&](int l) { out[l] = lo[l] | static_cast<std::uint64_t>(hi[l]) << 32; });
    return;
  }
  std::uint64_t v = scalar64(w, o);
  for (int l = 0; l < 64; ++l) out[l] = v;
}

void readF64(Wave& w, const Operand& o, Row64& out) {
  readB64(w, o, out);
  if (!o.neg && !o.abs && keepsIn64(w)) return;
  std::uint64_t keep = o.abs ? ~(1ull << 63) : ~0ull, flip = o.neg ? 1ull << 63 : 0;
  std::uint64_t flush = keepsIn64(w) ? ~0ull : 1ull << 63;
  forLanes(w.lanes, [&](int l) {
    std::uint64_t v = out[l];
    v = (v & 0x7ff0000000000000ull) == 0 ? v & flush : v;
    out[l] = (v & keep) ^ flip;
  });
}

const std::uint32_t* readB16(Wave& w, const Operand& o, Row& tmp) {
  if (!isRow(o)) {
    std::uint32_t v = scalar32(w, o) & 0xffff;
    if (o.file == RegFile::kImm && o.hi) v = static_cast<std::uint32_t>(o.imm >> 16) & 0xffff;
    for (int l = 0; l < 64; ++l) tmp[l] = v;
    return tmp;
  }
  const std::uint32_t* a = w.row(o);
  int shift = o.hi ? 16 : 0;
  forLanes(w.lanes, [&](int l) { tmp[l] = a[l] >> shift & 0xffff; });
  return tmp;
}

void readF16(Wave& w, const Operand& o, Row& out) {
  Row t;
  const std::uint32_t* a = readB16(w, o, t);
  std::uint32_t keep = o.abs ? 0x7fffu : 0xffffu, flip = o.neg ? 0x8000u : 0;
  std::uint32_t flush = keepsIn64(w) ? 0xffffu : 0x8000u;
  Row h;
  forLanes(w.lanes, [&](int l) {
    std::uint32_t v = a[l];
    v = (v & 0x7c00) == 0 ? v & flush : v;
    h[l] = (v & keep) ^ flip;
  });
  widenHalves(w.lanes, h, out);
}

void writeB32(Wave& w, const Operand& o, const std::uint32_t* v, int dword) {
  std::uint32_t* to = w.row(o, dword);
  if (w.mask == w.full) {
    std::memcpy(to, v, static_cast<std::size_t>(w.lanes) * 4);
    return;
  }
  for (int b = 0; b < w.lanes; b += 32) {
    auto half = static_cast<std::uint32_t>(w.mask >> b);
    for (int l = b; l < b + 32; ++l) {
      std::uint32_t on = laneOn(half, l);
      to[l] = (v[l] & on) | (to[l] & ~on);
    }
  }
}

void writeF32(Wave& w, const Inst& in, const Operand& o, Row& v) {
  if (usesOmod(w, in) && !keepsOut32(w)) {
    // Output modifiers act only where output denormals are flushed (ISA documents, "Output modifiers").
    float factor = in.omod == 1 ? 2.0f : in.omod == 2 ? 4.0f : 0.5f;
    forLanes(w.lanes, [&](int l) { v[l] = bitsOf(asF32(v[l]) * factor); });
  }
  if (in.clamp) {
    bool nanToZero = w.chip->gen == Gen::kGfx12 || (w.mode & 0x100);
    forLanes(w.lanes, [&](int l) {
      float x = asF32(v[l]);
      float r = x > 1.0f ? 1.0f : x > 0.0f ? x : 0.0f;
      v[l] = x != x && !nanToZero ? v[l] : bitsOf(r);
    });
  }
  if (!keepsOut32(w)) forLanes(w.lanes, [&](int l) { v[l] = isDenormal32(v[l]) ? v[l] & 0x80000000u : v[l]; });
  writeB32(w, o, v);
}

void writeB64(Wave& w, const Operand& o, const std::uint64_t* v) {
  Row lo, hi;
  forLanes(w.lanes, [&](int l) {
    lo[l] = static_cast<std::uint32_t>(v[l]);
    hi[l] = static_cast<std::uint32_t>(v[l] >> 32);
  });
  writeB32(w, o, lo, 0);
  writeB32(w, o, hi, 1);
}

void writeF64(Wave& w, const Inst& in, const Operand& o, Row64& v) {
  if (usesOmod(w, in) && !keepsOut64(w)) {
    double factor = in.omod == 1 ? 2.0 : in.omod == 2 ? 4.0 : 0.5;
    forLanes(w.lanes, [&](int l) { v[l] = bitsOf(asF64(v[l]) * factor); });
  }
  if (in.clamp) {
    bool nanToZero = w.chip->gen == Gen::kGfx12 || (w.mode & 0x100);
    forLanes(w.lanes, [&](int l) {
      double x = asF64(v[l]);
      double r = x > 1.0 ? 1.0 : x > 0.0 ? x : 0.0;
      v[l] = x != x && !nanToZero ? v[l] : bitsOf(r);
    });
  }
  if (!keepsOut64(w))
    forLanes(w.lanes, [&](int l) { v[l] = (v[l] & 0x7ff0000000000000ull) == 0 ? v[l] & (1ull << 63) : v[l]; });
  writeB64(w, o, v);
}

void writeB16(Wave& w, const Inst& in, const Operand& o, const std::uint32_t* v) {
  const std::uint32_t* old = w.row(o);
  Row out;
  if (o.hi) {
    forLanes(w.lanes, [&](int l) { out[l] = (old[l] & 0xffff) | v[l] << 16; });
  } else if (w.chip->zeroesHigh16 && !(in.op->flags & kPreservesHi16)) {
    forLanes(w.lanes, [&](int l) { out[l] = v[l] & 0xffff; });
  } else {
    forLanes(w.lanes, [&](int l) { out[l] = (old[l] & 0xffff0000) | (v[l] & 0xffff); });
  }
  writeB32(w, o, out);
}

void writeF16(Wave& w, const Inst& in, const Operand& o, Row& v) {
  if (usesOmod(w, in) && !keepsOut64(w)) {
    float factor = in.omod == 1 ? 2.0f : in.omod == 2 ? 4.0f : 0.5f;
    forLanes(w.lanes, [&](int l) { v[l] = bitsOf(asF32(v[l]) * factor); });
  }
  if (in.clamp) {
    bool nanToZero = w.chip->gen == Gen::kGfx12 || (w.mode & 0x100);
    forLanes(w.lanes, [&](int l) {
      float x = asF32(v[l]);
      float r = x > 1.0f ? 1.0f : x > 0.0f ? x : 0.0f;
      v[l] = x != x && !nanToZero ? v[l] : bitsOf(r);
    });
  }
  Row h;
  narrowToHalves(w.lanes, v, h, round64(w));
  if (!keepsOut64(w)) forLanes(w.lanes, [&](int l) { h[l] = (h[l] & 0x7c00) == 0 ? h[l] & 0x8000 : h[l]; });
  writeB16(w, in, o, h);
}

float halfToFloat(std::uint16_t h) {
#ifdef __F16C__
  return _cvtsh_ss(h);
#else
  std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
  if (exponent == 31) return asF32(sign | 0x7f800000 | fraction << 13 | (fraction ? 0x400000 : 0));
  if (exponent) return asF32(sign | (exponent + 112) << 23 | fraction << 13);
  float tiny = static_cast<float>(fraction) * 0x1p-24f;
  return sign ? -tiny : tiny;
#endif
}

std::uint16_t floatToHalf(float f, unsigned rounding) { return doubleToHalf(static_cast<double>(f), rounding); }

std::uint16_t doubleToHalf(double f, unsigned rounding) {
  std::uint64_t bits = bitsOf(f);
  std::uint16_t sign = static_cast<std::uint16_t>(bits >> 48 & 0x8000);
  bits &= ~(1ull << 63);
  if (bits > 0x7ff0000000000000ull)  // NaN: quiet, payload's upper bits kept
    return static_cast<std::uint16_t>(sign | 0x7e00 | (bits >> 42 & 0x1ff));
  if (bits == 0x7ff0000000000000ull) return sign | 0x7c00;
  int exponent = static_cast<int>(bits >> 52) - 1023;
  if (bits == 0 || exponent < -1000) return sign;
  // Significand with the leading one at bit 52; `drop` bits go, 42 for normal results, more for denormal ones.
  std::uint64_t m = (bits & 0xfffffffffffffull) | 1ull << 52;
  int drop = exponent >= -14 ? 42 : 42 + (-14 - exponent);
  std::uint64_t kept, rest, half;
  if (drop > 54) {
    kept = 0, rest = 1, half = 2;  // below half of the smallest denormal
  } else {
    kept = m >> drop, rest = m & ((1ull << drop) - 1), half = 1ull << (drop - 1);
  }
  bool up = false;
  if (rounding == 0)
    up = rest > half || (rest == half && (kept & 1));
  else if (rounding == 1)
    up = rest && !sign;
  else if (rounding == 2)
    up = rest && sign;
  kept += up;
  std::uint32_t result;
  if (exponent >= -14)
    result = static_cast<std::uint32_t>(kept) + (static_cast<std::uint32_t>(exponent + 14) << 10);
  else
    result = static_cast<std::uint32_t>(kept);
  if (exponent > 15 || result >= 0x7c00) {
    bool toMax = rounding == 3 || (rounding == 1 && sign) || (rounding == 2 && !sign);
    result = toMax ? 0x7bff : 0x7c00;
  }
  return static_cast<std::uint16_t>(sign | result);
}

void RoundingScope::set(unsigned code) {
  static constexpr int modes[4] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
  std::fesetround(modes[code & 3]);
}

}  // namespace sardonyx::sim
