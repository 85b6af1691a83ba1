// GEMM of few rows (decoding a batch with a language model) on matrix instructions: out[z, row, col] = epilogue(sum
// over k of a[z, row, k] * b[z, col, k]) for up to 64 rows. Reading b is the bottleneck. So lanes load it from memory
// directly into the registers that matrix instructions take, 16 bytes at a time and several loads in flight. Operands
// are swapped: columns of b are the instruction's 16 rows, and rows of a its columns. Weights of 4 and 8 bits are
// dequantised in registers, once for all rows, with the same rounding as if they had been dequantised before.
//
// Besides what gemm_problem.h requires of P:
//   kBits                                     bits of an element of b: 4, 8, or 16 (then b() is used, Access::kVector)
//   kSigned, kFloatZeros                      8-bit elements are signed; zero points may have fractions
//   const u8* b_packed(z, col, k)             address of the 16 bytes of kRun elements from k, a multiple of kRun
//   void b_block(z, col, k, f32& scale, f32& zero)   of all of these elements: b = (element - zero) * scale
//   kRowHeight                                if not 0: each workgroup first computes this many rows of a (a fused
//                                             norm) into LDS
//   f32 row_part(z, row, k)                   what eight elements from k on contribute to a row's sum
//   void row_elements(z, row, k, f32 sum, T* x)   eight elements of the row
#pragma once
#include "gemm_store.h"

