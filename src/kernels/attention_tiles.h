// The building blocks of kernels/attention.h: tile sizes on each chip, and operations that differ between chips.
#pragma once
#include "layout_attention.h"
#include "matrix.h"
#include "prelude_fast.h"

namespace sdx {

inline constexpr f32 kLog2e = 1.44269504088896340736f;

namespace detail {

SDX_FN f32 fast_exp(f32 x) { return fast_exp2(x * kLog2e); }

using shared16 = __attribute__((address_space(3))) vec16;
template <class T>
using shared_ptr = __attribute__((address_space(3))) T*;

// Rows of kChunks vectors of 16 bytes in LDS, padded so that 8 rows read at the same chunk do not conflict in a bank,
// nor (kMixed) 8 rows that are four apart.
template <int kChunks, bool kMixed>
struct SharedRows {
  static constexpr int kPitch = layout::row_pitch(kChunks);
  static SDX_FN u32 at(u32 row, u32 chunk) {
    if constexpr (kChunks % 8 == 0) chunk ^= (kMixed ? row ^ row >> 2 : row) & 7;
    return row * kPitch + chunk;
  }
};

// The same, always padded: all rows and chunks that a lane reads are at constant distances, which are offsets in the
// instructions. For RDNA, where arithmetic on addresses takes cycles from the matrix instructions.
template <int kChunks>
struct PaddedRows {
  static constexpr int kPitch = kChunks | 1;
  static SDX_FN u32 at(u32 row, u32 chunk) { return row * kPitch + chunk; }
};

// The same for rows of four vectors, two of them in a line of all banks, without padding. For CDNA: its reads of 16
// rows at a chunk use each bank once, and so do writes of every other row.
struct PairedRows {
  static constexpr int kPitch = 4;
  static SDX_FN u32 at(u32 row, u32 chunk) {
    return row / 2 * 8 + ((row % 2 * 4 + chunk) ^ (row / 2 % 4) ^ (row / 8 % 2 * 4));
  }
};

template <class T>
SDX_FN T attention_xor(T x, u32 mask) {
#if defined(__GFX10__) || defined(__GFX11__) || defined(__GFX12__)
  if (mask == 16)
    return bit_cast<T>(
        __builtin_amdgcn_permlanex16(bit_cast<u32>(x), bit_cast<u32>(x), 0x76543210, 0xfedcba98, false, false));
#endif
  return from_lane_xor(x, mask);
}

// Whether x is true in any lane of the wave.
SDX_FN bool any_lane(bool x) {
#if defined(__GFX9__)
  return __builtin_amdgcn_ballot_w64(x) != 0;
#elif defined(__AMDGCN__)
  return __builtin_amdgcn_ballot_w32(x) != 0;
#else
  u32 r;
  asm volatile("{.reg .pred p, q;\nsetp.ne.u32 p, %1, 0;\nvote.sync.any.pred q, p, 0xffffffff;\nselp.u32 %0, 1, 0, q;}"
               : "=r"(r)
               : "r"(u32(x)));
  return r != 0;
#endif
}

// Makes what this wave wrote to LDS visible to its other lanes.
SDX_FN void attention_wave_sync() {
#if defined(__AMDGCN__)
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
#else
  asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
#endif
}

// A barrier for instruction scheduling. Without it the compiler loads all operands first, and spills registers.
SDX_FN void stay() {
#if defined(__AMDGCN__)
  __builtin_amdgcn_sched_barrier(0);
#endif
}

// What pack2() makes too small on average, as a share: half a unit in the last place, over mantissas whose logarithms
// are evenly distributed. 0: it rounds to nearest. The running softmax enlarges all probabilities by this, and their
// sum is corrected at the end, so truncating them costs no accuracy that 16-bit results could show.
template <class T>
consteval f32 pack_loss() {
#if defined(__AMDGCN__)
  if (is_same<T, f16>) return 0x0.b8ap-11f;
#if !defined(SDX_BF16_CONVERT)
  if (is_same<T, bf16>) return 0x0.b8ap-8f;
#endif
#endif
  return 0;
}
/// log2(1 + pack_loss), by its series; the loss is below 2^-8.
template <class T>
consteval f32 pack_loss_log2() {
  const f32 x = pack_loss<T>();
  return kLog2e * x * (1 - x / 2 + x * x / 3);
}

// Two non-negative numbers as a pair of 16-bit floats. On AMD's chips they are truncated, which takes one instruction
// instead of 3 (float16) or 8 (bfloat16 without an instruction for it).
template <class T>
SDX_FN u32 pack2(f32 x, f32 y) {
#if defined(__NVPTX__)
  u32 r;
  if constexpr (is_same<T, f16>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
  return r;
#else
  if constexpr (is_same<T, f16>) {
    return bit_cast<u32>(__builtin_amdgcn_cvt_pkrtz(x, y));
  } else {
#if defined(SDX_BF16_CONVERT)
    return bit_cast<u32>(__builtin_convertvector((vec<f32, 2>{x, y}), vec<__bf16, 2>));
#else
    return __builtin_amdgcn_perm(bit_cast<u32>(y), bit_cast<u32>(x), 0x07060302);
#endif
  }
#endif
}

#if defined(__NVPTX__)
SDX_FN void copy_async(shared_ptr<vec16> to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(u32(u64(to))),
               "l"((__attribute__((address_space(1))) const void*)from), "r"(inside ? 16 : 0)
               : "memory");
}
SDX_FN void copies_arrived() { asm volatile("cp.async.wait_all;" ::: "memory"); }
/// Groups the copies that this thread has issued since the last call, to be waited for together.
SDX_FN void copies_begun() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits for all copies but the last group.
SDX_FN void copies_but_last_arrived() { asm volatile("cp.async.wait_group 1;" ::: "memory"); }
template <bool kTranspose>
SDX_FN void load_matrices(const shared16* row, u32 (&r)[4]) {
  if constexpr (kTranspose)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(u32(u64(row)))
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(u32(u64(row)))
                 : "memory");
}
#else
SDX_FN void copies_arrived() {}
#endif

}  // namespace detail

