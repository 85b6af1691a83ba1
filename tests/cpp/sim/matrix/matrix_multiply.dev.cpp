// C = A * B of row-major matrices, one tile of C a wave, by every matrix instruction that has a builtin. A kernel is
// named after the builtin's types; which exist on which chip is in matrix_multiply_test.cpp. 4-bit elements lie two a
// byte, the first in the low bits; 6-bit elements one a byte.
#include "device.h"

typedef unsigned char u8;
typedef _Float16 half4 __attribute__((ext_vector_type(4)));
typedef _Float16 half8 __attribute__((ext_vector_type(8)));
typedef _Float16 half16 __attribute__((ext_vector_type(16)));
typedef __bf16 bf8x __attribute__((ext_vector_type(8)));
typedef short short2v __attribute__((ext_vector_type(2)));
typedef short short4v __attribute__((ext_vector_type(4)));
typedef short short8v __attribute__((ext_vector_type(8)));
typedef short short16v __attribute__((ext_vector_type(16)));
typedef float float2v __attribute__((ext_vector_type(2)));
typedef float float4v __attribute__((ext_vector_type(4)));
typedef float float8v __attribute__((ext_vector_type(8)));
typedef float float16v __attribute__((ext_vector_type(16)));
typedef double double4v __attribute__((ext_vector_type(4)));
typedef int int2v __attribute__((ext_vector_type(2)));
typedef int int4v __attribute__((ext_vector_type(4)));
typedef int int8v __attribute__((ext_vector_type(8)));
typedef int int16v __attribute__((ext_vector_type(16)));

/// Element (row, column) of a matrix of narrow elements, as its code.
template <int kBits>
static inline u32 narrow(const u8* p, u32 row, u32 column, u32 columns) {
  u32 at = row * columns + column;
  if (kBits == 4) return p[at / 2] >> (4 * (at & 1)) & 15;
  return p[at];
}
/// Packs kCount elements, codeAt(e) each, from bit 0 on.
template <int kBits, int kCount, class F>
static inline void pack(u32* words, F codeAt) {
  for (int i = 0; i < (kBits * kCount + 31) / 32; ++i) words[i] = 0;
  for (int e = 0; e < kCount; ++e) {
    u32 code = codeAt(e), at = e * kBits;
    words[at / 32] |= code << (at & 31);
    if ((at & 31) + kBits > 32) words[at / 32 + 1] |= code >> (32 - (at & 31));
  }
}
template <int kWords>
static inline auto vectorOf(const u32* w) {
  typedef int V __attribute__((ext_vector_type(kWords)));
  V v;
  for (int i = 0; i < kWords; ++i) v[i] = static_cast<int>(w[i]);
  return v;
}
static inline long longOf(const u32* w) { return static_cast<long>(w[0] | static_cast<u64>(w[1]) << 32); }

#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)

template <int kTile, class Acc, class T>
static inline void store(T* c, const Acc& acc, u32 row0, u32 col0, u32 n) {
  u32 lane = localX();
  for (u32 r = 0; r < kTile * kTile / 64; ++r) {
    u32 row = kTile == 16 ? 4 * (lane / 16) + r : 8 * (r / 4) + 4 * (lane / 32) + r % 4;
    c[(row0 + row) * n + col0 + lane % kTile] = acc[r];
  }
}
/// Elements of a whole number of bytes that the builtin takes as a vector.
#define VECTORS(name, T, V, perLane, tile, step, C, Acc, call)           \
  KERNEL name(const T* a, const T* b, C* c, u32 n, u32 k) {              \
    u32 lane = localX(), row0 = groupY() * tile, col0 = groupX() * tile; \
    Acc acc = {};                                                        \
    for (u32 k0 = 0; k0 < k; k0 += step) {                               \
      V va, vb;                                                          \
      for (u32 e = 0; e < perLane; ++e) {                                \
        u32 kk = k0 + perLane * (lane / tile) + e;                       \
        va[e] = a[(row0 + lane % tile) * k + kk];                        \
        vb[e] = b[kk * n + col0 + lane % tile];                          \
      }                                                                  \
      acc = call(va, vb, acc, 0, 0, 0);                                  \
    }                                                                    \
    store<tile>(c, acc, row0, col0, n);                                  \
  }
