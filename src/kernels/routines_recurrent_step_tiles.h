// The steps of a recurrent layer for many sequences, one launch per step, by matrix instructions: for weights that no
// workgroup can keep (routines_recurrent_tiles.h). src/routines/recurrent.cpp has the equations and the layout of
// tensors.
//
// A workgroup has some tiles of 16 units and some tiles of 16 sequences of one direction. It multiplies the recurrent
// weights (A: the rows of a tile are 16 units of a gate) with the previous state h (B: columns are sequences). Both
// come from memory as float16 with K innermost; waves with the same units, or the same sequences, find them in the
// cache. A wave has all gates of its units, so that one lane has all sums of a unit. h passes between steps in two
// buffers; the cell state, and the state that a step adds to, stay in float32.
#pragma once
#include "matrix.h"
#include "routines_recurrent_scan.h"

namespace sdx {

/// How a workgroup with Tiles tiles of sequences divides a layer of Hidden units with Gates gates. Hidden is a multiple
/// of 8.
template <u32 Hidden, u32 Gates, u32 Tiles>
struct RecurrentStepTiles {
  using M = Matrix<f16>;
  static constexpr u32 kHidden = Hidden, kGates = Gates, kWaves = kThreads / kWave;
  static constexpr u32 kUnitTiles = layout::kRecurrentUnitTiles, kUnits = 16 * kUnitTiles, kSequences = 16 * Tiles;
  // Waves that divide the units, and tiles of sequences of a wave.
  static constexpr u32 kAcross = kUnitTiles, kColumns = Tiles * kAcross / kWaves;
  static constexpr u32 kSteps = (Hidden + M::kStep - 1) / M::kStep, kChunks = Hidden / M::kVec;
  static_assert(Hidden % M::kVec == 0 && Tiles * kAcross % kWaves == 0);
};

namespace recurrent_detail {

/// Eight neighbouring numbers as float16.
SDX_FN vec16 halves_of(const f32* x) {
  struct {
    f16 y[8];
  } h;
#pragma clang loop unroll(full)
  for (u32 k = 0; k < 8; ++k) h.y[k] = cast<f16>(x[k]);
  return bit_cast<vec16>(h);
}

/// The sums of a wave: for each of its tiles of sequences, of all gates of 16 units.
template <class N>
struct StepSums {
  using M = typename N::M;
  typename M::Sums sums[N::kColumns][N::kGates] = {};