/// The factor for a row's sums at the end: 1 / `total`, both being relative to exp(top), or 0 for a row without keys.
template <class P>
SDX_FN f32 attention_scale(const P& p, i64 b, i64 h, f32 top, f32 total) {
  if constexpr (P::kSink != 0) {
    const f32 sink = p.sink(b, h), m = __builtin_fmaxf(top, sink);
    if (m == -inf32()) return 0;
    const f32 scale = detail::fast_exp(top - m);
    return scale / (total * scale + detail::fast_exp(sink - m));
  }
  if (P::kZeroEmpty != 0 && total == 0) return 0;
  return 1.0f / total;
}

/// Forms of the kernel: for many queries; for few, where waves divide the keys of a tile among them; for many queries,
/// of which a wave on CDNA has 16 instead of 32.
inline constexpr int kManyQueries = 0, kFewQueries = 1, kSmallTiles = 2;

/// Whether keys and values go straight to LDS (attention_direct.h).
template <class P, int kForm>
consteval bool attention_to_lds() {
#if defined(SDX_LOADS_TO_LDS)
  return kForm != kFewQueries && sizeof(typename P::T) == 2 && P::kPlain != 0 && P::kKeyDirect == 1 &&
         P::kValueDirect == 1 && int(P::kHeadDim) == int(P::kValueDim) &&
         (P::kHeadDim == 64 || (P::kHeadDim == 128 && kForm == kSmallTiles));
#else
  return false;
#endif
}

/// Tile sizes of one kernel. kForm: see above. kPlain: scores are products times a factor; other scores need more
/// registers. kToLds: see attention_to_lds().
template <class T, int kHeadDim, int kValueDim, int kForm, bool kPlain, bool kToLds>
struct AttentionTiles {
  using M = Matrix<T>;
  static constexpr MatrixFamily kFamily = M::kFamily;
  static constexpr bool kMma = kFamily == MatrixFamily::kMma, kVector = kFamily == MatrixFamily::kVector;
  static constexpr int kVec = M::kVec, kWaves = int(kThreads / kWave);
  static constexpr bool kDecode = kForm == kFewQueries;
  /// Elements of one matrix instruction along its K: of a head (first GEMM), and keys (second GEMM).
  static constexpr int kStepD = kMma ? 16 : M::kStep, kStepK = kMma || kVector ? 16 : M::kStep;
  static constexpr int kD = (kHeadDim + kStepD - 1) / kStepD * kStepD, kDv = (kValueDim + 15) / 16 * 16;
  static constexpr int kLong = kD > kDv ? kD : kDv;
  /// Keys of a tile: as many as fit in 16 KB of LDS, and values in another 16 KB.
  static constexpr int kFit = 16384 / (kLong * int(sizeof(T)));
  static constexpr bool kTight = kFamily == MatrixFamily::kWmma11;  // operands take twice the registers
  // Fewer keys where registers would not suffice.
  static constexpr int kMost = kVector ? (kLong * sizeof(T) > 256 ? 16 : 32)
                               : (kTight && kLong > (kPlain ? 80 : 48)) || (kLong > 96 && !kMma) ? 32
                                                                                                 : 64;
  static constexpr int kLeast = kStepK > 16 ? kStepK : 16;
  static constexpr int kKeys = kToLds ? 64 : kFit >= kMost ? kMost : kFit >= 32 && kMost > 32 ? 32 : kLeast;
  static constexpr int kWavesK = kToLds && kForm == kSmallTiles ? 2
                                 : !kDecode || kVector          ? 1
                                 : kKeys / kStepK > kWaves / 2  ? kWaves / 2
                                                                : kKeys / kStepK;
  static constexpr int kWavesQ = kWaves / kWavesK, kKeysWave = kKeys / kWavesK;
  /// Query tiles per wave.
  static constexpr int kTilesQ =
      kToLds || (kFamily == MatrixFamily::kMfma && kForm == kManyQueries && kLong * sizeof(T) <= 256) ? 2 : 1;
  static constexpr int kRows = kWavesQ * kTilesQ * 16;
  /// Operands that are read from LDS ahead of the matrix instructions: as many as cover the latency of LDS.
  static constexpr int kAhead = kToLds ? 3 : kFamily == MatrixFamily::kMfma ? 2 : kTight ? 1 : 2;
  /// Whether a wave keeps its queries in registers.
  static constexpr bool kKeep =
      !kVector && !(kTight && kD > (kPlain ? 128 : 96)) && !(kFamily == MatrixFamily::kWmma12 && kD > 128);
};

}  // namespace sdx
