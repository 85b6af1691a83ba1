// The steps of recurrent layers on GPUs: one launch per step (GRU without linear_before_reset: two).
// src/routines/recurrent.cpp has the equations and the layout of tensors.
//
// The recurrent weights are not transposed, [D, gates, H, H]: those that one unit's gate multiplies h with lie side by
// side. One wave, or some waves of a workgroup, have a unit and divide its sums over h.
#pragma once
#include "recurrent_activations.h"
#include "routines.h"

namespace sdx {

template <class T>
struct RecurrentFunction {
  RecurrentActivation code;
  T alpha, beta;

  SDX_FN T operator()(T x, T clip) const {
    x = x < -clip ? -clip : x > clip ? clip : x;
    switch (code) {
      case RecurrentActivation::kRelu:
        return x > 0 ? x : (x != x ? x : T(0));
      case RecurrentActivation::kTanh:
        return tanh(x);
      case RecurrentActivation::kSigmoid:
        return sigmoid(x);
      case RecurrentActivation::kAffine:
        return alpha * x + beta;
      case RecurrentActivation::kLeakyRelu:
        return x >= 0 ? x : alpha * x;
      case RecurrentActivation::kThresholdedRelu:
        return x >= alpha ? x : T(0);
      case RecurrentActivation::kScaledTanh:
        return alpha * tanh(beta * x);
      case RecurrentActivation::kHardSigmoid: {
        const T y = alpha * x + beta;
        return y < T(0) ? T(0) : y > T(1) ? T(1) : y;
      }
      case RecurrentActivation::kElu:
        return x >= 0 ? x : alpha * expm1(x);
      case RecurrentActivation::kSoftsign:
        return x / (T(1) + (x < 0 ? -x : x));
      case RecurrentActivation::kSoftplus:
        break;
    }
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
  }
  /// With a relative error of up to 2^-16: for layers whose state is multiplied as float16.
  SDX_FN T fast(T x, T clip) const {
    const T bounded = x < -clip ? -clip : x > clip ? clip : x;
    if (code == RecurrentActivation::kTanh) return half_tanh(bounded);
    if (code == RecurrentActivation::kSigmoid) return half_sigmoid(bounded);
    return (*this)(x, clip);
  }
};

/// Parameters of a layer. `functions`: activation kind + 1, for each of two directions.
template <class T>
struct RecurrentLayer {
  i32 kind, variant;
  bool reversed[2];
  RecurrentFunction<T> functions[6];
  T clip;
};

/// How a launch divides the units of a layer. Weight: as they are stored. Hidden: 0 if it is not known. Threads: of a
/// unit, a part of a wave or several waves. Vector: weights that are loaded at once. Sequences: that a wave has at the
/// same time, 1, 4 or 8. Loaded: the weights were in memory before the launches of this run, so that they may be loaded
/// while the one before ends.
template <class Weight_, u32 Hidden, u32 Threads, u32 Vector, u32 Sequences, bool Loaded>
struct RecurrentStep {
  using Weight = Weight_;
  using Scalar = RecurrentStep<Weight, Hidden, Threads, 1, Sequences, Loaded>;  // for any address
  static constexpr u32 kHidden = Hidden, kWaves = Threads > kWave ? Threads / kWave : 1, kVector = Vector,
                       kSequences = Sequences, kThreadsOfUnit = Threads,
                       kLanesOfUnit = Threads < kWave ? Threads : kWave, kUnits = kThreads / kThreadsOfUnit,
                       kChunk = kThreadsOfUnit * Vector;
  static constexpr bool kLoaded = Loaded;
};

namespace recurrent_detail {

/// x of the lane that differs in this bit, and maybe in lower ones.
template <u32 Bit, class T>
SDX_FN T across(T x) {
#if defined(__AMDGCN__)
  if constexpr (Bit == 1) return from_lanes<0xb1>(x);   // quad_perm 1 0 3 2
  if constexpr (Bit == 2) return from_lanes<0x4e>(x);   // quad_perm 2 3 0 1
  if constexpr (Bit == 4) return from_lanes<0x141>(x);  // row_half_mirror
  if constexpr (Bit == 8) return from_lanes<0x140>(x);  // row_mirror
  if constexpr (Bit == 16) return from_other_row(x);
#endif
  return from_lane_xor(x, Bit);
}

/// Adds up sums of all lanes. Of Left sequences, a lane keeps those that its bits from Bit on name, so that each step
/// passes on half as many sums as the one before.
template <u32 Bit, u32 Left, class T, u32 Sequences, u32 Gates>
SDX_FN void add_lanes(T (&x)[Sequences][Gates]) {
  constexpr u32 kHalf = Left / 2;
  if constexpr (Left > 1) {
    const bool upper = (thread_id() & Bit) != 0;
#pragma clang loop unroll(full)
    for (u32 n = 0; n < kHalf; ++n)
#pragma clang loop unroll(full)
      for (u32 g = 0; g < Gates; ++g) {
        const T low = x[n][g], high = x[n + kHalf][g];
        x[n][g] = (upper ? high : low) + across<Bit>(upper ? low : high);
      }
  } else {
#pragma clang loop unroll(full)
    for (u32 g = 0; g < Gates; ++g) x[0][g] += across<Bit>(x[0][g]);
  }
  if constexpr (Bit > 1) add_lanes<Bit / 2, Left == 1 ? 1 : kHalf>(x);
}

/// Marks x as known before.
SDX_FN void hold(f32& x) {
#if defined(__AMDGCN__)
  asm volatile("" : "+v"(x));
#elif defined(__NVPTX__)
  asm volatile("" : "+f"(x));
#endif
}
SDX_FN void hold(f64& x) {
#if defined(__AMDGCN__)
  asm volatile("" : "+v"(x));
#elif defined(__NVPTX__)
  asm volatile("" : "+d"(x));
#endif
}

static SDX_SHARED u64 recurrent_sums[4 * 8 * kThreads / 32];

/// Sums of a unit's gates [First, First + Gates) of the products of weights and h.
template <class N, class T, u32 First, u32 Gates>
struct UnitSums {
  using Weight = typename N::Weight;
  // Registers for vectors of weights, and of h. Of several sequences, those of the sums take their place.
  static constexpr u32 kMostVectors = N::kSequences == 1 ? 16 : 8, kMostOfH = 8;
  static constexpr u32 kChunks = (N::kHidden + N::kChunk - 1) / N::kChunk, kMost = kMostVectors / Gates,
                       kRounds = N::kHidden ? (kChunks + kMost - 1) / kMost : 0,
                       kEach = N::kHidden ? (kChunks + kRounds - 1) / kRounds : kMost;  // chunks of a round
  static constexpr bool kWhole = N::kHidden != 0 && N::kHidden % N::kChunk == 0 && kChunks % kEach == 0;
  static constexpr u32 kOfH = 16 / sizeof(T) < N::kVector ? 16 / sizeof(T) : N::kVector, kParts = N::kVector / kOfH,
                       kAll = kEach * kParts,
                       kTogether = kMostOfH / N::kSequences < kAll ? kMostOfH / N::kSequences : kAll;
  Pack<Weight, N::kVector> w[kEach][Gates];
  T sum[N::kSequences][Gates] = {};

