// "recurrent": the steps of RNN, GRU and LSTM layers, after the GEMM of the input and W. The ONNX standard's
// documentation of these operators has the equations and the order of gates.
//
// D directions, T steps, batch B, hidden size H; G gates: 1 for RNN, 3 for GRU (z r h), 4 for LSTM (i o f c).
// All tensors are float32, or all are float64.
//   inputs:  0 xw [D, T, B, G*H], the input times W
//            1 R transposed [D, H, G*H]
//            2 bias [D, 2*G*H] (of W, then of R)
//            3 h0 [D, B, H]
//            4 c0 [D, B, H], read by LSTM only
//            5 peepholes [D, 3*H] (i o f), read by LSTM only
//            6 lengths [B] int32
//   outputs: 0 Y [T, D, B, H], zeros from each sequence's length on
//            1 the last h [D, B, H]
//            2 the last c [D, B, H] (LSTM only)
//   params:  kind (0 RNN, 1 GRU, 2 LSTM); variant (GRU: linear_before_reset, LSTM: input_forget); then for each
//            direction: reversed, and the codes of its activations (kernels/recurrent_activations.h), 1 for RNN, 2 for
//            GRU, 3 for LSTM
//   floats:  clip (infinity: none), then alpha and beta of each activation in the same order
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "host/parallel.h"
#include "host/simd.h"
#include "kernels/recurrent_activations.h"
#include "routines/families.h"
#include "support/error.h"

namespace sardonyx::routines {
namespace {

using Activation = sdx::RecurrentActivation;

template <typename T>
T activate(Activation a, T x, T alpha, T beta) {
  switch (a) {
    case Activation::kRelu:
      return x > 0 ? x : (x != x ? x : T(0));
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kSigmoid:
      return T(1) / (T(1) + std::exp(-x));
    case Activation::kAffine:
      return alpha * x + beta;
    case Activation::kLeakyRelu:
      return x >= 0 ? x : alpha * x;
    case Activation::kThresholdedRelu:
      return x >= alpha ? x : T(0);
    case Activation::kScaledTanh:
      return alpha * std::tanh(beta * x);
    case Activation::kHardSigmoid:
      return std::min(std::max(alpha * x + beta, T(0)), T(1));
    case Activation::kElu:
      return x >= 0 ? x : alpha * std::expm1(x);
    case Activation::kSoftsign:
      return x / (T(1) + std::abs(x));
    case Activation::kSoftplus:
      return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
  }
  return x;
}

template <typename T>
struct Function {
  Activation code;
  T alpha, beta, clip;
  T operator()(T x) const { return activate(code, std::clamp(x, -clip, clip), alpha, beta); }

