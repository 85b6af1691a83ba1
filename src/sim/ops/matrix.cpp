// See matrix.h.
#include "sim/ops/matrix.h"

#include <algorithm>

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace sardonyx::sim {
namespace {

constexpr int kColumns = 16;  // computed together

/// s[row][0..16) += sum over steps of a[step][row] * b[k(step)][0..16), for kRows rows; fused, in order.
template <int kRows>
inline void dotFloat(const float* a, int aStride, const float* b, int n, int steps, const std::uint8_t* index,
                     float* s) {
#ifdef __AVX2__
  __m256 lo[kRows], hi[kRows];
  for (int r = 0; r < kRows; ++r)
    lo[r] = _mm256_loadu_ps(s + r * kColumns), hi[r] = _mm256_loadu_ps(s + r * kColumns + 8);
  for (int k = 0; k < steps; ++k) {
    const float* row = b + (index ? index[k * aStride] : k) * n;
    __m256 b0 = _mm256_loadu_ps(row), b1 = _mm256_loadu_ps(row + 8);
    for (int r = 0; r < kRows; ++r) {
      __m256 x = _mm256_set1_ps(a[k * aStride + r]);
      lo[r] = _mm256_fmadd_ps(x, b0, lo[r]);
      hi[r] = _mm256_fmadd_ps(x, b1, hi[r]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    _mm256_storeu_ps(s + r * kColumns, lo[r]), _mm256_storeu_ps(s + r * kColumns + 8, hi[r]);
#else
  for (int k = 0; k < steps; ++k) {
    const float* row = b + (index ? index[k * aStride] : k) * n;
    for (int r = 0; r < kRows; ++r)
      for (int j = 0; j < kColumns; ++j)
        s[r * kColumns + j] = std::fma(a[k * aStride + r], row[j], s[r * kColumns + j]);
  }
#endif
}

/// The same in double; products of all types that come here are exact.
template <int kRows>
inline void dotDouble(const double* a, int aStride, const double* b, int n, int steps, const std::uint8_t* index,
                      double* s) {
#ifdef __AVX2__
  __m256d sum[kRows][4];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < 4; ++v) sum[r][v] = _mm256_loadu_pd(s + r * kColumns + v * 4);
  for (int k = 0; k < steps; ++k) {
    const double* row = b + (index ? index[k * aStride] : k) * n;
    __m256d x[kRows];
    for (int r = 0; r < kRows; ++r) x[r] = _mm256_set1_pd(a[k * aStride + r]);
    for (int v = 0; v < 4; ++v) {
      __m256d y = _mm256_loadu_pd(row + v * 4);
      for (int r = 0; r < kRows; ++r) sum[r][v] = _mm256_fmadd_pd(x[r], y, sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < 4; ++v) _mm256_storeu_pd(s + r * kColumns + v * 4, sum[r][v]);
#else
  for (int k = 0; k < steps; ++k) {
    const double* row = b + (index ? index[k * aStride] : k) * n;
    for (int r = 0; r < kRows; ++r)
      for (int j = 0; j < kColumns; ++j)
        s[r * kColumns + j] = std::fma(a[k * aStride + r], row[j], s[r * kColumns + j]);
  }
#endif
}

inline float quietNan(float v) { return v != v ? asF32(0x7fc00000) : v; }
inline float flushed(float v) {
  std::uint32_t bits = bitsOf(v);
  return asF32((bits & 0x7f800000) ? bits : bits & 0x80000000);
}

/// Calls f(row, column, rows) for pieces of at most kRows rows and 16 columns of a block. Sparse tiles: one row at a
/// time, as each row has its own choice of B's rows.
template <int kRows, class F>
void forPieces(const Tile& t, F f) {
  for (int j = 0; j < t.n; j += kColumns)
    for (int i = 0; i < t.m; i += t.sparse ? 1 : kRows) f(i, j);
}

void fused(Tile& t, int block) {
  const float* a = t.a + block * t.steps * t.m;
  const float* b = t.b + block * t.bRows * t.n;
  float* c = t.c + block * t.m * t.n;
  forPieces<4>(t, [&](int i, int j) {
    alignas(32) float s[4 * kColumns];
    int rows = t.sparse ? 1 : 4;
    for (int r = 0; r < rows; ++r)
      for (int x = 0; x < kColumns; ++x) s[r * kColumns + x] = c[(i + r) * t.n + j + x];
    if (t.sparse)
      dotFloat<1>(a + i, t.m, b + j, t.n, t.steps, t.index + i, s);
    else
      dotFloat<4>(a + i, t.m, b + j, t.n, t.steps, nullptr, s);
    for (int r = 0; r < rows; ++r)
      for (int x = 0; x < kColumns; ++x) c[(i + r) * t.n + j + x] = quietNan(s[r * kColumns + x]);
  });
}

void integers(Tile& t, int block) {
  const float* a = t.a + block * t.steps * t.m;
  const float* b = t.b + block * t.bRows * t.n;
  std::int32_t* c = t.ci + block * t.m * t.n;
  // At most 128 products of 8-bit values: below 2^24, so exact in float.
  forPieces<4>(t, [&](int i, int j) {
    alignas(32) float s[4 * kColumns] = {};
    if (t.sparse)
      dotFloat<1>(a + i, t.m, b + j, t.n, t.steps, t.index + i, s);
    else
      dotFloat<4>(a + i, t.m, b + j, t.n, t.steps, nullptr, s);
    int rows = t.sparse ? 1 : 4;
    for (int r = 0; r < rows; ++r)
      for (int x = 0; x < kColumns; ++x) {
        std::int32_t& d = c[(i + r) * t.n + j + x];
        std::int64_t sum = std::int64_t{d} + static_cast<std::int64_t>(s[r * kColumns + x]);
        if (t.saturate) sum = std::clamp<std::int64_t>(sum, INT32_MIN, INT32_MAX);
        d = static_cast<std::int32_t>(static_cast<std::uint32_t>(sum));
      }
  });
}

void grouped(Tile& t, int block) {
  alignas(64) double a[2048], b[4096];
  int aCount = t.steps * t.m, bCount = t.bRows * t.n;
  for (int i = 0; i < aCount; ++i) a[i] = t.a[block * aCount + i];
  for (int i = 0; i < bCount; ++i) b[i] = t.b[block * bCount + i];
  if (t.scaled) {
    for (int k = 0; k < t.steps; ++k) {
      for (int i = 0; i < t.m; ++i) a[k * t.m + i] *= t.aScale[k / 32][i];
      for (int j = 0; j < t.n; ++j) b[k * t.n + j] *= t.bScale[k / 32][j];
    }
  }
  float* c = t.c + block * t.m * t.n;
  forPieces<2>(t, [&](int i, int j) {
    int rows = t.sparse ? 1 : 2;
    for (int from = 0; from < t.steps; from += t.group) {
      alignas(32) double s[2 * kColumns] = {};
      int steps = std::min(t.group, t.steps - from);
      if (t.sparse)
        dotDouble<1>(a + from * t.m + i, t.m, b + j, t.n, steps, t.index + from * t.m + i, s);
      else
        dotDouble<2>(a + from * t.m + i, t.m, b + from * t.n + j, t.n, steps, nullptr, s);
      for (int r = 0; r < rows; ++r)
        for (int x = 0; x < kColumns; ++x) {
          float& d = c[(i + r) * t.n + j + x];
          d = quietNan(static_cast<float>(static_cast<double>(d) + s[r * kColumns + x]));
        }
    }
  });
}

/// One addition of the gfx90a kind.
inline float addFlushed(float x, float y) { return flushed(x + y); }

template <int kGroup, int kN>
void pairs(Tile& t, int block) {
  const float* a = t.a + block * t.steps * t.m;
  const float* b = t.b + block * t.bRows * kN;
  for (int i = 0; i < t.m; ++i) {
    float* __restrict c = t.c + (block * t.m + i) * kN;
    for (int k = 0; k < t.steps; k += kGroup) {
      const float* __restrict y = b + k * kN;
      const float* x = a + k * t.m + i;
      float x0 = x[0], x1 = x[t.m], x2 = kGroup == 4 ? x[2 * t.m] : 0, x3 = kGroup == 4 ? x[3 * t.m] : 0;
      for (int j = 0; j < kN; ++j) {
        float s = addFlushed(flushed(x0 * y[j]), flushed(x1 * y[kN + j]));
        if constexpr (kGroup == 4)
          s = addFlushed(s, addFlushed(flushed(x2 * y[2 * kN + j]), flushed(x3 * y[3 * kN + j])));
        c[j] = quietNan(addFlushed(c[j], s));
      }
    }
  }
}
template <int kN>
void pairs(Tile& t, int block) {
  t.group == 4 ? pairs<4, kN>(t, block) : pairs<2, kN>(t, block);
}

/// The 4x4 forms: too small for vectors of 16 columns.
void small(Tile& t, int block) {
  const float* a = t.a + block * t.steps * t.m;
  const float* b = t.b + block * t.bRows * t.n;
  for (int i = 0; i < t.m; ++i)
    for (int j = 0; j < t.n; ++j) {
      int at = (block * t.m + i) * t.n + j;
      if (t.sum == Sum::kFused) {
        float s = t.c[at];
        for (int k = 0; k < t.steps; ++k) s = std::fma(a[k * t.m + i], b[k * t.n + j], s);
        t.c[at] = quietNan(s);
      } else {
        double s = 0;
        for (int k = 0; k < t.steps; ++k)
          s += static_cast<double>(a[k * t.m + i]) * static_cast<double>(b[k * t.n + j]);
        if (t.sum == Sum::kExactInteger)
          t.ci[at] = static_cast<std::int32_t>(static_cast<std::uint32_t>(t.ci[at]) +
                                               static_cast<std::uint32_t>(static_cast<std::int32_t>(s)));
        else
          t.c[at] = quietNan(static_cast<float>(static_cast<double>(t.c[at]) + s));
      }
    }
}

void unpackHalves(const std::uint32_t* row, int shift, int lanes, float* out) {
#ifdef __F16C__
  __m128i mask = _mm_set1_epi32(0xffff);
  for (int l = 0; l < lanes; l += 4) {
    __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + l));
    x = shift ? _mm_srli_epi32(x, 16) : _mm_and_si128(x, mask);
    _mm_storeu_ps(out + l, _mm_cvtph_ps(_mm_packus_epi32(x, x)));
  }
#else
  for (int l = 0; l < lanes; ++l) out[l] = halfToFloat(static_cast<std::uint16_t>(row[l] >> shift));
#endif
}

const SmallFormat& formatOf(Element e) {
  switch (e) {
    case Element::kFp8:
      return kFp8;
    case Element::kBf8:
      return kBf8;
    case Element::kFp8Fnuz:
      return kFp8Fnuz;
    case Element::kBf8Fnuz:
      return kBf8Fnuz;
    case Element::kFp6:
      return kFp6;
    case Element::kBf6:
      return kBf6;
    default:
      return kFp4;
  }
}

const float* tableOf(Element e) {
  static const float* const tables[] = {
      smallTable(formatOf(Element::kFp8)),     smallTable(formatOf(Element::kBf8)),
      smallTable(formatOf(Element::kFp8Fnuz)), smallTable(formatOf(Element::kBf8Fnuz)),
      smallTable(formatOf(Element::kFp6)),     smallTable(formatOf(Element::kBf6)),
      smallTable(formatOf(Element::kFp4))};
  return tables[static_cast<int>(e) - static_cast<int>(Element::kFp8)];
}

}  // namespace

int bitsOf(Element e) {
  switch (e) {
    case Element::kF32:
    case Element::kXf32:
      return 32;
    case Element::kF16:
    case Element::kBf16:
      return 16;
    case Element::kFp6:
    case Element::kBf6:
      return 6;
    case Element::kFp4:
    case Element::kI4:
    case Element::kU4:
      return 4;
    default:
      return 8;
  }
}

void unpack(Element e, const std::uint32_t* const* rows, int index, int lanes, float* out) {
  int bits = bitsOf(e), at = index * bits, shift = at & 31;
  const std::uint32_t* row = rows[at >> 5];
  switch (e) {
    case Element::kF32:
      for (int l = 0; l < lanes; ++l) out[l] = asF32(row[l]);
      return;
    case Element::kXf32:  // the upper 10 bits of the fraction
      for (int l = 0; l < lanes; ++l) out[l] = asF32(row[l] & 0xffffe000u);
      return;
    case Element::kF16:
      unpackHalves(row, shift, lanes, out);
      return;
    case Element::kBf16:
      for (int l = 0; l < lanes; ++l) out[l] = asF32(row[l] >> shift << 16);
      return;
    case Element::kI8:
      for (int l = 0; l < lanes; ++l) out[l] = static_cast<std::int8_t>(row[l] >> shift);
      return;
    case Element::kI4:
      for (int l = 0; l < lanes; ++l)
        out[l] = static_cast<float>(static_cast<std::int32_t>(row[l] << (28 - shift)) >> 28);
      return;
    case Element::kU8:
    case Element::kU4: {
      std::uint32_t mask = (1u << bits) - 1;
      for (int l = 0; l < lanes; ++l) out[l] = static_cast<float>(static_cast<std::int32_t>(row[l] >> shift & mask));
      return;
    }
    default: {
      const float* table = tableOf(e);
      std::uint32_t mask = (1u << bits) - 1;
      if (shift + bits <= 32) {
        for (int l = 0; l < lanes; ++l) out[l] = table[row[l] >> shift & mask];
        return;
      }
      const std::uint32_t* next = rows[(at >> 5) + 1];
      for (int l = 0; l < lanes; ++l) out[l] = table[(row[l] >> shift | next[l] << (32 - shift)) & mask];
      return;
    }
  }
}

void accumulate(Tile& t) {
  for (int block = 0; block < t.blocks; ++block) {
    if (t.sum == Sum::kPairs)
      t.n == 32 ? pairs<32>(t, block) : t.n == 16 ? pairs<16>(t, block) : pairs<4>(t, block);
    else if (t.n < kColumns)
      small(t, block);
    else if (t.sum == Sum::kFused)
      fused(t, block);
    else if (t.sum == Sum::kGroups)
      grouped(t, block);
    else
      integers(t, block);
  }
}

void exactSums(const Tile& t, double* out) {
  alignas(64) double a[2048], b[4096];
  for (int i = 0; i < t.steps * t.m; ++i) a[i] = t.a[i];
  for (int i = 0; i < t.bRows * t.n; ++i) b[i] = t.b[i];
  for (int i = 0; i < t.m; ++i)
    for (int j = 0; j < t.n; j += kColumns) {
      double* s = out + i * t.n + j;
      for (int x = 0; x < kColumns; ++x) s[x] = t.c[i * t.n + j + x];
      dotDouble<1>(a + i, t.m, b + j, t.n, t.steps, t.sparse ? t.index + i : nullptr, s);
    }
}

}  // namespace sardonyx::sim
