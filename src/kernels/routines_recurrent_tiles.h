// All steps of a recurrent layer in one launch for many sequences, by matrix instructions, where the recurrent weights
// fit the registers of a workgroup as float16. src/routines/recurrent.cpp has the equations and the layout of tensors.
//
// A workgroup has all units and some tiles of 16 sequences of one direction. In each step it multiplies the weights (A:
// the rows of a tile are 16 units of a gate) with the previous state h (B: columns are sequences), which lies in shared
// memory as float16. A wave has the tiles of all gates of its units, so that one lane has all sums of a unit. The cell
// state and the state that a step adds to stay in float32.
#pragma once
#include "matrix.h"
#include "routines_recurrent_scan.h"

namespace sdx {

/// How a workgroup divides a layer of Hidden units with Gates gates.
template <u32 Hidden, u32 Gates>
struct RecurrentTiles {
  using M = Matrix<f16>;
  static constexpr u32 kHidden = Hidden, kGates = Gates, kTiles = (Hidden + 15) / 16, kWaves = kThreads / kWave;
  static constexpr u32 kAcross = kTiles < kWaves ? kTiles : kWaves;  // waves that divide the units
  static constexpr u32 kPer = (kTiles + kAcross - 1) / kAcross;      // tiles of units of a wave
  static constexpr u32 kColumns = kWaves / kAcross, kSequences = 16 * kColumns;
  static constexpr u32 kSteps = (Hidden + M::kStep - 1) / M::kStep, kK = kSteps * M::kStep;
  // Rows of shared memory, in 16 bytes. Those that lanes read together begin in different banks: lanes of a step read
  // four vectors of each of two rows (mma) or one vector of each of eight rows.
  static constexpr u32 kChunks = kK / M::kVec;
  static constexpr SDX_FN u32 row_of_chunks(u32 chunks) {
    return M::kFamily == MatrixFamily::kMma ? chunks + (12 - chunks % 8) % 8 : chunks | 1;
  }
  static constexpr u32 kRow = row_of_chunks(kChunks);
  // The weights pass through shared memory, so many steps at a time that it has 48 KB at most: CUDA 12.8's assembler
  // takes no more (13.0's does), and gfx12 has 64.
  static constexpr u32 kShared = (48 << 10) / sizeof(vec16), kStates = 2 * kSequences * kRow;
  static constexpr SDX_FN u32 row_of_steps(u32 steps) { return row_of_chunks(steps * (M::kStep / M::kVec)); }
  static constexpr SDX_FN u32 steps_at_once() {
    u32 steps = kSteps;
    while (steps > 1 && kStates + kWaves * 16 * row_of_steps(steps) > kShared) steps = (steps + 1) / 2;
    return steps;
  }
  static constexpr u32 kAtOnce = steps_at_once(), kWeightRow = row_of_steps(kAtOnce),
                       kWeights = kWaves * 16 * kWeightRow;
  static_assert(kStates + kWeights <= kShared);
  // Of a lane's sums: rows (units) and columns (sequences) that differ.
  static constexpr u32 kUnitRows = M::kAcc.row_count, kUnitColumns = u32(M::kCount) / kUnitRows;
  static constexpr SDX_FN u32 row_of(u32 e) { return e / M::kAcc.row_div % M::kAcc.row_count; }
  static constexpr SDX_FN u32 column_of(u32 e) {
    return e % M::kAcc.col_mod + (M::kAcc.col_high ? e / 4 * M::kAcc.col_mod : 0);
  }
  static constexpr SDX_FN u32 element(u32 row, u32 column) {  // that has these
    for (u32 e = 0; e < u32(M::kCount); ++e)
      if (row_of(e) == row && column_of(e) == column) return e;
    return 0;
  }
};

namespace recurrent_detail {

template <class N>
alignas(16) static SDX_SHARED vec16 tile_states[N::kStates];
template <class N>
alignas(16) static SDX_SHARED vec16 tile_weights[N::kWeights];

/// The weights of a wave's tiles, as operands A.
template <class N>
struct TileWeights {
  using M = typename N::M;
  using SharedHalf = __attribute__((address_space(3))) f16;
  vec16 a[N::kPer][N::kGates][N::kSteps][M::kVectorsA];

