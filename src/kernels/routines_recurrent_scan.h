// All steps of a recurrent layer in one launch, where the recurrent weights fit the registers of a workgroup, or on
// Hopper of a cluster of them. src/routines/recurrent.cpp has the equations and the layout of tensors.
//
// A workgroup keeps the weights of kThreads / S units (of each gate): S neighbouring lanes divide the sum over the
// previous state h, four rows of every 4 S to each. Those that exceed a thread's registers are in shared memory. h is
// in the shared memory of every workgroup of the cluster, and each unit's lanes write its new value there. Up to S
// sequences take part; lane k of a unit has the state of the k-th.
#pragma once
#include "routines_recurrent.h"
#include "tma_copy.h"

namespace sdx {

extern __attribute__((address_space(3), aligned(1024))) vec16 dynamic_lds[];

/// Sizes that the launch decides. C: workgroups of a cluster. Of a lane's fours of rows (of each gate), Held are in
/// registers, as T: float32, or float16 for models whose weights have 16 bits.
template <u32 Hidden, u32 Slices, u32 C, u32 Held, class T>
struct RecurrentDivision {
  using Weight = T;
  static constexpr u32 kHidden = Hidden, kSlices = Slices, kCluster = C, kUnits = kThreads / Slices;
  static constexpr u32 kFours = (Hidden + 4 * Slices - 1) / (4 * Slices), kRows = kFours * 4 * Slices, kHeld = Held;
  static_assert(kUnits * C >= Hidden && Slices <= 16 && Held <= kFours);
};

namespace recurrent_detail {

template <u32 Count>
alignas(16) static SDX_SHARED f32 states[Count];  // two of each sequence: [2][S][rows]

/// Marks x as known in a register only, so that it is not loaded or computed again in each step, nor before it.
SDX_FN void keep(u32& x) {
#if defined(__AMDGCN__)
  asm volatile("" : "+v"(x));
#elif defined(__NVPTX__)
  asm volatile("" : "+r"(x));
#endif
}

/// Four numbers as T.
template <class T>
struct FourOf {
  u32 words[sizeof(T)];
};
template <class T>
SDX_FN FourOf<T> packed(const f32 (&x)[4]) {
  const T y[4] = {cast<T>(x[0]), cast<T>(x[1]), cast<T>(x[2]), cast<T>(x[3])};
  return __builtin_bit_cast(FourOf<T>, y);
}
template <class T>
SDX_FN f32 unpacked(const FourOf<T>& x, u32 e) {
  if constexpr (sizeof(T) == 4)
    return bit_cast<f32>(x.words[e]);
  else
    return cast<f32>(bit_cast<T>(u16(x.words[e / 2] >> (e % 2 * 16))));
}

/// The weights of a thread, and sums with them. Gates: those that one of a unit's weights belong to.
template <class N, u32 Gates>
struct Weights {
  using T = typename N::Weight;
  using Four = f32 __attribute__((ext_vector_type(4)));
  using Words = u32 __attribute__((ext_vector_type(sizeof(T))));  // of four weights
  using Shared = __attribute__((address_space(3))) Words;
  static constexpr u32 kLeft = N::kFours - N::kHeld;
  FourOf<T> w[Gates][N::kHeld ? N::kHeld : 1];