#define SCALARS(name, T, tile, step, C, Acc, call)                                                \
  KERNEL name(const T* a, const T* b, C* c, u32 n, u32 k) {                                       \
    u32 lane = localX(), row0 = groupY() * tile, col0 = groupX() * tile;                          \
    Acc acc = {};                                                                                 \
    for (u32 k0 = 0; k0 < k; k0 += step) {                                                        \
      u32 kk = k0 + lane / tile;                                                                  \
      acc = call(a[(row0 + lane % tile) * k + kk], b[kk * n + col0 + lane % tile], acc, 0, 0, 0); \
    }                                                                                             \
    store<tile>(c, acc, row0, col0, n);                                                           \
  }
/// Bytes that the builtin takes packed, as PACKED makes of the words.
#define BYTES(name, perLane, tile, step, C, Acc, PACKED, call)                                     \
  KERNEL name(const u8* a, const u8* b, C* c, u32 n, u32 k) {                                      \
    u32 lane = localX(), row0 = groupY() * tile, col0 = groupX() * tile;                           \
    Acc acc = {};                                                                                  \
    for (u32 k0 = 0; k0 < k; k0 += step) {                                                         \
      u32 wa[perLane / 4], wb[perLane / 4], first = k0 + perLane * (lane / tile);                  \
      pack<8, perLane>(wa, [&](u32 e) { return narrow<8>(a, row0 + lane % tile, first + e, k); }); \
      pack<8, perLane>(wb, [&](u32 e) { return narrow<8>(b, first + e, col0 + lane % tile, n); }); \
      acc = call(PACKED(wa), PACKED(wb), acc, 0, 0, 0);                                            \
    }                                                                                              \
    store<tile>(c, acc, row0, col0, n);                                                            \
  }

SCALARS(f32_16x16x4, float, 16, 4, float, float4v, __builtin_amdgcn_mfma_f32_16x16x4f32)
SCALARS(f32_32x32x2, float, 32, 2, float, float16v, __builtin_amdgcn_mfma_f32_32x32x2f32)
VECTORS(f16_16x16x16, half, half4, 4, 16, 16, float, float4v, __builtin_amdgcn_mfma_f32_16x16x16f16)
VECTORS(f16_32x32x8, half, half4, 4, 32, 8, float, float16v, __builtin_amdgcn_mfma_f32_32x32x8f16)
VECTORS(bf16_16x16x16, short, short4v, 4, 16, 16, float, float4v, __builtin_amdgcn_mfma_f32_16x16x16bf16_1k)
VECTORS(bf16_32x32x8, short, short4v, 4, 32, 8, float, float16v, __builtin_amdgcn_mfma_f32_32x32x8bf16_1k)

KERNEL f64_16x16x4(const double* a, const double* b, double* c, u32 n, u32 k) {
  u32 lane = localX(), row0 = groupY() * 16, col0 = groupX() * 16;
  double4v acc = {};
  for (u32 k0 = 0; k0 < k; k0 += 4) {
    u32 kk = k0 + lane / 16;
    acc = __builtin_amdgcn_mfma_f64_16x16x4f64(a[(row0 + lane % 16) * k + kk], b[kk * n + col0 + lane % 16], acc, 0, 0,
                                               0);
  }
  for (u32 r = 0; r < 4; ++r) c[(row0 + 4 * r + lane / 16) * n + col0 + lane % 16] = acc[r];
}
/// Four products of 4x4 at once (blocks), A broadcast from block 2 by CBSZ and ABID: rows 8 to 11 of A for all.
KERNEL f32_4x4x1_broadcast(const float* a, const float* b, float* c, u32 n, u32 k) {
  u32 lane = localX();
  float4v acc = {};
  for (u32 kk = 0; kk < k; ++kk)
    acc = __builtin_amdgcn_mfma_f32_4x4x1f32(a[lane * k + kk], b[kk * n + lane], acc, 4, 2, 0);
  for (u32 r = 0; r < 4; ++r) c[r * n + lane] = acc[r];
}
#endif