  /// All threads must call it. r: of the direction, [Hidden, Gates * Hidden]. first: the wave's first tile.
  SDX_FN void load(const f32* r, u32 first) {
    const u32 wave = thread_id() / kWave, lane = thread_id() % kWave;
    auto* rows = tile_weights<N> + wave * 16 * N::kWeightRow;
#pragma clang loop unroll(full)
    for (u32 j = 0; j < N::kPer; ++j)
#pragma clang loop unroll(full)
      for (u32 g = 0; g < N::kGates; ++g)
#pragma clang loop unroll(full)
        for (u32 from = 0; from < N::kSteps; from += N::kAtOnce) {
          for (u32 i = lane; i < 16 * N::kAtOnce * M::kStep; i += kWave) {
            const u32 at = i / 16, k = from * M::kStep + at, unit = (first + j * N::kAcross) * 16 + i % 16;
            const bool inside = k < N::kHidden && unit < N::kHidden;
            const f32 x = r[inside ? k * (N::kGates * N::kHidden) + g * N::kHidden + unit : 0];
            ((SharedHalf*)rows)[i % 16 * N::kWeightRow * M::kVec + at] = cast<f16>(inside ? x : 0.0f);
          }
          barrier();
#pragma clang loop unroll(full)
          for (u32 s = from; s < from + N::kAtOnce && s < N::kSteps; ++s)
#pragma clang loop unroll(full)
            for (u32 v = 0; v < u32(M::kVectorsA); ++v)
              a[j][g][s][v] =
                  rows[M::row_a(lane, v) * N::kWeightRow + (s - from) * (M::kStep / M::kVec) + M::chunk(lane, v)];
          barrier();
        }
  }