  static SDX_FN Shared* more() { return (Shared*)dynamic_lds; }
  static SDX_FN FourOf<T> read(const f32* r, u32 unit, u32 slice, u32 four, u32 gate) {
    f32 x[4];
#pragma clang loop unroll(full)
    for (u32 e = 0; e < 4; ++e) {
      const u32 row = (four * N::kSlices + slice) * 4 + e;
      const bool inside =
          (N::kRows == N::kHidden || row < N::kHidden) && (N::kUnits * N::kCluster == N::kHidden || unit < N::kHidden);
      const f32 y = r[inside ? row * (Gates * N::kHidden) + gate * N::kHidden + unit : 0];
      x[e] = inside ? y : 0.0f;
    }
    return packed<T>(x);
  }
  SDX_FN void load(const f32* r, u32 unit, u32 slice) {
#pragma clang loop unroll(full)
    for (u32 i = 0; i < N::kHeld; ++i)
#pragma clang loop unroll(full)
      for (u32 g = 0; g < Gates; ++g) w[g][i] = read(r, unit, slice, i, g);
#pragma clang loop unroll(full)
    for (u32 i = 0; i < N::kHeld; ++i)
#pragma clang loop unroll(full)
      for (u32 g = 0; g < Gates; ++g)
#pragma clang loop unroll(full)
        for (u32 k = 0; k < sizeof(T); ++k) keep(w[g][i].words[k]);
    if constexpr (kLeft > 0)
#pragma clang loop unroll_count(4)
      for (u32 i = 0; i < kLeft; ++i)
#pragma clang loop unroll(full)
        for (u32 g = 0; g < Gates; ++g)
          more()[(i * Gates + g) * kThreads + thread_id()] =
              __builtin_bit_cast(Words, read(r, unit, slice, N::kHeld + i, g));
  }

  /// Sums over the states of Sequences neighbours from `h` on (in its buffer) of the gates [First, First + Count), in
  /// all lanes of a unit.
  template <u32 First, u32 Count, u32 Sequences, class State>
  SDX_FN void sums(State* h, u32 slice, f32 (&sum)[Sequences][Count]) const {
    constexpr u32 kSums = Count * Sequences, kParts = kSums == 1 ? 4 : kSums == 2 ? 2 : 1;  // that do not wait
    f32 part[Sequences][Count][kParts] = {};
    const auto add = [&](u32 i, auto weights) SDX_LAMBDA {
      Four x[Sequences];
#pragma clang loop unroll(full)
      for (u32 k = 0; k < Sequences; ++k)
        x[k] = *(const __attribute__((address_space(3))) Four*)(h + k * N::kRows + (i * N::kSlices + slice) * 4);
#pragma clang loop unroll(full)
      for (u32 g = 0; g < Count; ++g) {
        const FourOf<T> own = weights(First + g);
#pragma clang loop unroll(full)
        for (u32 e = 0; e < 4; ++e) {
          const f32 weight = unpacked<T>(own, e);
#pragma clang loop unroll(full)
          for (u32 k = 0; k < Sequences; ++k) part[k][g][e % kParts] = fma(x[k][e], weight, part[k][g][e % kParts]);
        }
      }
    };
#pragma clang loop unroll(full)
    for (u32 i = 0; i < N::kHeld; ++i) add(i, [&](u32 g) SDX_LAMBDA { return w[g][i]; });
    if constexpr (kLeft > 0) {
      u32 at = thread_id();
      keep(at);  // loads that are known to be the same for all sequences would be moved to registers
#pragma clang loop unroll(full)
      for (u32 i = 0; i < kLeft; ++i)
        add(N::kHeld + i, [&](u32 g) SDX_LAMBDA {
          return __builtin_bit_cast(FourOf<T>, Words(more()[(i * Gates + g) * kThreads + at]));
        });
    }
#pragma clang loop unroll(full)
    for (u32 k = 0; k < Sequences; ++k)
#pragma clang loop unroll(full)
      for (u32 g = 0; g < Count; ++g) {
#pragma clang loop unroll(full)
        for (u32 e = 1; e < kParts; ++e) part[k][g][0] += part[k][g][e];
        sum[k][g] = reduce_lanes(part[k][g][0], N::kSlices, [](f32 a, f32 b) { return a + b; });
      }
  }
};

/// How workgroups pass on the state. In a cluster, each stores its part to the shared memory of all of them, where a
/// barrier counts the bytes of one of the two buffers (st.async): one trip instead of the two of a cluster's barrier,
/// which would wait for the stores of results too. No buffer is written before all of its readers have sent what they
/// computed from it, because that is what the writers waited for.
#if defined(__NVPTX__) && __CUDA_ARCH__ >= 900
static SDX_SHARED u64 full[2];
#endif
template <class N>
struct Exchange {
  static constexpr u32 kReaders = (N::kHidden + N::kUnits - 1) / N::kUnits;  // workgroups that have units
  u32 bytes;