#if defined(__gfx90a__)
VECTORS(bf16_16x16x8, short, short2v, 2, 16, 8, float, float4v, __builtin_amdgcn_mfma_f32_16x16x8bf16)
#define WORD(w) static_cast<int>(w[0])
BYTES(i8_16x16x16, 4, 16, 16, int, int4v, WORD, __builtin_amdgcn_mfma_i32_16x16x16i8)
BYTES(i8_32x32x8, 4, 32, 8, int, int16v, WORD, __builtin_amdgcn_mfma_i32_32x32x8i8)
#endif

#if defined(__gfx942__) || defined(__gfx950__)
BYTES(i8_16x16x32, 8, 16, 32, int, int4v, longOf, __builtin_amdgcn_mfma_i32_16x16x32_i8)
BYTES(i8_32x32x16, 8, 32, 16, int, int16v, longOf, __builtin_amdgcn_mfma_i32_32x32x16_i8)
BYTES(fp8_fp8_16x16x32, 8, 16, 32, float, float4v, longOf, __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8)
BYTES(fp8_bf8_16x16x32, 8, 16, 32, float, float4v, longOf, __builtin_amdgcn_mfma_f32_16x16x32_fp8_bf8)
BYTES(bf8_fp8_16x16x32, 8, 16, 32, float, float4v, longOf, __builtin_amdgcn_mfma_f32_16x16x32_bf8_fp8)
BYTES(bf8_bf8_32x32x16, 8, 32, 16, float, float16v, longOf, __builtin_amdgcn_mfma_f32_32x32x16_bf8_bf8)

/// A sparse A, given densely with two non-zero of every four: compressed here.
KERNEL sparse_f16_16x16x32(const half* a, const half* b, float* c, u32 n, u32 k) {
  u32 lane = localX(), row = groupY() * 16 + lane % 16, col0 = groupX() * 16;
  float4v acc = {};
  for (u32 k0 = 0; k0 < k; k0 += 32) {
    half4 va;
    half8 vb;
    u32 index = 0;
    for (u32 g = 0; g < 2; ++g) {
      u32 first = k0 + 8 * (lane / 16) + 4 * g, found = 0;
      // Two positions, the non-zero ones first; zeros fill up.
      for (u32 p = 0; p < 4 && found < 2; ++p) {
        half v = a[row * k + first + p];
        if (v != static_cast<half>(0) || 4 - p <= 2 - found) {
          va[2 * g + found] = v;
          index |= p << (4 * g + 2 * found);
          ++found;
        }
      }
    }
    for (u32 e = 0; e < 8; ++e) vb[e] = b[(k0 + 8 * (lane / 16) + e) * n + col0 + lane % 16];
    acc = __builtin_amdgcn_smfmac_f32_16x16x32_f16(va, vb, acc, static_cast<int>(index), 0, 0);
  }
  store<16>(c, acc, groupY() * 16, col0, n);
}
#endif
#if defined(__gfx942__)
VECTORS(xf32_16x16x8, float, float2v, 2, 16, 8, float, float4v, __builtin_amdgcn_mfma_f32_16x16x8_xf32)
VECTORS(xf32_32x32x4, float, float2v, 2, 32, 4, float, float16v, __builtin_amdgcn_mfma_f32_32x32x4_xf32)
#endif

#if defined(__gfx950__)
VECTORS(f16_16x16x32, half, half8, 8, 16, 32, float, float4v, __builtin_amdgcn_mfma_f32_16x16x32_f16)
VECTORS(f16_32x32x16, half, half8, 8, 32, 16, float, float16v, __builtin_amdgcn_mfma_f32_32x32x16_f16)
VECTORS(bf16_16x16x32, __bf16, bf8x, 8, 16, 32, float, float4v, __builtin_amdgcn_mfma_f32_16x16x32_bf16)
BYTES(i8_16x16x64, 16, 16, 64, int, int4v, vectorOf<4>, __builtin_amdgcn_mfma_i32_16x16x64_i8)

