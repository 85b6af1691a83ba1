// Operators on elements.
#include <cmath>

#include "migraphx/emitter.h"
#include "support/dtype.h"
#include "support/error.h"

namespace sardonyx::mgx {
namespace {

using Names = Emitter::Names;

/// Types in which ONNX has no arithmetic.
bool is_storage(DType t) { return is_float(t) && size_of(t) == 1; }

/// An input, in float32 if its type is for storage only.
std::string operand(Emitter& e, std::size_t k) {
  return is_storage(e.type(k)) ? e.cast(e.in(k), DType::kFloat32) : e.in(k);
}

DType arithmetic(const Emitter& e) { return is_storage(e.type(0)) ? DType::kFloat32 : e.type(0); }

/// The result, in the first input's type.
void store(Emitter& e, const std::string& value) { e.result(is_storage(e.type(0)) ? e.cast(value, e.type(0)) : value); }

void unary(Emitter& e) { store(e, e.node(e.rule().onnx, {operand(e, 0)})); }

void binary(Emitter& e) {
  e.require_equal_shapes();
  store(e, e.node(e.rule().onnx, {operand(e, 0), operand(e, 1)}));
}

void identity(Emitter& e) { e.result(e.node("Identity", {e.in(0)})); }

/// Results of comparisons have the type of the inputs in MIGraphX.
void comparison(Emitter& e) {
  e.require_equal_shapes();
  std::string value = e.node(e.rule().onnx, {operand(e, 0), operand(e, 1)});
  e.result(e.type(0) == DType::kBool ? value : e.cast(value, e.type(0)));
}

std::string truth(Emitter& e, std::size_t k) {
  return e.type(k) == DType::kBool ? e.in(k) : e.cast(operand(e, k), DType::kBool);
}

void logical(Emitter& e) {
  e.require_equal_shapes();
  const std::string value = e.node(e.rule().onnx, {truth(e, 0), truth(e, 1)});
  e.result(e.type(0) == DType::kBool ? value : e.cast(value, e.type(0)));
}

void negation(Emitter& e) {
  const std::string value = e.node("Not", {truth(e, 0)});
  e.result(e.type(0) == DType::kBool ? value : e.cast(value, e.type(0)));
}

void classification(Emitter& e) { e.result(e.node(e.rule().onnx, {operand(e, 0)})); }

void with_alpha(Emitter& e) { store(e, e.node(e.rule().onnx, {operand(e, 0)}, {{"alpha", e.number("alpha")}})); }

void rsqrt(Emitter& e) { store(e, e.node("Reciprocal", {e.node("Sqrt", {operand(e, 0)})})); }

void log2(Emitter& e) {
  const std::string scale = e.scalar(arithmetic(e), 1 / std::log(2.0));
  store(e, e.node("Mul", {e.node("Log", {operand(e, 0)}), scale}));
}

void squared_difference(Emitter& e) {
  e.require_equal_shapes();
  const std::string d = e.node("Sub", {operand(e, 0), operand(e, 1)});
  store(e, e.node("Mul", {d, d}));
}

/// The remainder with the sign of the divisor.
void mod(Emitter& e) {
  e.require_equal_shapes();
  if (!is_float(e.type(0))) return e.result(e.node("Mod", {e.in(0), e.in(1)}));
  const std::string x = operand(e, 0), y = operand(e, 1);
  const std::string whole = e.node("Mul", {e.node("Floor", {e.node("Div", {x, y})}), y});
  store(e, e.node("Sub", {x, whole}));
}

void fmod(Emitter& e) {
  e.require_equal_shapes();
  store(e, e.node("Mod", {operand(e, 0), operand(e, 1)}, {{"fmod", std::int64_t{1}}}));
}

void clip(Emitter& e) {
  e.require_equal_shapes();
  store(e, e.node("Min", {e.node("Max", {operand(e, 0), operand(e, 1)}), operand(e, 2)}));
}

void where(Emitter& e) {
  if (e.shape(1).type != e.shape(2).type) e.invalid("its last two inputs need one element type");
  e.result(e.node("Where", {truth(e, 0), e.in(1), e.in(2)}));
}

void convert(Emitter& e) { e.result(e.cast(e.in(0), e.dtype("target_type"))); }

/// Each element with its own scale and zero point: MIGraphX broadcasts them before.
void quantize(Emitter& e) {
  const DType to = e.inputs() == 3 ? e.type(2) : e.given("out_type") ? e.dtype("out_type") : DType::kUInt8;
  const bool integer = !is_float(to);
  std::string q = e.node("Div", {e.cast(operand(e, 0), DType::kFloat32), e.cast(operand(e, 1), DType::kFloat32)});
  if (integer) q = e.node("Round", {q});
  if (e.inputs() == 3) q = e.node("Add", {q, e.cast(e.in(2), DType::kFloat32)});
  if (integer) {
    const double bits = 8 * static_cast<double>(size_of(to));
    if (bits > 16) e.refuse("integers of more than 16 bits");
    const double low = is_signed(to) ? -std::exp2(bits - 1) : 0, high = std::exp2(is_signed(to) ? bits - 1 : bits) - 1;
    q = e.node("Clip", {q, e.node("Squeeze", {e.scalar(DType::kFloat32, low)}),
                        e.node("Squeeze", {e.scalar(DType::kFloat32, high)})});
  }
  e.result(e.cast(q, to));
}

void dequantize(Emitter& e) {
  std::string x = e.cast(e.in(0), DType::kFloat32);
  if (e.inputs() == 3) x = e.node("Sub", {x, e.cast(e.in(2), DType::kFloat32)});
  x = e.node("Mul", {x, e.cast(operand(e, 1), DType::kFloat32)});
  e.result(e.cast(x, e.type(1)));
}

constexpr OperatorRule kRules[] = {
    {"abs", 1, 1, "{}", unary, "Abs"},
    {"acos", 1, 1, "{}", unary, "Acos"},
    {"acosh", 1, 1, "{}", unary, "Acosh"},
    {"add", 2, 2, "{}", binary, "Add"},
    {"asin", 1, 1, "{}", unary, "Asin"},
    {"asinh", 1, 1, "{}", unary, "Asinh"},
    {"atan", 1, 1, "{}", unary, "Atan"},
    {"atanh", 1, 1, "{}", unary, "Atanh"},
    {"bitwise_and", 2, 2, "{}", binary, "BitwiseAnd"},
    {"ceil", 1, 1, "{}", unary, "Ceil"},
    {"clip", 3, 3, "{}", clip},
    {"contiguous", 1, 1, "{}", identity},
    {"convert", 1, 1, R"({"target_type": "half_type"})", convert},
    {"cos", 1, 1, "{}", unary, "Cos"},
    {"cosh", 1, 1, "{}", unary, "Cosh"},
    {"dequantizelinear", 2, 3, "{}", dequantize},
    {"div", 2, 2, "{}", binary, "Div"},
    {"elu", 1, 1, R"({"alpha": 1.0})", with_alpha, "Elu"},
    {"equal", 2, 2, "{}", comparison, "Equal"},
    {"erf", 1, 1, "{}", unary, "Erf"},
    {"exp", 1, 1, "{}", unary, "Exp"},
    {"floor", 1, 1, "{}", unary, "Floor"},
    {"fmod", 2, 2, "{}", fmod},
    {"greater", 2, 2, "{}", comparison, "Greater"},
    {"identity", 1, 1, "{}", identity},
    {"isinf", 1, 1, "{}", classification, "IsInf"},
    {"isnan", 1, 1, "{}", classification, "IsNaN"},
    {"layout", 1, 1, R"({"permutation": []})", identity},
    {"leaky_relu", 1, 1, R"({"alpha": 0.01})", with_alpha, "LeakyRelu"},
    {"less", 2, 2, "{}", comparison, "Less"},
    {"log", 1, 1, "{}", unary, "Log"},
    {"log2", 1, 1, "{}", log2},
    {"logical_and", 2, 2, "{}", logical, "And"},
    {"logical_or", 2, 2, "{}", logical, "Or"},
    {"logical_xor", 2, 2, "{}", logical, "Xor"},
    {"max", 2, 2, "{}", binary, "Max"},
    {"min", 2, 2, "{}", binary, "Min"},
    {"mod", 2, 2, "{}", mod},
    {"mul", 2, 2, "{}", binary, "Mul"},
    {"nearbyint", 1, 1, "{}", unary, "Round"},
    {"neg", 1, 1, "{}", unary, "Neg"},
    {"not", 1, 1, "{}", negation},
    {"pow", 2, 2, "{}", binary, "Pow"},
    {"prelu", 2, 2, "{}", binary, "PRelu"},
    {"quantizelinear", 2, 3, R"({"out_type": "uint8_type"})", quantize},
    {"recip", 1, 1, "{}", unary, "Reciprocal"},
    {"relu", 1, 1, "{}", unary, "Relu"},
    {"rsqrt", 1, 1, "{}", rsqrt},
    {"sigmoid", 1, 1, "{}", unary, "Sigmoid"},
    {"sign", 1, 1, "{}", unary, "Sign"},
    {"sin", 1, 1, "{}", unary, "Sin"},
    {"sinh", 1, 1, "{}", unary, "Sinh"},
    {"sqdiff", 2, 2, "{}", squared_difference},
    {"sqrt", 1, 1, "{}", unary, "Sqrt"},
    {"sub", 2, 2, "{}", binary, "Sub"},
    {"tan", 1, 1, "{}", unary, "Tan"},
    {"tanh", 1, 1, "{}", unary, "Tanh"},
    {"where", 3, 3, "{}", where},
};

}  // namespace

std::span<const OperatorRule> pointwise_operators() { return kRules; }

}  // namespace sardonyx::mgx
