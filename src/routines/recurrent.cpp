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
#include <memory>
#include <new>
#include <type_traits>

#include "host/parallel.h"
#include "host/simd.h"
#include "kernels/recurrent_activations.h"
#include "routines/clones.h"
#include "routines/families.h"
#include "support/error.h"

namespace sardonyx::routines {
namespace {

using Activation = sdx::RecurrentActivation;

template <typename T>
T activate(Activation a, T x, T alpha, T beta) {
  switch (a) {
    case Activation::kRelu:
      return x > 0 || std::isnan(x) ? x : T(0);
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

// Loops over the hidden units, in vectors of the CPU's instruction set too.
template <typename T>
struct Cells {
  T* __restrict gates;
  const T* __restrict x;
  const T* __restrict w_bias;
  const T* __restrict r_bias;
  const T* __restrict peephole;
  T* __restrict h;
  T* __restrict c;
};
enum class Part { kStart, kPeepholes, kCell, kResult, kUpdate };

template <typename T>
[[gnu::always_inline]] inline void compute_of(Part part, const Cells<T>& a, std::int64_t n) {
  T* __restrict g = a.gates;
  T* __restrict h = a.h;
  T* __restrict c = a.c;
  switch (part) {
    case Part::kStart:
      for (std::int64_t i = 0; i < n; ++i) g[i] += a.x[i] + a.w_bias[i] + a.r_bias[i];
      break;
    case Part::kPeepholes:  // of an LSTM: i o f c
      for (std::int64_t i = 0; i < n; ++i) {
        g[i] += a.peephole[i] * c[i];
        g[2 * n + i] += a.peephole[2 * n + i] * c[i];
      }
      break;
    case Part::kCell:
      for (std::int64_t i = 0; i < n; ++i) {
        c[i] = g[2 * n + i] * c[i] + g[i] * g[3 * n + i];
        g[n + i] += a.peephole[n + i] * c[i];
        h[i] = c[i];
      }
      break;
    case Part::kResult:
      for (std::int64_t i = 0; i < n; ++i) h[i] *= g[n + i];
      break;
    case Part::kUpdate:  // of a GRU: z r h
      for (std::int64_t i = 0; i < n; ++i) h[i] = (T(1) - g[i]) * g[2 * n + i] + g[i] * h[i];
      break;
  }
}

SARDONYX_CLONES void compute(Part part, const Cells<float>& a, std::int64_t n) { compute_of(part, a, n); }
SARDONYX_CLONES void compute(Part part, const Cells<double>& a, std::int64_t n) { compute_of(part, a, n); }

// R in panels, for several sequences side by side.
constexpr std::int64_t kSideBySide = 4;
constexpr std::int64_t kLeastSteps = 16;  // of a single sequence

template <typename T>
class Panels {
 public:
  static bool possible() { return std::is_same_v<T, float> && host::simd().few_rows != nullptr; }

  /// `thirds`: the last third of the columns is multiplied on its own, so that it begins a panel.
  Panels(const T* r, std::int64_t depth, std::int64_t columns, bool thirds) : depth_(depth) {
    if constexpr (std::is_same_v<T, float>) {
      split_ = thirds ? columns / 3 * 2 : columns;
      pack(r, 0, split_, columns, first_);
      pack(r, split_, columns - split_, columns, second_);
    }
  }

  /// c[rows][n] = a[rows][depth] R, in columns [first, first + n): all before or from the split on, or all columns.
  void multiply(std::int64_t rows, const T* a, std::int64_t a_row, std::int64_t first, std::int64_t n, T* c,
                std::int64_t c_row) const {
    if (first == 0) part(first_, rows, a, a_row, std::min(n, split_), c, c_row);
    if (first + n > split_) part(second_, rows, a, a_row, first + n - split_, c + split_ - first, c_row);
  }

 private:
  static constexpr std::int64_t kPanel = 64;
  static constexpr std::align_val_t kAlignment{64};  // vectors that cross cache lines take twice as long to load
  struct Delete {
    void operator()(float* p) const { ::operator delete[](p, kAlignment); }
  };
  using Aligned = std::unique_ptr<float[], Delete>;

  void pack(const float* r, std::int64_t first, std::int64_t n, std::int64_t columns, Aligned& to) const {
    const std::int64_t block = host::simd().panel_block, blocks = (n + kPanel - 1) / kPanel * (kPanel / block);
    to.reset(static_cast<float*>(
        ::operator new[](static_cast<std::size_t>(blocks * block * depth_) * sizeof(float), kAlignment)));
    float* row = to.get();
    for (std::int64_t b = 0; b < blocks; ++b)
      for (std::int64_t k = 0; k < depth_; ++k, row += block) {
        const std::int64_t here = std::clamp<std::int64_t>(n - b * block, 0, block);
        std::fill(std::copy_n(r + k * columns + first + b * block, here, row), row + block, 0.f);
      }
  }

  void part(const Aligned& panels, std::int64_t rows, const T* a, std::int64_t a_row, std::int64_t n, T* c,
            std::int64_t c_row) const {
    if constexpr (std::is_same_v<T, float>) {
      const std::int64_t block = host::simd().panel_block * depth_;
      for (std::int64_t j = 0; j < n; j += kPanel)
        host::simd().few_rows(static_cast<int>(rows), depth_, a, a_row, panels.get() + j * depth_, block, nullptr,
                              c + j, c_row, static_cast<int>(std::min(kPanel, n - j)));
    }
  }

  std::int64_t depth_, split_ = 0;
  Aligned first_, second_;
};

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

  // All steps of `count` sequences of the batch, from sequence b on, side by side: R is read once for all of them.
  // `gates` has count * width() elements. With `panels`, count is at most kSideBySide.
  void sequences(std::int64_t b, std::int64_t count, T* gates, const Panels<T>* panels) const {
    const std::int64_t H = hidden_, GH = gates_ * H;
    T* y = call_.outputs[0].as<T>();
    T* h = call_.outputs[1].as<T>() + (d_ * batch_ + b) * H;  // the states are kept in the outputs
    T* c = kind_ == 2 ? call_.outputs[2].as<T>() + (d_ * batch_ + b) * H : nullptr;
    std::copy_n(call_.inputs[3].as<T>() + (d_ * batch_ + b) * H, count * H, h);
    if (c) std::copy_n(call_.inputs[4].as<T>() + (d_ * batch_ + b) * H, count * H, c);
    const auto row_of_y = [&](std::int64_t t, std::int64_t k) {
      return y + ((t * directions_ + d_) * batch_ + b + k) * H;
    };
    const auto row_of_x = [&](std::int64_t t, std::int64_t k) {
      return call_.inputs[0].as<T>() + ((d_ * steps_ + t) * batch_ + b + k) * GH;
    };
    std::int64_t longest = 0;
    for (std::int64_t k = 0; k < count; ++k) {
      longest = std::max(longest, length(b + k));
      for (std::int64_t t = length(b + k); t < steps_; ++t) std::fill_n(row_of_y(t, k), H, T(0));
    }
    const bool gated = kind_ == 1 && call_.params[1] == 0;  // GRU multiplies what its reset gate leaves
    for (std::int64_t s = 0; s < longest; ++s) {
      const auto each = [&](const auto& f) {
        for (std::int64_t k = 0; k < count; ++k) {
          const std::int64_t n = length(b + k), t = reversed_ ? n - 1 - s : s;
          if (s < n) f(k, t, gates + k * width(), row_of_x(t, k));
        }
      };
      for (std::int64_t k = 0; k < count; ++k)
        if (s + 1 < length(b + k)) prefetch(row_of_x(reversed_ ? length(b + k) - 2 - s : s + 1, k), GH);
      multiply(count, h, H, 0, gated ? 2 * H : GH, gates, panels);
      if (gated) {
        each([&](std::int64_t k, std::int64_t, T* g, const T* x) { reset(g, x, h + k * H); });
        multiply(count, gates + GH, width(), 2 * H, H, gates, panels);
      }
      each([&](std::int64_t k, std::int64_t t, T* g, const T* x) {
        if (kind_ == 0)
          rnn(g, x, h + k * H);
        else if (kind_ == 1)
          gru(g, x, h + k * H);
        else
          lstm(g, x, h + k * H, c + k * H);
        std::copy_n(h + k * H, H, row_of_y(t, k));
      });
    }
  }

  std::int64_t width() const { return (gates_ + 1) * hidden_; }

 private:
  std::int64_t length(std::int64_t b) const {
    return std::clamp<std::int64_t>(call_.inputs[6].as<std::int32_t>()[b], 0, steps_);
  }

  // Columns [first, first + n) of each row of h times R, to those of `gates`.
  void multiply(std::int64_t rows, const T* h, std::int64_t h_row, std::int64_t first, std::int64_t n, T* gates,
                const Panels<T>* panels) const {
    if (panels) return panels->multiply(rows, h, h_row, first, n, gates + first, width());
    for (std::int64_t k = 0; k < rows; ++k) {
      T* g = gates + k * width() + first;
      std::fill_n(g, n, T(0));
      multiply_add(g, h + k * h_row, r_ + first, hidden_, n, gates_ * hidden_);
    }
  }

  // Into the L2 cache, while R is multiplied: rows of a step lie far from those of the next one.
  static void prefetch(const T* x, std::int64_t n) {
    constexpr std::int64_t kLine = 64 / sizeof(T);
    for (std::int64_t i = 0; i < n; i += kLine) __builtin_prefetch(x + i, 0, 2);
  }

  void start(T* g, const T* x, std::int64_t n) const {
    compute(Part::kStart, {.gates = g, .x = x, .w_bias = w_bias_, .r_bias = r_bias_}, n);
  }

  void rnn(T* g, const T* x, T* h) const {
    start(g, x, hidden_);
    f_[0].all(g, hidden_);
    std::copy_n(g, hidden_, h);
  }

  // The update and the reset gate, and what the latter leaves of h.
  void reset(T* g, const T* x, const T* h) const {
    const std::int64_t H = hidden_;
    start(g, x, 2 * H);
    f_[0].all(g, 2 * H);
    for (std::int64_t i = 0; i < H; ++i) g[3 * H + i] = g[H + i] * h[i];
  }

  void gru(T* g, const T* x, T* h) const {
    const std::int64_t H = hidden_;
    T *r = g + H, *n = g + 2 * H;
    if (call_.params[1] != 0) {  // linear_before_reset
      start(g, x, 2 * H);
      f_[0].all(g, 2 * H);
      for (std::int64_t i = 0; i < H; ++i)
        n[i] = x[2 * H + i] + w_bias_[2 * H + i] + r[i] * (n[i] + r_bias_[2 * H + i]);
    } else {
      for (std::int64_t i = 0; i < H; ++i) n[i] += x[2 * H + i] + w_bias_[2 * H + i] + r_bias_[2 * H + i];
    }
    f_[1].all(n, H);
    compute(Part::kUpdate, {.gates = g, .h = h}, H);
  }

  void lstm(T* g, const T* x, T* h, T* c) const {
    const std::int64_t H = hidden_;
    const Cells<T> cells{.gates = g, .peephole = peephole_, .h = h, .c = c};
    T *in = g, *out = g + H, *forget = out + H, *candidate = forget + H;
    start(g, x, 4 * H);
    compute(Part::kPeepholes, cells, H);
    const bool input_forget = call_.params[1] != 0;
    f_[0].all(in, H);
    if (input_forget)
      for (std::int64_t i = 0; i < H; ++i) forget[i] = T(1) - in[i];
    else
      f_[0].all(forget, H);
    f_[1].all(candidate, H);
    compute(Part::kCell, cells, H);
    f_[0].all(out, H);
    f_[2].all(h, H);
    compute(Part::kResult, cells, H);
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
  // As many side by side as leave work for all threads. Whether R is in panels, and with it the order of sums, does not
  // depend on the threads.
  // Of a single sequence, panels that stay in the L2 cache are read in one stream: 128 hidden units take 0.77 of the
  // time (Zen 5). Packing costs about as much as two steps.
  const bool one =
      steps >= kLeastSteps && hidden * width * static_cast<std::int64_t>(sizeof(T)) <= host::l2_cache_bytes() / 2;
  const bool in_panels = Panels<T>::possible() && (batch > 1 ? steps > 1 : one);
  const std::int64_t share = directions * batch / std::max(1, call.threads);
  const std::int64_t together = in_panels ? std::clamp<std::int64_t>(share, 1, kSideBySide) : 1;
  const std::int64_t groups = (batch + together - 1) / together;
  std::vector<Panels<T>> panels;
  if (in_panels)
    for (std::int64_t d = 0; d < directions; ++d)
      panels.emplace_back(call.inputs[1].as<T>() + d * hidden * width, hidden, width, kind == 1);
  host::parallel_for(directions * groups, std::max<std::int64_t>(1, 262144 / work / together), call.threads,
                     [&](std::int64_t begin, std::int64_t end) {
                       std::vector<T> gates(static_cast<std::size_t>(together * (width + hidden)));
                       for (std::int64_t k = begin; k < end; ++k) {
                         const std::int64_t d = k / groups, first = k % groups * together;
                         Direction<T>(call, kind, d)
                             .sequences(first, std::min(together, batch - first), gates.data(),
                                        panels.empty() ? nullptr : &panels[static_cast<std::size_t>(d)]);
                       }
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
