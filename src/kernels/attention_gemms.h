// Attention's two GEMMs, on the matrix instructions of matrix.h. Part of the kernel of attention.h.
#pragma once
#include "attention_place.h"

namespace sdx {

template <class P, int kForm>
struct AttentionGemms : AttentionOperands<P, kForm> {
  using Base = AttentionOperands<P, kForm>;
  using Base::kFamily, Base::kMma, Base::kVector, Base::kVec, Base::kTilesQ, Base::kTilesK, Base::kTilesV, Base::kSteps,
      Base::kCount, Base::kVectorsQ, Base::kQueryRows, Base::kKeyChunks, Base::kValueChunks, Base::kScoreChunks;
  using Base::kToLds, Base::shared, Base::lane, Base::wave_q, Base::wave_k, Base::query_of, Base::slot_of, Base::key_at,
      Base::load_query;
  using typename Base::T, typename Base::C, typename Base::M, typename Base::Row, typename Base::KeyRows,
      typename Base::ValueRows, typename Base::ScoreRows;

  // ---- operands from LDS, read kAhead matrix instructions before they are used. The barriers for the scheduler keep
  // the compiler from moving the reads down to their uses, where each would wait for LDS.
  template <int kMany>
  struct Ring {
    static constexpr int kSlots = C::kAhead + 1;
    vec16 x[kSlots][M::kVectorsA];
  };
  using KeyRing = Ring<kSteps * kTilesK>;
  static constexpr int kStepsV = C::kKeysWave / M::kStep;
  using ValueRing = Ring<kStepsV * kTilesV>;
  /// Operand i of the first GEMM: K step i / kTilesK, key tile i % kTilesK.
  SDX_FN void read_key(detail::shared_ptr<vec16> tile, int i, KeyRing& ring) const {
    if (i >= kSteps * kTilesK) return;
    if constexpr (kToLds) {
      ring.x[i % KeyRing::kSlots][0] = tile[AttentionPlace<Base::kD>::key_at(i % kTilesK, i / kTilesK)];
      return;
    }
#pragma clang loop unroll(full)
    for (int v = 0; v < M::kVectorsA; ++v)
      ring.x[i % KeyRing::kSlots][v] = tile[KeyRows::at(wave_k * C::kKeysWave + key_at(i % kTilesK, M::row_a(lane, v)),
                                                        i / kTilesK * (C::kStepD / kVec) + M::chunk(lane, v))];
  }
  /// Operand i of the second: K step i / kTilesV, tile i % kTilesV of the value's elements.
  SDX_FN void read_value(detail::shared_ptr<vec16> tile, int i, ValueRing& ring) const {
    if (i >= kStepsV * kTilesV) return;
    if constexpr (kToLds) {
      ring.x[i % ValueRing::kSlots][0] = AttentionPlace<Base::kD>::value(tile, i % kTilesV, i / kTilesV);
      return;
    }
#pragma clang loop unroll(full)
    for (int v = 0; v < M::kVectorsA; ++v)
      ring.x[i % ValueRing::kSlots][v] =
          tile[kKeyChunks + ValueRows::at(i % kTilesV * 16 + M::row_a(lane, v),
                                          (wave_k * C::kKeysWave + i / kTilesV * M::kStep) / kVec + M::chunk(lane, v))];
  }
  /// The first operands of the second GEMM, which arrive while the softmax is computed.
  SDX_FN void read_first_values(detail::shared_ptr<vec16> tile, ValueRing& ring) const {
#pragma clang loop unroll(full)
    for (int i = 0; i < C::kAhead; ++i) read_value(tile, i, ring);
    detail::stay();
  }
  SDX_FN void multiply_keys_ahead(detail::shared_ptr<vec16> tile, const vec16 (&queries)[kTilesQ][kSteps][kVectorsQ],
                                  f32 (&scores)[kTilesQ][kTilesK][kCount]) const {
    KeyRing ring;
#pragma clang loop unroll(full)
    for (int i = 0; i < C::kAhead; ++i) read_key(tile, i, ring);
#pragma clang loop unroll(full)
    for (int i = 0; i < kSteps * kTilesK; ++i) {
      read_key(tile, i + C::kAhead, ring);
      detail::stay();
#pragma clang loop unroll(full)
      for (int q = 0; q < kTilesQ; ++q)
        M::mma(ring.x[i % KeyRing::kSlots], queries[q][i / kTilesK], scores[q][i % kTilesK]);
    }
  }
  SDX_FN void multiply_values_ahead(detail::shared_ptr<vec16> tile, const f32 (&scores)[kTilesQ][kTilesK][kCount],
                                    ValueRing& ring, f32 (&acc)[kTilesQ][kTilesV][kCount]) const {
    vec16 x[kTilesQ][M::kVectorsB];
#pragma clang loop unroll(full)
    for (int i = 0; i < kStepsV * kTilesV; ++i) {
      read_value(tile, i + C::kAhead, ring);
      if (i % kTilesV == 0)
#pragma clang loop unroll(full)
        for (int q = 0; q < kTilesQ; ++q) pack_probabilities(scores[q], i / kTilesV, x[q]);
      detail::stay();
#pragma clang loop unroll(full)
      for (int q = 0; q < kTilesQ; ++q) M::mma(ring.x[i % ValueRing::kSlots], x[q], acc[q][i % kTilesV]);
    }
  }
  /// The operand of K step s of the second GEMM, which the sums of the first are.
  template <class Scores>
  SDX_FN void pack_probabilities(const Scores& scores, int s, vec16 (&x)[M::kVectorsB]) const {
    if constexpr (sizeof(T) == 4) {
      const auto& c = scores[s];
      x[0] = bit_cast<vec16>(vec<f32, 4>{c[0], c[1], c[2], c[3]});
    } else if constexpr (kFamily == MatrixFamily::kMfma) {
      constexpr int kTiles = M::kStep / 16;  // key tiles of a step
      const auto &c = scores[s * kTiles], &d = scores[s * kTiles + kTiles - 1];
      x[0] = vec16{detail::pack2<T>(c[0], c[1]), detail::pack2<T>(c[2], c[3]), detail::pack2<T>(d[0], d[1]),
                   detail::pack2<T>(d[2], d[3])};
    } else {
      const auto& c = scores[s];
      vec16 half;
#pragma clang loop unroll(full)
      for (int k = 0; k < 4; ++k) half[k] = detail::pack2<T>(c[2 * k], c[2 * k + 1]);
      if constexpr (kFamily == MatrixFamily::kWmma11) {
        // Both halves of the wave need all 16 keys.
        vec16 other;
#pragma clang loop unroll(full)
        for (int k = 0; k < 4; ++k) other[k] = detail::attention_xor(u32(half[k]), 16);
        x[0] = lane < 16 ? half : other;
        x[M::kVectorsB - 1] = lane < 16 ? other : half;
      } else {
        x[0] = half;
      }
    }
  }

