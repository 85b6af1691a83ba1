// RNN, GRU and LSTM: the inputs of all steps are multiplied by W in one GEMM; the steps themselves are the routine
// "recurrent".
#include <algorithm>
#include <cmath>

#include "kernels/recurrent_activations.h"
#include "ops/families.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

using Activation = sdx::RecurrentActivation;
using tensor::accumulator;

struct ActivationInfo {
  const char* name;
  Activation code;
  int arguments;  // how many of alpha and beta it takes
  float alpha, beta;
};
constexpr ActivationInfo kActivations[] = {
    {"relu", Activation::kRelu, 0, 0, 0},
    {"tanh", Activation::kTanh, 0, 0, 0},
    {"sigmoid", Activation::kSigmoid, 0, 0, 0},
    {"affine", Activation::kAffine, 2, 1, 0},
    {"leakyrelu", Activation::kLeakyRelu, 1, 0.01f, 0},
    {"thresholdedrelu", Activation::kThresholdedRelu, 1, 1, 0},
    {"scaledtanh", Activation::kScaledTanh, 2, 1, 1},
    {"hardsigmoid", Activation::kHardSigmoid, 2, 0.2f, 0.5f},
    {"elu", Activation::kElu, 1, 1, 0},
    {"softsign", Activation::kSoftsign, 0, 0, 0},
    {"softplus", Activation::kSoftplus, 0, 0, 0},
};

const ActivationInfo& find_activation(OpContext& c, std::string name) {
  for (char& ch : name)
    ch = static_cast<char>(std::tolower(static_cast<unsigned char>(ch)));  // exporters disagree about case
  for (const ActivationInfo& a : kActivations)
    if (a.name == name) return a;
  c.invalid("unknown activation '{}'", name);
}

struct Cell {
  int kind;  // as the routine numbers them
  int gates;
  std::vector<std::string> activations;  // by default
  int peepholes = -1, initial_c = -1;    // inputs
};

// Activation codes and their alpha and beta for all directions, in the routine's order.
void read_activations(OpContext& c, const Cell& cell, int directions, std::vector<std::int64_t>& codes,
                      std::vector<double>& arguments) {
  std::vector<std::string> names;
  if (const model::Attribute* a = c.node().find("activations")) {
    const auto* list = std::get_if<std::vector<std::string>>(a);
    c.require(list != nullptr, "activations is not a list of strings");
    names = *list;
  }
  if (names.empty())
    for (int d = 0; d < directions; ++d) names.insert(names.end(), cell.activations.begin(), cell.activations.end());
  const std::size_t needed = cell.activations.size() * static_cast<std::size_t>(directions);
  // RNN's default in the schema is for two directions, and some writers spell it out for one.
  if (directions == 1 && names.size() == 2 * needed &&
      std::equal(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(needed),
                 names.begin() + static_cast<std::ptrdiff_t>(needed)))
    names.resize(needed);
  c.require(names.size() == needed, "{} activations, not {}", names.size(), needed);
  const std::vector<float> alphas = c.attr_floats("activation_alpha"), betas = c.attr_floats("activation_beta");
  std::size_t alpha = 0, beta = 0;  // consumed by those activations that take one
  for (const std::string& name : names) {
    const ActivationInfo& a = find_activation(c, name);
    codes.push_back(static_cast<std::int64_t>(a.code));
    arguments.push_back(a.arguments >= 1 && alpha < alphas.size() ? alphas[alpha++] : a.alpha);
    arguments.push_back(a.arguments >= 2 && beta < betas.size() ? betas[beta++] : a.beta);
  }
}

Value* filled(Graph& g, const Exprs& shape, const Expr& e) {
  return tensor::generate(g, shape, [&](const Exprs&) { return e; });
}

void check_shape(OpContext& c, const Value* v, const Exprs& shape, std::string_view what) {
  c.require(v->rank() == static_cast<int>(shape.size()), "{} of rank {}, not {}", what, v->rank(), shape.size());
  for (std::size_t d = 0; d < shape.size(); ++d)
    c.graph().add_check(compare(Op::kEq, v->shape[d], shape[d]),
                        fmt::format("{} of shape {}, not {}", what, to_string(v->shape), to_string(shape)));
}

