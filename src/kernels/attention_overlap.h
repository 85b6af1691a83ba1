// Attention on CDNA, whose matrix units run in parallel with the vector units: a wave computes the scores of the next
// tile of keys while it turns those of this one into probabilities, as FlashAttention-3 does on NVIDIA GPUs (Shah et
// al., 2024).
#pragma once
#include "attention_kernel.h"

namespace sdx {

template <class P, int kForm>
struct AttentionOverlapped : AttentionKernel<P, kForm> {
  using Base = AttentionKernel<P, kForm>;
  using Base::kKeys, Base::kTilesQ, Base::kTilesK, Base::kTilesV, Base::kSteps, Base::kCount, Base::kSlots,
      Base::kVectorsQ, Base::kQueryRows, Base::kTileChunks, Base::kStepsV;
  using Base::n, Base::shared, Base::row0, Base::rows, Base::p;
  using typename Base::T, typename Base::C, typename Base::M, typename Base::Row, typename Base::Bases,
      typename Base::Fetched, typename Base::Ranges, typename Base::KeyRing, typename Base::ValueRing;
  using Scores = f32[kTilesQ][kTilesK][kCount];
  using AccTile = f32[kTilesQ][kTilesV][kCount];
  using Queries = vec16[kTilesQ][kSteps][kVectorsQ];
  using Each = f32[kTilesQ];
  using Pair = vec<f32, 2>;

  static constexpr int kMmas = kSteps * kTilesK;       // operands of the first GEMM
  static constexpr int kPairs = kTilesK * kCount / 2;  // of scores of a query tile
  static_assert(kSlots == 1 && (C::kWavesK == 1 || Base::kToLds) && sizeof(T) == 2);

  /// Raises m by number i of kPairs pairs of a query tile's scores.
  static SDX_FN void raise(const f32 (&scores)[kTilesK][kCount], int i, f32& m) {
    const int j = i / (kCount / 2), e = i % (kCount / 2) * 2;
    m = __builtin_fmaxf(__builtin_fmaxf(m, scores[j][e]), scores[j][e + 1]);
  }
  static SDX_FN f32 most(const f32 (&scores)[kTilesK][kCount]) {
    f32 m = -inf32();
#pragma clang loop unroll(full)
    for (int i = 0; i < kPairs; ++i) raise(scores, i, m);
    return m;
  }
  /// Raises the bases of the probabilities, and rescales the accumulators, where a score exceeds them by much. m: the
  /// maxima of the lane's scores.
  SDX_FN void rebase(const Each& m, Each& top, Each& total, AccTile& acc) const {
    bool higher = false;
#pragma clang loop unroll(full)
    for (int q = 0; q < kTilesQ; ++q) higher |= this->exceeds(m[q], top[q]);
    if (!detail::any_lane(higher)) return;
#pragma clang loop unroll(full)
    for (int q = 0; q < kTilesQ; ++q) {
      const f32 rescale = raise_base(m[q], top[q], total[q]);
#pragma clang loop unroll(full)
      for (int d = 0; d < kTilesV; ++d)
#pragma clang loop unroll(full)
        for (int e = 0; e < kCount; ++e) acc[q][d][e] *= rescale;
    }
  }
  /// The same for one tile of queries; returns what accumulators have to be multiplied by.
  SDX_FN f32 raise_base(f32 m, f32& top, f32& total) const {
    const f32 raised =
        __builtin_fmaxf(top, this->over_lanes(m, [](f32 x, f32 y) SDX_LAMBDA { return __builtin_fmaxf(x, y); }));
    const f32 rescale = this->exp_from(top, raised == -inf32() ? 0.0f : raised);
    top = raised;
    total *= rescale;
    return rescale;
  }

