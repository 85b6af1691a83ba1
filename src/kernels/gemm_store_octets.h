// How a warp stores the sums of Hopper's matrix instructions without shared memory: lanes exchange them until each has
// eight neighbouring columns of a row.
#pragma once
#include "gemm.h"

#if defined(__NVPTX__)
namespace sdx {
namespace gemm_detail {

/// Stores the results of eight neighbouring columns, if they lie within the output. They are computed in any case: a
/// branch around the computation would keep the compiler from overlapping that of several octets.
template <class P, class Acc, class Read>
SDX_FN void store_octet(const P& p, u32 z, u32 row, u32 col, const Acc (&x)[8], const Read (&reads)[8]) {
  using Out = typename P::Out;
  const bool inside = row < p.m && col < p.n;
  const u32 r = row < p.m ? row : p.m - 1, c = multiple<kRun>(col < p.n ? col : 0);
  const auto result = [&](int e, auto&... sines) {
    if constexpr (__is_same(Read, NothingRead))
      return p.result(z, r, c + e, x[e], sines...);
    else
      return p.result(z, r, c + e, x[e], reads[e], sines...);
  };
  struct alignas(sizeof(Out) * 8 < 16 ? sizeof(Out) * 8 : 16) Octet {
    u32 words[sizeof(Out) * 2];
  } octet;
  compute_results<P>([&](auto&... sines) {
    if constexpr (P::kWide) {
#pragma clang loop unroll(full)
      for (u32 k = 0; k < 2; ++k) {
        using Wide = decltype(result(0, sines...));
        const Wide four[4] = {result(4 * k, sines...), result(4 * k + 1, sines...), result(4 * k + 2, sines...),
                              result(4 * k + 3, sines...)};
        pack_wide<Out, P::kSaturates>(four, octet.words + k * sizeof(Out));
      }
    } else {
      struct {
        Out x[8];
      } y;
#pragma clang loop unroll(full)
      for (int e = 0; e < 8; ++e) y.x[e] = result(e, sines...);
      octet = __builtin_bit_cast(Octet, y);
    }
  });
#pragma clang loop unroll(full)
  for (u32 k = 0; k < sizeof(Out) * 2; ++k) asm volatile("" : "+r"(octet.words[k]));
  if (inside) *(Octet*)p.place(z, row, col) = octet;
}

/// Results of eight neighbouring columns.
template <class Out>
struct alignas(sizeof(Out) * 8) Octet {
  u32 words[sizeof(Out) * 2];
};

/// A lane has two neighbouring results of each of four groups of eight columns; groups of four lanes exchange them
/// until each lane has all eight of one group, or back. Size: bytes of a result.
template <int Size>
SDX_FN void exchange_octets(u32 (&words)[Size * 2]) {
  const u32 quarter = thread_id() % 4;
  const bool odd = quarter & 1, high = quarter & 2;
  u32 low_part[Size], high_part[Size];  // of groups 0 or 1, and 2 or 3: what this lane and its neighbour have
  if constexpr (Size == 2) {
    const u32 from_low = lane_xor(odd ? words[0] : words[1], 1), from_high = lane_xor(odd ? words[2] : words[3], 1);
    low_part[0] = odd ? from_low : words[0], low_part[1] = odd ? words[1] : from_low;
    high_part[0] = odd ? from_high : words[2], high_part[1] = odd ? words[3] : from_high;
  } else {
    // The halves that the other lane needs; then the bytes of the lower lane come first.
    const u32 theirs = lane_xor(__nvvm_prmt(words[0], words[1], odd ? 0x5410 : 0x7632), 1);
    low_part[0] = __nvvm_prmt(words[0], theirs, odd ? 0x3254 : 0x5410);
    high_part[0] = __nvvm_prmt(words[1], theirs, odd ? 0x3276 : 0x7610);
  }
#pragma clang loop unroll(full)
  for (int k = 0; k < Size; ++k) {
    const u32 theirs = lane_xor(high ? low_part[k] : high_part[k], 2);
    words[k] = high ? theirs : low_part[k];
    words[Size + k] = high ? high_part[k] : theirs;
  }
}

/// Whether store_packed_octets() stores the results.
template <class P>
inline constexpr bool kPacksOctets = P::kOctets && P::kWide && (!P::kReadsRows || P::kRowBytes);

#if defined(SDX_F8_CONVERT)
/// As store_octets(), for results whose epilogue reads nothing by rows, or bytes: they are exchanged when they are
/// rounded, which takes a quarter of the instructions for 8 bits, and half of them for 16. Bytes that are read are
/// exchanged in the other direction.
template <class P, int TN, class Acc>
SDX_FN void store_packed_octets(const P& p, const Acc (&acc)[TN][8], u32 z, u32 row, u32 col) {
  using Out = typename P::Out;
  using Read = typename ReadOf<P>::Type;
  constexpr bool kReads = !__is_same(Read, NothingRead);
  constexpr int kPart = TN % 4 == 0 ? 4 : 2, kSize = sizeof(Out);  // 16 columns, whose rows are read at a time
  const u32 lane = thread_id() % 32, quarter = lane % 4;
  u32 exponent = 0;
  if constexpr (P::kRowBytes) exponent = byte_exponent();
  // What is outside of the output is clamped for reading and not stored.
  const auto row_of = [&](int half) { return row + lane / 4 + half * 8; };
  const auto inside = [&](u32 r) { return r < p.m ? r : p.m - 1; };
  const auto column = [&](int j, int g) {
    const u32 c = col + j * 16 + g * 8;
    return multiple<2>((c < p.n ? c : 0) + quarter * 2);
  };
#pragma clang loop unroll(full)
  for (int h = 0; h < TN; h += kPart) {
    Octet<u8> held[P::kRowBytes ? kPart : 1];  // of two rows in turns
    if constexpr (P::kRowBytes)
#pragma clang loop unroll(full)
      for (int q = 0; q < kPart; ++q) {
        const u32 c = col + (h + q / 2 * 2) * 16 + quarter * 8;
        held[q] = *(const Octet<u8>*)p.row_bytes(z, inside(row_of(q % 2)), multiple<kRun>(c < p.n ? c : 0));
      }
#pragma clang loop unroll(full)
    for (int q = 0; q < kPart; ++q) {
      const int j = h + q / 2 * 2, half = q % 2;
      const u32 out_row = row_of(half), r = inside(out_row);
      if constexpr (P::kRowBytes) exchange_octets<1>(held[q].words);
      const auto result = [&](int g, int c, auto&... sines) {
        const Acc sum = acc[j + g / 2][g % 2 * 4 + half * 2 + c];
        if constexpr (!kReads) {
          return p.result(z, r, column(j, g) + c, sum, sines...);
        } else {
          Read reads;
          if constexpr (P::kRowBytes)
            p.read_columns(z, r, column(j, g) + c, held[q].words[g / 2], g % 2 * 2 + c, exponent, reads);
          else
            p.read(z, r, column(j, g) + c, reads);
          return p.result(z, r, column(j, g) + c, sum, reads, sines...);
        }
      };
      Octet<Out> octet;
      compute_results<P>([&](auto&... sines) {
        using Wide = decltype(result(0, 0, sines...));
#pragma clang loop unroll(full)
        for (int g = 0; g < 4; g += 2) {
          const Wide four[4] = {result(g, 0, sines...), result(g, 1, sines...), result(g + 1, 0, sines...),
                                result(g + 1, 1, sines...)};
          pack_wide<Out, P::kSaturates>(four, octet.words + g / 2 * kSize);
        }
      });
      exchange_octets<kSize>(octet.words);
#pragma clang loop unroll(full)
      for (int k = 0; k < kSize * 2; ++k) asm volatile("" : "+r"(octet.words[k]));
      const u32 out_col = multiple<kRun>(col + j * 16 + quarter * 8);
      if (out_row < p.m && out_col < p.n) *(Octet<Out>*)p.place(z, out_row, out_col) = octet;
    }
  }
}
#endif

/// For bytes of which each lane computes one of a pair of columns: of 32 columns, a lane's four results are exchanged
/// with those of three other lanes until each has four neighbouring ones.
template <class P, int TN, class Acc>
SDX_FN void store_byte_pairs(const P& p, const Acc (&acc)[TN][8], u32 z, u32 row, u32 col) {
  using Out = typename P::Out;
  static_assert(sizeof(Out) == 1 && TN % 2 == 0);
  const u32 lane = thread_id() % 32, quarter = lane % 4;
  const bool odd = quarter & 1, high = quarter & 2;
#pragma clang loop unroll(full)
  for (int j = 0; j < TN; j += 2)
#pragma clang loop unroll(full)
    for (int half = 0; half < 2; ++half) {
      const u32 out_row = row + lane / 4 + half * 8, r = out_row < p.m ? out_row : p.m - 1;
      const auto result = [&](int g) {
        const u32 c = col + j * 16 + g * 8;
        const Acc* own = &acc[j + g / 2][g % 2 * 4 + half * 2];
        return p.paired(z, r, (c < p.n ? c : 0) / 2 + quarter, own[0], own[1]);  // outside: not stored
      };
      using Wide = decltype(result(0));
      const Wide four[4] = {result(0), result(1), result(2), result(3)};
      u32 word;
      pack_wide<Out, P::kSaturates>(four, &word);
      word = __nvvm_prmt(word, lane_xor(word, 2), high ? 0x3276 : 0x5410);
      word = __nvvm_prmt(word, lane_xor(word, 1), odd ? 0x3715 : 0x6240);
      const u32 c = col + j * 16 + quarter * 8;
      if (out_row < p.m && c < p.n) *(u32*)p.place(z, out_row, multiple<4>(c / 2)) = word;
    }
}

/// Passes a wave's sums of 16 rows to P::element, if n is a multiple of 8. A lane has two columns of every eight;
/// groups of four lanes exchange them until each lane has eight neighbouring columns, which it stores at once. Going
/// through shared memory (store_acc()) takes several times as many accesses.
template <class P, int TN, class Acc>
SDX_FN void store_octets(const P& p, const Acc (&acc)[TN][8], u32 z, u32 row, u32 col) {
  static_assert(P::kFullColumns && TN % 2 == 0);
  if constexpr (kPacksOctets<P>) {
    store_packed_octets(p, acc, z, row, col);
    return;
  }
  if constexpr (P::kPairOctets) {
    store_byte_pairs(p, acc, z, row, col);
    return;
  }
  constexpr int kPart = TN % 4 == 0 ? 4 : 2, kRounds = kPart;  // 16 columns; of two rows, eight columns each
  using Read = typename ReadOf<P>::Type;
  constexpr bool kReads = !__is_same(Read, NothingRead);
  const u32 lane = thread_id() % 32, quarter = lane % 4;
  const bool odd = quarter & 1, high = quarter & 2;
#pragma clang loop unroll(full)
  for (int h = 0; h < TN; h += kPart) {
    const auto row_of = [&](int round) { return row + lane / 4 + round % 2 * 8; };
    const auto col_of = [&](int round) { return col + (h + round / 2 * 2) * 16 + quarter * 8; };
    Read reads[kReads ? kRounds : 1][kRun];
    if constexpr (kReads) {
      // Results outside of the output are clamped for reading and not stored.
#pragma clang loop unroll(full)
      for (int round = 0; round < kRounds; ++round) {
        const u32 r = row_of(round), c = col_of(round);
        const u32 in_row = r < p.m ? r : p.m - 1, in_col = multiple<kRun>(c < p.n ? c : 0);
#pragma clang loop unroll(full)
        for (int e = 0; e < kRun; ++e) p.read(z, in_row, in_col + e, reads[round][e]);
      }
    }
#pragma clang loop unroll(full)
    for (int round = 0; round < kRounds; ++round) {
      const int j = h + round / 2 * 2, half = round % 2;
      // Columns from 8 g on: pairs of lanes combine to four columns of every second eight, then pairs of pairs to a
      // whole eight.
      const auto own = [&](int g, int c) { return acc[j + g / 2][g % 2 * 4 + half * 2 + c]; };
      Acc fours[2][4], x[kRun];
#pragma clang loop unroll(full)
      for (int g = 0; g < 2; ++g)
#pragma clang loop unroll(full)
        for (int c = 0; c < 2; ++c) {
          const Acc theirs = from_lane_xor(odd ? own(2 * g, c) : own(2 * g + 1, c), 1);
          fours[g][c] = odd ? theirs : own(2 * g, c);
          fours[g][2 + c] = odd ? own(2 * g + 1, c) : theirs;
        }
#pragma clang loop unroll(full)
      for (int c = 0; c < 4; ++c) {
        const Acc theirs = from_lane_xor(high ? fours[0][c] : fours[1][c], 2);
        x[c] = high ? theirs : fours[0][c];
        x[4 + c] = high ? fours[1][c] : theirs;
      }
      const u32 out_row = row_of(round), out_col = multiple<kRun>(col_of(round));
      if constexpr (P::kOctets) {
        store_octet(p, z, out_row, out_col, x, reads[kReads ? round : 0]);
        continue;
      }
      if (out_row >= p.m || out_col >= p.n) continue;
      if constexpr (kReads) {
#pragma clang loop unroll(full)
        for (int e = 0; e < kRun; ++e) p.element(z, out_row, out_col + e, x[e], reads[round][e]);
      } else {
        store_columns<kRun>(p, z, out_row, out_col, x);
      }
    }
  }
}

}  // namespace gemm_detail
}  // namespace sdx
#endif
