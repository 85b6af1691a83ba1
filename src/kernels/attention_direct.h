// Attention on CDNA 4, whose LDS is slow compared with its matrix units: a wave has 32 queries, so that each operand
// read from LDS is used twice, and, in small tiles, half of the keys. Keys and values go straight to LDS, and values
// are transposed as they are read from there (attention_place.h).
#pragma once
#include "attention_overlap.h"
#include "loads_to_lds.h"

namespace sdx {

template <class P, int kForm>
struct AttentionDirect;

#if defined(SDX_LOADS_TO_LDS)

template <class P, int kForm>
struct AttentionDirect : AttentionOverlapped<P, kForm> {
  using Base = AttentionOverlapped<P, kForm>;
  using Base::kKeys, Base::kD, Base::kStepsV, Base::kTilesQ, Base::kTilesK, Base::kTilesV, Base::kSteps, Base::kCount,
      Base::kQueryRows, Base::kMmas, Base::kPairs;
  using Base::p, Base::n, Base::shared, Base::lane, Base::wave_q, Base::wave_k, Base::row0, Base::rows;
  using typename Base::T, typename Base::C, typename Base::M, typename Base::Row, typename Base::Bases,
      typename Base::Ranges, typename Base::KeyRing, typename Base::Scores, typename Base::AccTile,
      typename Base::Queries, typename Base::Each, typename Base::Pair, typename Base::ValueRing;
  using Place = AttentionPlace<kD>;

  /// Tiles in LDS: of one, keys are multiplied (or values of the one before), the others are on their way.
  static constexpr int kStages = kForm == kSmallTiles && kD == 128 ? 4 : 3;
  static constexpr u32 kSpace = 2 * kStages * Place::kBytes;  // keys of all stages, then their values
  static constexpr int kRounds = int(Place::kBlocks) / C::kWaves, kLoads = 2 * kRounds;  // by a wave
  static constexpr int kHalf = kTilesQ / 2;  // tiles of queries that a wave adds up and stores at the end
  static constexpr u32 kGivenChunks = kHalf * kTilesV * kWave,
                       kMergeBytes = C::kWavesK * C::kWavesQ * (kGivenChunks * 16 + kHalf * 2 * kWave * 4);
  static constexpr int kShared = int((kSpace > kMergeBytes ? kSpace : kMergeBytes) / 16);

  /// Where the wave's loads come from and go to, and where its operands are.
  struct Tiles {
    u32 key[kRounds], value[kRounds];  ///< offsets of the lane's loads from the tile, in bytes
    u32 lds;                           ///< of the wave's first load
    u32 keys, values;                  ///< in LDS: the lane's operands of the first stage
  };
  SDX_FN u32 wave() const { return wave_q * C::kWavesK + wave_k; }
  template <bool IsValue>
  SDX_FN u32 key_of_load(u32 lane, int round) const {
    return Place::template key<IsValue>(wave() + round * C::kWaves, lane / Place::kLanesOfRow);
  }
  static SDX_FN u32 element_of_load(u32 lane) { return lane % Place::kLanesOfRow * 8; }
  SDX_FN Tiles tiles(const Bases& from) const {
    own_m0();
    Tiles x;
#pragma clang loop unroll(full)
    for (int i = 0; i < kRounds; ++i) {
      x.key[i] = (key_of_load<false>(lane, i) * u32(from.key_row) + element_of_load(lane)) * u32(sizeof(T));
      x.value[i] = (key_of_load<true>(lane, i) * u32(from.value_row) + element_of_load(lane)) * u32(sizeof(T));
    }
    const u32 base = u32(u64((__attribute__((address_space(3))) void*)shared));
    x.lds = uniform(base + wave() * Place::kBlock);
    x.keys = base + Place::keys_of(lane, wave_k);
    x.values = base + kStages * Place::kBytes + Place::values_of(lane, wave_k);
    return x;
  }
  /// Starts one of the loads of the keys (or values) of the tile at t to the stage at `stage`. Inside: it is complete.
  /// Rows past the limit are read from the last one, and keys that are masked weigh nothing.
  template <bool IsValue, bool Inside, int Round>
  SDX_FN void load(i32 t, const Bases& from, const Tiles& x, u32 stage) const {
    constexpr u32 kOffset = (IsValue ? kStages * Place::kBytes : 0) + Round * C::kWaves * Place::kBlock;
    const T* operand = IsValue ? from.value : from.key;
    const i64 distance = IsValue ? from.value_row : from.key_row;
    if constexpr (Inside) {
      load_to_lds<kOffset>(operand + i64(t) * distance, IsValue ? x.value[Round] : x.key[Round], x.lds + stage);
    } else {
      u32 own = lane;
      hide(own);  // otherwise what is computed from it takes registers in the main loop
      const u32 key = u32(t) + key_of_load<IsValue>(own, Round), last = from.limit - 1;
      load_to_lds<kOffset>(operand + i64(key < last ? key : last) * distance + element_of_load(own), x.lds + stage);
    }
  }
  template <bool IsValue, bool Inside>
  SDX_FN void load_tile(i32 t, const Bases& from, const Tiles& x, u32 stage) const {
    each<kRounds>([&](auto round) SDX_LAMBDA { load<IsValue, Inside, round.value>(t, from, x, stage); });
  }
  /// The first loads: the keys of the tile at t; its values and the keys of the next one, and so on.
  template <bool Inside, int Tile = 0>
  SDX_FN void begin(i32 t, i32 end, const Bases& from, const Tiles& x) const {
    if constexpr (Tile == 0) load_tile<false, Inside>(t, from, x, 0);
    if (!Inside && t + Tile * kKeys >= end) return;
    load_tile<false, Inside>(t + (Tile + 1) * kKeys, from, x, (Tile + 1) * Place::kBytes);
    load_tile<true, Inside>(t + Tile * kKeys, from, x, Tile * Place::kBytes);
    if constexpr (Tile + 2 < kStages) begin<Inside, Tile + 1>(t, end, from, x);
  }

