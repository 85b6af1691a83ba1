// The steps of recurrent layers on GPUs: one launch per step (GRU without linear_before_reset: two).
// src/routines/recurrent.cpp has the equations and the layout of tensors.
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
};

/// Parameters of a layer. `functions`: activation kind + 1, for each of two directions.
template <class T>
struct RecurrentLayer {
  i32 kind, variant;
  bool reversed[2];
  RecurrentFunction<T> functions[6];
  T clip;
};

inline constexpr u32 kUnits = layout::kRecurrentUnits,
                     kSlices = kThreads / kUnits;  // threads per unit, which divide each sum over h
static SDX_SHARED u64 recurrent_sums[4 * kThreads];

/// Step s (and phase) of all sequences. A workgroup computes 32 units of one sequence, with 8 threads per unit that
/// divide the sums over the previous h. That h is the row of y which the previous step wrote. `gated`: r * h and z of a
/// GRU, [2, D, B, H].
template <class T>
SDX_FN void routine_recurrent(RecurrentLayer<T> layer, const T* xw, const T* r, const T* bias, const T* h0, const T* c0,
                              const T* peepholes, const i32* lengths, T* y, T* h_last, T* c_last, T* gated, i64 D,
                              i64 steps, i64 batch, i64 H, i64 number) {
  const i32 kind = layer.kind;
  const i32 gates = kind == 0 ? 1 : kind == 1 ? 3 : 4;
  const bool two_phases = kind == 1 && layer.variant == 0;
  const i64 s = two_phases ? number / 2 : number;
  const bool second = two_phases && number % 2 == 1;
  const i64 GH = gates * H, blocks = (H + kUnits - 1) / kUnits;
  T* sums = (T*)recurrent_sums;
  const u32 unit = thread_id() % kUnits, slice = thread_id() / kUnits;
  for (i64 w = block_id(); w < D * batch * blocks; w += block_count()) {
    const i64 i = w % blocks * kUnits + unit, b = w / blocks % batch, d = w / blocks / batch, db = d * batch + b;
    const i64 given = lengths[b], length = given < 0 ? 0 : given > steps ? steps : given;
    if (s >= length) {  // the same in all threads of the workgroup
      if (slice == 0 && i < H && !second) {
        if (s < steps) y[((s * D + d) * batch + b) * H + i] = T(0);
        if (s == 0) {  // the sequence is empty
          h_last[db * H + i] = h0[db * H + i];
          if (kind == 2) c_last[db * H + i] = c0[db * H + i];
        }
      }
      continue;
    }
    const bool reversed = d == 0 ? layer.reversed[0] : layer.reversed[1];
    const i64 t = reversed ? length - 1 - s : s, before = reversed ? t + 1 : t - 1;
    const T* h = s == 0 ? h0 + db * H : y + ((before * D + d) * batch + b) * H;
    const T* x = xw + ((d * steps + t) * batch + b) * GH;
    const T* rd = r + d * H * GH;
    const T *wb = bias + d * 2 * GH, *rb = wb + GH;
    T* rh = gated + db * H;
    T* zs = gated + (D * batch + db) * H;
    // The gates that this launch sums, and the vector that is multiplied.
    const i32 first = second ? 2 : 0, end = two_phases && !second ? 2 : gates;
    const T* with = second ? rh : h;
    T part[4] = {};
    if (i < H)
      for (i64 j = slice; j < H; j += kSlices) {
        const T hj = with[j];
        const T* row = rd + j * GH + i;
#pragma clang loop unroll(full)
        for (i32 g = 0; g < 4; ++g)
          if (g >= first && g < end) part[g] += hj * row[g * H];
      }
    barrier();
#pragma clang loop unroll(full)
    for (i32 g = 0; g < 4; ++g) sums[g * kThreads + thread_id()] = part[g];
    barrier();
    if (slice != 0 || i >= H) continue;
    T g[4] = {};
#pragma clang loop unroll(full)
    for (i32 k = 0; k < 4; ++k)
      for (u32 part_of = 0; part_of < kSlices; ++part_of) g[k] += sums[k * kThreads + part_of * kUnits + unit];
    const auto input = [&](i32 k) { return x[k * H + i] + wb[k * H + i]; };
    // Uses constant indices only, so that no switch over the functions remains at run time.
    const auto apply = [&](i32 k, T v) {
      return d == 0 ? layer.functions[k](v, layer.clip) : layer.functions[kind + 1 + k](v, layer.clip);
    };
    T next;
    if (kind == 0) {
      next = apply(0, input(0) + rb[i] + g[0]);
    } else if (kind == 1) {
      if (!second) {
        const T z = apply(0, input(0) + rb[i] + g[0]), reset = apply(0, input(1) + rb[H + i] + g[1]);
        if (two_phases) {
          rh[i] = reset * h[i];
          zs[i] = z;
          continue;
        }
        const T n = apply(1, input(2) + reset * (rb[2 * H + i] + g[2]));
        next = (T(1) - z) * n + z * h[i];
      } else {
        const T n = apply(1, input(2) + rb[2 * H + i] + g[2]);
        next = (T(1) - zs[i]) * n + zs[i] * h[i];
      }
    } else {
      const T *pi = peepholes + d * 3 * H, *po = pi + H, *pf = po + H;
      const T c = s == 0 ? c0[db * H + i] : c_last[db * H + i];
      const T in = apply(0, input(0) + rb[i] + g[0] + pi[i] * c);
      const T forget = layer.variant != 0 ? T(1) - in : apply(0, input(2) + rb[2 * H + i] + g[2] + pf[i] * c);
      const T cell = forget * c + in * apply(1, input(3) + rb[3 * H + i] + g[3]);
      const T out = apply(0, input(1) + rb[H + i] + g[1] + po[i] * cell);
      c_last[db * H + i] = cell;
      next = out * apply(2, cell);
    }
    y[((t * D + d) * batch + b) * H + i] = next;
    if (s == length - 1) h_last[db * H + i] = next;
  }
}

}  // namespace sdx
