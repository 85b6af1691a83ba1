// MIGraphX's macros: operators with broadcasting and optional inputs, as ONNX has them.
#include "migraphx/emitter.h"

namespace sardonyx::mgx {
namespace {

using Attributes = Emitter::Attributes;
using Ints = Emitter::Ints;

/// Two inputs with numpy's broadcasting, or the shorter one at an axis of the other.
void broadcasting(Emitter& e) {
  std::string a = e.in(0), b = e.in(1);
  if (e.given("broadcasted_axis") && !e.value("broadcasted_axis").is_null()) {
    const std::size_t shorter = e.rank(0) < e.rank(1) ? 0 : 1;
    const std::int64_t axis = e.integer("broadcasted_axis");
    Ints dims = e.dims(shorter);
    const auto rank = static_cast<std::int64_t>(e.rank(1 - shorter));
    if (axis < 0 || axis > rank - static_cast<std::int64_t>(dims.size())) e.invalid("broadcasted_axis is out of range");
    dims.insert(dims.begin(), static_cast<std::size_t>(axis), 1);
    dims.resize(static_cast<std::size_t>(rank), 1);
    std::string& of = shorter == 0 ? a : b;
    of = e.node("Reshape", {of, e.int_list(dims)});
  }
  e.result(e.node(e.rule().onnx, {a, b}));
}

void squared_difference(Emitter& e) {
  const std::string d = e.node("Sub", {e.in(0), e.in(1)});
  e.result(e.node("Mul", {d, d}));
}

void batchnorm(Emitter& e) {
  e.result(e.node("BatchNormalization", e.all_inputs(), {{"epsilon", e.number("epsilon")}}));
}

void convolution(Emitter& e) {
  const std::size_t axes = e.rank(0) - 2;
  if (e.rank(0) < 3) e.invalid("its input needs at least three dims");
  Attributes a{{"group", e.integer("group")}};
  const std::string automatic = e.value("auto_pad").is_string() ? e.value("auto_pad").get<std::string>() : "";
  const std::size_t mode = e.choice("padding_mode", {"default_", "same_lower", "same_upper"});
  if (mode != 0)
    a["auto_pad"] = std::string(mode == 1 ? "SAME_LOWER" : "SAME_UPPER");
  else
    a["auto_pad"] = automatic;
  if (e.given("paddings")) {
    Ints pads = e.ints("paddings");
    if (pads.size() == axes) pads.insert(pads.end(), pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(axes));
    a["pads"] = pads;
  }
  if (e.given("strides")) a["strides"] = e.ints("strides");
  if (e.given("dilations")) a["dilations"] = e.ints("dilations");
  e.result(e.node("Conv", e.all_inputs(), a));
}

void gemm(Emitter& e) {
  e.result(e.node("Gemm", e.all_inputs(),
                  {{"alpha", e.number("alpha")},
                   {"beta", e.number("beta")},
                   {"transA", e.integer("transA")},
                   {"transB", e.integer("transB")}}));
}

void einsum(Emitter& e) {
  if (!e.value("equation").is_string()) e.invalid("the attribute equation is no text");
  e.result(e.node("Einsum", e.all_inputs(), {{"equation", e.value("equation").get<std::string>()}}));
}

void clip(Emitter& e) {
  Emitter::Names inputs{e.in(0)};
  for (std::size_t k = 1; k < e.inputs(); ++k) inputs.push_back(e.is_undefined(k) ? "" : e.node("Squeeze", {e.in(k)}));
  e.result(e.node("Clip", inputs));
}

void celu(Emitter& e) { e.result(e.node("Celu", {e.in(0)}, {{"alpha", e.number("alpha")}})); }

void gelu(Emitter& e) { e.result(e.node("Gelu", {e.in(0)}, {{"approximate", std::string(e.rule().onnx)}})); }

void gelu_quick(Emitter& e) {
  const std::string alpha = e.cast(e.scalar(DType::kFloat32, e.number("alpha")), e.type(0));
  e.result(e.node("Mul", {e.in(0), e.node("Sigmoid", {e.node("Mul", {e.in(0), alpha})})}));
}

void tile(Emitter& e) { e.result(e.node("Tile", {e.in(0), e.int_list(e.ints("repeats"))})); }

void mean_variance(Emitter& e) { e.result(e.node("MeanVarianceNormalization", {e.in(0)}, {{"axes", e.ints("axes")}})); }

constexpr const char* kAxis = R"({"broadcasted_axis": null})";

constexpr OperatorRule kRules[] = {
    {"macro:add", 2, 2, kAxis, broadcasting, "Add"},
    {"macro:batchnorm", 5, 5, R"({"epsilon": 1e-5})", batchnorm},
    {"macro:celu", 1, 1, R"({"alpha": 1.0})", celu},
    {"macro:clip", 1, 3, "{}", clip},
    {"macro:convolution", 2, 3,
     R"({"auto_pad": "NOTSET", "paddings": [], "strides": [], "dilations": [], "group": 1, "padding_mode": "default_"})",
     convolution},
    {"macro:div", 2, 2, kAxis, broadcasting, "Div"},
    {"macro:dot", 2, 2, "{}", broadcasting, "MatMul"},
    {"macro:einsum", 1, -1, R"({"equation": ""})", einsum},
    {"macro:gelu_erf", 1, 1, "{}", gelu, "none"},
    {"macro:gelu_quick", 1, 1, R"({"alpha": 1.0})", gelu_quick},
    {"macro:gelu_tanh", 1, 1, R"({"fast": false})", gelu, "tanh"},
    {"macro:gemm", 2, 3, R"({"alpha": 1.0, "beta": 1.0, "transA": false, "transB": false})", gemm},
    {"macro:mean_variance_normalization", 1, 1, R"({"axes": [0, 2, 3]})", mean_variance},
    {"macro:mul", 2, 2, kAxis, broadcasting, "Mul"},
    {"macro:pow", 2, 2, kAxis, broadcasting, "Pow"},
    {"macro:prelu", 2, 2, kAxis, broadcasting, "PRelu"},
    {"macro:sqdiff", 2, 2, "{}", squared_difference},
    {"macro:sub", 2, 2, kAxis, broadcasting, "Sub"},
    {"macro:tile", 1, 1, R"({"repeats": []})", tile},
};

}  // namespace

std::span<const OperatorRule> macro_operators() { return kRules; }

}  // namespace sardonyx::mgx