  /// All threads of the cluster must call it. Stores of shared memory before are then visible in the workgroup.
  SDX_FN void start(u32 sequences) {
    bytes = sequences * N::kHidden * 4;
#if defined(__NVPTX__) && __CUDA_ARCH__ >= 900
    if constexpr (N::kCluster > 1) {
      if (thread_id() == 0) {
        for (u32 k = 0; k < 2; ++k) tma_detail::init_barrier(tma_detail::shared_address(full + k), 1);
        tma_detail::publish_barriers();
        for (u32 k = 0; k < 2; ++k) tma_detail::expect_bytes(tma_detail::shared_address(full + k), bytes);
      }
      barrier();
      tma_detail::cluster_barrier();
      return;
    }
#endif
    lds_barrier();
  }
  /// Stores x at `to`, which is in this buffer, for all.
  template <class Shared>
  SDX_FN void send(Shared* to, u32 buffer, f32 x) const {
#if defined(__NVPTX__) && __CUDA_ARCH__ >= 900
    if constexpr (N::kCluster > 1) {
      const u32 at = tma_detail::shared_address(to), signal = tma_detail::shared_address(full + buffer);
#pragma clang loop unroll(full)
      for (u32 rank = 0; rank < kReaders; ++rank)
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
                         tma_detail::in_workgroup(at, rank)),
                     "f"(x), "r"(tma_detail::in_workgroup(signal, rank))
                     : "memory");
      return;
    }
#endif
    *to = x;
  }
  /// Waits until all of the buffer has been sent for the number-th time.
  SDX_FN void wait(u32 buffer, u32 number) const {
#if defined(__NVPTX__) && __CUDA_ARCH__ >= 900
    if constexpr (N::kCluster > 1) {
      const u32 at = tma_detail::shared_address(full + buffer);
      u32 done;
      do {
        asm volatile(
            "{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\tselp.u32 "
            "%0, 1, 0, p;\n\t}"
            : "=r"(done)
            : "r"(at), "r"(number & 1)
            : "memory");
      } while (!done);
      if (thread_id() == 0) tma_detail::expect_bytes(at, bytes);
      return;
    }
#endif
    lds_barrier();
  }
};

/// A unit's state of one sequence.
struct State {
  f32 h, c;
};

}  // namespace recurrent_detail

/// The equations of one unit. x: of the gates, with the biases of W. sum: of the gates. Fast:
/// RecurrentFunction::fast().
template <i32 Kind, bool Fast = false>
struct RecurrentUnit {
  static constexpr u32 kGates = Kind == 0 ? 1 : Kind == 1 ? 3 : 4;
  f32 bias[kGates], r_bias, peephole[3];
  bool second;  // direction