  /// r: the direction's weights, [Gates, Hidden, Hidden]. h: its states, [batch, Hidden]: f16, or f32 of the first
  /// step.
  template <class H>
  SDX_FN void add(const f16* r, const H* h, u32 first_unit, u32 first_sequence, u32 batch) {
    const u32 lane = thread_id() % kWave;
    const f16* rows[M::kVectorsA];
    const H* columns[N::kColumns][M::kVectorsB];
#pragma clang loop unroll(full)
    for (u32 v = 0; v < u32(M::kVectorsA); ++v)
      rows[v] = r + min(first_unit + M::row_a(lane, v), N::kHidden - 1) * N::kHidden;
#pragma clang loop unroll(full)
    for (u32 c = 0; c < N::kColumns; ++c)
#pragma clang loop unroll(full)
      for (u32 v = 0; v < u32(M::kVectorsB); ++v)
        columns[c][v] = h + i64(min(first_sequence + c * 16 + M::row_b(lane, v), batch - 1)) * N::kHidden;
#pragma clang loop unroll_count(2)
    for (u32 s = 0; s < N::kSteps; ++s) {
      vec16 a[N::kGates][M::kVectorsA], b[N::kColumns][M::kVectorsB];
      const auto each = [&](u32 vectors, auto f) SDX_LAMBDA {
#pragma clang loop unroll(full)
        for (u32 v = 0; v < vectors; ++v) {
          const u32 chunk = s * (M::kStep / M::kVec) + M::chunk(lane, v);
          const bool inside = N::kHidden % M::kStep == 0 || chunk < N::kChunks;
          f(v, inside ? chunk * M::kVec : 0, inside);
        }
      };
      each(M::kVectorsA, [&](u32 v, u32 k, bool inside) SDX_LAMBDA {
#pragma clang loop unroll(full)
        for (u32 g = 0; g < N::kGates; ++g) {
          a[g][v] = *(const vec16*)(rows[v] + g * (N::kHidden * N::kHidden) + k);
          if (!inside) a[g][v] = vec16{};
        }
      });
      each(M::kVectorsB, [&](u32 v, u32 k, bool inside) SDX_LAMBDA {
#pragma clang loop unroll(full)
        for (u32 c = 0; c < N::kColumns; ++c) {
          if constexpr (sizeof(H) == 2)
            b[c][v] = *(const vec16*)(columns[c][v] + k);
          else
            b[c][v] = halves_of(columns[c][v] + k);
          if (!inside) b[c][v] = vec16{};
        }
      });
#pragma clang loop unroll(full)
      for (u32 g = 0; g < N::kGates; ++g)
#pragma clang loop unroll(full)
        for (u32 c = 0; c < N::kColumns; ++c) M::mma(a[g], b[c], sums[c][g]);
    }
  }
};

}  // namespace recurrent_detail

/// Step `number` of a GRU with linear_before_reset, an LSTM or an RNN. r: [D, gates, H, H]. states: [2, D, batch, H],
/// of which a step reads one half and writes the other. Launch: D * ceil(batch / kSequences) * ceil(H / kUnits)
/// workgroups.
template <class N, i32 Kind>
SDX_FN void routine_recurrent_step_tiles(RecurrentLayer<f32> layer, const f32* xw, const f16* r, const f32* bias,
                                         const f32* h0, const f32* c0, const f32* peepholes, const i32* lengths, f32* y,
                                         f32* h_last, f32* c_last, f16* states, i64 D, i64 steps, i64 batch,
                                         i64 number) {
  using namespace recurrent_detail;
  using M = typename N::M;
  using Unit = RecurrentUnit<Kind, true>;
  constexpr u32 kGates = N::kGates, H = N::kHidden, kAcross = (H + N::kUnits - 1) / N::kUnits;
  static_assert(kGates == Unit::kGates);
  const u32 groups = u32((batch + N::kSequences - 1) / N::kSequences), wave = uniform(thread_id() / kWave),
            lane = thread_id() % kWave, of = block_id() / kAcross, d = of / groups;
  const u32 first_unit = block_id() % kAcross * N::kUnits + wave % N::kAcross * 16,
            first = of % groups * N::kSequences + wave / N::kAcross * (N::kColumns * 16);
  const i64 half = D * batch * H, own_half = d * batch * H;
  StepSums<N> k;
  if (number > 0)
    k.add(r + d * kGates * H * H, states + (number % 2) * half + own_half, first_unit, first, u32(batch));
  else
    k.add(r + d * kGates * H * H, h0 + own_half, first_unit, first, u32(batch));
  f16* next_states = states + ((number + 1) % 2) * half + own_half;
  const bool reversed = d == 0 ? layer.reversed[0] : layer.reversed[1];

  Unit own[M::kAcc.row_count];
  u32 unit[M::kAcc.row_count];
#pragma clang loop unroll(full)
  for (u32 e = 0; e < u32(M::kCount); ++e) {
    const u32 row = e / M::kAcc.row_div % M::kAcc.row_count, u = first_unit + M::acc_row(lane, e);
    unit[row] = u;
    own[row].second = d != 0;
    own[row].load(bias + d * 2 * kGates * H, Kind == 2 ? peepholes + d * 3 * H : peepholes, H, u < H ? u : H - 1);
  }
  // All loads of a tile begin before the first is used, and without a branch.
#pragma clang loop unroll(full)
  for (u32 c = 0; c < N::kColumns; ++c) {
    f32 x[M::kCount][kGates];
    State state[M::kCount];
    i32 length[M::kCount];
    const auto each = [&](auto f) SDX_LAMBDA {
#pragma clang loop unroll(full)
      for (u32 e = 0; e < u32(M::kCount); ++e) {
        const u32 row = e / M::kAcc.row_div % M::kAcc.row_count;
        const i64 b = first + c * 16 + M::acc_col(lane, e);
        f(e, row, min(unit[row], H - 1), b < batch ? b : batch - 1, unit[row] < H && b < batch);
      }
    };
    each([&](u32 e, u32 row, u32 u, i64 b, bool inside) SDX_LAMBDA {
      const i32 n = lengths[b];
      length[e] = n < 0 ? 0 : n > steps ? i32(steps) : n;
    });
    const auto place = [&](u32 e, i64 step) SDX_LAMBDA {
      return step >= length[e] ? step : reversed ? length[e] - 1 - step : step;
    };
    each([&](u32 e, u32 row, u32 u, i64 b, bool inside) SDX_LAMBDA {
      const i64 t = min(place(e, number), max(steps - 1, i64(0)));
      const f32* from = xw + ((d * steps + t) * batch + b) * (kGates * H) + u;
      if (steps > 0)
#pragma clang loop unroll(full)
        for (u32 g = 0; g < kGates; ++g) x[e][g] = from[g * H];
      const i64 at = (d * batch + b) * H + u;
      if constexpr (Kind == 1)
        state[e].h = number > 0 ? y[(place(e, number - 1) * D + d) * batch * H + b * H + u] : h0[at];
      if constexpr (Kind == 2) state[e].c = number > 0 ? c_last[at] : c0[at];
    });
    each([&](u32 e, u32 row, u32 u, i64 b, bool inside) SDX_LAMBDA {
      if (!inside) return;
      const i64 at = (d * batch + b) * H + u, to = (place(e, number) * D + d) * batch * H + b * H + u;
      if (number >= length[e]) {
        if (number < steps) y[to] = 0;
        if (number == 0) {
          h_last[at] = h0[at];
          if constexpr (Kind == 2) c_last[at] = state[e].c;
        }
        return;
      }
      f32 sum[kGates];
#pragma clang loop unroll(full)
      for (u32 g = 0; g < kGates; ++g) sum[g] = k.sums[c][g][e];
      own[row].step(layer, x[e], sum, state[e]);
      y[to] = state[e].h;
      next_states[b * H + u] = cast<f16>(state[e].h);
      if constexpr (Kind == 2) c_last[at] = state[e].c;
      if (number + 1 == length[e]) h_last[at] = state[e].h;
    });
  }
}

}  // namespace sdx