  struct State {
    Queries queries;
    Each top, total, m;   // m: maxima of the scores of the current tile
    Pair shift[kTilesQ];  // of the exponents of probabilities, which `top` determines
    Pair added[kTilesQ];  // sums of probabilities
    AccTile acc;
  };
  using Operands = vec16[kTilesQ][kStepsV];  // of the second GEMM: probabilities in 16 bits
  static SDX_FN u32 after(u32 stage) { return stage == (kStages - 1) * Place::kBytes ? 0 : stage + Place::kBytes; }
  static SDX_FN u32 before(u32 stage) { return stage == 0 ? (kStages - 1) * Place::kBytes : stage - Place::kBytes; }

  // ---- the running softmax
  SDX_FN void set_shift(State& s, int q) const {
    const f32 top = s.top[q] == -inf32() ? 0.0f : s.top[q],
              x = detail::pack_loss_log2<T>() - top * (p.factor() * kLog2e);
    s.shift[q] = Pair{x, x};
  }
  /// Raises the bases of the probabilities, and rescales the accumulators, where a score exceeds them by much.
  SDX_FN void rebase(State& s) const {
    f32 over = -inf32();
#pragma clang loop unroll(full)
    for (int q = 0; q < kTilesQ; ++q) over = __builtin_fmaxf(over, s.m[q] - s.top[q]);  // of -inf and -inf: over
    if (!detail::any_lane(this->exceeds(over, 0))) return;
    f32 by[kTilesQ];
#pragma clang loop unroll(full)
    for (int q = 0; q < kTilesQ; ++q) {
      by[q] = this->raise_base(s.m[q], s.top[q], s.total[q]);
      s.added[q] *= Pair{by[q], by[q]};
      set_shift(s, q);
    }
#pragma clang loop unroll(full)
    for (int q = 0; q < kTilesQ; ++q)
#pragma clang loop unroll(full)
      for (int d = 0; d < kTilesV; ++d)
#pragma clang loop unroll(full)
        for (int e = 0; e < kCount; ++e) s.acc[q][d][e] *= by[q];
  }
  // The work on pairs of scores is in half steps, two for each pair: what depends on another instruction comes a half
  // step later, so that the wave, which is alone on its SIMD, waits for none.
  static constexpr int kAllPairs = kPairs * kTilesQ;
  SDX_FN void begin_pair(int k, const State& s, const Scores& scores, Pair (&power)[2]) const {
    if (k >= kAllPairs) return;
    const int q = k / kPairs, j = k % kPairs / (kCount / 2), e = k % (kCount / 2) * 2;
    const f32 f = p.factor() * kLog2e;
    power[k % 2] = __builtin_elementwise_fma(Pair{scores[q][j][e], scores[q][j][e + 1]}, Pair{f, f}, s.shift[q]);
  }
  SDX_FN void end_pair(int k, State& s, const Pair (&power)[2], Operands& x) const {
    if (k < 0 || k >= kAllPairs) return;
    s.added[k / kPairs] += power[k % 2];
    x[k / kPairs][k % kPairs / 4][k % 4] = detail::pack2<T>(power[k % 2][0], power[k % 2][1]);
  }
  SDX_FN void half_step(int h, State& s, const Scores& scores, Pair (&power)[2], Operands& x) const {
    const int k = h / 2;
    power[k % 2][h % 2] = fast_exp2(power[k % 2][h % 2]);
    if (h % 2 == 0)
      end_pair(k - 1, s, power, x);
    else
      begin_pair(k + 1, s, scores, power);
  }