  /// Applies the function to n values in place.
  void all(T* x, std::int64_t n) const {
    if constexpr (std::is_same_v<T, float>) {
      if (code == Activation::kSigmoid || code == Activation::kTanh) {
        if (std::isfinite(clip))
          for (std::int64_t i = 0; i < n; ++i) x[i] = std::clamp(x[i], -clip, clip);
        return code == Activation::kSigmoid ? host::simd().sigmoid(x, n) : host::simd().tanh(x, n);
      }
    }
    for (std::int64_t i = 0; i < n; ++i) x[i] = (*this)(x[i]);
  }
};

// Compiled for several instruction sets; the loader selects one.
#if defined(__x86_64__)
#define SARDONYX_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3")))
#else
#define SARDONYX_CLONES
#endif

// out[0, n) += h[0, k) * rt[k, n], where row j of rt begins at rt + j * row. Eight rows at a time, so that `out` is
// read and written less often.
template <typename T>
[[gnu::always_inline]] inline void multiply_add_of(T* __restrict out, const T* __restrict h, const T* __restrict rt,
                                                   std::int64_t k, std::int64_t n, std::int64_t row) {
  std::int64_t j = 0;
  for (; j + 8 <= k; j += 8) {
    const T* r = rt + j * row;
    const T *a = h + j, *r4 = r + 4 * row;
    for (std::int64_t i = 0; i < n; ++i)
      out[i] += ((a[0] * r[i] + a[1] * r[row + i]) + (a[2] * r[2 * row + i] + a[3] * r[3 * row + i])) +
                ((a[4] * r4[i] + a[5] * r4[row + i]) + (a[6] * r4[2 * row + i] + a[7] * r4[3 * row + i]));
  }
  for (; j < k; ++j) {
    const T* r = rt + j * row;
    for (std::int64_t i = 0; i < n; ++i) out[i] += h[j] * r[i];
  }
}

SARDONYX_CLONES void multiply_add(float* out, const float* h, const float* rt, std::int64_t k, std::int64_t n,
                                  std::int64_t row) {
  multiply_add_of(out, h, rt, k, n, row);
}
SARDONYX_CLONES void multiply_add(double* out, const double* h, const double* rt, std::int64_t k, std::int64_t n,
                                  std::int64_t row) {
  multiply_add_of(out, h, rt, k, n, row);
}

// One direction of a layer.
template <typename T>
class Direction {
 public:
  Direction(Call& call, int kind, std::int64_t d) : call_(call), kind_(kind), d_(d) {
    const auto& dims = call.inputs[0].dims;
    directions_ = dims[0];
    steps_ = dims[1];
    batch_ = dims[2];
    hidden_ = call.inputs[1].dims[1];
    gates_ = kind == 0 ? 1 : kind == 1 ? 3 : 4;
    const std::int64_t functions = kind + 1, GH = gates_ * hidden_;
    const auto first = static_cast<std::size_t>(2 + d * (1 + functions));
    reversed_ = call.params[first] != 0;
    for (std::int64_t k = 0; k < functions; ++k) {
      const auto at = static_cast<std::size_t>(1 + 2 * (d * functions + k));
      f_[k] = {static_cast<Activation>(call.params[first + 1 + static_cast<std::size_t>(k)]),
               static_cast<T>(call.floats[at]), static_cast<T>(call.floats[at + 1]), static_cast<T>(call.floats[0])};
    }
    r_ = call.inputs[1].as<T>() + d * GH * hidden_;
    w_bias_ = call.inputs[2].as<T>() + d * 2 * GH;
    r_bias_ = w_bias_ + GH;
    peephole_ = kind == 2 ? call.inputs[5].as<T>() + d * 3 * hidden_ : nullptr;
  }

  // All steps of sequence b of the batch. `gate` has (gates + 1) * H elements.
  void sequence(std::int64_t b, T* gate) const {
    const std::int64_t H = hidden_, GH = gates_ * H;
    const std::int64_t length = std::clamp<std::int64_t>(call_.inputs[6].as<std::int32_t>()[b], 0, steps_);
    T* y = call_.outputs[0].as<T>();
    T* h = call_.outputs[1].as<T>() + (d_ * batch_ + b) * H;  // the state is kept in the output
    std::copy_n(call_.inputs[3].as<T>() + (d_ * batch_ + b) * H, H, h);
    T* c = nullptr;
    if (kind_ == 2) {
      c = call_.outputs[2].as<T>() + (d_ * batch_ + b) * H;
      std::copy_n(call_.inputs[4].as<T>() + (d_ * batch_ + b) * H, H, c);
    }
    for (std::int64_t s = length; s < steps_; ++s) std::fill_n(y + ((s * directions_ + d_) * batch_ + b) * H, H, T(0));
    for (std::int64_t s = 0; s < length; ++s) {
      const std::int64_t t = reversed_ ? length - 1 - s : s;
      const T* x = call_.inputs[0].as<T>() + ((d_ * steps_ + t) * batch_ + b) * GH;
      if (kind_ == 0)
        rnn(gate, x, h);
      else if (kind_ == 1)
        gru(gate, x, h);
      else
        lstm(gate, x, h, c);
      std::copy_n(h, H, y + ((t * directions_ + d_) * batch_ + b) * H);
    }
  }

 private:
  void start(T* g, const T* x, std::int64_t n) const {
    for (std::int64_t i = 0; i < n; ++i) g[i] = x[i] + w_bias_[i] + r_bias_[i];
  }

  void rnn(T* g, const T* x, T* h) const {
    start(g, x, hidden_);
    multiply_add(g, h, r_, hidden_, hidden_, hidden_);
    f_[0].all(g, hidden_);
    std::copy_n(g, hidden_, h);
  }

