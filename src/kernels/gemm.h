// Contractions: out[z, row, col] = epilogue(sum over k of a[z, row, k] * b[z, col, k]), which matrix products and
// convolutions (as implicit gemm) are. gemm<> gives each workgroup a tile of BM rows by BN columns; gemv<> is for few
// rows.
//
// What a and b are and what becomes of a sum comes from a generated struct P, derived from Problem<>:
//   const T* a(z, row, k, bool& inside)  of Access::kVector: 16 bytes along k are read there; kAcross: 16 bytes along
//   rows.
//                                        Where `inside` becomes false elements are 0, but the pointer is read all the
//                                        same.
//   void a_elements(z, row, k, T* x)     kElements: computes the elements at k and the 16 / sizeof(T) - 1 behind it,
//   with
//                                        zeros from P::k on
//   b, b_elements                        likewise, with columns instead of rows
//   void element(z, row, col, sum)       stores one result
//   i64 a_step(), b_step()               elements from one K to the next, where kLinearA, kLinearB
// and, if an epilogue reads tensors, what they have there, so that many such reads are under way at a time:
//   struct Read                          of one result
//   void read(z, row, col, Read& r)
//   void element(z, row, col, sum, r)
//   void pair(z, row, j, sum, next)      with P::kPairs instead: what columns 2 j and 2 j + 1 make together
// Pointers of kVector and kAcross are multiples of 16 bytes; there k (kAcross: and the rows) is a multiple of a vector.
#pragma once
#include "layout_gemm.h"
#include "matrix.h"

namespace sdx {

enum class Access { kVector, kAcross, kElements };

/// Element is the type of the products (matrix.h). FullColumns: n is a multiple of 8. The rest is for skinny.h.
template <class Element, Access A, Access B, bool FullColumns, int Bits = 16, bool Signed = false,
          bool FloatZeros = false, bool Pairs = false, int RowHeight = 0>
struct Problem {
  using T = Element;
  static constexpr int kBits = Bits;
  static constexpr bool kSigned = Signed, kFloatZeros = FloatZeros;
  static constexpr Access kAccessA = A, kAccessB = B;
  static constexpr bool kFullColumns = FullColumns, kPairs = Pairs;
  static constexpr int kRowHeight = RowHeight;
  /// Of kVector and kAcross: a() makes `inside` false somewhere; a's address moves by a_step() elements with each K.
  static constexpr bool kMaskedA = true, kMaskedB = true, kLinearA = false, kLinearB = false;
  u32 batches, m, n, k;
};

/// Tile sizes. A workgroup has WM x WN x WK waves; those along WK divide the K of a tile among them. kRow: bytes of K
/// in a tile. kStages: tiles in LDS. With one, the next tile waits in registers until all waves have read the present
/// one: half the LDS for one more barrier a step.
template <int BM, int BN, int WM, int WN, int WK, int Row, int Stages>
struct Tiling {
  static constexpr int kM = BM, kN = BN, kWavesM = WM, kWavesN = WN, kWavesK = WK, kRow = Row, kStages = Stages;
  static constexpr int kThreads = WM * WN * WK * int(kWave);
};

#if defined(__NVPTX__)
inline constexpr bool kAsyncCopies = true;
#else
inline constexpr bool kAsyncCopies = false;
#endif

namespace gemm_detail {

using shared_vec = __attribute__((address_space(3))) vec16;
using shared_f32 = __attribute__((address_space(3))) f32;
using global_vec = __attribute__((address_space(1))) const vec16;

#if defined(__NVPTX__)
SDX_FN void copy_async(u32 to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"((__attribute__((address_space(1))) const void*)from), "r"(inside ? 16 : 0)
               : "memory");
}
SDX_FN void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
SDX_FN void wait_copies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory");
}
SDX_FN void wave_barrier() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
#else
SDX_FN void commit_copies() {}
template <int N>
SDX_FN void wait_copies() {}
SDX_FN void wave_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
#endif