namespace sdx {
namespace skinny_detail {

/// Combines four bytes of `a` (numbered 0 to 3) and `b` (4 to 7) into a word.
template <u32 S0, u32 S1, u32 S2, u32 S3>
SDX_FN u32 bytes(u32 a, u32 b) {
#if defined(__AMDGCN__)
  return __builtin_amdgcn_perm(b, a, S0 | S1 << 8 | S2 << 16 | S3 << 24);
#else
  return u32(__nvvm_prmt(i32(a), i32(b), i32(S0 | S1 << 4 | S2 << 8 | S3 << 12)));
#endif
}

/// x & mask | bits. NVIDIA's assembler uses one instruction (LOP3) instead of two only if told explicitly.
template <u32 Mask>
SDX_FN u32 masked_or(u32 x, u32 bits) {
#if defined(__NVPTX__)
  u32 y;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(y) : "r"(x), "n"(Mask), "r"(bits));
  return y;
#elif defined(__GFX9__)
  u32 mask = Mask;  // in a register: one instruction instead of two, each with a constant of its own
  asm("" : "+v"(mask));
  return (x & mask) | bits;
#else
  return (x & Mask) | bits;
#endif
}

using half2 = vec<f16, 2>;
SDX_FN half2 both(f32 x) { return half2{f16(x), f16(x)}; }
template <class T>
SDX_FN u32 rounded2(f32 lo, f32 hi) {
  return u32(bit_cast<u16>(cast<T>(lo))) | u32(bit_cast<u16>(cast<T>(hi))) << 16;
}

/// Eight elements as T, from q[0] and, if they have 8 bits, q[1]. 4-bit elements come in the order of in_order().
template <class T, int Bits, bool Signed, bool FloatZeros>
SDX_FN vec16 dequantized(u32 q0, u32 q1, f32 scale, f32 zero) {
  vec16 out;
  if constexpr (Bits == 8 && Signed) {
    q0 ^= 0x80808080u;
    q1 ^= 0x80808080u;
    zero += 128;
  }
  if constexpr (is_same<T, f16>) {
    // A number below 1024, placed in the low bits of float16 1024.0, has the value 1024 + number; subtracting 1024 is
    // exact.
    constexpr u32 k1024 = 0x64006400u;
    const half2 s = both(scale), z = both(zero);
    auto scaled = [&](u32 bits, bool times16) {
      half2 x = bit_cast<half2>(bits);
      if (times16)
        x = __builtin_elementwise_fma(x, half2{f16(0.0625f), f16(0.0625f)}, FloatZeros ? both(-64) : both(-64 - zero));
      else
        x = x - (FloatZeros ? both(1024) : both(1024 + zero));
      if (FloatZeros) x = x - z;
      return bit_cast<u32>(x * s);
    };
    if constexpr (Bits == 4) {
      out[0] = scaled(masked_or<0x000f000fu>(q0, k1024), false);
      out[1] = scaled(masked_or<0x00f000f0u>(q0, k1024), true);
      out[2] = scaled(masked_or<0x000f000fu>(q0 >> 8, k1024), false);
      out[3] = scaled(masked_or<0x00f000f0u>(q0 >> 8, k1024), true);
    } else {
      out[0] = scaled(bytes<0, 5, 1, 5>(q0, k1024), false);
      out[1] = scaled(bytes<2, 5, 3, 5>(q0, k1024), false);
      out[2] = scaled(bytes<0, 5, 1, 5>(q1, k1024), false);
      out[3] = scaled(bytes<2, 5, 3, 5>(q1, k1024), false);
    }
  } else {
    // The same in float32, with 2^23.
    constexpr u32 kMagic = 0x4b000000u;
    auto value = [&](u32 number) {
      const f32 x = bit_cast<f32>(number | kMagic);
      return (FloatZeros ? x - 8388608.0f - zero : x - (8388608.0f + zero)) * scale;
    };
#pragma clang loop unroll(full)
    for (int j = 0; j < 4; ++j) {
      if constexpr (Bits == 4) {
        // elements j and j + 4, in the order of in_order()
        out[j] = rounded2<T>(value(q0 >> (4 * j) & 15), value(q0 >> (4 * j + 16) & 15));
      } else {
        const u32 q = j < 2 ? q0 : q1;
        out[j] = rounded2<T>(value(q >> (16 * (j % 2)) & 255), value(q >> (16 * (j % 2) + 8) & 255));
      }
    }
  }
  return out;
}

/// Permutes elements 0 to 7 to the order 0 4 1 5 2 6 3 7, in which 4-bit elements are extracted from a word; and back.
SDX_FN vec16 in_order(vec16 x) {
  return vec16{bytes<0, 1, 4, 5>(x[0], x[2]), bytes<2, 3, 6, 7>(x[0], x[2]), bytes<0, 1, 4, 5>(x[1], x[3]),
               bytes<2, 3, 6, 7>(x[1], x[3])};
}
SDX_FN vec16 from_order(vec16 x) {
  return vec16{bytes<0, 1, 4, 5>(x[0], x[1]), bytes<0, 1, 4, 5>(x[2], x[3]), bytes<2, 3, 6, 7>(x[0], x[1]),
               bytes<2, 3, 6, 7>(x[2], x[3])};
}

inline constexpr int kRowBytes = layout::kSkinnyRowBytes;
/// Position of eight elements of a row of K in LDS, in vectors; swizzled so that lanes that read together use all
/// banks.
SDX_FN u32 place_row(u32 row, u32 chunk, u32 k) { return row * (k / 8) + (chunk ^ (chunk >> 3 & 1) ^ (row & 1) * 6); }

/// Computes `height` rows of a from `row0` on into LDS. Ordered: in the order of in_order().
template <bool Ordered, class P>
SDX_FN void make_rows(const P& p, gemm_detail::shared_vec* lds, u32 z, u32 row0, u32 height) {
  using T = typename P::T;
  u32 team = kThreads;
  while (team * height > kThreads) team /= 2;
  const u32 row = thread_id() / team, mine = row < height ? row : height - 1;
  f32 sum = 0;
  for (u32 k = thread_id() % team * 8; k < p.k; k += team * 8) sum += p.row_part(z, row0 + mine, k);
  sum = reduce_team(sum, team, [](f32 a, f32 b) { return a + b; });
  if (row < height)
    for (u32 k = thread_id() % team * 8; k < p.k; k += team * 8) {
      T x[8];
      p.row_elements(z, row0 + row, k, sum, x);
      vec16 y;
      __builtin_memcpy(&y, x, 16);
      lds[place_row(row, k / 8, p.k)] = Ordered ? in_order(y) : y;
    }
  lds_barrier();
}

/// Prefetches the first weights of a wave to the L2 cache while the rows are computed.
template <int Ahead, class P, int Tiles, int Slots>
SDX_FN void fetch_weights_to_l2(const P& p, u32 z, const u32 (&cols)[Tiles][Slots], u32 wave, u32 lane_k, u32 span) {
#if defined(__NVPTX__)
#pragma clang loop unroll(full)
  for (int h = 0; h < Ahead; ++h)
#pragma clang loop unroll(full)
    for (int t = 0; t < Tiles; ++t)
#pragma clang loop unroll(full)
      for (int s = 0; s < Slots; ++s) {
        const u32 k = (wave + h * (kThreads / kWave)) * span + lane_k, at = k < p.k ? k : 0;
        bool inside = true;
        const void* from;
        if constexpr (P::kBits == 16)
          from = p.b(z, cols[t][s], at, inside);
        else
          from = p.b_packed(z, cols[t][s], at);
        asm volatile("prefetch.global.L2 [%0];" : : "l"((__attribute__((address_space(1))) const void*)from));
      }
#endif
}

/// Adds up the waves' sums of Height rows and Tiles * 16 columns in LDS, and passes those of the `height` rows that
/// exist to P, neighbouring columns together.
template <u32 Height, class P, class Acc, int Tiles, int Count>
SDX_FN void add_up_waves(const P& p, void* lds, const Acc (&acc)[Tiles][Count], u32 z, u32 row0, u32 height, u32 col0) {
  using namespace gemm_detail;
  using M = Matrix<typename P::T>;
  constexpr u32 kWaves = kThreads / kWave, kColumns = Tiles * 16;
  const u32 wave = uniform(thread_id() / kWave), lane = thread_id() % kWave;
  auto* parts = (__attribute__((address_space(3))) Acc*)lds;
#pragma clang loop unroll(full)
  for (int t = 0; t < Tiles; ++t)
#pragma clang loop unroll(full)
    for (int e = 0; e < Count; ++e) {
      const u32 r = M::acc_col(lane, e);
      if (r < Height) parts[(wave * Height + r) * kColumns + t * 16 + M::acc_row(lane, e)] = acc[t][e];
    }
  lds_barrier();
  constexpr u32 kEach = P::kPairs ? 2 : 1;
  for (u32 j = thread_id() * kEach; j < height * kColumns; j += kThreads * kEach) {
    const u32 row = row0 + j / kColumns, col = col0 + j % kColumns;
    if (col >= p.n) continue;
    Acc all[kEach] = {};
#pragma clang loop unroll(full)
    for (u32 w = 0; w < kWaves; ++w)
#pragma clang loop unroll(full)
      for (u32 e = 0; e < kEach; ++e) all[e] += parts[w * Height * kColumns + j + e];
    store_columns<kEach>(p, z, row, col, all);
  }
}

/// The same for groups of Height rows, one after another.
template <u32 Height, class P, class Acc, int Groups, int Tiles, int Count>
SDX_FN void add_up_groups(const P& p, void* lds, const Acc (&acc)[Groups][Tiles][Count], u32 z, u32 row0, u32 height,
                          u32 col0) {
#pragma clang loop unroll(full)
  for (u32 g = 0; g < Groups; ++g) {
    const u32 first = g * Height;
    if (g > 0) {
      if (first >= height) break;
      lds_barrier();  // the sums of the previous rows have been read
    }
    add_up_waves<Height>(p, lds, acc[g], z, row0 + first, height - first < Height ? height - first : Height, col0);
  }
}

/// The problem as a kernel uses it. A kernel that loads weights before the previous launch has ended has a copy, whose
/// pointers change then.
template <class P>
struct SkinnyProblem {
  using Type = const P&;
};
template <class P>
SDX_FN void begin_early(const P&) {}
template <class P>
SDX_FN void wait_early(bool, const P&, const P&) {}
#if defined(__NVPTX__)
template <class P>
  requires(P::kRowHeight == 0 && requires(const P& p) { p.after_launch(); })
struct SkinnyProblem<P> {
  using Type = P;
};
template <class P>
SDX_FN void begin_early(P&) {
  start_next_launch();
}
/// Waits for the previous launch, if `now`.
template <class P>
SDX_FN void wait_early(bool now, const P& early, P& p) {
  if (!now) return;
  wait_for_launch();
  p = early.after_launch();
}
#endif

}  // namespace skinny_detail