  // ---- the GEMMs
  SDX_FN void multiply_key(int i, int q, const KeyRing& ring, const State& s, Scores& next) const {
    M::mma(ring.x[i % KeyRing::kSlots], s.queries[q][i / kTilesK], next[q][i % kTilesK]);
  }
  /// Turns `scores` into probabilities. Meanwhile computes the scores of the tile of keys in LDS at `keys`.
  SDX_FN void weigh_and_multiply(detail::shared_ptr<vec16> keys, KeyRing& ring, State& s, const Scores& scores,
                                 Scores& next, Operands& x) const {
    constexpr int kMany = kMmas * kTilesQ, kHalves = 2 * kAllPairs;
    Pair power[2];
    begin_pair(0, s, scores, power);
    __builtin_memset(next, 0, sizeof next);
#pragma clang loop unroll(full)
    for (int n = 0; n < kMany; ++n) {
      if (n % kTilesQ == 0) this->read_key(keys, n / kTilesQ + C::kAhead, ring);
      multiply_key(n / kTilesQ, n % kTilesQ, ring, s, next);
#pragma clang loop unroll(full)
      for (int h = n * kHalves / kMany; h < (n + 1) * kHalves / kMany; ++h) half_step(h, s, scores, power, x);
      detail::stay();
    }
    end_pair(kAllPairs - 1, s, power, x);
  }
  /// Adds the products of probabilities and values; meanwhile m becomes the maxima of `next`, and loads are started:
  /// load(Number<0>{}) to load(Number<kLoads - 1>{}).
  template <class Load>
  SDX_FN void multiply_values(detail::shared_ptr<vec16> values, Operands& x, Scores& next, State& s,
                              const Load& load) const {
    constexpr int kMany = kStepsV * kTilesV * kTilesQ, kEarly = kMany / 4;
    ValueRing ring;
    this->read_first_values(values, ring);
#pragma clang loop unroll(full)
    for (int q = 0; q < kTilesQ; ++q) s.m[q] = -inf32();
    each<kMany>([&](auto number) SDX_LAMBDA {
      constexpr int N = number.value, i = N / kTilesQ, q = N % kTilesQ;
      if constexpr (q == 0) this->read_value(values, i + C::kAhead, ring);
      M::mma(ring.x[i % ValueRing::kSlots], reinterpret_cast<const vec16(&)[1]>(x[q][i / kTilesV]),
             s.acc[q][i % kTilesV]);
      if constexpr (N >= kEarly) {
        constexpr int kRest = kMany - kEarly;
#pragma clang loop unroll(full)
        for (int k = (N - kEarly) * kAllPairs / kRest; k < (N - kEarly + 1) * kAllPairs / kRest; ++k)
          this->raise(next[k / kPairs], k % kPairs, s.m[k / kPairs]);
      }
      if constexpr (N * kLoads / kMany != (N + 1) * kLoads / kMany) load(Number<N * kLoads / kMany>{});
      detail::stay();
    });
  }