SDX_FN vec16 load16(const void* p) { return *(global_vec*)p; }

template <bool Value>
struct Flag {
  static constexpr bool value = Value;
};

/// Where chunk `chunk` (16 bytes) of row `row` lies, in chunks. Rows of 4 or more chunks, so placed that eight rows
/// read at one chunk use all banks once.
template <int Chunks>
SDX_FN u32 place(u32 row, u32 chunk) {
  if constexpr (Chunks >= 8)
    return row * Chunks + (chunk ^ (row & 7));
  else
    return row * Chunks + (chunk ^ (row / 2 & 3));
}

/// One operand's part of a tile on its way from global memory to LDS: Rows rows of Chunks chunks of 16 bytes.
template <class P, bool IsA, int Rows, int Chunks, int Threads>
struct Loader {
  using T = typename P::T;
  static constexpr int V = 16 / sizeof(T);
  static constexpr Access kAccess = IsA ? P::kAccessA : P::kAccessB;
  static constexpr bool kAsync = kAsyncCopies && kAccess == Access::kVector;
  // Elements that lie outside of what p.k says (a convolution's padding).
  static constexpr bool kMasked = IsA ? P::kMaskedA : P::kMaskedB;
  // The address moves by the same distance with each K, so that a step only adds to it.
  static constexpr bool kLinear =
      !kAsyncCopies && !kMasked && kAccess != Access::kElements && (IsA ? P::kLinearA : P::kLinearB);
  static constexpr int kBlock = kAccess == Access::kAcross ? V : 1;  // rows that one item covers
  static constexpr int kItems = Rows / kBlock * Chunks, kRounds = (kItems + Threads - 1) / Threads;
  static constexpr u32 kDepth = Chunks * V;  // K of a tile
  // What was loaded stays untouched until finish(): an instruction that uses it, a mask too, would wait for memory
  // before the matrix instructions of the step.
  vec16 held[kAsync ? 1 : kRounds * kBlock];
  bool valid[kAsync ? 1 : kRounds * kBlock];
  const T* next[kLinear ? kRounds : 1];  // of the step to come
  i64 step;                              // elements from one K to the next

  static SDX_FN const T* at(const P& p, u32 z, u32 row, u32 k, bool& inside) {
    if constexpr (IsA)
      return p.a(z, row, k, inside);
    else
      return p.b(z, row, k, inside);
  }
  static SDX_FN bool exists(u32 item) { return kItems % Threads == 0 || item < kItems; }
  // The first row, and the chunk, of an item. kAcross: neighbouring lanes load neighbouring rows.
  static SDX_FN u32 row_of(u32 item) {
    return kAccess == Access::kAcross ? item % (Rows / kBlock) * kBlock : item / Chunks;
  }
  static SDX_FN u32 chunk_of(u32 item) { return kAccess == Access::kAcross ? item / (Rows / kBlock) : item % Chunks; }
  // Rows beyond the end are read elsewhere: nobody stores what becomes of them.
  static SDX_FN u32 clamped(const P& p, u32 row) {
    const u32 extent = IsA ? p.m : p.n;
    return row < extent ? row : kAccess == Access::kAcross ? 0 : extent - 1;
  }

