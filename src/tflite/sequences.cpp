// Recurrent layers.
#include "tflite/operator.h"

namespace sardonyx::tflite {
namespace {

// Inputs: 0 the sequence; 1-4 weights of the input for the gates input, forget, cell, output; 5-8 those of the state;
// 9-11 peepholes; 12-15 biases; 16-17 projection; 18-19 the states; 20-23 layer normalisation.
void lstm(Operator& op) {
  Nodes& m = op.make;
  for (std::size_t k = 1; k < 9; ++k)
    if (!op.has(k)) op.refuse("coupled input and forget gates");
  for (std::size_t k = 9; k < 24; ++k)
    if (op.has(k) && (k < 12 || k == 16 || k == 17 || k > 19))
      op.refuse(k < 12   ? "peephole weights"
                : k < 18 ? "a projection of the state"
                         : "layer normalisation of the gates");
  if (op.activation(0) != Activation::kTanh) op.refuse("an activation function other than tanh");
  if (op.option<float>(1, 0) != 0) op.refuse("a clipped cell state");
  for (const std::size_t k : {18, 19})
    if (op.has(k) && !op.in(k).variable && !op.in(k).constant) op.refuse("a state that another operator computes");
  if (op.in(0).quantised() || op.out(0).quantised()) op.refuse("an LSTM of integers");
  const bool time_major = op.option<bool>(3, false);
  op.require(op.rank(0) == 3 && op.rank(5) == 2, "an operand's rank is wrong");
  const std::int64_t hidden = op.in(5).shape[0];
  // ONNX's order of the gates: input, output, forget, cell.
  const auto joined = [&](std::size_t first) {
    Inputs parts;
    for (const std::size_t gate : {0, 3, 1, 2}) parts.push_back(op.real(first + gate));
    const std::string all = m.add("Concat", std::move(parts), {{"axis", std::int64_t{0}}});
    return m.add("Unsqueeze", {all, m.ints({0})});
  };
  const std::string w = joined(1), r = joined(5);
  std::string b;
  if (op.has(12)) {
    const std::string biases = joined(12);
    b = m.add("Concat", {biases, m.add("Mul", {biases, m.scalar(op.real_type(12), 0)})}, {{"axis", std::int64_t{1}}});
  }
  std::string x = op.real(0);
  if (!time_major) x = m.transpose(x, {1, 0, 2});
  const std::string y = m.add("LSTM", {x, w, r, b}, {{"hidden_size", hidden}});
  const std::string sequence = m.add("Squeeze", {y, m.ints({1})});
  op.set(0, time_major ? sequence : m.transpose(sequence, {1, 0, 2}));
}

// Inputs: the sequence, its weights, those of the state, a bias, the state.
void rnn(Operator& op) {
  Nodes& m = op.make;
  const bool time_major = op.option<bool>(0, false);
  const Activation a = op.activation(1);
  if (a != Activation::kTanh && a != Activation::kRelu) op.refuse("an activation function other than tanh and relu");
  if (op.has(4) && !op.in(4).variable && !op.in(4).constant) op.refuse("a state that another operator computes");
  op.require(op.rank(0) == 3 && op.rank(2) == 2, "an operand's rank is wrong");
  const std::string zero = m.ints({0});
  const std::string w = m.add("Unsqueeze", {op.real(1), zero}), r = m.add("Unsqueeze", {op.real(2), zero});
  const std::string bias = m.add("Unsqueeze", {op.real(3), zero});
  const std::string b =
      m.add("Concat", {bias, m.add("Mul", {bias, m.scalar(op.real_type(3), 0)})}, {{"axis", std::int64_t{1}}});
  std::string x = op.real(0);
  if (!time_major) x = m.transpose(x, {1, 0, 2});
  const std::vector<std::string> activations = {a == Activation::kTanh ? "Tanh" : "Relu"};
  const std::string y = m.add("RNN", {x, w, r, b}, {{"hidden_size", op.in(2).shape[0]}, {"activations", activations}});
  const std::string sequence = m.add("Squeeze", {y, m.ints({1})});
  op.set_real(0, time_major ? sequence : m.transpose(sequence, {1, 0, 2}));
}

constexpr Rule kRules[] = {
    {35, "UNIDIRECTIONAL_SEQUENCE_RNN", rnn},
    {44, "UNIDIRECTIONAL_SEQUENCE_LSTM", lstm},
};

}  // namespace

std::span<const Rule> sequence_rules() { return kRules; }

}  // namespace sardonyx::tflite