// Inputs: X, W, R, B, sequence_lens, initial_h, then the cell's own. Outputs: Y, Y_h, Y_c.
void lower_recurrent(OpContext& c, const Cell& cell) {
  Graph& g = c.graph();
  Value *x = c.in(0), *w = c.in(1), *r = c.in(2);
  const DType t = accumulator(x->dtype);
  c.require(x->rank() == 3 && w->rank() == 3 && r->rank() == 3, "X, W and R of ranks {}, {} and {}; all must be 3",
            x->rank(), w->rank(), r->rank());
  const bool batch_first = c.attr("layout", 0) != 0;
  if (batch_first) x = tensor::transpose(g, x, {1, 0, 2});
  const std::string direction = c.attr_s("direction", "forward");
  c.require(direction == "forward" || direction == "reverse" || direction == "bidirectional", "direction is '{}'",
            direction);
  const int directions = direction == "bidirectional" ? 2 : 1;
  const Expr steps = x->shape[0], batch = x->shape[1], hidden = r->shape[2], rows = hidden * Expr(cell.gates);
  if (c.has_attr("hidden_size"))
    g.add_check(compare(Op::kEq, hidden, c.attr("hidden_size", 0)), "hidden_size differs from the shape of R");
  check_shape(c, w, {directions, rows, x->shape[2]}, "W");
  check_shape(c, r, {directions, rows, hidden}, "R");

  // xw [D, T, B, rows]
  Value* flat = tensor::reshape(g, x, {1, steps * batch, x->shape[2]});
  Value* xw = tensor::reshape(g, tensor::matmul(g, flat, w, false, true, t), {directions, steps, batch, rows});

  auto given_or_zeros = [&](int k, const Exprs& shape, std::string_view what) {
    if (k < 0 || !c.has(k)) return filled(g, shape, constant(0, t));
    check_shape(c, c.in(k), shape, what);
    return tensor::cast(g, c.in(k), t);
  };
  auto state = [&](int k, std::string_view what) {  // [D, B, H]
    if (!batch_first || k < 0 || !c.has(k)) return given_or_zeros(k, {directions, batch, hidden}, what);
    check_shape(c, c.in(k), {batch, directions, hidden}, what);
    return tensor::cast(g, tensor::transpose(g, c.in(k), {1, 0, 2}), t);
  };
  Value* bias = given_or_zeros(3, {directions, rows * 2}, "B");
  Value* lengths;
  if (c.has(4)) {
    check_shape(c, c.in(4), {batch}, "sequence_lens");
    lengths = tensor::cast(g, c.in(4), DType::kInt32);
  } else
    lengths = filled(g, {batch}, cast(steps, DType::kInt32));

  // R transposed, which a constant R is once and for all: the cells then go through it row by row.
  std::vector<Value*> inputs = {xw, tensor::transpose(g, tensor::cast(g, r, t), {0, 2, 1}), bias,
                                state(5, "initial_h")};
  inputs.push_back(cell.kind == 2 ? state(cell.initial_c, "initial_c") : filled(g, {0}, constant(0, t)));
  inputs.push_back(cell.kind == 2 ? given_or_zeros(cell.peepholes, {directions, hidden * 3}, "P")
                                  : filled(g, {0}, constant(0, t)));
  inputs.push_back(lengths);

  std::vector<std::int64_t> codes;
  const float clip = c.attr_f("clip", INFINITY);
  c.require(clip > 0, "clip is {}", clip);
  std::vector<double> floats = {clip};
  read_activations(c, cell, directions, codes, floats);
  Exprs params = {cell.kind, cell.kind == 1   ? c.attr("linear_before_reset", 0)
                             : cell.kind == 2 ? c.attr("input_forget", 0)
                                              : 0};
  const std::size_t functions = cell.activations.size();
  for (int d = 0; d < directions; ++d) {
    params.push_back(direction == "reverse" || d == 1 ? 1 : 0);
    for (std::size_t k = 0; k < functions; ++k) params.push_back(codes[static_cast<std::size_t>(d) * functions + k]);
  }
  std::vector<std::pair<DType, Exprs>> types = {{t, {steps, directions, batch, hidden}},
                                                {t, {directions, batch, hidden}}};
  if (cell.kind == 2) types.push_back({t, {directions, batch, hidden}});
  const std::vector<Value*> y =
      tensor::routine(g, "recurrent", std::move(inputs), std::move(params), std::move(floats), types);
  for (int k = 0; k < static_cast<int>(y.size()); ++k) {
    if (!c.wants(k)) continue;
    Value* v = tensor::cast(g, y[static_cast<std::size_t>(k)], x->dtype);
    if (batch_first) v = k == 0 ? tensor::transpose(g, v, {2, 0, 1, 3}) : tensor::transpose(g, v, {1, 0, 2});
    c.out(k, v);
  }
}

void rnn_op(OpContext& c) { lower_recurrent(c, {.kind = 0, .gates = 1, .activations = {"Tanh"}}); }
void gru_op(OpContext& c) { lower_recurrent(c, {.kind = 1, .gates = 3, .activations = {"Sigmoid", "Tanh"}}); }
void lstm_op(OpContext& c) {
  lower_recurrent(c,
                  {.kind = 2, .gates = 4, .activations = {"Sigmoid", "Tanh", "Tanh"}, .peepholes = 7, .initial_c = 6});
}

}  // namespace

void register_recurrent(OpRegistry& r) {
  r.add({.name = "RNN",
         .min_opset = 7,
         .lower = rnn_op,
         .dtypes = "floats",
         .notes = "the steps run in fp32, for float64 in fp64"});
  r.add({.name = "GRU",
         .min_opset = 7,
         .lower = gru_op,
         .dtypes = "floats",
         .notes = "the steps run in fp32, for float64 in fp64"});
  r.add({.name = "LSTM",
         .min_opset = 7,
         .lower = lstm_op,
         .dtypes = "floats",
         .notes = "the steps run in fp32, for float64 in fp64"});
}

}  // namespace sardonyx