/// Block-scaled: scales hold one E8M0 byte for 32 K elements of a row of A (scaleA[row][k / 32]) or column of B.
#define SCALED(name, bits, type)                                                                                   \
  KERNEL name(const u8* a, const u8* b, float* c, u32 n, u32 k, const u8* scaleA, const u8* scaleB) {              \
    u32 lane = localX(), row = groupY() * 16 + lane % 16, column = groupX() * 16 + lane % 16, part = lane / 16;    \
    float4v acc = {};                                                                                              \
    for (u32 k0 = 0; k0 < k; k0 += 128) {                                                                          \
      auto kOf = [&](u32 e) { return k0 + (bits == 8 ? 64 * (e / 16) + 16 * part + e % 16 : 32 * part + e); };     \
      u32 wa[8] = {}, wb[8] = {};                                                                                  \
      pack<bits, 32>(wa, [&](u32 e) { return narrow<bits>(a, row, kOf(e), k); });                                  \
      pack<bits, 32>(wb, [&](u32 e) { return narrow<bits>(b, kOf(e), column, n); });                               \
      u32 at = k0 / 32 + part;                                                                                     \
      acc = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(vectorOf<8>(wa), vectorOf<8>(wb), acc, type, type, 0, \
                                                             scaleA[row * (k / 32) + at], 0,                       \
                                                             scaleB[column * (k / 32) + at]);                      \
    }                                                                                                              \
    store<16>(c, acc, groupY() * 16, groupX() * 16, n);                                                            \
  }
SCALED(scaled_fp8, 8, 0)
SCALED(scaled_bf8, 8, 1)
SCALED(scaled_fp6, 6, 2)
SCALED(scaled_bf6, 6, 3)
SCALED(scaled_fp4, 4, 4)
#endif

#if defined(__gfx1100__) || defined(__gfx1201__)

// WAVE (32 or 64) comes from the build.
#define PASTE2(a, b, c) a##b##c
#define PASTE(a, b, c) PASTE2(a, b, c)
#if defined(__gfx1100__)
#define BUILTIN(name) PASTE(__builtin_amdgcn_wmma_##name##_w, WAVE, )
#else
#define BUILTIN(name) PASTE(__builtin_amdgcn_wmma_##name##_w, WAVE, _gfx12)
#endif
constexpr u32 kRows = 256 / WAVE;  // of D a lane holds
typedef float AccF __attribute__((ext_vector_type(kRows)));
typedef int AccI __attribute__((ext_vector_type(kRows)));

static inline u32 rowOf(u32 r) {
  u32 lane = localX();
#if defined(__gfx1100__)
  return WAVE / 16 * r + lane / 16;
#else
  return WAVE == 32 ? 8 * (lane / 16) + r : 8 * (lane / 16 % 2) + 4 * (lane / 32) + r;
#endif
}
/// k of element e of a lane.
static inline u32 kOf(int bits, u32 depth, u32 e) {
#if defined(__gfx1100__)
  return e;
#else
  u32 low = localX() / 16 % 2, high = localX() / 32;
  if (bits == 16) return WAVE == 32 ? 8 * (e / 4) + 4 * low + e % 4 : 4 * low + 8 * high + e;
  if (depth == 32 || bits == 8) return depth / 2 * low + (WAVE == 64 ? depth / 4 * high : 0) + e;
  return 8 * low + e;
#endif
}
#if defined(__gfx1100__)
constexpr u32 held(u32 depth, bool) { return depth; }
#else
/// Elements a lane holds; in a wave64 the upper half repeats nothing, but 16 K elements of 4 bits fill only the lower
/// half.
constexpr u32 held(u32 depth, bool tiny) { return tiny ? 8 : depth * 16 / WAVE; }
#endif

template <class Acc, class T>
static inline void store(T* c, const Acc& acc, u32 row0, u32 col0, u32 n, u32 stride = 1, u32 offset = 0) {
  for (u32 r = 0; r < kRows; ++r) c[(row0 + rowOf(r)) * n + col0 + localX() % 16] = acc[r * stride + offset];
}