  /// Says that the loads to come begin at k0.
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
        next[j] = at(p, z, clamped(p, first + (exists(item) ? row_of(item) : 0)), 0, inside) +
                  (k0 + chunk_of(item) * V) * step;
      }
    }
  }

  /// Loads a tile. Full: all of its K exist, and with kLinear it is the one that follows the one before it.
  template <bool Full>
  SDX_FN void begin(const P& p, shared_vec* to, u32 z, u32 first, u32 k0) {
#pragma clang loop unroll(full)
    for (int j = 0; j < kRounds; ++j) {
      const u32 item = thread_id() + j * Threads;
      if (!exists(item)) break;
      const u32 r = row_of(item), c = chunk_of(item), k = k0 + c * V;
      if constexpr (kAccess == Access::kElements) {
        T x[V] = {};
        if (first + r < (IsA ? p.m : p.n) && k < p.k) {
          if constexpr (IsA)
            p.a_elements(z, first + r, k, x);
          else
            p.b_elements(z, first + r, k, x);
        }
        __builtin_memcpy(&held[j], x, 16);
        valid[j] = true;
      } else if constexpr (kLinear && Full) {
#pragma clang loop unroll(full)
        for (int e = 0; e < kBlock; ++e) held[j * kBlock + e] = load16(next[j] + e * step);
        next[j] += kDepth * step;
      } else {
#pragma clang loop unroll(full)
        for (int e = 0; e < kBlock; ++e) {
          bool inside = Full || k < p.k;
          const T* from = at(p, z, clamped(p, first + r), Full || k < p.k ? k + e : 0, inside);
          if constexpr (kAsync) {
#if defined(__NVPTX__)
            copy_async(u32(u64((__attribute__((address_space(3))) void*)(to + place<Chunks>(r, c)))), from, inside);
#endif
          } else {
            held[j * kBlock + e] = load16(from);
            valid[j * kBlock + e] = inside;
          }
        }
      }
    }
  }

  template <bool Full>
  SDX_FN vec16 masked(int j) const {
    if constexpr (kAccess == Access::kElements || (Full && !kMasked))
      return held[j];
    else
      return valid[j] ? held[j] : vec16{};
  }

  /// Stores what begin<Full>() loaded.
  template <bool Full>
  SDX_FN void finish(shared_vec* to) const {
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
            const vec16 y = masked<Full>(j * V + e);
            __builtin_memcpy(in.x[e], &y, 16);
          }
#pragma clang loop unroll(full)
          for (int i = 0; i < V; ++i) {
            T line[V];
#pragma clang loop unroll(full)
            for (int e = 0; e < V; ++e) line[e] = in.x[e][i];
            vec16 y;
            __builtin_memcpy(&y, line, 16);
            to[place<Chunks>(r + i, c)] = y;
          }
        } else {
          to[place<Chunks>(r, c)] = masked<Full>(j);
        }
      }
    }
  }
};

/// Which tile a workgroup takes: tiles that share rows or columns are near one another in time, for the caches' sake.
SDX_FN void choose_tile(u32 id, u32 batches, u32 tiles_m, u32 tiles_n, u32& z, u32& tile_m, u32& tile_n) {
  constexpr u32 kGroup = 8;
  const u32 per_batch = tiles_m * tiles_n;
  if (tiles_n == 1 && batches == 1) {  // divisions cost as much as a short sum
    z = tile_n = 0;
    tile_m = id;
    return;
  }
  z = id / per_batch;
  id %= per_batch;
  const u32 group = id / (kGroup * tiles_n), first = group * kGroup;
  const u32 size = tiles_m - first < kGroup ? tiles_m - first : kGroup;
  const u32 in_group = id - group * kGroup * tiles_n;
  tile_m = first + in_group % size;
  tile_n = in_group / size;
}

struct NothingRead {};
template <class P>
struct ReadOf {
  using Type = NothingRead;
};
template <class P>
  requires requires { typename P::Read; }
struct ReadOf<P> {
  using Type = typename P::Read;
};

/// Columns that one thread stores at a time, where their number is a multiple of it.
inline constexpr int kRun = 8;

/// A multiple of Width, as which the compiler then knows it: without, it may lose that on its way to where it decides
/// whether elements side by side are read and stored at once.
template <int Width>
SDX_FN u32 multiple(u32 x) {
#if defined(__NVPTX__)
  if constexpr (Width > 1) {
    u32 part = x / Width;
    asm("" : "+r"(part));
    x = part * Width;
  }
#endif
  return x;
}