  SDX_FN void load(const f32* w_bias, const f32* peepholes, u32 hidden, u32 unit) {
    const f32* rb = w_bias + kGates * hidden;
#pragma clang loop unroll(full)
    for (u32 g = 0; g < kGates; ++g) bias[g] = w_bias[g * hidden + unit];
    // That of a GRU's last gate may be within what the reset gate multiplies.
#pragma clang loop unroll(full)
    for (u32 g = 0; g < (Kind == 1 ? 2 : kGates); ++g) bias[g] += rb[g * hidden + unit];
    r_bias = Kind == 1 ? rb[2 * hidden + unit] : 0.0f;
#pragma clang loop unroll(full)
    for (u32 g = 0; g < 3; ++g) peephole[g] = Kind == 2 ? peepholes[g * hidden + unit] : 0.0f;
  }
  SDX_FN f32 apply(const RecurrentLayer<f32>& layer, u32 k, f32 v) const {
    // Uses constant indices only, so that no switch over the functions remains at run time.
    const auto &f = layer.functions[k], &g = layer.functions[Kind + 1 + k];
    const bool alike = f.code == g.code && f.alpha == g.alpha && f.beta == g.beta;
    if constexpr (Fast) return alike || !second ? f.fast(v, layer.clip) : g.fast(v, layer.clip);
    return alike || !second ? f(v, layer.clip) : g(v, layer.clip);
  }
  SDX_FN f32 gate(const RecurrentLayer<f32>& layer, u32 g, const f32* x, f32 sum) const {
    return apply(layer, 0, x[g] + bias[g] + sum);
  }
  /// The new state, of a GRU with linear_before_reset.
  SDX_FN void step(const RecurrentLayer<f32>& layer, const f32* x, const f32* sum, recurrent_detail::State& s) const {
    if constexpr (Kind == 0) {
      s.h = gate(layer, 0, x, sum[0]);
    } else if constexpr (Kind == 1) {
      const f32 z = gate(layer, 0, x, sum[0]), reset = gate(layer, 1, x, sum[1]);
      const f32 n = apply(layer, 1, x[2] + bias[2] + reset * (r_bias + sum[2]));
      s.h = (1.0f - z) * n + z * s.h;
    } else {
      const f32 in = gate(layer, 0, x, sum[0] + peephole[0] * s.c);
      const f32 forget = layer.variant != 0 ? 1.0f - in : gate(layer, 2, x, sum[2] + peephole[2] * s.c);
      s.c = forget * s.c + in * apply(layer, 1, x[3] + bias[3] + sum[3]);
      const f32 out = gate(layer, 1, x, sum[1] + peephole[1] * s.c);
      s.h = out * apply(layer, 2, s.c);
    }
  }
};