  // ---- the first GEMM: scores[q][j] of query tile q and key tile j
  SDX_FN void multiply_keys(detail::shared_ptr<vec16> tile, const Row (&rows)[kTilesQ][kQueryRows],
                            const vec16 (&queries)[kTilesQ][C::kKeep ? kSteps : 1][kVectorsQ],
                            f32 (&scores)[kTilesQ][kTilesK][kCount]) const {
    if constexpr (!kMma && !kVector && C::kKeep) return multiply_keys_ahead(tile, queries, scores);
    u32 zero = 0;
    if constexpr (!C::kKeep) hide(zero);  // read queries again for each tile instead of keeping them in registers
#pragma unroll(C::kKeep ? kSteps : 2)
    for (int s = 0; s < kSteps; ++s) {
      if (C::kTight && s % 2 == 0) detail::stay();
      vec16 own[kTilesQ][kVectorsQ];
#pragma clang loop unroll(full)
      for (int q = 0; q < kTilesQ; ++q) {
        if constexpr (C::kKeep) {
#pragma clang loop unroll(full)
          for (int v = 0; v < kVectorsQ; ++v) own[q][v] = queries[q][s][v];
        } else {
          load_query(rows[q], s, zero, own[q]);
        }
      }
#pragma clang loop unroll(full)
      for (int j = 0; j < kTilesK; ++j) {
        const u32 first = wave_k * C::kKeysWave;
#if defined(__NVPTX__)
        if constexpr (kMma) {
          u32 r[4];
          detail::load_matrices<false>(
              shared + KeyRows::at(first + j * 16 + lane / 16 * 8 + lane % 8, 2 * s + lane / 8 % 2), r);
#pragma clang loop unroll(full)
          for (int q = 0; q < kTilesQ; ++q) {
            auto& c = scores[q][j];
            const vec16 a = own[q][0];
            detail::mma<T>(a[0], a[1], a[2], a[3], r[0], r[1], c[0], c[1], c[2], c[3]);
            detail::mma<T>(a[0], a[1], a[2], a[3], r[2], r[3], c[4], c[5], c[6], c[7]);
          }
        } else
#endif
        {
          vec16 k[M::kVectorsA];
#pragma clang loop unroll(full)
          for (int v = 0; v < M::kVectorsA; ++v)
            k[v] = tile[KeyRows::at(first + key_at(j, M::row_a(lane, v)), s * (C::kStepD / kVec) + M::chunk(lane, v))];
          if constexpr (!kMma) {
#pragma clang loop unroll(full)
            for (int q = 0; q < kTilesQ; ++q) M::mma(k, own[q], scores[q][j]);
          }
        }
      }
    }
  }

