// Copies an operand's tile from global memory to LDS.
#pragma once
#include "gemm_problem.h"

namespace sdx {
namespace gemm_detail {

template <int N, class T>
SDX_FN bool loads_packs(const T* p) {
  return kPackAlignment<T, N> == sizeof(T) || u64(p) % kPackAlignment<T, N> == 0;
}
template <int N, class T>
SDX_FN void copy_pack(const T* from, T* x) {
  const Pack<T, N> all = load_pack<N>(from);
  __builtin_memcpy(x, &all, sizeof all);
}
/// The first `count` > 0 of V elements that follow one another in memory, in packs where there are as many.
template <int V, class T>
SDX_FN void load_part(const T* from, u32 count, T* x) {
  constexpr int N = V < 4 ? V : 4;
  if (count >= u32(V) && loads_packs<V>(from)) return copy_pack<V>(from, x);
  const bool packs = loads_packs<N>(from);
#pragma clang loop unroll(full)
  for (int first = 0; first < V; first += N) {
    if (packs && u32(first + N) <= count) {
      copy_pack<N>(from + first, x + first);
      continue;
    }
#pragma clang loop unroll(full)
    for (int e = first; e < first + N; ++e)
      if (u32(e) < count) x[e] = from[e];
  }
}

/// Position in LDS, in chunks of 16 bytes, of chunk `chunk` of row `row`. Rows have at least 4 chunks, swizzled so that
/// eight rows read at the same chunk use each bank once; on CDNA, where Access::kAcross writes them, also eight rows
/// that are 8 apart. Except in that case, all tiles of a wave are read from one address and constant offsets.
template <int Chunks, Access A>
SDX_FN u32 place(u32 row, u32 chunk) {
  const u32 swizzle = Chunks >= 8 ? row & 7 : row / 2 & 3;
#if defined(__GFX9__)  // RDNA's tiles have no registers left for more addresses
  const u32 apart = A == Access::kAcross ? row / 8 & 7 : 0;
  if constexpr (Chunks >= 8)
    return row * Chunks + (chunk ^ swizzle ^ apart);
  else  // two rows a line
    return row / 2 * 8 + (((row & 1) * 4 + chunk) ^ swizzle ^ apart);
#else
  return row * Chunks + (chunk ^ swizzle);
#endif
}

/// The row in LDS of row r, where a lane has sums of `Run` neighbouring columns (TransposedAcc in gemm_store.h): the
/// matrix instruction gives it 4 of each of Run / 4 tiles.
template <int Run>
SDX_FN u32 turned_row(u32 r) {
  if constexpr (Run <= 4) return r;
  constexpr u32 kTiles = Run / 4;
  return r / (16 * kTiles) * (16 * kTiles) + r / 4 % kTiles * 16 + r / Run % 4 * 4 + r % 4;
}

/// Loads one operand's tile from global memory to LDS: Rows rows of Chunks chunks of 16 bytes. Run: see turned_row().
template <class P, bool IsA, int Rows, int Chunks, int Threads, int Run = 0>
struct Loader {
  using T = typename P::T;
  static constexpr int V = 16 / sizeof(T);
  static constexpr Access kAccess = IsA ? P::kAccessA : P::kAccessB;
  static constexpr bool kAsync = kAsyncCopies && kAccess == Access::kVector;
  // a() or b() may mark elements as outside (a convolution's padding).
  static constexpr bool kMasked = IsA ? P::kMaskedA : P::kMaskedB;
  // The address advances by a constant with K, so that each step only adds to it.
  static constexpr bool kLinear =
      !kAsyncCopies && !kMasked && kAccess != Access::kElements && (IsA ? P::kLinearA : P::kLinearB);
  static constexpr int kBlock = kAccess == Access::kAcross ? V : 1;  // rows that one item covers
  static constexpr int kItems = Rows / kBlock * Chunks, kRounds = (kItems + Threads - 1) / Threads;
  static constexpr u32 kDepth = Chunks * V;  // K of a tile
  // A tile lies within one run, so that what depends on K is the same for all threads.
  static constexpr u32 kRun = IsA ? P::kRunA : P::kRunB;
  static constexpr bool kInRun = !kAsyncCopies && kAccess == Access::kVector && kRun > 0 && kRun % kDepth == 0;
  // Threads without an item in the last round would need a branch, which the compiler moves no instruction across: they
  // load the last row again, to rows past the tile.
  static constexpr bool kPadded = !kAsyncCopies && kAccess == Access::kVector && Threads % Chunks == 0;
  static constexpr int kSpace = kPadded ? kRounds * Threads : Rows * Chunks;  // in LDS, in chunks
  // The range check of buffer loads masks what is outside.
  static constexpr bool kBuffer = IsA && P::kBufferA;
  // Loaded registers must not be used before finish(): even a mask would wait for memory before the matrix instructions
  // of the step.
  static constexpr bool kShort = IsA && P::kShortA;
  struct Held {
    select_type<kShort, Words3, vec16> x[kAsync ? 1 : kRounds * kBlock];
    bool valid[kAsync ? 1 : kRounds * kBlock];
  };
  const T* next[kLinear ? kRounds : 1];  // addresses for the next step
  i64 step;                              // elements from one K to the next