  static SDX_FN u32 position(u32 first, u32 chunk) {
    return first + chunk * N::kChunk + thread_id() % N::kThreadsOfUnit * N::kVector;
  }
  /// rows: of the unit's first gate. H: the hidden size, a multiple of the vectors' length.
  SDX_FN void load(const Weight* rows, u32 first, u32 H) {
#pragma clang loop unroll(full)
    for (u32 c = 0; c < kEach; ++c) {
      const u32 k = kWhole ? position(first, c) : min(position(first, c), H - N::kVector);
#pragma clang loop unroll(full)
      for (u32 g = 0; g < Gates; ++g) w[c][g] = load_pack<N::kVector>(rows + i64(First + g) * H * H + k);
    }
  }
  /// Has the weights in registers.
  SDX_FN void keep_weights() {
#if defined(__NVPTX__)
#pragma clang loop unroll(full)
    for (u32 c = 0; c < kEach; ++c)
#pragma clang loop unroll(full)
      for (u32 g = 0; g < Gates; ++g) {
        constexpr u32 kWords = sizeof(w[c][g]) / 4;
        if constexpr (kWords > 0) {
          u32 words[kWords];
          __builtin_memcpy(words, &w[c][g], sizeof words);
#pragma clang loop unroll(full)
          for (u32 k = 0; k < kWords; ++k) asm volatile("" : "+r"(words[k]));
          __builtin_memcpy(&w[c][g], words, sizeof words);
        }
      }
#endif
  }
  SDX_FN void add(const T* const (&h)[N::kSequences], u32 first, u32 H) {
#pragma clang loop unroll(full)
    for (u32 at = 0; at < kAll; at += kTogether) {
      Pack<T, kOfH> x[kTogether][N::kSequences];
#pragma clang loop unroll(full)
      for (u32 j = 0; j < kTogether; ++j) {
        const u32 k = position(first, (at + j) / kParts);
#pragma clang loop unroll(full)
        for (u32 n = 0; n < N::kSequences; ++n)
          if (at + j < kAll)
            x[j][n] = load_pack<kOfH>(h[n] + (kWhole ? k : min(k, H - N::kVector)) + (at + j) % kParts * kOfH);
      }
      loads_in_flight();
#pragma clang loop unroll(full)
      for (u32 j = 0; j < kTogether; ++j) {
        if (at + j >= kAll) continue;
        const u32 c = (at + j) / kParts;
        const bool inside = kWhole || position(first, c) < H;
#pragma clang loop unroll(full)
        for (u32 l = 0; l < kOfH; ++l)
#pragma clang loop unroll(full)
          for (u32 g = 0; g < Gates; ++g) {
            const T loaded = T(cast<T>(from_bits<Weight>(w[c][g][(at + j) % kParts * kOfH + l])));
            const T weight = inside ? loaded : T(0);
#pragma clang loop unroll(full)
            for (u32 n = 0; n < N::kSequences; ++n) {
              const T hk = inside ? from_bits<T>(x[j][n][l]) : T(0);
              sum[n][g] = fma(weight, hk, sum[n][g]);
            }
          }
      }
    }
  }
  /// Adds the rest of the row, after what load() and add() had at 0.
  SDX_FN void add_rest(const Weight* rows, const T* const (&h)[N::kSequences], u32 H) {
    for (u32 first = kEach * N::kChunk; first < H; first += kEach * N::kChunk) {
      load(rows, first, H);
      add(h, first, H);
    }
  }
  /// Adds up the sums of the unit's threads: of the lane's sequence, in the unit's first wave.
  SDX_FN void finish(T (&out)[4]) {
    add_lanes<N::kLanesOfUnit / 2, N::kSequences>(sum);
    if constexpr (N::kWaves > 1) {
      auto* all = (__attribute__((address_space(3))) T*)recurrent_sums;
      constexpr u32 kLanes = kWave / N::kSequences;
      const u32 wave = thread_id() / kWave, own = thread_id() % kWave / kLanes;
      lds_barrier();  // of the sums before
      if (thread_id() % kLanes == 0)
#pragma clang loop unroll(full)
        for (u32 g = 0; g < Gates; ++g) all[(wave * N::kSequences + own) * Gates + g] = sum[0][g];
      lds_barrier();
      const u32 from = wave / N::kWaves * N::kWaves;
#pragma clang loop unroll(full)
      for (u32 g = 0; g < Gates; ++g) {
        sum[0][g] = all[(from * N::kSequences + own) * Gates + g];
#pragma clang loop unroll(full)
        for (u32 k = 1; k < N::kWaves; ++k) sum[0][g] += all[((from + k) * N::kSequences + own) * Gates + g];
      }
    }
#pragma clang loop unroll(full)
    for (u32 g = 0; g < Gates; ++g) out[First + g] = sum[0][g];
  }
};

/// A launch's arguments.
template <class T, class Weight>
struct StepTensors {
  const T* xw;
  const Weight* r;
  const T *bias, *h0, *c0, *peepholes;
  const i32* lengths;
  T *y, *h_last, *c_last, *gated;

