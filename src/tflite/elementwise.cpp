// Operators on each element, and reductions.
#include "tflite/operator.h"

namespace sardonyx::tflite {
namespace {

void unary(Operator& op) { op.set_real(0, op.make.add(op.onnx(), {op.real(0)})); }

// The operators with a fused activation function have it as their first option.
void arithmetic(Operator& op) { op.set_real(0, op.make.add(op.onnx(), {op.real(0), op.real(1)}), op.activation(0)); }

void binary(Operator& op) { op.set_real(0, op.make.add(op.onnx(), {op.real(0), op.real(1)})); }

void not_equal(Operator& op) { op.set(0, op.make.add("Not", {op.make.add("Equal", {op.real(0), op.real(1)})})); }

void add_n(Operator& op) {
  Inputs in;
  for (std::size_t k = 0; k < op.inputs(); ++k) in.push_back(op.real(k));
  op.require(!in.empty(), "there are no inputs");
  op.set_real(0, op.make.add("Sum", std::move(in)));
}

void rsqrt(Operator& op) { op.set_real(0, op.make.add("Reciprocal", {op.make.add("Sqrt", {op.real(0)})})); }

void square(Operator& op) { op.set_real(0, op.make.add("Mul", {op.real(0), op.real(0)})); }

void squared_difference(Operator& op) {
  const std::string d = op.make.add("Sub", {op.real(0), op.real(1)});
  op.set_real(0, op.make.add("Mul", {d, d}));
}

void clip(Operator& op, double low, double high) {
  const DType t = op.real_type(0);
  const std::string x = op.real(0), l = op.make.scalar(t, low), h = op.make.scalar(t, high);
  op.set_real(0, op.make.add("Clip", {x, l, h}));
}
void relu6(Operator& op) { clip(op, 0, 6); }
void relu_n1_to_1(Operator& op) { clip(op, -1, 1); }
void relu_0_to_1(Operator& op) { clip(op, 0, 1); }

void leaky_relu(Operator& op) {
  op.set_real(0, op.make.add("LeakyRelu", {op.real(0)}, {{"alpha", op.option<float>(0, 0)}}));
}

void prelu(Operator& op) {  // PRelu's slope broadcasts in one direction only
  const std::string x = op.real(0), slope = op.real(1);
  const std::string zero = op.make.scalar(op.real_type(0), 0);
  const std::string below = op.make.add("Mul", {op.make.add("Min", {x, zero}), slope});
  op.set_real(0, op.make.add("Add", {op.make.add("Relu", {x}), below}));
}

void gelu(Operator& op) {
  const bool approximate = op.option<bool>(0, false);
  op.set_real(0, op.make.add("Gelu", {op.real(0)}, {{"approximate", std::string(approximate ? "tanh" : "none")}}));
}

void softmax(Operator& op) {
  std::string x = op.real(0);
  const auto beta = op.option<float>(0, 0);
  if (beta != 1) {
    const std::string b = op.make.scalar(op.real_type(0), beta);
    x = op.make.add("Mul", {x, b});
  }
  op.set_real(0, op.make.add("Softmax", {x}, {{"axis", std::int64_t{-1}}}));
}

void log_softmax(Operator& op) {
  op.set_real(0, op.make.add("LogSoftmax", {op.real(0)}, {{"axis", std::int64_t{-1}}}));
}

void l2_normalization(Operator& op) {
  const std::string x = op.real(0), axes = op.make.ints({-1});
  const std::string least = op.make.scalar(op.real_type(0), 1e-6);  // as TFLite's kernel has it
  const std::string norm = op.make.add("ReduceL2", {x, axes}, {{"keepdims", std::int64_t{1}}});
  op.set_real(0, op.make.add("Div", {x, op.make.add("Max", {norm, least})}), op.activation(0));
}

// Quotients rounded down. For integers ONNX's Mod has the divisor's sign, so that what is left divides exactly.
void floor_div(Operator& op) {
  const std::string a = op.real(0), b = op.real(1);
  if (is_float(op.real_type(0))) return op.set_real(0, op.make.add("Floor", {op.make.add("Div", {a, b})}));
  op.set_real(0, op.make.add("Div", {op.make.add("Sub", {a, op.make.add("Mod", {a, b})}), b}));
}

void floor_mod(Operator& op) {
  const std::string a = op.real(0), b = op.real(1);
  if (!is_float(op.real_type(0))) return op.set_real(0, op.make.add("Mod", {a, b}));
  // fmod has the dividend's sign: where that is not the divisor's, the divisor is added.
  const std::string r = op.make.add("Mod", {a, b}, {{"fmod", std::int64_t{1}}});
  const std::string zero = op.make.scalar(op.real_type(0), 0);
  const std::string other = op.make.add("Xor", {op.make.add("Less", {r, zero}), op.make.add("Less", {b, zero})});
  const std::string some = op.make.add("Not", {op.make.add("Equal", {r, zero})});
  op.set_real(0, op.make.add("Where", {op.make.add("And", {other, some}), op.make.add("Add", {r, b}), r}));
}

// The angle of (x, y) from Atan, whose argument may be infinite.
void atan2(Operator& op) {
  Nodes& m = op.make;
  const DType t = op.real_type(0);
  const std::string y = op.real(0), x = op.real(1), zero = m.scalar(t, 0), pi = m.scalar(t, 3.14159265358979323846);
  const std::string angle = m.add("Atan", {m.add("Div", {y, x})});
  const std::string half = m.add("Where", {m.add("Less", {y, zero}), m.add("Neg", {pi}), pi});
  const std::string left = m.add("Where", {m.add("Less", {x, zero}), half, zero});
  const std::string both = m.add("And", {m.add("Equal", {x, zero}), m.add("Equal", {y, zero})});
  op.set_real(0, m.add("Where", {both, zero, m.add("Add", {angle, left})}));
}

void right_shift(Operator& op) {
  if (is_signed(op.in(0).dtype)) op.refuse("a shift of signed integers");  // BitShift takes unsigned ones
  op.set(0, op.make.add("BitShift", {op.raw(0), op.raw(1)}, {{"direction", std::string("RIGHT")}}));
}

void cast(Operator& op) {
  const TensorInfo& to = op.out(0);
  if (!to.unsupported.empty()) op.refuse("a cast: " + to.unsupported);
  op.set(0, op.make.cast(op.raw(0), to.dtype));
}

void dequantize_op(Operator& op) {
  const std::string x = op.real(0);
  op.set(0, op.real_type(0) == op.out(0).dtype ? x : op.make.cast(x, op.out(0).dtype));
}

void quantize_op(Operator& op) { op.set_real(0, op.real(0)); }

// A reduction over the axes of input 1; without axes nothing is reduced.
std::string reduced(Operator& op, const std::string& x) {
  const std::string axes = op.ints(1);
  return op.make.add(
      op.onnx(), {x, axes},
      {{"keepdims", std::int64_t{op.option<bool>(0, false)}}, {"noop_with_empty_axes", std::int64_t{1}}});
}
void reduction(Operator& op) { op.set_real(0, reduced(op, op.real(0))); }
void reduction_of_bools(Operator& op) {
  op.set(0, op.make.cast(reduced(op, op.make.cast(op.raw(0), DType::kInt32)), DType::kBool));
}

constexpr Rule kRules[] = {
    {0, "ADD", arithmetic, "Add"},
    {8, "FLOOR", unary, "Floor"},
    {11, "L2_NORMALIZATION", l2_normalization},
    {14, "LOGISTIC", unary, "Sigmoid"},
    {18, "MUL", arithmetic, "Mul"},
    {19, "RELU", unary, "Relu"},
    {20, "RELU_N1_TO_1", relu_n1_to_1},
    {21, "RELU6", relu6},
    {25, "SOFTMAX", softmax},
    {28, "TANH", unary, "Tanh"},
    {40, "MEAN", reduction, "ReduceMean"},
    {41, "SUB", arithmetic, "Sub"},
    {42, "DIV", arithmetic, "Div"},
    {47, "EXP", unary, "Exp"},
    {50, "LOG_SOFTMAX", log_softmax},
    {53, "CAST", cast},
    {54, "PRELU", prelu},
    {55, "MAXIMUM", binary, "Max"},
    {57, "MINIMUM", binary, "Min"},
    {58, "LESS", binary, "Less"},
    {59, "NEG", unary, "Neg"},
    {61, "GREATER", binary, "Greater"},
    {62, "GREATER_EQUAL", binary, "GreaterOrEqual"},
    {63, "LESS_EQUAL", binary, "LessOrEqual"},
    {66, "SIN", unary, "Sin"},
    {71, "EQUAL", binary, "Equal"},
    {72, "NOT_EQUAL", not_equal},
    {73, "LOG", unary, "Log"},
    {74, "SUM", reduction, "ReduceSum"},
    {75, "SQRT", unary, "Sqrt"},
    {76, "RSQRT", rsqrt},
    {78, "POW", binary, "Pow"},
    {81, "REDUCE_PROD", reduction, "ReduceProd"},
    {82, "REDUCE_MAX", reduction, "ReduceMax"},
    {84, "LOGICAL_OR", binary, "Or"},
    {86, "LOGICAL_AND", binary, "And"},
    {87, "LOGICAL_NOT", unary, "Not"},
    {89, "REDUCE_MIN", reduction, "ReduceMin"},
    {90, "FLOOR_DIV", floor_div},
    {91, "REDUCE_ANY", reduction_of_bools, "ReduceMax"},
    {92, "SQUARE", square},
    {95, "FLOOR_MOD", floor_mod},
    {98, "LEAKY_RELU", leaky_relu},
    {99, "SQUARED_DIFFERENCE", squared_difference},
    {101, "ABS", unary, "Abs"},
    {104, "CEIL", unary, "Ceil"},
    {106, "ADD_N", add_n},
    {108, "COS", unary, "Cos"},
    {111, "ELU", unary, "Elu"},
    {114, "QUANTIZE", quantize_op},
    {6, "DEQUANTIZE", dequantize_op},
    {116, "ROUND", unary, "Round"},
    {117, "HARD_SWISH", unary, "HardSwish"},
    {140, "REDUCE_ALL", reduction_of_bools, "ReduceMin"},
    {150, "GELU", gelu},
    {152, "RELU_0_TO_1", relu_0_to_1},
    {156, "ATAN2", atan2},
    {158, "SIGN", unary, "Sign"},
    {160, "BITWISE_XOR", binary, "BitwiseXor"},
    {161, "RIGHT_SHIFT", right_shift},
};

}  // namespace

std::span<const Rule> elementwise_rules() { return kRules; }

}  // namespace sardonyx::tflite