  /// Pair i of the scores of query tile q becomes probabilities, added to `added`.
  SDX_FN void weigh(f32 (&scores)[kTilesK][kCount], int i, f32 f, Pair shift, Pair& added) const {
    const int j = i / (kCount / 2), e = i % (kCount / 2) * 2;
    const Pair power = __builtin_elementwise_fma(Pair{scores[j][e], scores[j][e + 1]}, Pair{f, f}, shift);
    const Pair x = {fast_exp2(power[0]), fast_exp2(power[1])};
    scores[j][e] = x[0], scores[j][e + 1] = x[1];
    added += x;
  }
#if defined(__GFX9__)
  /// Between two scheduling barriers: a matrix instruction, then some others, in turn.
  template <int Matrix>
  static SDX_FN void in_turn() {
    __builtin_amdgcn_sched_group_barrier(0x100, 2, 0);  // reads of LDS
#pragma clang loop unroll(full)
    for (int k = 0; k < Matrix; ++k) {
      __builtin_amdgcn_sched_group_barrier(0x8, 1, 0);
      __builtin_amdgcn_sched_group_barrier(0x402, 2, 0);  // vector arithmetic, transcendental functions among it
    }
  }
#else
  template <int Matrix>
  static SDX_FN void in_turn() {}
#endif
  SDX_FN void read_first_keys(detail::shared_ptr<vec16> keys, KeyRing& ring) const {
#pragma clang loop unroll(full)
    for (int i = 0; i < C::kAhead; ++i) this->read_key(keys, i, ring);
    detail::stay();
  }
  /// Turns `scores` into probabilities. Next: meanwhile computes the scores of the tile of keys in LDS at `keys` into
  /// `next`.
  template <bool Next>
  SDX_FN void weigh_and_multiply(detail::shared_ptr<vec16> keys, KeyRing& ring, const Queries& queries, const Each& top,
                                 Each& total, Scores& scores, Scores& next) const {
    const f32 f = p.factor() * kLog2e;
    Pair shift[kTilesQ], added[kTilesQ] = {};
#pragma clang loop unroll(full)
    for (int q = 0; q < kTilesQ; ++q) {
      const f32 x = detail::pack_loss_log2<T>() - (top[q] == -inf32() ? 0.0f : top[q]) * f;
      shift[q] = Pair{x, x};
#if defined(__AMDGCN__)
      // Otherwise the instruction names a pair of registers of which the second may be a load's, and waits for that.
      asm("" : "+v"(shift[q]));
#endif
    }
    if constexpr (!Next) {
#pragma clang loop unroll(full)
      for (int q = 0; q < kTilesQ; ++q)
#pragma clang loop unroll(full)
        for (int i = 0; i < kPairs; ++i) weigh(scores[q], i, f, shift[q], added[q]);
    } else {
#pragma clang loop unroll(full)
      for (int q = 0; q < kTilesQ; ++q)
#pragma clang loop unroll(full)
        for (int j = 0; j < kTilesK; ++j)
#pragma clang loop unroll(full)
          for (int e = 0; e < kCount; ++e) next[q][j][e] = 0;
#pragma clang loop unroll(full)
      for (int i = 0; i < kMmas; ++i) {
        this->read_key(keys, i + C::kAhead, ring);
#pragma clang loop unroll(full)
        for (int q = 0; q < kTilesQ; ++q)
          M::mma(ring.x[i % KeyRing::kSlots], queries[q][i / kTilesK], next[q][i % kTilesK]);
#pragma clang loop unroll(full)
        for (int k = i * kPairs * kTilesQ / kMmas; k < (i + 1) * kPairs * kTilesQ / kMmas; ++k)
          weigh(scores[k / kPairs], k % kPairs, f, shift[k / kPairs], added[k / kPairs]);
        in_turn<kTilesQ * M::kInstructions>();
        detail::stay();
      }
    }
#pragma clang loop unroll(full)
    for (int q = 0; q < kTilesQ; ++q) total[q] += added[q][0] + added[q][1];
  }
  /// Adds the products of probabilities and values. Next: meanwhile, m becomes the maxima of `next`.
  template <bool Next>
  SDX_FN void multiply_values(detail::shared_ptr<vec16> values, const Scores& probabilities, const Scores& next,
                              AccTile& acc, Each& m) const {
    constexpr int kMany = kStepsV * kTilesV;
    ValueRing ring;
    this->read_first_values(values, ring);
    vec16 x[kTilesQ][M::kVectorsB];
#pragma clang loop unroll(full)
    for (int q = 0; q < kTilesQ; ++q) m[q] = -inf32();
#pragma clang loop unroll(full)
    for (int i = 0; i < kMany; ++i) {
      this->read_value(values, i + C::kAhead, ring);
      if (i % kTilesV == 0)
#pragma clang loop unroll(full)
        for (int q = 0; q < kTilesQ; ++q) this->pack_probabilities(probabilities[q], i / kTilesV, x[q]);
      detail::stay();
#pragma clang loop unroll(full)
      for (int q = 0; q < kTilesQ; ++q) M::mma(ring.x[i % ValueRing::kSlots], x[q], acc[q][i % kTilesV]);
      if constexpr (Next)
#pragma clang loop unroll(full)
        for (int k = i * kPairs * kTilesQ / kMany; k < (i + 1) * kPairs * kTilesQ / kMany; ++k)
          raise(next[k / kPairs], k % kPairs, m[k / kPairs]);
    }
  }

