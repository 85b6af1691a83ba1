// What a GEMM computes, and how its work is divided: out[z, row, col] = epilogue(sum over k of a[z, row, k] * b[z, col,
// k]). Convolutions are implicit GEMMs.
//
// A generated struct P, derived from Problem<>, defines how a and b are loaded and what is done with a sum:
//   const T* a(z, row, k, bool& inside)  Access::kVector: address of 16 bytes along k; kAcross: of 16 bytes along
//                                        rows. If it sets `inside` to false the elements are 0, but the address is
//                                        read nevertheless.
//   void a_elements(z, row, k, T* x)     kElements: computes 16 / sizeof(T) elements from k on; zeros past P::k
//   const T* a_row(z, row)               kElements, where kRowsA: element 0 of the row, whose elements along k follow
//   b, b_elements, b_row                 likewise, with columns instead of rows
//   void element(z, row, col, sum)       stores one result
//   i64 a_step(), b_step()               elements from one k to the next, where kLinearA, kLinearB
//   const T* a_base()                    kBufferA: with u32 a_offset(z, row, k, bool& inside) the address in two parts
// If the epilogue reads tensors, P also has these, so that many reads are in flight at a time:
//   struct Read                          what the epilogue of one result reads
//   void read(z, row, col, Read& r)
//   void element(z, row, col, sum, r)
// With P::kReadsOctets, all of it is contiguous for eight columns from a multiple of eight on:
//   void read_octet(z, row, col, Read (&r)[8])
// With P::kPairs, columns 2 j and 2 j + 1 together give one result:
//   void pair(z, row, j, sum, next)
// With P::kPairOctets, eight of these from a multiple of eight on are contiguous bytes, aligned to 8:
//   Out* place(z, row, j)
//   auto paired(z, row, j, sum, next)    what pack_wide<Out, P::kSaturates>() makes an Out of
// With P::kOctets, eight columns from a multiple of eight on are contiguous in memory, aligned to their size or 16
// bytes:
//   Out* place(z, row, col)              where the result goes
//   auto result(z, row, col, sum[, r][, sines])   an Out; with P::kWide what pack_wide<Out, P::kSaturates>() makes it
//   of
// With P::kGroups, each row belongs to one z only, and the rows of one z follow one another:
//   u32 end_of(z)                        where they end, at most m; the last z also has the rows after its end
// With P::kRowBytes, the only thing that the epilogue reads by rows is bytes, contiguous and aligned as octets:
//   const u8* row_bytes(z, row, col)     where they are
//   void read_columns(z, row, col, word, place, exponent, Read& r)
//                                        as read(), with this byte of a word, for result(); exponent: see byte_number()
// Addresses of kVector and kAcross are aligned to 16 bytes; k (and with kAcross the number of rows) is a multiple of a
// vector.
#pragma once
#include "layout_gemm.h"
#include "matrix.h"
#include "unroll.h"