/// Hands sums of columns side by side, of which the first is even, to P.
template <int N, class P, class Sum>
SDX_FN void store_columns(const P& p, u32 z, u32 row, u32 col, const Sum* x) {
#pragma clang loop unroll(full)
  for (int e = 0; e < N; e += P::kPairs ? 2 : 1) {
    if constexpr (P::kPairs)
      p.pair(z, row, (col + e) / 2, x[e], x[e + 1]);
    else
      p.element(z, row, col + e, x[e]);
  }
}

/// Hands a wave's sums to P::element, in rows rather than as matrix instructions leave them, by way of LDS: 16 rows by
/// up to 64 columns at a time. `row` and `col`: of the wave's first sum. Waves with the same `slot` add up their sums.
template <class P, int TM, int TN, int Slots, int Shares, class Sums>
SDX_FN void store_sums(const P& p, Sums& sums, shared_f32* stage, u32 z, u32 row, u32 col, u32 slot, u32 share) {
  using M = Matrix<typename P::T>;
  using Sum = typename M::Sum;
  constexpr int kPart = TN < 4 ? TN : 4, kPitch = kPart * 16 + 4, kSize = 16 * kPitch;
  static_assert(TN % kPart == 0);
  auto* mine = (__attribute__((address_space(3))) Sum*)stage + (share * Slots + slot) * kSize;
  auto* all = (__attribute__((address_space(3))) Sum*)stage + slot * kSize;
  const u32 lane = thread_id() % kWave;
#pragma clang loop unroll(full)
  for (int i = 0; i < TM; ++i)
#pragma clang loop unroll(full)
    for (int h = 0; h < TN; h += kPart) {
      // Whole runs of columns become stores of 16 bytes; where rows are not aligned, lanes side by side take one column
      // each, or one pair.
      constexpr int kWidth = P::kFullColumns ? kRun : P::kPairs ? 2 : 1;
      constexpr int kRuns = 16 * kPart * 16 / kWidth, kLanes = int(kWave) * Shares;
      constexpr int kRounds = (kRuns + kLanes - 1) / kLanes;
      const auto place_of = [&](int q, u32& r, u32& c) {
        const u32 run = share * kWave + lane + q * kLanes;
        r = run / (kPart * 16 / kWidth);
        c = run % (kPart * 16 / kWidth) * kWidth;
      };
      using Read = typename ReadOf<P>::Type;
      constexpr bool kReads = !__is_same(Read, NothingRead);
      Read reads[kReads ? kRounds : 1][kWidth];
      if constexpr (kReads) {
      // What lies outside is read elsewhere, and then left alone.
#pragma clang loop unroll(full)
        for (int q = 0; q < kRounds; ++q) {
          u32 r, c;
          place_of(q, r, c);
          const u32 out_row = row + i * 16 + r, out_col = col + h * 16 + c;
          const u32 in_row = out_row < p.m ? out_row : p.m - 1, in_col = multiple<kWidth>(out_col < p.n ? out_col : 0);
#pragma clang loop unroll(full)
          for (int e = 0; e < kWidth; ++e) p.read(z, in_row, in_col + e, reads[q][e]);
        }
      }
#pragma clang loop unroll(full)
      for (int j = 0; j < kPart; ++j)
#pragma clang loop unroll(full)
        for (int e = 0; e < M::kCount; ++e)
          mine[M::sum_row(lane, e) * kPitch + j * 16 + M::sum_col(lane, e)] = sums[i][h + j][e];
      if constexpr (Shares > 1)
        lds_barrier();
      else
        wave_barrier();
#pragma clang loop unroll(full)
      for (int q = 0; q < kRounds; ++q) {
        u32 r, c;
        place_of(q, r, c);
        if (kRuns % kLanes != 0 && r >= 16) break;
        Sum x[kWidth];
#pragma clang loop unroll(full)
        for (int e = 0; e < kWidth; ++e) {
          x[e] = all[r * kPitch + c + e];
#pragma clang loop unroll(full)
          for (int s = 1; s < Shares; ++s) x[e] += all[s * Slots * kSize + r * kPitch + c + e];
        }
        const u32 out_row = row + i * 16 + r, out_col = multiple<kWidth>(col + h * 16 + c);
        if (out_row >= p.m || out_col >= p.n) continue;
        if constexpr (kReads) {
#pragma clang loop unroll(full)
          for (int e = 0; e < kWidth; ++e) p.element(z, out_row, out_col + e, x[e], reads[q][e]);
        } else {
          store_columns<kWidth>(p, z, out_row, out_col, x);
        }
      }
      if constexpr (Shares > 1)
        lds_barrier();
      else
        wave_barrier();
    }
}

