// "recurrent": the steps of RNN, GRU and LSTM layers, after the product of the input and its weights. Equations and gate orders: the
// documentation of these operators in the ONNX standard.
//
// D directions, T steps, batch B, hidden size H; G gates: 1 for RNN, 3 for GRU (z r h), 4 for LSTM (i o f c). All float32 or all float64.
// Inputs:  0 xw [D, T, B, G*H], the input's product with W; 1 R [D, G*H, H]; 2 bias [D, 2*G*H] (of W, then of R); 3 h0 [D, B, H];
//          4 c0 [D, B, H]; 5 peepholes [D, 3*H] (i o f); 6 lengths [B] int32. 4 and 5 are read by LSTM only.
// Outputs: 0 Y [T, D, B, H], zeros from each sequence's length on; 1 the last h [D, B, H]; 2 the last c [D, B, H] (LSTM only).
// params:  kind (0 RNN, 1 GRU, 2 LSTM); variant (GRU: linear_before_reset, LSTM: input_forget); then for each direction: reversed,
//          followed by the codes of its activations (Activation below), 1 for RNN, 2 for GRU, 3 for LSTM.
// floats:  clip (infinity: none), then alpha and beta of each activation in the same order.
#include <algorithm>
#include <cmath>

#include "routines/families.h"
#include "routines/recurrent.h"
#include "support/error.h"

namespace sardonyx::routines {
namespace {

template <typename T>
T activate(Activation a, T x, T alpha, T beta) {
  switch (a) {
    case Activation::kRelu: return x > 0 ? x : (x != x ? x : T(0));
    case Activation::kTanh: return std::tanh(x);
    case Activation::kSigmoid: return T(1) / (T(1) + std::exp(-x));
    case Activation::kAffine: return alpha * x + beta;
    case Activation::kLeakyRelu: return x >= 0 ? x : alpha * x;
    case Activation::kThresholdedRelu: return x >= alpha ? x : T(0);
    case Activation::kScaledTanh: return alpha * std::tanh(beta * x);
    case Activation::kHardSigmoid: return std::min(std::max(alpha * x + beta, T(0)), T(1));
    case Activation::kElu: return x >= 0 ? x : alpha * std::expm1(x);
    case Activation::kSoftsign: return x / (T(1) + std::abs(x));
    case Activation::kSoftplus: return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
  }
  return x;
}

template <typename T>
struct Function {
  Activation code;
  T alpha, beta, clip;
  T operator()(T x) const { return activate(code, std::clamp(x, -clip, clip), alpha, beta); }
};

// out[0, n) = start[0, n) + h[0, k) * rt[k, n], rt row-major: four rows of rt at a time, so that `out` is read and written less often.
template <typename T>
void multiply_add(T* out, const T* h, const T* rt, std::int64_t k, std::int64_t n, std::int64_t row) {
  std::int64_t j = 0;
  for (; j + 4 <= k; j += 4) {
    const T a = h[j], b = h[j + 1], c = h[j + 2], d = h[j + 3];
    const T *r0 = rt + j * row, *r1 = r0 + row, *r2 = r1 + row, *r3 = r2 + row;
    for (std::int64_t i = 0; i < n; ++i) out[i] += a * r0[i] + b * r1[i] + c * r2[i] + d * r3[i];
  }
  for (; j < k; ++j) {
    const T* r = rt + j * row;
    for (std::int64_t i = 0; i < n; ++i) out[i] += h[j] * r[i];
  }
}

template <typename T>
class Layer {
 public:
  Layer(Call& call, int kind) : call_(call), kind_(kind) {
    const auto& d = call.inputs[0].dims;
    directions_ = d[0];
    steps_ = d[1];
    batch_ = d[2];
    hidden_ = call.inputs[1].dims[2];
    gates_ = kind == 0 ? 1 : kind == 1 ? 3 : 4;
    functions_ = kind + 1;
  }

  void run() {
    for (std::int64_t d = 0; d < directions_; ++d) direction(d);
  }

 private:
  void direction(std::int64_t d) {
    const std::int64_t H = hidden_, GH = gates_ * H;
    const std::size_t first = static_cast<std::size_t>(2 + d * (1 + functions_));
    const bool reversed = call_.params[first] != 0;
    for (std::int64_t k = 0; k < functions_; ++k) {
      const std::size_t at = static_cast<std::size_t>(1 + 2 * (d * functions_ + k));
      f_[k] = {static_cast<Activation>(call_.params[first + 1 + static_cast<std::size_t>(k)]), static_cast<T>(call_.floats[at]), static_cast<T>(call_.floats[at + 1]),
               static_cast<T>(call_.floats[0])};
    }
    const T* r = call_.inputs[1].as<T>() + d * GH * H;
    transposed_.resize(static_cast<std::size_t>(GH * H));
    for (std::int64_t i = 0; i < GH; ++i)
      for (std::int64_t k = 0; k < H; ++k) transposed_[static_cast<std::size_t>(k * GH + i)] = r[i * H + k];
    w_bias_ = call_.inputs[2].as<T>() + d * 2 * GH;
    r_bias_ = w_bias_ + GH;
    peephole_ = kind_ == 2 ? call_.inputs[5].as<T>() + d * 3 * H : nullptr;
    gate_.resize(static_cast<std::size_t>(GH + H));
    for (std::int64_t b = 0; b < batch_; ++b) sequence(d, b, reversed);
  }