namespace sdx {

enum class Access { kVector, kAcross, kElements };

/// Element is the type of the operands (matrix.h). FullColumns: n is a multiple of 8. The other parameters are for
/// skinny.h.
template <class Element, Access A, Access B, bool FullColumns, int Bits = 16, bool Signed = false,
          bool FloatZeros = false, bool Pairs = false, int RowHeight = 0>
struct Problem {
  using T = Element;
  static constexpr int kBits = Bits;
  static constexpr bool kSigned = Signed, kFloatZeros = FloatZeros;
  static constexpr Access kAccessA = A, kAccessB = B;
  static constexpr bool kFullColumns = FullColumns, kPairs = Pairs;
  static constexpr int kRowHeight = RowHeight;
  /// For kVector and kAcross. kMasked: a() or b() may set `inside` to false. kLinear: addresses advance by a_step() or
  /// b_step() elements per K.
  static constexpr bool kMaskedA = true, kMaskedB = true, kLinearA = false, kLinearB = false;
  /// For quantised b: its bytes along K are contiguous.
  static constexpr bool kLinearPacked = false;
  /// For kVector: each aligned run of so many elements along K is contiguous in memory, and a() or b() sets `inside`
  /// for all of it alike (the channels of a convolution's tap). 0: unknown.
  static constexpr u32 kRunA = 0, kRunB = 0;
  /// Of each vector of a, memory has the first 12 bytes, aligned to 4. The last 4 are 0.
  static constexpr bool kShortA = false;
  /// All of `a` lies within kOutside bytes from a_base().
  static constexpr bool kBufferA = false;
  /// Columns of a result that are contiguous and aligned together where n is no multiple of 8: 1, 2 or 4.
  static constexpr int kColumnRun = 1;
  /// Bytes of a result. kReadsRows: what the epilogue reads depends on the row, not only on the column.
  static constexpr int kResultBytes = 2;
  static constexpr bool kReadsRows = false;
  /// result() has another parameter, `sines`: what with_sines() passes.
  static constexpr bool kSines = false;
  static constexpr bool kReadsOctets = false, kOctets = false, kPairOctets = false, kWide = false, kSaturates = false,
                        kRowBytes = false;
  /// For kElements: the operand is in memory, with elements along K one after the other.
  static constexpr bool kRowsA = false, kRowsB = false;
  /// For TMA (gemm_tma.h). kShared: all batches have the same operand. kInnerA, for kAcross: the rows are so many
  /// contiguous ones (a multiple of 64), then the next outer dim; 0: all rows are contiguous.
  static constexpr bool kSharedA = false, kSharedB = false;
  /// B is in memory before any launch of the run.
  static constexpr bool kLoadedB = false;
  static constexpr u32 kInnerA = 0;
  /// For TMA: so many neighbouring batches have a stride of their own; 0: all batches have the same.
  static constexpr u32 kHeadsA = 0, kHeadsB = 0;
  static constexpr bool kGroups = false;
  /// N (K) is a multiple of the tile's. kPowerN: by a power of two.
  static constexpr bool kWholeN = false, kWholeK = false, kPowerN = false;
  /// K has at least so many tiles.
  static constexpr u32 kLeastSteps = 0;
  u32 batches, m, n, k;
};

/// Tile sizes. A workgroup has WM x WN x WK waves; those along WK divide the K of a tile among them. kRow: bytes of K
/// in a tile. kStages: tiles in LDS. With one stage, the next tile waits in registers until all waves have read the
/// current one: half the LDS at the price of one more barrier per step. kInFlight: further tiles that are being loaded
/// to registers, where a step is shorter than the latency of memory; needs two stages. 0: loads go straight to LDS, all
/// of its tiles but one are on their way (gemm_ring.h).
template <int BM, int BN, int WM, int WN, int WK, int Row, int Stages, int InFlight = 1>
struct Tiling {
  static constexpr int kM = BM, kN = BN, kWavesM = WM, kWavesN = WN, kWavesK = WK, kRow = Row, kStages = Stages,
                       kInFlight = InFlight;
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

/// What kShortA loads of a vector.
struct Words3 {
  u32 x[3];
};
SDX_FN void load(vec16& to, const void* from) { to = load16(from); }
SDX_FN void load(Words3& to, const void* from) {
  const auto* words = (__attribute__((address_space(1))) const u32*)from;
#pragma clang loop unroll(full)
  for (int i = 0; i < 3; ++i) to.x[i] = words[i];
}
SDX_FN vec16 whole(const vec16& x) { return x; }
SDX_FN vec16 whole(const Words3& w) { return vec16{w.x[0], w.x[1], w.x[2], 0}; }

#if defined(__AMDGCN__)
/// A buffer's size, in bytes, that load16(base, offset) assumes: from there on it reads nothing, and gets zeros.
inline constexpr u32 kOutside = 0x80000000;
/// The fourth word of a buffer's descriptor: raw elements of 32 bits; bytes are counted (ISA documents, "Buffer
/// Resource Descriptor", "Range checking").
#if defined(__GFX9__)
inline constexpr u32 kBufferFormat = 0x00020000;
#elif defined(__GFX10__)
inline constexpr u32 kBufferFormat = 0x31014000;
#else
inline constexpr u32 kBufferFormat = 0x31004000;
#endif
SDX_FN vec16 load16(const void* base, u32 offset) {
  const auto buffer = __builtin_amdgcn_make_buffer_rsrc((void*)base, 0, kOutside, kBufferFormat);
  return __builtin_amdgcn_raw_buffer_load_b128(buffer, offset, 0, 0);
}
SDX_FN void load(vec16& to, const void* base, u32 offset) { to = load16(base, offset); }
SDX_FN void load(Words3& to, const void* base, u32 offset) {
  const auto buffer = __builtin_amdgcn_make_buffer_rsrc((void*)base, 0, kOutside, kBufferFormat);
  const auto words = __builtin_amdgcn_raw_buffer_load_b96(buffer, offset, 0, 0);
#pragma clang loop unroll(full)
  for (int i = 0; i < 3; ++i) to.x[i] = words[i];
}
#endif

#if defined(__AMDGCN__)
/// Eight neighbouring elements.
template <class T>
SDX_FN auto load_octet(const T* from) {
  struct Octet {
    T x[8];
  };
  constexpr int kBytes = sizeof(Octet) < 16 ? int(sizeof(Octet)) : 16, kParts = int(sizeof(Octet)) / kBytes;
  using Words = u32 __attribute__((ext_vector_type(kBytes / 4)));
  struct {
    Words x[kParts];
  } words;
#pragma clang loop unroll(full)
  for (int k = 0; k < kParts; ++k) words.x[k] = ((__attribute__((address_space(1))) const Words*)from)[k];
  return bit_cast<Octet>(words);
}
#endif

template <bool Value>
struct Flag {
  static constexpr bool value = Value;
};

/// The tile of a workgroup. Tiles that share rows or columns run close together in time, to reuse the caches. ByDie:
/// `id` is the workgroup's number, which also gives its die. PowerN: tiles_n is a power of two, and there is one batch.
template <bool ByDie = true, bool PowerN = false>
SDX_FN void choose_tile(u32 id, u32 batches, u32 tiles_m, u32 tiles_n, u32& z, u32& tile_m, u32& tile_n) {
  constexpr u32 kGroup = 8;
  const u32 per_batch = tiles_m * tiles_n;
  if constexpr (ByDie && kDies > 1) id = by_die(id, batches * per_batch);
  if constexpr (PowerN) {  // a division by a variable takes a fifth of the time until the first loads
    const u32 shift = __builtin_ctz(tiles_n), first = id >> shift & ~(kGroup - 1), in_group = id - (first << shift);
    const u32 size = tiles_m - first < kGroup ? tiles_m - first : kGroup;
    z = 0;
    tile_m = first + (in_group & (kGroup - 1));
    tile_n = in_group / kGroup;
    if (size < kGroup) {
      tile_m = first + in_group % size;
      tile_n = in_group / size;
    }
    return;
  }
  if (tiles_n == 1 && batches == 1) {  // divisions would cost as much as a short sum
    z = tile_n = 0;
    tile_m = id;
    return;
  }
#if defined(__AMDGCN__)
  z = 0;
  if (batches > 1)  // GPUs divide by variables with a tenth of the instructions before the first loads
#endif
  {
    z = id / per_batch;
    id %= per_batch;
  }
  const u32 group = id / (kGroup * tiles_n), first = group * kGroup;
  const u32 size = tiles_m - first < kGroup ? tiles_m - first : kGroup;
  const u32 in_group = id - group * kGroup * tiles_n;
#if defined(__GFX9__)
  if (size == kGroup) {  // a division by a variable takes a fifth of the time until the first loads
    tile_m = first + (in_group & (kGroup - 1));
    tile_n = in_group >> 3;  // as a division, LLVM would merge it with that by `size`
    return;
  }
#endif
  tile_m = first + in_group % size;
  tile_n = in_group / size;
}

/// Finds the group of a tile, where groups (P::kGroups) have tiles of Height rows one after another. A later tile may
/// be asked for after an earlier one.
template <u32 Height>
struct GroupRows {
  static constexpr u32 kAhead = 8;            // ends that are on their way at a time
  u32 z = 0, begin = 0, end = 0, before = 0;  // a group, its rows, and how many tiles earlier ones have
  static SDX_FN u32 tiles_of(u32 rows) { return (rows + Height - 1) / Height; }
  SDX_FN u32 tiles() const { return tiles_of(end - begin); }

  /// Whether there is such a tile; afterwards z is its group.
  template <class P>
  SDX_FN bool find(const P& p, u32 tile) {
    const u32 last = p.batches - 1;
    for (;;) {
      u32 ends[kAhead];
#pragma clang loop unroll(full)
      for (u32 e = 0; e < kAhead; ++e) ends[e] = p.end_of(z + e < last ? z + e : last);
#pragma clang loop unroll(full)
      for (u32 e = 0; e < kAhead; ++e) {
        end = z == last ? p.m : ends[e] > begin ? ends[e] : begin;
        if (tile < before + tiles()) return true;
        if (z == last) return false;
        before += tiles();
        begin = end;
        ++z;
      }
    }
  }
};

/// The problem up to where a group's rows end, so that no others are stored; without groups, the problem.
template <class P, class Rows>
  requires(bool(P::kGroups))
SDX_FN P in_group(const P& p, const Rows& rows) {
  P q = p;
  q.m = rows.end;
  return q;
}
template <class P, class Rows>
  requires(!bool(P::kGroups))
SDX_FN const P& in_group(const P& p, const Rows&) {
  return p;
}

}  // namespace gemm_detail
}  // namespace sdx