  /// The tile at t, whose scores are `scores`; those of the next tile become `next`. stage: of this tile. Its values
  /// and the keys of the next tile are waited for, which leaves the loads of later tiles on their way. Inside: no score
  /// of this tile is masked, and all tiles are complete; those past `last` are the one there again.
  template <bool Inside>
  SDX_FN void step(i32 t, i32 end, i32 last, const Ranges& r, const Bases& from, const Tiles& x, u32 stage, bool active,
                   State& s, Scores& scores, Scores& next) const {
    constexpr i32 kAway = (kStages - 1) * kKeys;
    if (Inside || t + kAway - kKeys < end)
      loads_arrived<(kStages - 2) * kLoads>();
    else
      loads_arrived<0>();
    lds_barrier();
    // All waves have used the keys of this tile, and the values of the one before.
    const i32 key = Inside ? this->smaller(t + kAway + kKeys, last) : t + kAway + kKeys,
              value = Inside ? this->smaller(t + kAway, last) : t + kAway;
    const auto load_one = [&](auto number) SDX_LAMBDA {
      constexpr int L = number.value;
      if constexpr (L < kRounds)
        load<false, Inside, L>(key, from, x, stage);
      else
        load<true, Inside, L - kRounds>(value, from, x, before(stage));
    };
    if (!Inside && t + kAway < end) each<kLoads>(load_one);
    if (!Inside && !active) return;
    const auto keys = (detail::shared_ptr<vec16>)(x.keys + after(stage)),
               values = (detail::shared_ptr<vec16>)(x.values + stage);
    KeyRing ring;
    this->read_first_keys(keys, ring);
    if (!Inside && (t < r.all.low || t + kKeys > r.all.high))
#pragma clang loop unroll(full)
      for (int q = 0; q < kTilesQ; ++q) this->mask(t, r, q, scores[q]), s.m[q] = this->most(scores[q]);
    rebase(s);
    Operands weights;
    // Past the end, `next` is computed from what is in LDS, and not used.
    weigh_and_multiply(keys, ring, s, scores, next, weights);
    if constexpr (Inside)
      multiply_values(values, weights, next, s, load_one);
    else
      multiply_values(values, weights, next, s, [](auto) SDX_LAMBDA {});
  }

  // ---- all work of one workgroup: see AttentionKernel::run()
  SDX_FN void run(u32 split) const {
    const Ranges r = this->ranges();
    i32 t, end;
    this->own_keys(r, split, t, end);
    const bool active = row0 + this->tile_row(0) < rows;
    const Bases from = this->bases(r.any.high);
    State s;
    __builtin_memset(s.acc, 0, sizeof s.acc);
#pragma clang loop unroll(full)
    for (int q = 0; q < kTilesQ; ++q) {
      Row own[kQueryRows];
      this->query_rows(q, own);
#pragma clang loop unroll(full)
      for (int k = 0; k < kSteps; ++k) this->load_query(own, k, 0, s.queries[q][k]);
      s.top[q] = -inf32(), s.total[q] = 0, s.added[q] = Pair{0, 0};
      set_shift(s, q);
    }
    if (t < end) multiply(t, end, r, from, active, s);
    lds_barrier();
    finish(s, split);
  }
  /// The loop over tiles of keys.
  SDX_FN void multiply(i32 t, i32 end, const Ranges& r, const Bases& from, bool active, State& s) const {
    const Tiles x = tiles(from);
    if (from.near && t + kStages * kKeys <= end)
      begin<true>(t, end, from, x);
    else
      begin<false>(t, end, from, x);
    Scores scores = {}, next = {};
    this->arrive(s.queries);
    loads_arrived<(kStages - 1) * kLoads>();  // or more: short loops wait again below
    if (t + (kStages - 1) * kKeys > end) loads_arrived<0>();
    lds_barrier();
    KeyRing ring;
    const auto keys = (detail::shared_ptr<vec16>)x.keys;
    this->read_first_keys(keys, ring);
#pragma clang loop unroll(full)
    for (int i = 0; i < kMmas; ++i) {
      this->read_key(keys, i + C::kAhead, ring);
      detail::stay();
#pragma clang loop unroll(full)
      for (int q = 0; q < kTilesQ; ++q) multiply_key(i, q, ring, s, scores);
    }
#pragma clang loop unroll(full)
    for (int q = 0; q < kTilesQ; ++q) s.m[q] = this->most(scores[q]);
    u32 stage = 0;
    // Where the last tile is complete, loads need not stop before the end.
    const i32 last = i32(from.limit) - kKeys, ahead = from.limit % kKeys == 0 ? 0 : kStages * kKeys;
    if (active && from.near && t >= r.all.low)
      for (; t + 2 * kKeys + ahead <= end && t + 2 * kKeys <= r.all.high; t += 2 * kKeys) {
        step<true>(t, end, last, r, from, x, stage, true, s, scores, next);
        stage = after(stage);
        step<true>(t + kKeys, end, last, r, from, x, stage, true, s, next, scores);
        stage = after(stage);
      }
    for (; t < end; t += kKeys) {
      step<false>(t, end, last, r, from, x, stage, active, s, scores, next);
      __builtin_memcpy(scores, next, sizeof scores);
      stage = after(stage);
    }
    loads_arrived<0>();  // those past the end
  }