template <class Tile, class T>
struct Sizes {
  static constexpr int kChunks = Tile::kRow / 16, kStage = (Tile::kM + Tile::kN) * kChunks;  // in vectors of 16 bytes
  static constexpr int kTilesN = Tile::kN / 16 / Tile::kWavesN, kPart = kTilesN < 4 ? kTilesN : 4;
  static constexpr int kStore = Tile::kWavesM * Tile::kWavesN * Tile::kWavesK * 16 * (kPart * 16 + 4) / 4;
  static constexpr int kVectors = kStage * Tile::kStages > kStore ? kStage* Tile::kStages : kStore;
};

}  // namespace gemm_detail

/// The problem of a workgroup that has only a part of the k's: its sums go to memory, for gemm_finish() to add up. They
/// lie as the output would, those of one share behind those of another.
template <class P>
struct Partial : P {
  static constexpr bool kPairs = false;
  using Sum = typename Matrix<typename P::T>::Sum;
  using Read = gemm_detail::NothingRead;  // the epilogue comes later
  Sum* __restrict parts;
  u32 share, shares;
  SDX_FN void element(u32 z, u32 row, u32 col, Sum sum) const {
    parts[((share * this->batches + z) * this->m + row) * this->n + col] = sum;
  }
};

namespace gemm_detail {

template <class P>
SDX_FN u32 shares_of(const P&) {
  return 1;
}
template <class P>
SDX_FN u32 shares_of(const Partial<P>& p) {
  return p.shares;
}
template <class P>
SDX_FN u32 share_of(const P&) {
  return 0;
}
template <class P>
SDX_FN u32 share_of(const Partial<P>& p) {
  return p.share;
}

}  // namespace gemm_detail

/// Calls f with the problem of this workgroup when `shares` workgroups share the k's of each tile. `parts` has room for
/// shares * batches * m * n sums, fewer than 2^32.
template <class P, class F>
SDX_FN void share_k(const P& p, void* parts, u32 shares, F f) {
  using Sum = typename Matrix<typename P::T>::Sum;
  static_assert(sizeof(Sum) == 4);  // as whoever makes room for them counts
  f(Partial<P>{p, (Sum*)__builtin_assume_aligned(parts, 16), block_id() % shares, shares});
}

/// Adds up the shares' sums in the order of the shares and hands them on to P::element, kFinish columns a thread.
/// Launch: enough workgroups of kThreads threads for batches * m * ceil(n / kFinish).
inline constexpr u32 kFinish = layout::kFinishColumns;
template <class P>
SDX_FN void gemm_finish(const P& p, const void* memory, u32 shares) {
  using Sum = typename Matrix<typename P::T>::Sum;
  const auto* parts = (const Sum*)__builtin_assume_aligned(memory, 16);
  const u32 runs = (p.n + kFinish - 1) / kFinish, size = p.batches * p.m * p.n;
  const u32 run = block_id() * kThreads + thread_id();
  if (run >= p.batches * p.m * runs) return;
  const u32 line = run / runs, col = run % runs * kFinish, z = line / p.m, row = line % p.m;
  Sum x[kFinish] = {};
  const bool whole = P::kFullColumns || (col + kFinish <= p.n && p.n % kFinish == 0);
  for (u32 s = 0; s < shares; ++s) {
    const Sum* from = parts + s * size + line * p.n + col;
    if (whole) {
      const vec16 v = gemm_detail::load16(from);
      Sum y[kFinish];
      __builtin_memcpy(y, &v, 16);
#pragma clang loop unroll(full)
      for (u32 e = 0; e < kFinish; ++e) x[e] += y[e];
    } else {
#pragma clang loop unroll(full)
      for (u32 e = 0; e < kFinish; ++e)
        if (col + e < p.n) x[e] += from[e];
    }
  }
  if (whole) {
    gemm_detail::store_columns<kFinish>(p, z, row, col, x);
  } else {
    constexpr u32 kEach = P::kPairs ? 2 : 1;
#pragma clang loop unroll(full)
    for (u32 e = 0; e < kFinish; e += kEach)
      if (col + e < p.n) gemm_detail::store_columns<kEach>(p, z, row, col + e, x + e);
  }
}

