// Operators of layers: products, convolutions, pooling, recurrent layers, images.
#include <algorithm>

#include "migraphx/emitter.h"
#include "support/dtype.h"
#include "support/error.h"

namespace sardonyx::mgx {
namespace {

using Ints = Emitter::Ints;
using Names = Emitter::Names;
using Attributes = Emitter::Attributes;

bool is_byte_float(DType t) { return is_float(t) && size_of(t) == 1; }

void require_gemm(Emitter& e) {
  if (e.shape(0).type != e.shape(1).type) e.invalid("its inputs need one element type");
  if (e.rank(0) < 2 || e.rank(0) != e.rank(1)) e.invalid("its inputs need equal ranks of at least 2");
  if (e.shape(0).is_dynamic() || e.shape(1).is_dynamic()) return;  // checked when it runs
  const Ints a = e.dims(0), b = e.dims(1);
  if (a.back() != b[b.size() - 2] || !std::equal(a.begin(), a.end() - 2, b.begin()))
    e.invalid(fmt::format("dims [{}] and [{}] don't fit", fmt::join(a, ", "), fmt::join(b, ", ")));
}

std::string in_float(Emitter& e, std::size_t k) { return e.cast(e.in(k), DType::kFloat32); }

void dot(Emitter& e) {
  require_gemm(e);
  if (is_byte_float(e.type(0))) return e.result(e.cast(e.node("MatMul", {in_float(e, 0), in_float(e, 1)}), e.type(0)));
  e.result(e.node("MatMul", {e.in(0), e.in(1)}));
}

void quant_dot(Emitter& e) {
  require_gemm(e);
  if (e.inputs() == 4) e.refuse("scales as inputs (packed fp4); multiply the dequantised operands with dot");
  if (is_float(e.type(0))) return e.result(e.node("MatMul", {in_float(e, 0), in_float(e, 1)}));
  e.result(e.node("MatMulInteger", {e.in(0), e.in(1)}));
}

/// A list of one value for each axis of the image; MIGraphX's default has two.
Ints per_axis(Emitter& e, const char* name, std::int64_t otherwise) {
  const std::size_t axes = e.rank(0) - 2;
  if (!e.given(name)) return Ints(axes, otherwise);
  Ints v = e.ints(name);
  if (v.size() != axes) e.invalid(fmt::format("the attribute {} has {} values instead of {}", name, v.size(), axes));
  return v;
}

/// Paddings as ONNX has them: before each axis, then after each.
Ints both_ends(Emitter& e, const char* name) {
  const std::size_t axes = e.rank(0) - 2;
  if (!e.given(name)) return Ints(2 * axes, 0);
  Ints v = e.ints(name);
  if (v.size() == axes) v.insert(v.end(), v.begin(), v.begin() + static_cast<std::ptrdiff_t>(axes));
  if (v.size() != 2 * axes)
    e.invalid(fmt::format("the attribute {} has {} values instead of {} or {}", name, v.size(), axes, 2 * axes));
  return v;
}

Attributes window(Emitter& e, const char* padding, const char* stride, const char* dilation) {
  if (e.rank(0) < 3) e.invalid("its input needs at least three dims");
  Attributes a{{"strides", per_axis(e, stride, 1)}, {"dilations", per_axis(e, dilation, 1)}};
  const std::size_t mode = e.choice("padding_mode", {"default_", "same_lower", "same_upper"});
  if (mode == 0)
    a["pads"] = both_ends(e, padding);
  else
    a["auto_pad"] = std::string(mode == 1 ? "SAME_LOWER" : "SAME_UPPER");
  return a;
}

void convolution(Emitter& e) {
  Attributes a = window(e, "padding", "stride", "dilation");
  a["group"] = e.integer("group");
  if (e.shape(0).type != e.shape(1).type) e.invalid("its inputs need one element type");
  if (is_byte_float(e.type(0))) return e.result(e.cast(e.node("Conv", {in_float(e, 0), in_float(e, 1)}, a), e.type(0)));
  e.result(e.node(e.rule().onnx, {e.in(0), e.in(1)}, a));
}

void quant_convolution(Emitter& e) {
  Attributes a = window(e, "padding", "stride", "dilation");
  a["group"] = e.integer("group");
  if (is_float(e.type(0))) return e.result(e.node("Conv", {in_float(e, 0), in_float(e, 1)}, a));
  e.result(e.node("ConvInteger", {e.in(0), e.in(1)}, a));
}

void pooling(Emitter& e) {
  const std::size_t mode = e.choice("mode", {"average", "max", "lpnorm"});
  static const char* const kOps[] = {"AveragePool", "MaxPool", "LpPool"};
  static const char* const kGlobal[] = {"GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"};
  if (e.flag("dyn_global")) {
    Attributes p;
    if (mode == 2) p["p"] = e.integer("lp_order");
    return e.result(e.node(kGlobal[mode], {e.in(0)}, p));
  }
  Attributes a = window(e, "padding", "stride", "dilations");
  a["kernel_shape"] = per_axis(e, "lengths", 1);
  a["ceil_mode"] = e.integer("ceil_mode");
  if (mode == 0) a["count_include_pad"] = e.integer("count_include_pad");
  if (mode == 2) a["p"] = e.integer("lp_order");
  e.result(e.node(kOps[mode], {e.in(0)}, a));
}

void lrn(Emitter& e) {
  e.result(e.node("LRN", {e.in(0)},
                  {{"alpha", e.number("alpha")},
                   {"beta", e.number("beta")},
                   {"bias", e.number("bias")},
                   {"size", e.integer("size")}}));
}

std::string text(Emitter& e, const char* name) {
  if (!e.value(name).is_string()) e.invalid(fmt::format("the attribute {} is no text", name));
  return e.value(name).get<std::string>();
}

std::string float_list(Emitter& e, const std::vector<float>& values) {
  // As a quotient of integers would lose digits, each value is a constant of its own.
  Names parts;
  for (const float v : values) parts.push_back(e.scalar(DType::kFloat32, v));
  return parts.size() == 1 ? parts[0] : e.node("Concat", parts, {{"axis", std::int64_t{0}}});
}

void resize(Emitter& e) {
  Attributes a{{"mode", text(e, "mode")},
               {"nearest_mode", text(e, "nearest_mode")},
               {"coordinate_transformation_mode", text(e, "coordinate_transformation_mode")},
               {"cubic_coeff_a", e.number("cubic_coeff_a")}};
  const Ints sizes = e.ints("sizes");
  const std::vector<float> scales = e.numbers("scales");
  Names inputs{e.in(0), "", "", ""};
  if (e.inputs() == 2) {
    const bool is_sizes = !is_float(e.type(1));
    inputs[is_sizes ? 3 : 2] = is_sizes ? e.cast(e.in(1), DType::kInt64) : e.in(1);
  } else if (!sizes.empty()) {
    inputs[3] = e.int_list(sizes);
  } else if (!scales.empty()) {
    inputs[2] = float_list(e, scales);
  } else {
    e.invalid("it needs the attribute sizes or scales, or a second input");
  }
  e.result(e.node("Resize", inputs, a));
}

void roialign(Emitter& e) {
  const std::size_t mode = e.choice("mode", {"average", "max"});
  e.result(e.node("RoiAlign", e.all_inputs(),
                  {{"coordinate_transformation_mode", text(e, "coordinate_transformation_mode")},
                   {"mode", std::string(mode == 0 ? "avg" : "max")},
                   {"output_height", e.integer("output_height")},
                   {"output_width", e.integer("output_width")},
                   {"sampling_ratio", e.integer("sampling_ratio")},
                   {"spatial_scale", e.number("spatial_scale")}}));
}

// ---- recurrent layers: the sequence of states is the result; their last states are those of operators on it

std::vector<std::string> activations(Emitter& e, std::size_t each, std::size_t directions) {
  static const std::pair<const char*, const char*> kNames[] = {
      {"sigmoid", "Sigmoid"}, {"tanh", "Tanh"}, {"relu", "Relu"}, {"elu", "Elu"}, {"leaky_relu", "LeakyRelu"}};
  std::vector<std::string> names;
  const nlohmann::json& list = e.value("actv_func");
  for (const nlohmann::json& v : list) {
    const nlohmann::json& name = v.is_object() && v.contains("name") ? v.at("name") : v;
    const auto* found = std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& n) {
      return name.is_string() && name.get<std::string>() == n.first;
    });
    if (found == std::end(kNames)) e.refuse("the activation " + name.dump());
    names.emplace_back(found->second);
  }
  if (names.size() < each) e.invalid(fmt::format("{} activations instead of {}", names.size(), each));
  if (names.size() < each * directions) {
    names.resize(each);
    for (std::size_t k = 0; k < each && directions == 2; ++k) names.push_back(names[k]);
  }
  names.resize(each * directions);
  return names;
}