  /// sums += weights . h, for the tile of 16 sequences whose first row is `h`.
  template <class Shared>
  SDX_FN void multiply(Shared* h, typename M::Sums (&sums)[N::kPer][N::kGates]) const {
    const u32 lane = thread_id() % kWave;
#pragma clang loop unroll(full)
    for (u32 s = 0; s < N::kSteps; ++s) {
      vec16 b[M::kVectorsB];
#pragma clang loop unroll(full)
      for (u32 v = 0; v < u32(M::kVectorsB); ++v)
        b[v] = h[M::row_b(lane, v) * N::kRow + s * (M::kStep / M::kVec) + M::chunk(lane, v)];
#pragma clang loop unroll(full)
      for (u32 j = 0; j < N::kPer; ++j)
#pragma clang loop unroll(full)
        for (u32 g = 0; g < N::kGates; ++g) M::mma(a[j][g][s], b, sums[j][g]);
    }
  }
};

}  // namespace recurrent_detail

/// All steps of a GRU with linear_before_reset, an LSTM or an RNN. A workgroup has N::kSequences sequences of a
/// direction, or fewer at the end.
template <class N, i32 Kind>
SDX_FN void routine_recurrent_tiles(RecurrentLayer<f32> layer, const f32* xw, const f32* r, const f32* bias,
                                    const f32* h0, const f32* c0, const f32* peepholes, const i32* lengths, f32* y,
                                    f32* h_last, f32* c_last, i64 D, i64 steps, i64 batch) {
  using namespace recurrent_detail;
  using M = typename N::M;
  using Unit = RecurrentUnit<Kind, true>;
  constexpr u32 kGates = N::kGates, H = N::kHidden, kBuffer = N::kStates / 2;
  static_assert(kGates == Unit::kGates);
  auto* h = tile_states<N>;
  const u32 lane = thread_id() % kWave, wave = uniform(thread_id() / kWave), tile = wave % N::kAcross;
  const u32 place = wave / N::kAcross * 16;  // of the wave's first sequence
  const bool works = N::kColumns * N::kAcross == N::kWaves || wave < N::kColumns * N::kAcross;
  const i64 groups = (batch + N::kSequences - 1) / N::kSequences, d = block_id() / groups;
  const i64 first = block_id() % groups * N::kSequences;
  const i64 count = batch - first < N::kSequences ? batch - first : N::kSequences;
  const bool reversed = d == 0 ? layer.reversed[0] : layer.reversed[1];
  const auto length_of = [&](i64 sequence) -> i32 {
    const i32 n = lengths[sequence];
    return n < 0 ? 0 : n > steps ? i32(steps) : n;
  };
  i32 longest = 0;
  for (i64 k = 0; k < count; ++k) longest = max(longest, length_of(first + k));

  TileWeights<N> weights;
  weights.load(r + d * H * (kGates * H), tile);

  // What belongs to a lane: units by tile and row, sequences by column.
  u32 unit[N::kPer][N::kUnitRows];
  bool has_unit[N::kPer][N::kUnitRows], has_sequence[N::kUnitColumns];
  Unit own[N::kPer][N::kUnitRows];
  i64 sequence[N::kUnitColumns];
  i32 length[N::kUnitColumns];
#pragma clang loop unroll(full)
  for (u32 j = 0; j < N::kPer; ++j)
#pragma clang loop unroll(full)
    for (u32 k = 0; k < N::kUnitRows; ++k) {
      const u32 u = (tile + j * N::kAcross) * 16 + M::acc_row(lane, N::element(k, 0));
      has_unit[j][k] = works && (H % (16 * N::kAcross) == 0 || u < H);
      unit[j][k] = H % (16 * N::kAcross) == 0 || u < H ? u : 0;
      own[j][k].second = d != 0;
      own[j][k].load(bias + d * 2 * kGates * H, Kind == 2 ? peepholes + d * 3 * H : peepholes, H, unit[j][k]);
    }
#pragma clang loop unroll(full)
  for (u32 k = 0; k < N::kUnitColumns; ++k) {
    const i64 b = i64(place + M::acc_col(lane, N::element(0, k)));
    has_sequence[k] = b < count;
    sequence[k] = first + (has_sequence[k] ? b : 0);
    length[k] = length_of(sequence[k]);
  }
  State state[N::kPer][M::kCount];
  const auto each = [&](auto f) SDX_LAMBDA {
#pragma clang loop unroll(full)
    for (u32 j = 0; j < N::kPer; ++j)
#pragma clang loop unroll(full)
      for (u32 e = 0; e < u32(M::kCount); ++e) f(j, e, N::row_of(e), N::column_of(e));
  };
  each([&](u32 j, u32 e, u32 row, u32 column) SDX_LAMBDA {
    const i64 at = (d * batch + sequence[column]) * H + unit[j][row];
    state[j][e] = {h0[at], Kind == 2 ? c0[at] : 0.0f};
  });

  // Rows of sequences and units that do not exist stay 0.
  for (u32 k = thread_id(); k < 2 * kBuffer; k += kThreads) h[k] = vec16{};
  lds_barrier();
  const auto send = [&](u32 buffer) SDX_LAMBDA {
    auto* rows = (typename TileWeights<N>::SharedHalf*)(h + buffer * kBuffer + place * N::kRow);
    each([&](u32 j, u32 e, u32 row, u32 column) SDX_LAMBDA {
      if (has_unit[j][row]) rows[M::acc_col(lane, e) * (N::kRow * M::kVec) + unit[j][row]] = cast<f16>(state[j][e].h);
    });
  };
  send(0);
  f32 x[N::kPer][M::kCount][kGates];
  const auto load_x = [&](i32 s) SDX_LAMBDA {
    const f32* from[N::kUnitColumns];
#pragma clang loop unroll(full)
    for (u32 k = 0; k < N::kUnitColumns; ++k) {
      const i32 t = s >= length[k] ? 0 : reversed ? length[k] - 1 - s : s;
      from[k] = xw + ((d * steps + t) * batch + sequence[k]) * (kGates * H);
    }
    each([&](u32 j, u32 e, u32 row, u32 column) SDX_LAMBDA {
#pragma clang loop unroll(full)
      for (u32 g = 0; g < kGates; ++g) x[j][e][g] = from[column][g * H + unit[j][row]];
    });
  };
  if (longest > 0) load_x(0);
  lds_barrier();

  for (i32 s = 0; s < longest; ++s) {
    const u32 from = s % 2;
    const bool more = s + 1 < longest;
    if (works) {
      typename M::Sums sums[N::kPer][kGates] = {};
      weights.multiply(h + from * kBuffer + place * N::kRow, sums);
      each([&](u32 j, u32 e, u32 row, u32 column) SDX_LAMBDA {
        f32 sum[kGates];
#pragma clang loop unroll(full)
        for (u32 g = 0; g < kGates; ++g) sum[g] = sums[j][g][e];
        State next = state[j][e];
        own[j][row].step(layer, x[j][e], sum, next);
        if (s < length[column]) state[j][e] = next;
      });
      if (more) send(1 - from);
#pragma clang loop unroll(full)
      for (u32 k = 0; k < N::kUnitColumns; ++k) {
        if (s >= length[k] || !has_sequence[k]) continue;
        const i64 t = reversed ? length[k] - 1 - s : s;
        f32* to = y + ((t * D + d) * batch + sequence[k]) * H;
        each([&](u32 j, u32 e, u32 row, u32 column) SDX_LAMBDA {
          if (column == k && has_unit[j][row]) to[unit[j][row]] = state[j][e].h;
        });
      }
      if (more) load_x(s + 1);
    }
    lds_barrier();
  }
  each([&](u32 j, u32 e, u32 row, u32 column) SDX_LAMBDA {
    if (!has_unit[j][row] || !has_sequence[column]) return;
    for (i64 t = length[column]; t < steps; ++t) y[((t * D + d) * batch + sequence[column]) * H + unit[j][row]] = 0.0f;
    const i64 at = (d * batch + sequence[column]) * H + unit[j][row];
    h_last[at] = state[j][e].h;
    if constexpr (Kind == 2) c_last[at] = state[j][e].c;
  });
}

}  // namespace sdx
