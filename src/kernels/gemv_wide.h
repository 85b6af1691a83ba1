// GEMM of one to four rows (decoding with a language model) on AMD's vector units, with weights of 32, 16, 8 or 4 bits:
// out[z, row, col] = epilogue(sum over k of a[z, row, k] * b[z, col, k]). Reading b is the bottleneck, so a wave has
// the weights of many columns in flight at a time, 16 contiguous bytes a lane, and loads its part of a once for all of
// them. Weights of 4 and 8 bits are multiplied as integers minus their zero point; the scale multiplies the sum of a
// block, so weights are not rounded to 16 bits. What skinny.h requires of P holds here too. Operands may be expressions
// (Access::kElements); those in memory whose rows are not a multiple of a vector (kRowsA, kRowsB of gemm_problem.h) are
// loaded as vectors too.
#pragma once
#include "skinny.h"

#if defined(__AMDGCN__)
namespace sdx {
namespace gemv_detail {

/// Adds up Columns values of each lane over the 16 lanes of a row (AMDGPU ISA: a quarter or half of a wave). x[i] then
/// is the sum of column 4 i + lane % 4. The first two steps exchange halves of the columns, so that they need half the
/// additions each.
template <int Columns>
SDX_FN void add_row_lanes(f32 (&x)[Columns], u32 lane) {
  static_assert(Columns % 4 == 0);
  const bool odd = (lane & 1) != 0, high = (lane & 2) != 0;
#pragma clang loop unroll(full)
  for (int i = 0; i < Columns / 2; ++i) {
    const f32 keep = odd ? x[2 * i + 1] : x[2 * i], give = odd ? x[2 * i] : x[2 * i + 1];
    x[i] = keep + from_lanes<0xb1>(give);  // quad_perm 1 0 3 2
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < Columns / 4; ++i) {
    const f32 keep = high ? x[2 * i + 1] : x[2 * i], give = high ? x[2 * i] : x[2 * i + 1];
    x[i] = keep + from_lanes<0x4e>(give);  // quad_perm 2 3 0 1
    x[i] += from_lanes<0x128>(x[i]);       // row_ror:8
    x[i] += from_lanes<0x124>(x[i]);       // row_ror:4
  }
}

/// Adds up the sums of the rows of 16 lanes and of the Shares waves of each team, and passes them to P. sums[r][i] of a
/// lane belongs to row r of a and column 4 i + lane % 4. `parts`: LDS for one sum of each row of lanes.
template <int Slices, int Columns, class P, int Rows, int Held>
SDX_FN void add_up_rows(const P& p, gemm_detail::shared_f32* parts, const f32 (&acc)[Rows][Held], u32 z, u32 row0,
                        u32 height, u32 first_col) {
  constexpr u32 kRowsOfLanes = kWave / 16, kColumns = Columns * (kThreads / kWave / Slices);
  const u32 wave = uniform(thread_id() / kWave), lane = thread_id() % kWave;
#pragma clang loop unroll(full)
  for (int r = 0; r < Rows; ++r) {
    if (lane % 16 < 4)
#pragma clang loop unroll(full)
      for (int i = 0; i < Columns / 4; ++i)
        parts[((wave * kRowsOfLanes + lane / 16) * Rows + r) * Columns + 4 * i + lane % 4] = acc[r][i];
  }
  lds_barrier();
  constexpr u32 kEach = P::kPairs ? 2 : 1;
  for (u32 j = thread_id() * kEach; j < height * kColumns; j += kThreads * kEach) {
    const u32 row = j / kColumns, column = j % kColumns, col = first_col + column;
    if (col >= p.n) continue;
    f32 all[kEach] = {};
#pragma clang loop unroll(full)
    for (u32 w = 0; w < Slices * kRowsOfLanes; ++w)
#pragma clang loop unroll(full)
      for (u32 e = 0; e < kEach; ++e)
        all[e] += parts[((column / Columns * Slices * kRowsOfLanes + w) * Rows + row) * Columns + column % Columns + e];
    gemm_detail::store_columns<kEach>(p, z, row0 + row, col, all);
  }
}

/// The same address of all lanes, in scalar registers: loads add an offset of 32 bits to it, which the compiler would
/// otherwise add to the address of every load first.
template <class T>
SDX_FN const T* scalar_address(const T* p) {
  const u64 at = u64(p);
  return (const T*)(u64(uniform(u32(at))) | u64(uniform(u32(at >> 32))) << 32);
}
/// 16 bytes at an address that is aligned to an element of 16 bits or more.
SDX_FN vec16 load_row(const void* row, u32 byte) {
  typedef u32 loose __attribute__((ext_vector_type(4), aligned(2)));
  return *(__attribute__((address_space(1))) const loose*)((const char*)row + byte);
}

/// Adds up the sums of the lanes and of the Shares waves of each team, and passes them to P.
template <int Slices, class P, int Rows, int Columns>
SDX_FN void add_up_lanes(const P& p, gemm_detail::shared_f32* parts, f32 (&acc)[Rows][Columns], u32 z, u32 row0,
                         u32 height, u32 first_col) {
#pragma clang loop unroll(full)
  for (int r = 0; r < Rows; ++r) add_row_lanes<Columns>(acc[r], thread_id() % kWave);
  add_up_rows<Slices, Columns>(p, parts, acc, z, row0, height, first_col);
}

/// Elements 4 j to 4 j + 3, as floats, of the eight elements of `Bits` bits in q0 and, with 8 bits, q1.
template <int Bits, bool Signed>
SDX_FN void eight_floats(u32 q0, u32 q1, f32 (&x)[8]) {
  if constexpr (Bits == 8 && Signed) {
#pragma clang loop unroll(full)
    for (int j = 0; j < 8; ++j) x[j] = f32(i8((j < 4 ? q0 : q1) >> (8 * (j % 4))));
  } else {
    const u32 even = Bits == 4 ? q0 & 0x0f0f0f0fu : q0, odd = Bits == 4 ? q0 >> 4 & 0x0f0f0f0fu : q1;
#pragma clang loop unroll(full)
    for (int j = 0; j < 4; ++j) {
      x[Bits == 4 ? 2 * j : j] = f32(u8(even >> (8 * j)));
      x[Bits == 4 ? 2 * j + 1 : j + 4] = f32(u8(odd >> (8 * j)));
    }
  }
}

/// P without the check whether elements lie within K, for vectors that do.
template <class P>
SDX_FN P without_end(P p) {
  p.k = ~u32(0);
  return p;
}
/// 16 bytes of a along K from k on, all of them inside of K.
template <class P>
SDX_FN vec16 load_a(const P& p, u32 z, u32 row, u32 k) {
  using T = typename P::T;
  bool inside = true;
  vec16 x;
  if constexpr (P::kAccessA == Access::kVector) {
    // Addresses as a uniform base and an offset of 32 bits take a tenth of the instructions.
    if constexpr (P::kLinearA && !P::kMaskedA)
      x = gemm_detail::load16((const char*)scalar_address(p.a(z, row, 0, inside)) + k * u32(sizeof(T)));
    else
      x = gemm_detail::load16(p.a(z, row, k, inside));
  } else if constexpr (P::kRowsA) {
    x = load_row(scalar_address(p.a_row(z, row)), k * u32(sizeof(T)));
  } else {
    T e[16 / sizeof(T)] = {};
    without_end(p).a_elements(z, row, k, e);
    __builtin_memcpy(&x, e, 16);
  }
  return inside ? x : vec16{};
}
/// The same for b, if it is not quantised.
template <class P>
SDX_FN vec16 load_b(const P& p, u32 z, u32 col, u32 k) {
  using T = typename P::T;
  bool inside = true;
  vec16 x;
  if constexpr (P::kAccessB == Access::kVector) {
    if constexpr (P::kLinearB && !P::kMaskedB)
      x = gemm_detail::load16((const char*)scalar_address(p.b(z, col, 0, inside)) + k * u32(sizeof(T)));
    else
      x = gemm_detail::load16(p.b(z, col, k, inside));
  } else if constexpr (P::kRowsB) {
    x = load_row(scalar_address(p.b_row(z, col)), k * u32(sizeof(T)));
  } else {
    T e[16 / sizeof(T)] = {};
    without_end(p).b_elements(z, col, k, e);
    __builtin_memcpy(&x, e, 16);
  }
  return inside ? x : vec16{};
}
/// Elements of 16 bits as floats; returns their sum.
template <class T, int Groups>
SDX_FN f32 to_floats(const vec16 (&x)[Groups], f32 (&floats)[Groups][8]) {
  f32 total = 0;
#pragma clang loop unroll(full)
  for (int g = 0; g < Groups; ++g) {
    T e[8];
    __builtin_memcpy(e, &x[g], 16);
#pragma clang loop unroll(full)
    for (int j = 0; j < 8; ++j) {
      floats[g][j] = cast<f32>(e[j]);
      total += floats[g][j];
    }
  }
  return total;
}

}  // namespace gemv_detail

/// Each team of Shares waves computes Columns columns of up to Rows rows (with kRowHeight, that many); its waves and
/// their lanes divide K. Launch: ceil(m / Rows) * ceil(n / (Columns * 256 / kWave / Shares)) * batches workgroups.
template <int Rows, int Columns, int Slices, class P>
SDX_FN void gemv_wide(const P& p) {
  using namespace gemm_detail;
  using namespace gemv_detail;
  using namespace skinny_detail;
  using T = typename P::T;
  constexpr bool kQuantized = P::kBits < 16;
  constexpr int kVec = 16 / int(sizeof(T)), kBits = kQuantized ? P::kBits : 128 / kVec;
  static_assert(kVec <= 8 && P::kAccessA != Access::kAcross && (kQuantized || P::kAccessB != Access::kAcross));
  static_assert(P::kRowHeight == 0 || (P::kRowHeight == Rows && kVec == 8));
  constexpr int kRun = 128 / kBits, kGroups = kRun / kVec, kWords = kBits / 4;  // elements of 16 bytes of b
  // Whether K may end within a vector. The last one then overlaps with the one before, so that every load is inside.
  constexpr bool kPartial = !kQuantized && P::kAccessB == Access::kElements;
  constexpr bool kOrdered = kBits == 4 && is_same<T, f16>;  // of a, as integers are extracted
  constexpr u32 kWaves = kThreads / kWave, kTeams = kWaves / Slices, kColumns = Columns * kTeams;
  constexpr u32 kSpan = kRun * kWave, kStride = kSpan * Slices;
  const u32 wave = uniform(thread_id() / kWave), lane = thread_id() % kWave;
  const u32 team = wave / Slices, slice = wave % Slices;
  const u32 tiles_n = (p.n + kColumns - 1) / kColumns, tiles_m = (p.m + Rows - 1) / Rows;
  u32 z = 0, tile_m = 0, tile_n = block_id();
  if (p.batches > 1 || tiles_m > 1) {  // divisions take as long as the product of a short row
    z = tile_n / (tiles_m * tiles_n);
    tile_n %= tiles_m * tiles_n;
    tile_m = tile_n / tiles_n;
    tile_n %= tiles_n;
  }
  const u32 row0 = tile_m * Rows, height = p.m - row0 < Rows ? p.m - row0 : Rows;
  const u32 first_col = tile_n * kColumns, col0 = first_col + team * Columns;

  constexpr int kRowsOfLanes = kWave / 16, kSumVectors = (kWaves * kRowsOfLanes * Rows * Columns + 3) / 4;
  constexpr int kMadeVectors = P::kRowHeight ? kRowBytes / 16 : 0;
  static SDX_SHARED vec16 lds[kSumVectors > kMadeVectors ? kSumVectors : kMadeVectors];
  if constexpr (P::kRowHeight != 0) make_rows<kOrdered>(p, (shared_vec*)lds, z, row0, height);

  // Columns past n repeat others. If n is a multiple of eight, whole groups do.
  const auto column = [&](u32 c) {
    constexpr u32 kGroup = P::kFullColumns ? (Columns < 8 ? Columns : 8) : 1;
    const u32 group = col0 + c / kGroup * kGroup;
    return (group < p.n ? group : p.n - kGroup) + c % kGroup;
  };
  f32 acc[Rows][Columns] = {};
  // One vector of 16 bytes of each column. Masked: lanes past the end of K add nothing.
  const auto round = [&](u32 first, auto masked) {
    constexpr bool kMasked = decltype(masked)::value;
    const bool there = !kMasked || first + lane * kRun < p.k;
    u32 k = there ? first + lane * kRun : 0;
    const u32 counted = k;  // elements before are another lane's
    if constexpr (kMasked && kPartial) k = k + kVec <= p.k ? k : p.k - kVec;
    __builtin_assume(k < u32(1) << 31);
    const auto mask = [&](vec16 v) {
      if constexpr (kMasked && kPartial) {
        struct Elements {
          unsigned_of<T> e[kVec];
        };
        Elements x = bit_cast<Elements>(v);
#pragma clang loop unroll(full)
        for (u32 j = 0; j < kVec; ++j) x.e[j] = there && k + j >= counted ? x.e[j] : unsigned_of<T>(0);
        return bit_cast<vec16>(x);
      } else {
        return !kMasked || there ? v : vec16{};
      }
    };
    vec16 x[Rows][kGroups], w[Columns];
    f32 scale[Columns], zero[Columns];
#pragma clang loop unroll(full)
    for (int r = 0; r < Rows; ++r)
#pragma clang loop unroll(full)
      for (int g = 0; g < kGroups; ++g) {
        const u32 row = u32(r) < height ? u32(r) : height - 1;
        if constexpr (P::kRowHeight != 0)
          x[r][g] = lds[place_row(row, k / 8 + g, p.k)];
        else
          x[r][g] = load_a(p, z, row0 + row, k + g * kVec);
      }
#pragma clang loop unroll(full)
    for (int c = 0; c < Columns; ++c) {
      const u32 col = column(c);
      if constexpr (!kQuantized) {
        w[c] = load_b(p, z, col, k);
      } else {
        if constexpr (P::kLinearPacked)
          w[c] = load16(scalar_address(p.b_packed(z, col, 0)) + k / 8 * kBits);
        else
          w[c] = load16(p.b_packed(z, col, k));
        p.b_block(z, col, k, scale[c], zero[c]);
      }
    }
    loads_in_flight();
    if constexpr (kMasked) {
#pragma clang loop unroll(full)
      for (int r = 0; r < Rows; ++r)
#pragma clang loop unroll(full)
        for (int g = 0; g < kGroups; ++g) x[r][g] = mask(x[r][g]);
    }
    if constexpr (kOrdered && P::kRowHeight == 0) {
#pragma clang loop unroll(full)
      for (int r = 0; r < Rows; ++r)
#pragma clang loop unroll(full)
        for (int g = 0; g < kGroups; ++g) x[r][g] = in_order(x[r][g]);
    }
    if constexpr (!kQuantized) {
#pragma clang loop unroll(full)
      for (int c = 0; c < Columns; ++c) {
        const vec16 y = mask(w[c]);  // 0 times an infinite weight
#pragma clang loop unroll(full)
        for (int r = 0; r < Rows; ++r) acc[r][c] = detail::dot16<T>(x[r][0], y, acc[r][c]);
      }
    } else {
      // With bfloat16, weights and operands are converted to float32, and the zero point multiplies the sum of the
      // operands.
      constexpr bool kFloats = !is_same<T, f16>;
      f32 floats[kFloats ? Rows : 1][kGroups][8], total[Rows] = {};
      if constexpr (kFloats)
#pragma clang loop unroll(full)
        for (int r = 0; r < Rows; ++r) total[r] = to_floats<T>(x[r], floats[r]);
#pragma clang loop unroll(full)
      for (int c = 0; c < Columns; ++c) {
        f32 block[Rows] = {};
#pragma clang loop unroll(full)
        for (int g = 0; g < kGroups; ++g) {
          const u32 q0 = w[c][g * kWords], q1 = w[c][g * kWords + kWords - 1];
          if constexpr (kFloats) {
            f32 y[8];
            eight_floats<kBits, P::kSigned>(q0, q1, y);
#pragma clang loop unroll(full)
            for (int r = 0; r < Rows; ++r)
#pragma clang loop unroll(full)
              for (int j = 0; j < 8; ++j) block[r] = fma(floats[r][g][j], y[j], block[r]);
          } else {
            const vec16 y = dequantized<T, kBits, P::kSigned, P::kFloatZeros>(q0, q1, 1.0f, zero[c]);
#pragma clang loop unroll(full)
            for (int r = 0; r < Rows; ++r) block[r] = detail::dot16<T>(x[r][g], y, block[r]);
          }
        }
        const f32 s = kMasked && !there ? 0.0f : scale[c];
#pragma clang loop unroll(full)
        for (int r = 0; r < Rows; ++r)
          acc[r][c] = fma(kFloats ? fma(-zero[c], total[r], block[r]) : block[r], s, acc[r][c]);
      }
    }
  };
  u32 first = slice * kSpan;
  for (; first + kSpan <= p.k; first += kStride) round(first, Flag<false>{});
  if (first < p.k) round(first, Flag<true>{});

  if constexpr (P::kRowHeight != 0) lds_barrier();  // the rows have been read
  add_up_lanes<Slices>(p, (shared_f32*)lds, acc, z, row0, height, first_col);
}

}  // namespace sdx
#endif