/// All steps. A workgroup (cluster) has up to `together` <= S sequences of a direction. Two: a GRU without
/// linear_before_reset, whose sums over r * h need another exchange.
template <class N, i32 Kind, bool Two>
SDX_FN void routine_recurrent_scan(RecurrentLayer<f32> layer, const f32* xw, const f32* r, const f32* bias,
                                   const f32* h0, const f32* c0, const f32* peepholes, const i32* lengths, f32* y,
                                   f32* h_last, f32* c_last, i64 D, i64 steps, i64 batch, i64 together) {
  using namespace recurrent_detail;
  using Unit = RecurrentUnit<Kind>;
  constexpr u32 kGates = Unit::kGates, H = N::kHidden, S = N::kSlices, C = N::kCluster, kBuffer = S * N::kRows;
  auto* h = states<2 * kBuffer>;
  const u32 group = block_id() / C, rank = block_id() % C, slice = thread_id() % S;
  const u32 unit = rank * N::kUnits + thread_id() / S;
  const i64 groups = (batch + together - 1) / together, d = group / groups, first = group % groups * together;
  const u32 count = u32(batch - first < together ? batch - first : together);
  const bool mine = slice < count && unit < H;
  const i64 b = first + (mine ? slice : 0), db = d * batch + b;
  const u32 i = mine ? unit : 0;
  const auto length_of = [&](i64 sequence) -> i32 {
    const i32 n = lengths[sequence];
    return n < 0 ? 0 : n > steps ? i32(steps) : n;
  };
  i32 longest = 0;
  for (u32 k = 0; k < count; ++k) longest = max(longest, length_of(first + k));
  const i32 length = length_of(b);
  const bool reversed = d == 0 ? layer.reversed[0] : layer.reversed[1];

  Weights<N, kGates> weights;
  weights.load(r + d * H * (kGates * H), unit, slice);
  Unit own;
  own.second = d != 0;
  own.load(bias + d * 2 * kGates * H, Kind == 2 ? peepholes + d * 3 * H : peepholes, H, i);
  State state{h0[db * H + i], 0.0f};
  if constexpr (Kind == 2) state.c = c0[db * H + i];

  // Rows beyond H stay 0.
  for (u32 k = thread_id(); k < 2 * kBuffer; k += kThreads) h[k] = 0.0f;
  barrier();
  for (u32 k = thread_id(); k < count * H; k += kThreads)
    h[k / H * N::kRows + k % H] = h0[(d * batch + first + k / H) * H + k % H];
  Exchange<N> exchange;
  exchange.start(count);
  f32 x[kGates];
  const auto load_x = [&](i32 s) SDX_LAMBDA {
    const i32 t = s >= length ? 0 : reversed ? length - 1 - s : s;
    const f32* from = xw + ((d * steps + t) * batch + b) * (kGates * H) + i;
#pragma clang loop unroll(full)
    for (u32 g = 0; g < kGates; ++g) x[g] = from[g * H];
  };
  if (longest > 0) load_x(0);
  // In a cluster, waves without a unit would keep no one from going on without them.
  if (C > 1 && rank * N::kUnits + thread_id() / kWave * (kWave / S) >= H) return;
  // The sums of the gates [First, First + Count): those of this lane's sequence.
  const auto sums = [&]<u32 First, u32 Count>(u32 buffer, f32(&own_sum)[Count]) SDX_LAMBDA {
    const auto add = [&]<u32 Sequences>(u32 k, f32(&sum)[Sequences][Count]) SDX_LAMBDA {
      weights.template sums<First, Count, Sequences>(h + buffer * kBuffer + k * N::kRows, slice, sum);
#pragma clang loop unroll(full)
      for (u32 j = 0; j < Sequences; ++j)
#pragma clang loop unroll(full)
        for (u32 g = 0; g < Count; ++g) own_sum[g] = slice == k + j ? sum[j][g] : own_sum[g];
    };
    u32 k = 0;
    if constexpr (sizeof(typename N::Weight) == 2)  // converting a weight takes twice as long as multiplying with it
      for (; k + 1 < count; k += 2) {
        f32 sum[2][Count];
        add(k, sum);
      }
    for (; k < count; ++k) {
      f32 sum[1][Count];
      add(k, sum);
    }
  };
  for (i32 s = 0; s < longest; ++s) {
    const bool active = mine && s < length;
    f32 sum[kGates] = {};
    const u32 from = Two ? 0 : s % 2, to = Two ? 0 : 1 - from;
    if constexpr (Two) {
      f32 gates[2] = {}, last[1] = {};
      sums.template operator()<0, 2>(0, gates);
      const f32 z = own.gate(layer, 0, x, gates[0]), reset = own.gate(layer, 1, x, gates[1]);
      if (mine) exchange.send(h + kBuffer + slice * N::kRows + unit, 1, reset * state.h);
      exchange.wait(1, s);
      sums.template operator()<2, 1>(1, last);
      const f32 n = own.apply(layer, 1, x[2] + own.bias[2] + own.r_bias + last[0]);
      if (active) state.h = (1.0f - z) * n + z * state.h;
    } else {
      sums.template operator()<0, kGates>(from, sum);
      State next = state;
      own.step(layer, x, sum, next);
      if (active) state = next;
    }
    // Sequences that have ended send their last state, so that every step sends as many bytes.
    const bool more = s + 1 < longest;
    if (more && mine) exchange.send(h + to * kBuffer + slice * N::kRows + unit, to, state.h);
    const i64 t = reversed ? length - 1 - s : s;
    if (active) y[((t * D + d) * batch + b) * H + unit] = state.h;
    if (!more) break;
    load_x(s + 1);
    exchange.wait(to, Two ? s : s / 2);
  }
  if (!mine) return;
  for (i64 t = length; t < steps; ++t) y[((t * D + d) * batch + b) * H + unit] = 0.0f;
  h_last[db * H + unit] = state.h;
  if constexpr (Kind == 2) c_last[db * H + unit] = state.c;
}

}  // namespace sdx