  /// What a step of the loop reads and changes.
  struct State {
    Queries queries;
    Each top, total, m;  // m: maxima of the scores of the current tile
    AccTile acc;
    Fetched fetched;
  };
  /// Loads the keys of the tile at t, and the values of the one before.
  template <bool Inside>
  SDX_FN void fetch_next(i32 t, i32 end, const Bases& from, State& s) const {
    if (Inside || t < end) this->template fetch<true, false, Inside>(t, from, s.fetched);
    if (Inside || t - kKeys < end) this->template fetch<false, true, Inside>(t - kKeys, from, s.fetched);
  }
  /// The tile at t, whose scores are `scores`; those of the next tile become `next`. Its values are in LDS at `here`,
  /// which then receives the keys of the tile after the next; `there` has the keys of the next tile, and then receives
  /// its values. Inside: the next three tiles are complete, and no score of this tile is masked.
  template <bool Inside>
  SDX_FN void step(i32 t, i32 end, const Ranges& r, const Bases& from, detail::shared_ptr<vec16> here,
                   detail::shared_ptr<vec16> there, bool active, State& s, Scores& scores, Scores& next) const {
    const bool second = Inside || t + kKeys < end, third = Inside || t + 2 * kKeys < end;
    KeyRing ring;
    if (Inside || (active && second)) read_first_keys(there, ring);
    // Nothing in LDS is replaced that is still read: keys of this tile, and values of the one before.
    if (third) this->template place<true, false, Inside>(here, s.fetched, t + 2 * kKeys, from.limit);
    if (second) this->template place<false, true, Inside>(there, s.fetched, t + kKeys, from.limit);
    fetch_next<Inside>(t + 3 * kKeys, end, from, s);
    if (Inside || active) {
      if (!Inside && (t < r.all.low || t + kKeys > r.all.high))
#pragma clang loop unroll(full)
        for (int q = 0; q < kTilesQ; ++q) this->mask(t, r, q, scores[q]), s.m[q] = most(scores[q]);
      rebase(s.m, s.top, s.total, s.acc);
      if (second)
        weigh_and_multiply<true>(there, ring, s.queries, s.top, s.total, scores, next);
      else
        weigh_and_multiply<false>(there, ring, s.queries, s.top, s.total, scores, next);
      multiply_values<true>(here, scores, next, s.acc, s.m);
    }
    lds_barrier();
  }