template <class T>
struct Pair {
  static constexpr u32 kHeld = held(16, false);
  typedef T V __attribute__((ext_vector_type(kHeld)));
  V a, b;
  Pair(const T* pa, const T* pb, u32 row0, u32 col0, u32 k0, u32 n, u32 k) {
    for (u32 e = 0; e < kHeld; ++e) {
      u32 kk = k0 + kOf(16, 16, e);
      a[e] = pa[(row0 + localX() % 16) * k + kk];
      b[e] = pb[kk * n + col0 + localX() % 16];
    }
  }
};
template <int kBits, u32 kDepth>
struct Words {
  static constexpr u32 kHeld = held(kDepth, kBits == 4 && kDepth == 16);
  static constexpr u32 kWords = kHeld * kBits / 32;
  u32 a[kWords], b[kWords];
  Words(const u8* pa, const u8* pb, u32 row0, u32 col0, u32 k0, u32 n, u32 k) {
    pack<kBits, kHeld>(a,
                       [&](u32 e) { return narrow<kBits>(pa, row0 + localX() % 16, k0 + kOf(kBits, kDepth, e), k); });
    pack<kBits, kHeld>(b,
                       [&](u32 e) { return narrow<kBits>(pb, k0 + kOf(kBits, kDepth, e), col0 + localX() % 16, n); });
  }
  static auto vector(const u32* w) {
    if constexpr (kWords == 1)
      return static_cast<int>(w[0]);
    else
      return vectorOf<kWords>(w);
  }
};
#define TILE u32 row0 = groupY() * 16, col0 = groupX() * 16;

#define HALVES(name, T, builtin)                                \
  KERNEL name(const T* a, const T* b, float* c, u32 n, u32 k) { \
    TILE AccF acc = {};                                         \
    for (u32 k0 = 0; k0 < k; k0 += 16) {                        \
      Pair<T> p(a, b, row0, col0, k0, n, k);                    \
      acc = BUILTIN(builtin)(p.a, p.b, acc);                    \
    }                                                           \
    store(c, acc, row0, col0, n);                               \
  }
HALVES(f16_f32, half, f32_16x16x16_f16)
HALVES(bf16_f32, short, f32_16x16x16_bf16)

/// 16-bit results: gfx11 uses one half of each register, here the upper one.
#if defined(__gfx1100__)
#define NARROW(name, T, builtin)                               \
  KERNEL name(const T* a, const T* b, T* c, u32 n, u32 k) {    \
    typedef T Acc __attribute__((ext_vector_type(2 * kRows))); \
    TILE Acc acc = {};                                         \
    for (u32 k0 = 0; k0 < k; k0 += 16) {                       \
      Pair<T> p(a, b, row0, col0, k0, n, k);                   \
      acc = BUILTIN(builtin)(p.a, p.b, acc, true);             \
    }                                                          \
    store(c, acc, row0, col0, n, 2, 1);                        \
  }
#else
#define NARROW(name, T, builtin)                            \
  KERNEL name(const T* a, const T* b, T* c, u32 n, u32 k) { \
    typedef T Acc __attribute__((ext_vector_type(kRows)));  \
    TILE Acc acc = {};                                      \
    for (u32 k0 = 0; k0 < k; k0 += 16) {                    \
      Pair<T> p(a, b, row0, col0, k0, n, k);                \
      acc = BUILTIN(builtin)(p.a, p.b, acc);                \
    }                                                       \
    store(c, acc, row0, col0, n);                           \
  }
#endif
NARROW(f16_f16, half, f16_16x16x16_f16)
NARROW(bf16_bf16, short, bf16_16x16x16_bf16)

#define INTEGERS(name, bits, depth, signedA, signedB, builtin)                            \
  KERNEL name(const u8* a, const u8* b, int* c, u32 n, u32 k) {                           \
    TILE AccI acc = {};                                                                   \
    for (u32 k0 = 0; k0 < k; k0 += depth) {                                               \
      Words<bits, depth> p(a, b, row0, col0, k0, n, k);                                   \
      acc = BUILTIN(builtin)(signedA, p.vector(p.a), signedB, p.vector(p.b), acc, false); \
    }                                                                                     \
    store(c, acc, row0, col0, n);                                                         \
  }