/// Launch: ceil(m / BM) * ceil(n / BN) * batches workgroups of Tile::kThreads threads, and for a Partial problem
/// `shares` times as many.
template <class Tile, class P>
SDX_FN void gemm(const P& p) {
  using namespace gemm_detail;
  using T = typename P::T;
  using M = Matrix<T>;
  using S = Sizes<Tile, T>;
  constexpr int kChunks = S::kChunks, kK = Tile::kRow / int(sizeof(T)), kSteps = kK / M::kStep;
  static_assert(kK % M::kStep == 0 && kSteps % Tile::kWavesK == 0, "a wave has nothing to do");
  constexpr int TM = Tile::kM / 16 / Tile::kWavesM, TN = Tile::kN / 16 / Tile::kWavesN;
  static SDX_SHARED vec16 lds[S::kVectors];

  const u32 wave = uniform(thread_id() / kWave), lane = thread_id() % kWave;
  const u32 wave_k = wave / (Tile::kWavesM * Tile::kWavesN), wave_mn = wave % (Tile::kWavesM * Tile::kWavesN);
  const u32 wave_m = wave_mn / Tile::kWavesN, wave_n = wave_mn % Tile::kWavesN;
  u32 z, tile_m, tile_n;
  const u32 shares = shares_of(p);
  choose_tile(block_id() / shares, p.batches, (p.m + Tile::kM - 1) / Tile::kM, (p.n + Tile::kN - 1) / Tile::kN, z,
              tile_m, tile_n);
  const u32 first_row = tile_m * Tile::kM, first_col = tile_n * Tile::kN;

  typename M::Sum sums[TM][TN][M::kCount] = {};
  Loader<P, true, Tile::kM, kChunks, Tile::kThreads> a;
  Loader<P, false, Tile::kN, kChunks, Tile::kThreads> b;
  auto stage_a = [&](u32 t) { return (shared_vec*)lds + t % Tile::kStages * S::kStage; };
  auto stage_b = [&](u32 t) { return stage_a(t) + Tile::kM * kChunks; };
  const u32 steps = (p.k + kK - 1) / kK, from = steps * share_of(p) / shares;
  const u32 count = steps * (share_of(p) + 1) / shares - from;
  constexpr u32 kAhead = Tile::kStages > 1 ? Tile::kStages - 1 : 1;  // tiles loaded before the first step
  // The last tile of the K, which may be a part of one, comes first: all that the loop loads are whole.
  const auto first_k = [&](u32 t) { return (t == 0 ? from + count - 1 : from + t - 1) * kK; };
  a.start(p, z, first_row, from * kK);
  b.start(p, z, first_col, from * kK);
#pragma clang loop unroll(full)
  for (u32 t = 0; t < kAhead; ++t) {
    if (t < count) {
      const auto load = [&](auto full) {
        a.template begin<full.value>(p, stage_a(t), z, first_row, first_k(t));
        b.template begin<full.value>(p, stage_b(t), z, first_col, first_k(t));
        a.template finish<full.value>(stage_a(t));
        b.template finish<full.value>(stage_b(t));
      };
      if (t == 0)
        load(Flag<false>{});
      else
        load(Flag<true>{});
    }
    commit_copies();
  }
  for (u32 t = 0; t < count; ++t) {
    wait_copies<int(kAhead) - 1>();
    lds_barrier();
    const u32 next = t + kAhead;
    if (next < count) {
      a.template begin<true>(p, stage_a(next), z, first_row, first_k(next));
      b.template begin<true>(p, stage_b(next), z, first_col, first_k(next));
    }
    commit_copies();
    const shared_vec *from_a = stage_a(t), *from_b = stage_b(t);
    // Vector arithmetic has so much to do a step that more steps at a time only cost registers.
    constexpr int kTogether = M::kFamily == MatrixFamily::kVector ? 1 : kSteps;
#pragma unroll kTogether
    for (int s = 0; s < kSteps / Tile::kWavesK; ++s) {
      const u32 chunk = (s * Tile::kWavesK + wave_k) * (M::kStep / M::kVec);
      vec16 y[TN][M::kVectorsB];
#pragma clang loop unroll(full)
      for (int j = 0; j < TN; ++j)
#pragma clang loop unroll(full)
        for (int v = 0; v < M::kVectorsB; ++v)
          y[j][v] = from_b[place<kChunks>((wave_n * TN + j) * 16 + M::row_b(lane, v), chunk + M::chunk(lane, v))];
#pragma clang loop unroll(full)
      for (int i = 0; i < TM; ++i) {
        vec16 x[M::kVectorsA];
#pragma clang loop unroll(full)
        for (int v = 0; v < M::kVectorsA; ++v)
          x[v] = from_a[place<kChunks>((wave_m * TM + i) * 16 + M::row_a(lane, v), chunk + M::chunk(lane, v))];
#pragma clang loop unroll(full)
        for (int j = 0; j < TN; ++j) M::product(x, y[j], sums[i][j]);
      }
    }
    if constexpr (Tile::kStages == 1) lds_barrier();
    if (next < count) {
      a.template finish<true>(stage_a(next));
      b.template finish<true>(stage_b(next));
    }
  }
  wait_copies<0>();
  lds_barrier();
  store_sums<P, TM, TN, Tile::kWavesM * Tile::kWavesN, Tile::kWavesK>(
      p, sums, (shared_f32*)lds, z, first_row + wave_m * TM * 16, first_col + wave_n * TN * 16, wave_mn, wave_k);
}