/// Replaces P::b_elements if b is quantised in blocks: dequantises eight elements from `at` (a multiple of 8) on.
template <class P>
SDX_FN void block_elements(const P& p, u32 z, u32 col, u32 at, typename P::T* x) {
  using namespace skinny_detail;
  using T = typename P::T;
  constexpr u32 kRun = 128 / P::kBits, kWords = P::kBits / 4;
  const u32 run = at / kRun * kRun;
  using word = __attribute__((address_space(1))) const u32;
  const auto* from = (word*)p.b_packed(z, col, run) + (at - run) / 8 * kWords;
  f32 scale, zero;
  p.b_block(z, col, run, scale, zero);
  vec16 y = dequantized<T, P::kBits, P::kSigned, P::kFloatZeros>(from[0], from[kWords - 1], scale, zero);
  if constexpr (P::kBits == 4) y = from_order(y);
  __builtin_memcpy(x, &y, 16);
}

/// Dequantises all of a b that is quantised in blocks, column by column (z is 0), for GEMMs of many rows. K: p.k.
/// Launch: threads for n * k / 8 / Each. A thread loads the weights of all its Each vectors before it stores any.
template <u32 K, u32 Each, class P, class T>
SDX_FN void unpack_columns(const P& p, T* to) {
  constexpr u32 kChunks = K / 8;
  const u64 count = u64(p.n) * kChunks, step = all_threads();
  for (u64 first = first_thread(); first < count; first += Each * step) {
    vec16 y[Each];
#pragma clang loop unroll(full)
    for (u32 e = 0; e < Each; ++e) {
      const u64 i = first + e * step < count ? first + e * step : first;
      T x[8];
      block_elements(p, 0, u32(i / kChunks), u32(i % kChunks) * 8, x);
      __builtin_memcpy(&y[e], x, 16);
    }
#pragma clang loop unroll(full)
    for (u32 e = 0; e < Each; ++e)
      if (first + e * step < count) *(vec16*)__builtin_assume_aligned(to + (first + e * step) * 8, 16) = y[e];
  }
}