void recurrent(Emitter& e, std::size_t functions, std::size_t states, Attributes more) {
  const std::size_t direction = e.choice("direction", {"forward", "reverse", "bidirectional"});
  static const char* const kDirections[] = {"forward", "reverse", "bidirectional"};
  more["hidden_size"] = e.integer("hidden_size");
  more["direction"] = std::string(kDirections[direction]);
  more["activations"] = activations(e, functions, direction == 2 ? 2 : 1);
  if (e.number("clip") > 0) more["clip"] = e.number("clip");
  Names inputs = e.all_inputs();
  if (inputs.size() > 4 && !inputs[4].empty()) inputs[4] = e.cast(inputs[4], DType::kInt32);
  const Names r = e.nodes(states + 1, e.rule().onnx, inputs, more);
  e.result(r[0]);
  e.rnn_state("hidden", r[1]);
  if (states == 2) e.rnn_state("cell", r[2]);
}

void rnn(Emitter& e) { recurrent(e, 1, 1, {}); }
void gru(Emitter& e) { recurrent(e, 2, 1, {{"linear_before_reset", e.integer("linear_before_reset")}}); }
void lstm(Emitter& e) { recurrent(e, 3, 2, {{"input_forget", e.integer("input_forget")}}); }

void last_state(Emitter& e) {
  const auto& states = e.instruction().inputs[0]->rnn;
  const auto found = states.find(e.rule().onnx);
  if (found == states.end()) e.invalid("its first input must be the result of a recurrent layer");
  e.alias(found->second);
}