  static SDX_FN const T* at(const P& p, u32 z, u32 row, u32 k, bool& inside) {
    if constexpr (IsA)
      return p.a(z, row, k, inside);
    else
      return p.b(z, row, k, inside);
  }
  static SDX_FN const T* row_at(const P& p, u32 z, u32 row) {
    if constexpr (IsA)
      return p.a_row(z, row);
    else
      return p.b_row(z, row);
  }
  static SDX_FN bool exists(u32 item) { return kPadded || kItems % Threads == 0 || item < kItems; }
  // First row, and chunk, of an item. kAcross: neighbouring lanes load neighbouring rows.
  static SDX_FN u32 row_of(u32 item) {
    return kAccess == Access::kAcross ? item % (Rows / kBlock) * kBlock : item / Chunks;
  }
  // Of item thread + j * Threads: the sum in parts, so that rounds share everything but a constant.
  static SDX_FN u32 row_of(u32 thread, int j) {
    return kAsync && Threads % Chunks == 0 ? thread / Chunks + j * (Threads / Chunks) : row_of(thread + j * Threads);
  }
  static SDX_FN u32 chunk_of(u32 thread, int j) {
    return kAsync && Threads % Chunks == 0 ? thread % Chunks : chunk_of(thread + j * Threads);
  }
  static SDX_FN u32 chunk_of(u32 item) { return kAccess == Access::kAcross ? item / (Rows / kBlock) : item % Chunks; }
  // Rows past the end are clamped to a valid one: their results are not stored.
  static SDX_FN u32 clamped(const P& p, u32 first, u32 r) {
    const u32 extent = IsA ? p.m : p.n;
    const u32 row = first + (kPadded && kItems % Threads != 0 && r >= u32(Rows) ? u32(Rows) - 1 : r);
    if constexpr (!IsA && P::kWholeN) return row;
    return row < extent ? row : kAccess == Access::kAcross ? 0 : extent - 1;
  }

  /// Sets the K from which the next loads start.
  SDX_FN void start(const P& p, u32 z, u32 first, u32 k0) {
    if constexpr (kLinear) {
      if constexpr (IsA)
        step = p.a_step();
      else
        step = p.b_step();
#pragma clang loop unroll(full)
      for (int j = 0; j < kRounds; ++j) {
        const u32 item = thread_id() + j * Threads;
        bool inside = true;
        next[j] =
            at(p, z, clamped(p, first, exists(item) ? row_of(item) : 0), 0, inside) + (k0 + chunk_of(item) * V) * step;
      }
    }
  }