  /// The tile at t, and the keys of the next one, in LDS; loads the keys of the one after, and the values of the next.
  /// Inside: these three tiles are complete.
  template <bool Inside>
  SDX_FN void begin(i32 t, i32 end, const Bases& from, detail::shared_ptr<vec16> first, detail::shared_ptr<vec16> other,
                    State& s) const {
    Fetched second;
    this->template fetch<true, true, Inside>(t, from, s.fetched);
    if (Inside || t + kKeys < end) this->template fetch<true, false, Inside>(t + kKeys, from, second);
    this->template place<true, true, Inside>(first, s.fetched, t, from.limit);
    if (Inside || t + kKeys < end) this->template place<true, false, Inside>(other, second, t + kKeys, from.limit);
    this->arrive(s.queries);
    fetch_next<Inside>(t + 2 * kKeys, end, from, s);
  }

  // ---- all work of one workgroup: see AttentionKernel::run(). Keys are in LDS one tile ahead of values.
  SDX_FN void run(u32 split) const {
    const Ranges r = this->ranges();
    i32 t, end;
    this->own_keys(r, split, t, end);
    const bool active = row0 + this->tile_row(0) < rows;
    State s;
    f32 top[kTilesQ][kSlots], total[kTilesQ][kSlots];
#pragma clang loop unroll(full)
    for (int q = 0; q < kTilesQ; ++q) {
      s.top[q] = -inf32(), s.total[q] = 0;
#pragma clang loop unroll(full)
      for (int d = 0; d < kTilesV; ++d)
#pragma clang loop unroll(full)
        for (int e = 0; e < kCount; ++e) s.acc[q][d][e] = 0;
    }
    Row own[kTilesQ][kQueryRows];
#pragma clang loop unroll(full)
    for (int q = 0; q < kTilesQ; ++q) this->query_rows(q, own[q]);
#pragma clang loop unroll(full)
    for (int q = 0; q < kTilesQ; ++q)
#pragma clang loop unroll(full)
      for (int k = 0; k < kSteps; ++k) this->load_query(own[q], k, 0, s.queries[q][k]);
    const Bases from = this->bases(r.any.high);
    if (t < end) {
      const auto first = shared, other = shared + kTileChunks;
      f32 scores[kTilesQ][kTilesK][kCount] = {}, next[kTilesQ][kTilesK][kCount] = {};
      // All loads are issued before the first wait. One branch for all: where two paths join, the compiler has each
      // wait for the loads of the other.
      if (from.near && t + 3 * kKeys <= i32(from.limit) && t + 3 * kKeys <= end)
        begin<true>(t, end, from, first, other, s);
      else
        begin<false>(t, end, from, first, other, s), this->arrive(s.fetched);
      lds_barrier();
      if (active) this->multiply_keys(first, own, s.queries, scores);
#pragma clang loop unroll(full)
      for (int q = 0; q < kTilesQ; ++q) s.m[q] = most(scores[q]);
      lds_barrier();  // keys of this tile may be replaced
      if (active && from.near && t >= r.all.low)
        for (; t + 5 * kKeys <= end && t + 2 * kKeys <= r.all.high; t += 2 * kKeys) {
          step<true>(t, end, r, from, first, other, true, s, scores, next);
          step<true>(t + kKeys, end, r, from, other, first, true, s, next, scores);
        }
      u32 buffer = 0;
      for (; t < end; t += kKeys) {
        step<false>(t, end, r, from, shared + buffer, shared + (kTileChunks - buffer), active, s, scores, next);
        __builtin_memcpy(scores, next, sizeof scores);
        buffer = kTileChunks - buffer;
      }
    }
    lds_barrier();
#pragma clang loop unroll(full)
    for (int q = 0; q < kTilesQ; ++q) top[q][0] = s.top[q], total[q][0] = s.total[q];
    this->finish(top, total, s.acc, split);
  }
};

template <class P, int kForm>
consteval bool attention_overlaps() {
  using Kernel = AttentionKernel<P, kForm>;
  return kForm != kFewQueries && Kernel::kFamily == MatrixFamily::kMfma && P::kPlain != 0 &&
         sizeof(typename P::T) == 2 && Kernel::kBuffers == 2 && Kernel::C::kKeep;
}

}  // namespace sdx