constexpr const char* kConvolution =
    R"({"padding": [0, 0], "stride": [1, 1], "dilation": [1, 1], "group": 1, "padding_mode": "default_"})";

constexpr OperatorRule kRules[] = {
    {"convolution", 2, 2, kConvolution, convolution, "Conv"},
    {"convolution_backwards", 2, 2, kConvolution, convolution, "ConvTranspose"},
    {"dot", 2, 2, "{}", dot},
    {"gru", 3, 6,
     R"({"hidden_size": 1, "actv_func": ["sigmoid", "tanh"], "direction": "forward", "clip": 0.0,
         "linear_before_reset": 0})",
     gru, "GRU"},
    {"lrn", 1, 1, R"({"alpha": 0.0001, "beta": 0.75, "bias": 1.0, "size": 1})", lrn},
    {"lstm", 3, 8,
     R"({"hidden_size": 1, "actv_func": ["sigmoid", "tanh", "tanh"], "direction": "forward", "clip": 0.0,
         "input_forget": 0})",
     lstm, "LSTM"},
    {"pooling", 1, 1,
     R"({"mode": "average", "padding": [0, 0], "padding_mode": "default_", "stride": [1, 1], "lengths": [1, 1],
         "dilations": [1, 1], "ceil_mode": false, "count_include_pad": false, "lp_order": 2, "dyn_global": false})",
     pooling},
    {"quant_convolution", 2, 2, kConvolution, quant_convolution},
    {"quant_dot", 2, 4, "{}", quant_dot},
    {"resize", 1, 2,
     R"({"scales": [], "sizes": [], "nearest_mode": "floor", "mode": "nearest",
         "coordinate_transformation_mode": "half_pixel", "cubic_coeff_a": -0.75})",
     resize},
    {"rnn", 3, 6, R"({"hidden_size": 1, "actv_func": ["tanh", "tanh"], "direction": "forward", "clip": 0.0})", rnn,
     "RNN"},
    {"rnn_last_cell_output", 1, 2, "{}", last_state, "cell"},
    {"rnn_last_hs_output", 1, 2, "{}", last_state, "hidden"},
    {"rnn_var_sl_last_output", 1, 2, R"({"direction": "forward"})", last_state, "hidden"},
    {"roialign", 3, 3,
     R"({"coordinate_transformation_mode": "half_pixel", "mode": "average", "output_height": 1, "output_width": 1,
         "sampling_ratio": 0, "spatial_scale": 1.0})",
     roialign},
};

}  // namespace

std::span<const OperatorRule> layer_operators() { return kRules; }

}  // namespace sardonyx::mgx