  /// Starts loading a tile. Full: the tile lies completely within K and, with kLinear, follows the previous one. Not
  /// `more`: with kLinear, the next call loads this tile again.
  template <bool Full>
  SDX_FN void begin(const P& p, Held& held, shared_vec* to, u32 z, u32 first, u32 k0, bool more = true) {
#pragma clang loop unroll(full)
    for (int j = 0; j < kRounds; ++j) {
      const u32 item = thread_id() + j * Threads;
      if (!exists(item)) break;
      const u32 r = row_of(thread_id(), j), c = chunk_of(thread_id(), j), k = k0 + c * V;
      if constexpr (kAccess == Access::kElements) {
        T x[V] = {};
        if (first + r < (IsA ? p.m : p.n) && k < p.k) {
          if constexpr (IsA ? P::kRowsA : P::kRowsB)
            load_part<V>(row_at(p, z, first + r) + k, p.k - k, x);
          else if constexpr (IsA)
            p.a_elements(z, first + r, k, x);
          else
            p.b_elements(z, first + r, k, x);
        }
        __builtin_memcpy(&held.x[j], x, 16);
        held.valid[j] = true;
      } else if constexpr (kLinear && Full) {
#pragma clang loop unroll(full)
        for (int e = 0; e < kBlock; ++e) load(held.x[j * kBlock + e], next[j] + e * step);
        next[j] += more ? kDepth * step : 0;
      } else {
#pragma clang loop unroll(full)
        for (int e = 0; e < kBlock; ++e) {
          bool inside = Full || kInRun || P::kWholeK || k < p.k;
#if defined(__AMDGCN__)
          if constexpr (kBuffer) {
            const u32 at = kInRun
                               ? p.a_offset(z, clamped(p, first, r), k0, inside) + c * V
                               : p.a_offset(z, clamped(p, first, r), Full || P::kWholeK || k < p.k ? k + e : 0, inside);
            load(held.x[j * kBlock + e], p.a_base(), inside ? at * u32(sizeof(T)) : kOutside);
            continue;
          }
#endif
          const T* from = kInRun ? at(p, z, clamped(p, first, r), k0, inside) + c * V
                                 : at(p, z, clamped(p, first, r), Full || P::kWholeK || k < p.k ? k + e : 0, inside);
          if constexpr (kAsync) {
            // A copy of no bytes reads nothing. If rows were clamped, all would read the same row, and contend for it
            // in the L2 cache: 196 rows in tiles of 64 took 3.9 us on an H200, not 2.9.
            inside = inside && first + r < (IsA ? p.m : p.n);
#if defined(__NVPTX__)
            copy_async(u32(u64((__attribute__((address_space(3))) void*)(to + place<Chunks, kAccess>(r, c)))), from,
                       inside);
#endif
          } else {
            load(held.x[j * kBlock + e], from);
            held.valid[j * kBlock + e] = inside;
          }
        }
      }
    }
  }

  template <bool Full>
  static SDX_FN vec16 masked(const Held& held, int j) {
    if constexpr (kAccess == Access::kElements || kBuffer || ((Full || kInRun || P::kWholeK) && !kMasked))
      return whole(held.x[j]);
    else
      return held.valid[j] ? whole(held.x[j]) : vec16{};
  }

  /// Stores to LDS what begin<Full>() loaded.
  template <bool Full>
  static SDX_FN void finish(const Held& held, shared_vec* to) {
    if constexpr (!kAsync) {
#pragma clang loop unroll(full)
      for (int j = 0; j < kRounds; ++j) {
        const u32 item = thread_id() + j * Threads;
        if (!exists(item)) break;
        const u32 r = row_of(item), c = chunk_of(item);
        if constexpr (kAccess == Access::kAcross) {
          struct Block {
            T x[V][V];
          } in;
#pragma clang loop unroll(full)
          for (int e = 0; e < V; ++e) {
            const vec16 y = masked<Full>(held, j * V + e);
            __builtin_memcpy(in.x[e], &y, 16);
          }
#pragma clang loop unroll(full)
          for (int i = 0; i < V; ++i) {
            T line[V];
#pragma clang loop unroll(full)
            for (int e = 0; e < V; ++e) line[e] = in.x[e][i];
            vec16 y;
            __builtin_memcpy(&y, line, 16);
            to[place<Chunks, kAccess>(turned_row<Run>(r + i), c)] = y;
          }
        } else {
          to[place<Chunks, kAccess>(turned_row<Run>(r), c)] = masked<Full>(held, j);
        }
      }
    }
  }
};

}  // namespace gemm_detail
}  // namespace sdx