  /// Adds up the sums of lanes, and those of the two waves that have the same queries, of which each stores one half.
  SDX_FN void finish(State& s, u32 split) const {
#pragma clang loop unroll(full)
    for (int q = 0; q < kTilesQ; ++q) s.total[q] += s.added[q][0] + s.added[q][1];
    f32 top[kTilesQ][1], total[kTilesQ][1];
    if constexpr (C::kWavesK == 1) {
#pragma clang loop unroll(full)
      for (int q = 0; q < kTilesQ; ++q) top[q][0] = s.top[q], total[q][0] = s.total[q];
      return Base::finish(top, total, s.acc, split);
    }
#pragma clang loop unroll(full)
    for (int q = 0; q < kTilesQ; ++q) {
      total[q][0] = this->over_lanes(s.total[q], [](f32 x, f32 y) SDX_LAMBDA { return x + y; });
      total[q][0] *= 1 / (1 + detail::pack_loss<T>());
      top[q][0] = s.top[q] * p.factor();
    }
    if (wave_k == 0)
      merge<0>(top, total, s.acc, split);
    else
      merge<kHalf>(top, total, s.acc, split);
    lds_barrier();
  }
  /// The same, for the tiles of queries from First on.
  template <int First>
  SDX_FN void merge(f32 (&top)[kTilesQ][1], f32 (&total)[kTilesQ][1], AccTile& acc, u32 split) const {
    constexpr int kGiven = kHalf - First;  // the first of the other wave's
    using Four = vec<f32, 4>;
    const auto sums = (detail::shared_ptr<Four>)shared + lane;
    const auto numbers = (detail::shared_ptr<f32>)(shared + C::kWaves * kGivenChunks) + lane;
    const u32 other = wave() ^ 1;
#pragma clang loop unroll(full)
    for (int q = 0; q < kHalf; ++q) {
      numbers[(wave() * kHalf + q) * 2 * kWave] = top[kGiven + q][0];
      numbers[(wave() * kHalf + q) * 2 * kWave + kWave] = total[kGiven + q][0];
#pragma clang loop unroll(full)
      for (int d = 0; d < kTilesV; ++d) {
        const auto& c = acc[kGiven + q][d];
        sums[wave() * kGivenChunks + (q * kTilesV + d) * kWave] = Four{c[0], c[1], c[2], c[3]};
      }
    }
    lds_barrier();
#pragma clang loop unroll(full)
    for (int q = First; q < First + kHalf; ++q) {
      const u32 from = other * kHalf + q - First;
      const f32 t = numbers[from * 2 * kWave], its_total = numbers[from * 2 * kWave + kWave],
                m = __builtin_fmaxf(top[q][0], t), base = m == -inf32() ? 0.0f : m;
      const f32 own = detail::fast_exp(top[q][0] - base), its = detail::fast_exp(t - base);
      top[q][0] = m, total[q][0] = total[q][0] * own + its_total * its;
#pragma clang loop unroll(full)
      for (int d = 0; d < kTilesV; ++d) {
        const Four x = sums[(from * kTilesV + d) * kWave];
#pragma clang loop unroll(full)
        for (int e = 0; e < kCount; ++e) acc[q][d][e] = acc[q][d][e] * own + x[e] * its;
      }
      this->store_tile(q, top[q], total[q], acc[q], split);
    }
  }
};

#endif

/// The kernel for P.
template <class P, int kForm>
using AttentionOf =
    select_type<attention_to_lds<P, kForm>(), AttentionDirect<P, kForm>,
                select_type<attention_overlaps<P, kForm>(), AttentionOverlapped<P, kForm>, AttentionKernel<P, kForm>>>;

}  // namespace sdx