  void sequence(std::int64_t d, std::int64_t b, bool reversed) {
    const std::int64_t H = hidden_, GH = gates_ * H;
    const std::int64_t length = std::clamp<std::int64_t>(call_.inputs[6].as<std::int32_t>()[b], 0, steps_);
    T* y = call_.outputs[0].as<T>();
    T* h = call_.outputs[1].as<T>() + (d * batch_ + b) * H;  // the running state lives in the output
    std::copy_n(call_.inputs[3].as<T>() + (d * batch_ + b) * H, H, h);
    T* c = nullptr;
    if (kind_ == 2) {
      c = call_.outputs[2].as<T>() + (d * batch_ + b) * H;
      std::copy_n(call_.inputs[4].as<T>() + (d * batch_ + b) * H, H, c);
    }
    for (std::int64_t s = 0; s < steps_; ++s) {
      T* out = y + ((s * directions_ + d) * batch_ + b) * H;
      if (s >= length) std::fill_n(out, H, T(0));
    }
    for (std::int64_t s = 0; s < length; ++s) {
      const std::int64_t t = reversed ? length - 1 - s : s;
      const T* x = call_.inputs[0].as<T>() + ((d * steps_ + t) * batch_ + b) * GH;
      if (kind_ == 0) rnn(x, h);
      else if (kind_ == 1) gru(x, h);
      else lstm(x, h, c);
      std::copy_n(h, H, y + ((t * directions_ + d) * batch_ + b) * H);
    }
  }

  void start(const T* x, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) gate_[static_cast<std::size_t>(i)] = x[i] + w_bias_[i] + r_bias_[i];
  }

  void rnn(const T* x, T* h) {
    T* g = gate_.data();
    start(x, hidden_);
    multiply_add(g, h, transposed_.data(), hidden_, hidden_, hidden_);
    for (std::int64_t i = 0; i < hidden_; ++i) h[i] = f_[0](g[i]);
  }

  void gru(const T* x, T* h) {
    const std::int64_t H = hidden_, GH = 3 * H;
    T *g = gate_.data(), *z = g, *r = g + H, *n = g + 2 * H, *gated = g + GH;
    start(x, 2 * H);
    multiply_add(g, h, transposed_.data(), H, 2 * H, GH);
    for (std::int64_t i = 0; i < 2 * H; ++i) g[i] = f_[0](g[i]);
    const bool linear_before_reset = call_.params[1] != 0;
    if (linear_before_reset) {
      for (std::int64_t i = 0; i < H; ++i) n[i] = r_bias_[2 * H + i];
      multiply_add(n, h, transposed_.data() + 2 * H, H, H, GH);
      for (std::int64_t i = 0; i < H; ++i) n[i] = x[2 * H + i] + w_bias_[2 * H + i] + r[i] * n[i];
    } else {
      for (std::int64_t i = 0; i < H; ++i) {
        gated[i] = r[i] * h[i];
        n[i] = x[2 * H + i] + w_bias_[2 * H + i] + r_bias_[2 * H + i];
      }
      multiply_add(n, gated, transposed_.data() + 2 * H, H, H, GH);
    }
    for (std::int64_t i = 0; i < H; ++i) h[i] = (T(1) - z[i]) * f_[1](n[i]) + z[i] * h[i];
  }

  void lstm(const T* x, T* h, T* c) {
    const std::int64_t H = hidden_, GH = 4 * H;
    T* g = gate_.data();
    const T *pi = peephole_, *po = pi + H, *pf = po + H;
    start(x, GH);
    multiply_add(g, h, transposed_.data(), H, GH, GH);
    const bool input_forget = call_.params[1] != 0;
    for (std::int64_t i = 0; i < H; ++i) {
      const T in = f_[0](g[i] + pi[i] * c[i]);
      const T forget = input_forget ? T(1) - in : f_[0](g[2 * H + i] + pf[i] * c[i]);
      c[i] = forget * c[i] + in * f_[1](g[3 * H + i]);
      const T out = f_[0](g[H + i] + po[i] * c[i]);
      h[i] = out * f_[2](c[i]);
    }
  }

  Call& call_;
  int kind_;
  std::int64_t directions_, steps_, batch_, hidden_, gates_, functions_;
  Function<T> f_[3];
  std::vector<T> transposed_, gate_;
  const T *w_bias_ = nullptr, *r_bias_ = nullptr, *peephole_ = nullptr;
};

void recurrent(Call& call) {
  const int kind = static_cast<int>(call.params.at(0));
  check(kind >= 0 && kind <= 2 && call.inputs.size() == 7, "recurrent: kind {} with {} inputs", kind, call.inputs.size());
  if (call.inputs[0].dtype == DType::kFloat32) Layer<float>(call, kind).run();
  else Layer<double>(call, kind).run();
}

}  // namespace

void register_recurrent(Table& t) { t["recurrent"] = recurrent; }

}  // namespace sardonyx::routines