INTEGERS(i8_i32, 8, 16, true, true, i32_16x16x16_iu8)
INTEGERS(u8_i32, 8, 16, false, false, i32_16x16x16_iu8)
INTEGERS(i4_i32, 4, 16, true, true, i32_16x16x16_iu4)
INTEGERS(u4_i32, 4, 16, false, false, i32_16x16x16_iu4)

#if defined(__gfx1201__)
INTEGERS(i4_i32_deep, 4, 32, true, true, i32_16x16x32_iu4)
#define EIGHT(name, builtin)                                      \
  KERNEL name(const u8* a, const u8* b, float* c, u32 n, u32 k) { \
    TILE AccF acc = {};                                           \
    for (u32 k0 = 0; k0 < k; k0 += 16) {                          \
      Words<8, 16> p(a, b, row0, col0, k0, n, k);                 \
      acc = BUILTIN(builtin)(p.vector(p.a), p.vector(p.b), acc);  \
    }                                                             \
    store(c, acc, row0, col0, n);                                 \
  }
EIGHT(fp8_fp8_f32, f32_16x16x16_fp8_fp8)
EIGHT(fp8_bf8_f32, f32_16x16x16_fp8_bf8)
EIGHT(bf8_fp8_f32, f32_16x16x16_bf8_fp8)
EIGHT(bf8_bf8_f32, f32_16x16x16_bf8_bf8)

#if WAVE == 32
/// A sparse A, given densely with at most two non-zero of every four.
KERNEL sparse_f16_f32(const half* a, const half* b, float* c, u32 n, u32 k) {
  TILE AccF acc = {};
  u32 lane = localX(), row = row0 + lane % 16;
  for (u32 k0 = 0; k0 < k; k0 += 32) {
    half8 va;
    half16 vb;
    u32 index = 0;
    for (u32 g = 0; g < 4; ++g) {
      u32 first = k0 + 16 * (g / 2) + 8 * (lane / 16) + 4 * (g % 2), found = 0;
      for (u32 p = 0; p < 4 && found < 2; ++p) {
        half v = a[row * k + first + p];
        if (v != static_cast<half>(0) || 4 - p <= 2 - found) {
          va[2 * g + found] = v;
          index |= p << (4 * g + 2 * found);
          ++found;
        }
      }
    }
    for (u32 e = 0; e < 16; ++e) vb[e] = b[(k0 + 16 * (e / 8) + 8 * (lane / 16) + e % 8) * n + col0 + lane % 16];
    acc = __builtin_amdgcn_swmmac_f32_16x16x32_f16_w32(va, vb, acc, static_cast<int>(index));
  }
  store(c, acc, row0, col0, n);
}
#endif
#endif
#endif

/// `count` times eight matrix instructions, for measuring.
KERNEL speed(float* c, u32 count) {
  u32 lane = localX();
#if defined(__gfx1100__)
  half16 v;
  for (u32 e = 0; e < 16; ++e) v[e] = static_cast<half>(lane % 16);
  AccF acc = {};
#elif defined(__gfx1201__)
  typedef half V __attribute__((ext_vector_type(256 / WAVE)));
  V v;
  for (u32 e = 0; e < 256 / WAVE; ++e) v[e] = static_cast<half>(lane % 16);
  AccF acc = {};
#else
  half4 v;
  for (u32 e = 0; e < 4; ++e) v[e] = static_cast<half>(lane % 16);
  float4v acc = {};
#endif
  for (u32 i = 0; i < count; ++i)
#pragma unroll
    for (u32 j = 0; j < 8; ++j)
#if defined(__gfx1100__) || defined(__gfx1201__)
      acc = BUILTIN(f32_16x16x16_f16)(v, v, acc);
#else
      acc = __builtin_amdgcn_mfma_f32_16x16x16f16(v, v, acc, 0, 0, 0);
#endif
  c[groupX() * 64 + lane] = acc[0];
}