/// Rows: 8, or a multiple of 16, per workgroup (with kRowHeight, that many). Each workgroup has Tiles * 16 columns, and
/// its waves divide K. Ahead: spans of K in flight at a time. Launch: ceil(m / Rows) * ceil(n / (Tiles * 16)) * batches
/// workgroups.
///
/// If weights are in memory before any launch (P::after_launch() exists, see stream.h), the first ones are loaded
/// before the previous launch has ended, and the next launch may begin as soon as there is room for its workgroups.
template <int Rows, int Tiles, int Ahead, class P>
SDX_FN void skinny(const P& early) {
  using namespace gemm_detail;
  using namespace skinny_detail;
  typename SkinnyProblem<P>::Type p = early;
  begin_early(p);
  using T = typename P::T;
  using M = Matrix<T>;
  using Acc = typename M::Acc;
  static_assert(sizeof(T) == 2 && M::kFamily != MatrixFamily::kVector);
  constexpr int kBits = P::kBits, kRun = 128 / kBits, kGroups = kRun / 8, kSlots = M::kA.rows, kPer = M::kA.vectors;
  // Vectors of eight elements that a lane loads of its columns, at least as many as an instruction takes.
  constexpr int kLoads = kGroups < kPer ? kPer : 1, kSteps = kGroups * kLoads / kPer;
  constexpr u32 kWaves = kThreads / kWave, kLane = kRun * kLoads, kSpan = kLane * M::kA.k_lanes;
  constexpr int kColumns = Tiles * 16;
  // NVIDIA's 16 x 16 product is two instructions of 8 columns; 8 rows need only one.
  constexpr int kRowSlots = Rows == 8 && M::kFamily == MatrixFamily::kMma ? 1 : M::kB.rows;
  constexpr int kRowGroups = Rows > 16 ? Rows / 16 : 1;
  static_assert(kRowGroups == 1 || (P::kRowHeight == 0 && Rows % 16 == 0));

  const u32 wave = uniform(thread_id() / kWave), lane = thread_id() % kWave;
  constexpr u32 kHeight = P::kRowHeight ? P::kRowHeight : Rows;
  const u32 tiles_n = (p.n + kColumns - 1) / kColumns, tiles_m = (p.m + kHeight - 1) / kHeight;
  const u32 id = block_id(), z = id / (tiles_m * tiles_n), rest = id % (tiles_m * tiles_n);
  const u32 row0 = rest / tiles_n * kHeight, height = p.m - row0 < kHeight ? p.m - row0 : kHeight,
            col0 = rest % tiles_n * kColumns;
  const u32 lane_k = lane / M::kA.k_divisor % M::kA.k_lanes * kLane;

  u32 cols[Tiles][kSlots], rows[kRowGroups][kRowSlots];
#pragma clang loop unroll(full)
  for (int t = 0; t < Tiles; ++t)
#pragma clang loop unroll(full)
    for (int s = 0; s < kSlots; ++s) {
      const u32 c = col0 + t * 16 + M::row_a(lane, s * kPer);
      cols[t][s] = c < p.n ? c : p.n - 1;
    }
#pragma clang loop unroll(full)
  for (int g = 0; g < kRowGroups; ++g)
#pragma clang loop unroll(full)
    for (int s = 0; s < kRowSlots; ++s) {
      const u32 r = g * 16 + M::row_b(lane, s * kPer);
      // Rows past m repeat the last one; their results are not stored.
      rows[g][s] = (P::kRowHeight ? 0 : row0) + (r < height ? r : height - 1);
    }
  constexpr u32 kGroupHeight = kRowGroups > 1 ? 16 : kHeight;
  constexpr int kParts = kWaves * kGroupHeight * kColumns / 4, kVectors = P::kRowHeight ? kRowBytes / 16 : 0;
  static SDX_SHARED vec16 lds[kParts > kVectors ? kParts : kVectors];
  // Loads a at this lane's vector v of a step, in the order of memory.
  constexpr bool kDirect = P::kRowHeight == 0 && P::kAccessA == Access::kVector;
  constexpr int kVectorsOfA = kRowSlots * kPer;
  auto k_of = [&](u32 span, int step, int v) { return span * kSpan + lane_k + (step * kPer + v % kPer) * 8; };
  // Converts it to an operand of the step.
  auto a_at = [&](u32 row, u32 k) {
    const bool inside = k < p.k;
    vec16 x = {};
    if constexpr (P::kRowHeight != 0) {
      x = lds[place_row(row, inside ? k / 8 : 0, p.k)];
    } else if constexpr (kDirect) {
      bool there = true;
      x = load16(p.a(z, row, inside ? k : 0, there));
    } else {
      T e[8] = {};
      if (inside) p.a_elements(z, row, k, e);
      __builtin_memcpy(&x, e, 16);
    }
    if (!inside) x = vec16{};
    if constexpr (kBits == 4 && P::kRowHeight == 0) x = in_order(x);
    return x;
  };

  Acc acc[kRowGroups][Tiles][M::kCount] = {};
  const u32 spans = (p.k + kSpan - 1) / kSpan;
  if constexpr (P::kRowHeight != 0) {
    fetch_weights_to_l2<Ahead>(p, z, cols, wave, lane_k, kSpan);
    make_rows<kBits == 4>(p, (shared_vec*)lds, z, row0, height);
  }
  wait_early(wave >= spans, early, p);  // without weights to load
  // All loads of a round are issued before any is used. (Issuing those of the next round as registers become free was
  // slower on an H200, by a third for float16.)
  for (u32 first = wave; first < spans; first += kWaves * Ahead) {
    vec16 held[Ahead][Tiles][kSlots][kLoads];
    f32 scale[Ahead][Tiles][kSlots], zero[Ahead][Tiles][kSlots];
#pragma clang loop unroll(full)
    for (int h = 0; h < Ahead; ++h) {
      const u32 k = (first + h * kWaves) * kSpan + lane_k;
#pragma clang loop unroll(full)
      for (int t = 0; t < Tiles; ++t)
#pragma clang loop unroll(full)
        for (int s = 0; s < kSlots; ++s) {
#pragma clang loop unroll(full)
          for (int l = 0; l < kLoads; ++l) {
            const bool there = k + l * kRun < p.k;
            const u32 at = there ? k + l * kRun : 0;
            if constexpr (kBits == 16) {
              bool inside = true;
              const vec16 y = load16(p.b(z, cols[t][s], at, inside));
              held[h][t][s][l] = there ? y : vec16{};
            } else {
              static_assert(kLoads == 1);
              held[h][t][s][l] = load16(p.b_packed(z, cols[t][s], at));
              p.b_block(z, cols[t][s], at, scale[h][t][s], zero[h][t][s]);
              if (!there) scale[h][t][s] = 0;
            }
          }
        }
    }
    wait_early(first == wave, early, p);
#pragma clang loop unroll(full)
    for (int h = 0; h < Ahead; ++h) {
      const u32 span = first + h * kWaves;
#pragma clang loop unroll(full)
      for (int step = 0; step < kSteps; ++step) {
        vec16 x[kRowGroups][M::kVectorsB] = {};
#pragma clang loop unroll(full)
        for (int g = 0; g < kRowGroups; ++g)
#pragma clang loop unroll(full)
          for (int v = 0; v < kVectorsOfA; ++v) x[g][v] = a_at(rows[g][v / kPer], k_of(span, step, v));
#pragma clang loop unroll(full)
        for (int t = 0; t < Tiles; ++t) {
          vec16 w[M::kVectorsA];
#pragma clang loop unroll(full)
          for (int v = 0; v < M::kVectorsA; ++v) {
            const int s = v / kPer, g = step * kPer + v % kPer;
            if constexpr (kBits == 16) {
              w[v] = held[h][t][s][g];
            } else {
              constexpr int kWords = kBits / 4;
              w[v] = dequantized<T, kBits, P::kSigned, P::kFloatZeros>(held[h][t][s][0][g * kWords],
                                                                       held[h][t][s][0][g * kWords + kWords - 1],
                                                                       scale[h][t][s], zero[h][t][s]);
            }
          }
#if defined(__NVPTX__)
          if constexpr (kRowSlots == 1) {
#pragma clang loop unroll(full)
            for (int q = 0; q < 2; ++q)
              detail::mma<T>(w[0][2 * q], w[1][2 * q], w[0][2 * q + 1], w[1][2 * q + 1], x[0][0][2 * q],
                             x[0][0][2 * q + 1], acc[0][t][0], acc[0][t][1], acc[0][t][2], acc[0][t][3]);
            continue;
          }
#endif
#pragma clang loop unroll(full)
          for (int g = 0; g < kRowGroups; ++g) M::mma(w, x[g], acc[g][t]);
        }
      }
    }
  }
  if constexpr (P::kRowHeight != 0) lds_barrier();  // the rows have been read
  add_up_groups<kGroupHeight>(p, lds, acc, z, row0, height, col0);
}

}  // namespace sdx