  void gru(T* g, const T* x, T* h) const {
    const std::int64_t H = hidden_, GH = 3 * H;
    T *z = g, *r = g + H, *n = g + 2 * H, *gated = g + GH;
    start(g, x, 2 * H);
    multiply_add(g, h, r_, H, 2 * H, GH);
    f_[0].all(g, 2 * H);
    const bool linear_before_reset = call_.params[1] != 0;
    if (linear_before_reset) {
      for (std::int64_t i = 0; i < H; ++i) n[i] = r_bias_[2 * H + i];
      multiply_add(n, h, r_ + 2 * H, H, H, GH);
      for (std::int64_t i = 0; i < H; ++i) n[i] = x[2 * H + i] + w_bias_[2 * H + i] + r[i] * n[i];
    } else {
      for (std::int64_t i = 0; i < H; ++i) {
        gated[i] = r[i] * h[i];
        n[i] = x[2 * H + i] + w_bias_[2 * H + i] + r_bias_[2 * H + i];
      }
      multiply_add(n, gated, r_ + 2 * H, H, H, GH);
    }
    f_[1].all(n, H);
    for (std::int64_t i = 0; i < H; ++i) h[i] = (T(1) - z[i]) * n[i] + z[i] * h[i];
  }

  void lstm(T* g, const T* x, T* h, T* c) const {
    const std::int64_t H = hidden_, GH = 4 * H;
    const T *pi = peephole_, *po = pi + H, *pf = po + H;
    start(g, x, GH);
    multiply_add(g, h, r_, H, GH, GH);
    const bool input_forget = call_.params[1] != 0;
    T *in = g, *out = g + H, *forget = out + H, *candidate = forget + H;
    for (std::int64_t i = 0; i < H; ++i) {
      in[i] += pi[i] * c[i];
      forget[i] += pf[i] * c[i];
    }
    f_[0].all(in, H);
    if (input_forget)
      for (std::int64_t i = 0; i < H; ++i) forget[i] = T(1) - in[i];
    else
      f_[0].all(forget, H);
    f_[1].all(candidate, H);
    for (std::int64_t i = 0; i < H; ++i) {
      c[i] = forget[i] * c[i] + in[i] * candidate[i];
      out[i] += po[i] * c[i];
      h[i] = c[i];
    }
    f_[0].all(out, H);
    f_[2].all(h, H);
    for (std::int64_t i = 0; i < H; ++i) h[i] *= out[i];
  }

  Call& call_;
  int kind_;
  bool reversed_ = false;
  std::int64_t d_, directions_, steps_, batch_, hidden_, gates_;
  Function<T> f_[3];
  const T *r_ = nullptr, *w_bias_ = nullptr, *r_bias_ = nullptr, *peephole_ = nullptr;
};

// Sequences and directions are independent of each other.
template <typename T>
void run(Call& call, int kind) {
  const auto& dims = call.inputs[0].dims;
  const std::int64_t directions = dims[0], steps = dims[1], batch = dims[2], hidden = call.inputs[1].dims[1],
                     width = dims[3];
  const std::int64_t work =
      std::max<std::int64_t>(1, steps) * std::max<std::int64_t>(1, width) * std::max<std::int64_t>(1, hidden);
  host::parallel_for(directions * batch, std::max<std::int64_t>(1, 262144 / work), call.threads,
                     [&](std::int64_t begin, std::int64_t end) {
                       std::vector<T> gate(static_cast<std::size_t>(width + hidden));
                       for (std::int64_t k = begin; k < end; ++k)
                         Direction<T>(call, kind, k / batch).sequence(k % batch, gate.data());
                     });
}

void recurrent(Call& call) {
  const int kind = static_cast<int>(call.params.at(0));
  check(kind >= 0 && kind <= 2 && call.inputs.size() == 7, "recurrent: kind {} with {} inputs", kind,
        call.inputs.size());
  if (call.inputs[0].dtype == DType::kFloat32)
    run<float>(call, kind);
  else
    run<double>(call, kind);
}

}  // namespace

void register_recurrent(Table& t) { t["recurrent"] = recurrent; }

}  // namespace sardonyx::routines