  // ---- the second GEMM: sums[q][d] += probabilities times values of the wave's keys. AMD's matrix instructions:
  // multiply_values_ahead().
  SDX_FN void multiply_values(const f32 (&scores)[kTilesQ][kTilesK][kCount],
                              f32 (&acc)[kTilesQ][kTilesV][kCount]) const {
    const u32 first = wave_k * C::kKeysWave;
#if defined(__NVPTX__)
    if constexpr (kMma) {
#pragma clang loop unroll(full)
      for (int j = 0; j < kTilesK; ++j) {
        u32 a[kTilesQ][4];
#pragma clang loop unroll(full)
        for (int q = 0; q < kTilesQ; ++q)
#pragma clang loop unroll(full)
          for (int x = 0; x < 4; ++x) a[q][x] = detail::pack2<T>(scores[q][j][2 * x], scores[q][j][2 * x + 1]);
#pragma clang loop unroll(full)
        for (int d = 0; d < kTilesV; ++d) {
          u32 r[4];
          detail::load_matrices<true>(
              shared + kKeyChunks + ValueRows::at(first + j * 16 + lane / 8 % 2 * 8 + lane % 8, 2 * d + lane / 16), r);
#pragma clang loop unroll(full)
          for (int q = 0; q < kTilesQ; ++q) {
            auto& c = acc[q][d];
            detail::mma<T>(a[q][0], a[q][1], a[q][2], a[q][3], r[0], r[1], c[0], c[1], c[2], c[3]);
            detail::mma<T>(a[q][0], a[q][1], a[q][2], a[q][3], r[2], r[3], c[4], c[5], c[6], c[7]);
          }
        }
      }
      return;
    }
#endif
    if constexpr (kVector) {
      const auto own = shared + kKeyChunks + kValueChunks + (wave_q * C::kWavesK + wave_k) * kScoreChunks;
      const auto elements = (detail::shared_ptr<T>)own;
#pragma clang loop unroll(full)
      for (int j = 0; j < kTilesK; ++j)
#pragma clang loop unroll(full)
        for (int e = 0; e < kCount; ++e) {
          const u32 key = j * 16 + M::acc_row(lane, e);
          elements[ScoreRows::at(query_of(lane, slot_of(e)), key / kVec) * kVec + key % kVec] =
              cast<T>(scores[0][j][e]);
        }
      detail::attention_wave_sync();
#pragma unroll 1
      for (int s = 0; s < C::kKeysWave / M::kStep; ++s) {
        vec16 x[M::kVectorsB];
#pragma clang loop unroll(full)
        for (int v = 0; v < M::kVectorsB; ++v) x[v] = own[ScoreRows::at(M::row_b(lane, v), s + M::chunk(lane, v))];
#pragma clang loop unroll(full)
        for (int d = 0; d < kTilesV; ++d) {
          detail::stay();
          vec16 v[M::kVectorsA];
#pragma clang loop unroll(full)
          for (int k = 0; k < M::kVectorsA; ++k)
            v[k] = shared[kKeyChunks +
                          ValueRows::at(d * 16 + M::row_a(lane, k), (first + s * M::kStep) / kVec + M::chunk(lane, k))];
          M::mma(v, x, acc[0][d]);
        }
      }
      detail::attention_wave_sync();
    }
  }
};

}  // namespace sdx