/// For few rows: each wave has Columns columns of up to Rows rows; lanes share the k's. With Waves > 1 that many waves
/// of a workgroup share them too. Launch: ceil(m / Rows) * ceil(n / (Columns * 256 / kWave / Waves)) * batches
/// workgroups.
template <int Rows, int Columns, int Waves, class P>
SDX_FN void gemv(const P& p) {
  using namespace gemm_detail;
  using T = typename P::T;
  using M = Matrix<T>;
  using Sum = typename M::Sum;
  constexpr u32 V = M::kVec, kWaves = kThreads / kWave, kGroups = kWaves / Waves, kColumns = Columns * kGroups;
  static_assert(P::kAccessA != Access::kAcross && P::kAccessB != Access::kAcross && (!P::kPairs || Columns % 2 == 0));
  const u32 wave = uniform(thread_id() / kWave), lane = thread_id() % kWave;
  const u32 group = wave / Waves, share = wave % Waves;
  const u32 tiles_n = (p.n + kColumns - 1) / kColumns, tiles_m = (p.m + Rows - 1) / Rows;
  const u32 id = block_id(), z = id / (tiles_m * tiles_n), rest = id % (tiles_m * tiles_n);
  const u32 row = rest / tiles_n * Rows, col = (rest % tiles_n * kGroups + group) * Columns;

  auto fetch = [&](bool is_a, u32 at, u32 extent, u32 k) {
    vec16 x = {};
    if (is_a ? P::kAccessA == Access::kVector : P::kAccessB == Access::kVector) {
      bool inside = at < extent && k < p.k;
      const u32 r = at < extent ? at : extent - 1, c = k < p.k ? k : 0;
      const T* from = nullptr;
      if constexpr (P::kAccessA == Access::kVector)
        if (is_a) from = p.a(z, r, c, inside);
      if constexpr (P::kAccessB == Access::kVector)
        if (!is_a) from = p.b(z, r, c, inside);
      const vec16 y = load16(from);
      x = inside ? y : vec16{};
    } else if (at < extent && k < p.k) {
      T e[V] = {};
      if constexpr (P::kAccessA == Access::kElements)
        if (is_a) p.a_elements(z, at, k, e);
      if constexpr (P::kAccessB == Access::kElements)
        if (!is_a) p.b_elements(z, at, k, e);
      __builtin_memcpy(&x, e, 16);
    }
    return x;
  };
  Sum sums[Rows][Columns] = {};
  constexpr u32 kStride = V * kWave * Waves;
  constexpr int kAhead = Columns * Rows <= 4 ? 4 / Columns : 1;  // vectors on their way
  for (u32 k = (share * kWave + lane) * V; k < p.k; k += kStride * kAhead) {
    vec16 y[kAhead][Columns], x[kAhead][Rows];
#pragma clang loop unroll(full)
    for (int h = 0; h < kAhead; ++h) {
#pragma clang loop unroll(full)
      for (int c = 0; c < Columns; ++c) y[h][c] = fetch(false, col + c, p.n, k + h * kStride);
#pragma clang loop unroll(full)
      for (int r = 0; r < Rows; ++r) x[h][r] = fetch(true, row + r, p.m, k + h * kStride);
    }
#pragma clang loop unroll(full)
    for (int h = 0; h < kAhead; ++h)
#pragma clang loop unroll(full)
      for (int c = 0; c < Columns; ++c)
#pragma clang loop unroll(full)
        for (int r = 0; r < Rows; ++r) {
          if constexpr (is_int<T>)
            sums[r][c] = detail::dot16_int(x[h][r], y[h][c], sums[r][c]);
          else
            sums[r][c] = detail::dot16<T>(x[h][r], y[h][c], sums[r][c]);
        }
  }
#pragma clang loop unroll(full)
  for (int r = 0; r < Rows; ++r)
#pragma clang loop unroll(full)
    for (int c = 0; c < Columns; ++c)
#pragma clang loop unroll(full)
      for (u32 d = kWave / 2; d > 0; d /= 2) sums[r][c] += from_lane_xor(sums[r][c], d);
  if constexpr (Waves > 1) {
    static SDX_SHARED Sum parts[kWaves * Rows * Columns];
    if (lane == 0)
#pragma clang loop unroll(full)
      for (int r = 0; r < Rows; ++r)
#pragma clang loop unroll(full)
        for (int c = 0; c < Columns; ++c) parts[(wave * Rows + r) * Columns + c] = sums[r][c];
    lds_barrier();
#pragma clang loop unroll(full)
    for (int r = 0; r < Rows; ++r)
#pragma clang loop unroll(full)
      for (int c = 0; c < Columns; ++c) {
        Sum all = 0;
#pragma clang loop unroll(full)
        for (int w = 0; w < Waves; ++w) all += parts[((group * Waves + w) * Rows + r) * Columns + c];
        sums[r][c] = all;
      }
  }
  // Lane i stores result i.
  if (share != 0) return;
  constexpr int kEach = P::kPairs ? 2 : 1;
#pragma clang loop unroll(full)
  for (int r = 0; r < Rows; ++r)
#pragma clang loop unroll(full)
    for (int c = 0; c < Columns; c += kEach)
      if (lane == u32(r * Columns + c) && row + r < p.m && col + c < p.n)
        store_columns<kEach>(p, z, row + r, col + c, &sums[r][c]);
}

}  // namespace sdx