  /// As they may be used after the launch before.
  SDX_FN StepTensors after_launch() const {
#if defined(__NVPTX__) && __CUDA_ARCH__ >= 900
    wait_for_launch();
    return {after_wait(xw),      r,
            after_wait(bias),    after_wait(h0),
            after_wait(c0),      after_wait(peepholes),
            after_wait(lengths), after_wait(y),
            after_wait(h_last),  after_wait(c_last),
            after_wait(gated)};
#else
    return *this;
#endif
  }
};

/// Step `number` (or phase of a step) of `together` <= N::kSequences sequences from `first` on, units of a workgroup
/// from `block` on.
template <class N, i32 Kind, bool Two, bool Second, class T>
SDX_FN void step(const RecurrentLayer<T>& layer, StepTensors<T, typename N::Weight> p, i64 D, i64 steps, i64 batch,
                 u32 H, i64 s, i64 d, i64 first, i64 together, u32 block) {
  constexpr u32 kAll = Kind == 0 ? 1 : Kind == 1 ? 3 : 4;
  // The gates that this launch sums.
  constexpr u32 kFirst = Second ? 2 : 0, kGates = Two ? (Second ? 1 : 2) : kAll;
  const u32 wanted = block * N::kUnits + thread_id() / N::kThreadsOfUnit, i = min(wanted, H - 1);
  const auto* rows = p.r + (d * kAll * H + i) * H;
  UnitSums<N, T, kFirst, kGates> sums;
  if constexpr (N::kLoaded) {
    sums.load(rows, 0, H);
    sums.keep_weights();
    p = p.after_launch();
  } else {
    p = p.after_launch();
    sums.load(rows, 0, H);
  }
  const bool reversed = d == 0 ? layer.reversed[0] : layer.reversed[1];
  const auto length_of = [&](i64 b) SDX_LAMBDA -> i64 {
    const i64 given = p.lengths[b];
    return given < 0 ? 0 : given > steps ? steps : given;
  };
  // The state before, which is in the row of y that the step before wrote. Of a sequence that has ended, anything.
  const auto state_of = [&](i64 b) SDX_LAMBDA -> const T* {
    const T* none = p.h0 + (d * batch + b) * H;
    if (s == 0) return none;
    const i64 before = reversed ? length_of(b) - s : s - 1;
    return reversed && before < 1 ? none : p.y + ((before * D + d) * batch + b) * H;
  };
  const T* h[N::kSequences];
#pragma clang loop unroll(full)
  for (u32 n = 0; n < N::kSequences; ++n) {
    const i64 b = first + (n < together ? n : 0);
    h[n] = Second ? p.gated + (d * batch + b) * H : state_of(b);
  }
  // What this lane's sequence adds to the sums is loaded meanwhile.
  constexpr u32 kLanes = N::kLanesOfUnit / N::kSequences;
  const u32 own = thread_id() % N::kLanesOfUnit / kLanes;
  const bool mine =
      thread_id() % N::kThreadsOfUnit < N::kLanesOfUnit && thread_id() % kLanes == 0 && own < together && wanted < H;
  const i64 b = first + (own < together ? own : 0), db = d * batch + b, length = length_of(b);
  const bool active = s < length;
  const i64 t = reversed ? length - 1 - s : s;
  const T *wb = p.bias + d * 2 * kAll * H, *rb = wb + kAll * H;
  const T* x = active ? p.xw + ((d * steps + t) * batch + b) * (kAll * H) : wb;
  T in[kAll], r_bias = T(0), peephole[3] = {}, c = T(0), z = T(0);
#pragma clang loop unroll(full)
  for (u32 g = kFirst; g < kFirst + kGates; ++g) {
    in[g] = x[g * H + i] + wb[g * H + i];
    if (Kind == 1 && g == 2)
      r_bias = rb[g * H + i];
    else
      in[g] += rb[g * H + i];
  }
  T before = state_of(b)[i];
  if constexpr (Kind == 2) {
#pragma clang loop unroll(full)
    for (u32 g = 0; g < 3; ++g) peephole[g] = p.peepholes[(d * 3 + g) * H + i];
    c = (s == 0 ? p.c0 : p.c_last)[db * H + i];
  }
  T *rh = p.gated + db * H, *zs = p.gated + (D * batch + db) * H;
  if constexpr (Second) z = zs[i];

  sums.add(h, 0, H);
  sums.add_rest(rows, h, H);
  T sum[4] = {};
  sums.finish(sum);
  // Otherwise they would be loaded here, by the lanes that need them.
#pragma clang loop unroll(full)
  for (u32 g = kFirst; g < kFirst + kGates; ++g) hold(in[g]);
  hold(before);
  if constexpr (Kind == 1) hold(r_bias);
  if constexpr (Second) hold(z);
  if constexpr (Kind == 2) {
    hold(c);
#pragma clang loop unroll(full)
    for (u32 g = 0; g < 3; ++g) hold(peephole[g]);
  }
  if (!mine) return;
  if (!active) {
    if (Second) return;
    if (s < steps) p.y[((s * D + d) * batch + b) * H + i] = T(0);
    if (s == 0) {  // the sequence is empty
      p.h_last[db * H + i] = before;
      if (Kind == 2) p.c_last[db * H + i] = c;
    }
    return;
  }
  // Uses constant indices only, so that no switch over the functions remains at run time.
  const auto apply = [&](i32 k, T v) SDX_LAMBDA {
    return d == 0 ? layer.functions[k](v, layer.clip) : layer.functions[Kind + 1 + k](v, layer.clip);
  };
  T next;
  if constexpr (Kind == 0) {
    next = apply(0, in[0] + sum[0]);
  } else if constexpr (Kind == 1) {
    if constexpr (!Second) {
      z = apply(0, in[0] + sum[0]);
      const T reset = apply(0, in[1] + sum[1]);
      if constexpr (Two) {
        rh[i] = reset * before;
        zs[i] = z;
        return;
      } else {
        const T n = apply(1, in[2] + reset * (r_bias + sum[2]));
        next = (T(1) - z) * n + z * before;
      }
    } else {
      const T n = apply(1, in[2] + r_bias + sum[2]);
      next = (T(1) - z) * n + z * before;
    }
  } else {
    const T input = apply(0, in[0] + sum[0] + peephole[0] * c);
    const T forget = layer.variant != 0 ? T(1) - input : apply(0, in[2] + sum[2] + peephole[2] * c);
    const T cell = forget * c + input * apply(1, in[3] + sum[3]);
    const T out = apply(0, in[1] + sum[1] + peephole[1] * cell);
    p.c_last[db * H + i] = cell;
    next = out * apply(2, cell);
  }
  p.y[((t * D + d) * batch + b) * H + i] = next;
  if (s == length - 1) p.h_last[db * H + i] = next;
}

}  // namespace recurrent_detail

/// Step (or phase of a step) `number` of all sequences, of which a workgroup has up to `together` <= N::kSequences of
/// one direction. r: [D, gates, H, H]. gated: r * h and z of a GRU without linear_before_reset (Two), [2, D, B, H].
template <class N, i32 Kind, bool Two, class T>
SDX_FN void routine_recurrent(const RecurrentLayer<T>& layer, const T* xw, const typename N::Weight* r, const T* bias,
                              const T* h0, const T* c0, const T* peepholes, const i32* lengths, T* y, T* h_last,
                              T* c_last, T* gated, i64 D, i64 steps, i64 batch, i64 hidden, i64 together, i64 number) {
  using namespace recurrent_detail;
#if defined(__NVPTX__) && __CUDA_ARCH__ >= 900
  start_next_launch();
#endif
  const u32 H = N::kHidden ? N::kHidden : u32(hidden), blocks = (H + N::kUnits - 1) / N::kUnits;
  const i64 groups = (batch + together - 1) / together;
  const bool packed = aligned(r) && aligned(h0) && aligned(y) && aligned(gated);
  const StepTensors<T, typename N::Weight> p = {xw, r, bias, h0, c0, peepholes, lengths, y, h_last, c_last, gated};
  for (i64 w = block_id(); w < D * groups * blocks; w += block_count()) {
    const i64 d = w / blocks / groups, first = w / blocks % groups * together;
    const u32 block = u32(w % blocks);
    const i64 count = batch - first < together ? batch - first : together;
    const auto run = [&]<class M>(M) SDX_LAMBDA {
      if constexpr (!Two)
        step<M, Kind, Two, false>(layer, p, D, steps, batch, H, number, d, first, count, block);
      else if (number % 2 == 0)
        step<M, Kind, Two, false>(layer, p, D, steps, batch, H, number / 2, d, first, count, block);
      else
        step<M, Kind, Two, true>(layer, p, D, steps, batch, H, number / 2, d, first, count, block);
    };
    if (N::kVector == 1 || packed)
      run(N{});
    else
      run(typename N::Scalar{});
  }
}

}  // namespace sdx
