// Convolutions, pooling, products and images. Channels come last in TFLite; ONNX's operators stand between transposes.
#include <algorithm>
#include <cmath>

#include "tflite/operator.h"

namespace sardonyx::tflite {
namespace {

bool is_byte(DType t) { return t == DType::kInt8 || t == DType::kUInt8; }

/// Whether a product of these inputs can sum integers: 8 bits each, one scale for x and the result.
bool is_integer_layer(Operator& op, std::size_t x, std::size_t w, std::size_t bias) {
  for (const TensorInfo* t : {&op.in(x), &op.out(0)})
    if (!is_byte(t->dtype) || !t->quantization.per_tensor()) return false;
  if (!is_byte(op.in(w).dtype) || !op.in(w).quantised()) return false;
  return !op.has(bias) || (op.in(bias).dtype == DType::kInt32 && op.in(bias).constant);
}

std::string scale_of(Nodes& make, const TensorInfo& t) {
  const Quantization& q = t.quantization;
  return q.per_tensor() ? make.scalar(DType::kFloat32, q.scale[0]) : make.floats(q.scale);
}
std::string zero_of(Nodes& make, const TensorInfo& t) {
  const Quantization& q = t.quantization;
  return make.ints_as(t.dtype, q.zero, q.per_tensor());
}

/// What an integer sum of products is multiplied by: for each output channel, or one for all.
std::vector<float> rescaling(Operator& op, std::size_t x, std::size_t w) {
  std::vector<float> out;
  for (const float s : op.in(w).quantization.scale)
    out.push_back(static_cast<float>(double{op.in(x).quantization.scale[0]} * s / op.out(0).quantization.scale[0]));
  return out;
}

/// A fused activation function on stored integers: a clamp.
std::string clamped(Operator& op, const std::string& x, Activation activation) {
  const TensorInfo& out = op.out(0);
  const double scale = out.quantization.scale[0];
  const std::int64_t zero = out.quantization.zero[0], lowest = out.dtype == DType::kInt8 ? -128 : 0;
  const auto stored = [&](double real) {
    const double q = std::nearbyint(real / scale) + static_cast<double>(zero);
    return static_cast<std::int64_t>(std::clamp(q, static_cast<double>(lowest), static_cast<double>(lowest + 255)));
  };
  std::int64_t low = lowest, high = lowest + 255;
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      low = stored(0);
      break;
    case Activation::kRelu6:
      low = stored(0), high = stored(6);
      break;
    case Activation::kReluN1To1:
      low = stored(-1), high = stored(1);
      break;
    default:
      op.refuse(fmt::format("the fused activation function {} of integers", static_cast<int>(activation)));
  }
  if (low == lowest && high == lowest + 255) return x;
  const std::string l = op.make.ints_as(out.dtype, {low}, true), h = op.make.ints_as(out.dtype, {high}, true);
  return op.make.add("Clip", {x, l, h});
}

std::string auto_pad(Operator& op, int field) {
  const auto p = static_cast<Padding>(op.option<std::int8_t>(field, 0));
  if (p != Padding::kSame && p != Padding::kValid) op.invalid("its padding is neither SAME nor VALID");
  return p == Padding::kSame ? "SAME_UPPER" : "VALID";
}

/// Sizes from options, which must be positive.
std::vector<std::int64_t> sizes(Operator& op, std::initializer_list<int> fields, std::int32_t fallback) {
  std::vector<std::int64_t> out;
  for (const int f : fields) {
    out.push_back(op.option<std::int32_t>(f, fallback));
    op.require(out.back() > 0, "a stride, dilation or window is not positive");
  }
  return out;
}

/// Input 0 convolved with input 1, whose dims `weights` permutes to ONNX's order, plus input 2.
void convolve(Operator& op, std::size_t spatial, Attributes attributes, const std::vector<std::int64_t>& weights,
              Activation activation) {
  Nodes& m = op.make;
  op.require(op.in(0).shape.size() == spatial + 2 && op.in(1).shape.size() == spatial + 2,
             "an operand's rank is wrong");
  std::string y;
  if (is_integer_layer(op, 0, 1, 2)) {
    const std::string x = m.transpose(op.raw(0), to_channels_first(spatial)), w = m.transpose(op.raw(1), weights);
    const std::string sx = scale_of(m, op.in(0)), zx = zero_of(m, op.in(0)), sw = scale_of(m, op.in(1));
    const std::string zw = zero_of(m, op.in(1)), sy = scale_of(m, op.out(0)), zy = zero_of(m, op.out(0));
    Inputs in = {x, sx, zx, w, sw, zw, sy, zy};
    if (op.has(2)) in.push_back(op.raw(2));
    y = clamped(op, m.add("QLinearConv", std::move(in), std::move(attributes)), activation);
    return op.set(0, m.transpose(y, to_channels_last(spatial)));
  }
  const std::string x = m.transpose(op.real(0), to_channels_first(spatial)), w = m.transpose(op.real(1), weights);
  Inputs in = {x, w};
  if (op.has(2)) in.push_back(op.real(2));
  y = m.add("Conv", std::move(in), std::move(attributes));
  op.set_real(0, m.transpose(y, to_channels_last(spatial)), activation);
}

void conv_2d(Operator& op) {  // weights: output channels, rows, columns, input channels
  Attributes a = {
      {"auto_pad", auto_pad(op, 0)}, {"strides", sizes(op, {2, 1}, 0)}, {"dilations", sizes(op, {5, 4}, 1)}};
  op.require(op.rank(0) == 4 && op.rank(1) == 4, "an operand's rank is not 4");
  const std::int64_t channels = op.in(0).shape[3], each = op.in(1).shape[3];
  if (channels > 0 && each > 0 && channels % each == 0) a["group"] = channels / each;
  convolve(op, 2, std::move(a), {0, 3, 1, 2}, op.activation(3));
}

/// Whether float32 holds the sums of a depthwise convolution of 8-bit integers exactly: there are few products each.
bool exact_in_floats(Operator& op) {
  const auto& w = op.in(1).shape;
  const std::vector<std::int64_t>& zero = op.in(1).quantization.zero;
  constexpr std::int64_t kMost = (1 << 24) / (255 * 255);
  return is_integer_layer(op, 0, 1, 2) && w[1] > 0 && w[2] > 0 && w[1] <= kMost && w[2] <= kMost / w[1] &&
         std::all_of(zero.begin(), zero.end(), [&](std::int64_t z) { return z == zero[0]; });
}

/// A depthwise convolution of integers, as floats: devices have no matrix instructions for it, but direct kernels for
/// floats. The integers are not scaled before they are summed.
void convolve_integers_in_floats(Operator& op, Attributes attributes) {
  Nodes& m = op.make;
  const TensorInfo &from = op.in(0), &weights = op.in(1), &to = op.out(0);
  const std::string one = m.scalar(DType::kFloat32, 1);
  const std::string zx = zero_of(m, from), zw = m.ints_as(weights.dtype, {weights.quantization.zero[0]}, true);
  const std::string x = m.add("DequantizeLinear", {op.raw(0), one, zx});
  const std::string w = m.add("DequantizeLinear", {op.raw(1), one, zw});
  Inputs in = {m.transpose(x, to_channels_first(2)), m.transpose(w, {3, 0, 1, 2})};
  if (op.has(2)) in.push_back(m.cast(op.raw(2), DType::kFloat32));
  const std::string sum = m.transpose(m.add("Conv", std::move(in), std::move(attributes)), to_channels_last(2));
  const std::string factor = m.floats(rescaling(op, 0, 1)), zero = zero_of(m, to);
  const std::string y = m.add("QuantizeLinear", {m.add("Mul", {sum, factor}), one, zero});
  op.set(0, clamped(op, y, op.activation(4)));
}

void depthwise_conv_2d(Operator& op) {  // weights: 1, rows, columns, output channels
  Attributes a = {
      {"auto_pad", auto_pad(op, 0)}, {"strides", sizes(op, {2, 1}, 0)}, {"dilations", sizes(op, {6, 5}, 1)}};
  op.require(op.rank(0) == 4 && op.rank(1) == 4 && op.in(1).shape[0] == 1,
             "the shapes are not those of a depthwise convolution");
  const std::int64_t multiplier = op.option<std::int32_t>(3, 0), out = op.in(1).shape[3];
  std::int64_t channels = op.in(0).shape[3];
  if (channels < 0 && multiplier > 0) channels = out / multiplier;
  op.require(channels > 0 && out > 0 && out % channels == 0, "the channels do not fit the weights");
  a["group"] = channels;
  if (exact_in_floats(op)) return convolve_integers_in_floats(op, std::move(a));
  convolve(op, 2, std::move(a), {3, 0, 1, 2}, op.activation(4));
}

void conv_3d(Operator& op) {  // weights: depth, rows, columns, input channels, output channels
  Attributes a = {
      {"auto_pad", auto_pad(op, 0)}, {"strides", sizes(op, {1, 3, 2}, 0)}, {"dilations", sizes(op, {5, 7, 6}, 1)}};
  convolve(op, 3, std::move(a), {4, 3, 0, 1, 2}, op.activation(4));
}

/// Inputs: output shape, weights with `first` as their first spatial dim, input, bias.
void convolve_back(Operator& op, std::size_t spatial, const std::vector<std::int64_t>& strides, std::size_t first,
                   const std::vector<std::int64_t>& weights_order, Activation activation) {
  Nodes& m = op.make;
  op.require(op.in(1).shape.size() == spatial + 2 && op.in(2).shape.size() == spatial + 2,
             "an operand's rank is wrong");
  Attributes a = {{"strides", strides}};
  const auto shape = op.constant_ints(0);
  const auto& in = op.in(2).shape;
  const auto& w = op.in(1).shape;
  const bool known = std::all_of(in.begin() + 1, in.end() - 1, [](std::int64_t d) { return d > 0; });
  if (shape && shape->size() == spatial + 2 && known) {
    std::vector<std::int64_t> pads(2 * spatial), extra(spatial);
    for (std::size_t k = 0; k < spatial; ++k) {
      op.require((*shape)[k + 1] > 0 && (*shape)[k + 1] < INT32_MAX, "the output's size is out of range");
      const std::int64_t whole = (in[k + 1] - 1) * strides[k] + w[first + k], cut = whole - (*shape)[k + 1];
      pads[k] = std::max<std::int64_t>(cut, 0) / 2;
      pads[k + spatial] = std::max<std::int64_t>(cut, 0) - pads[k];
      extra[k] = std::max<std::int64_t>(-cut, 0);
    }
    a["pads"] = pads;
    a["output_padding"] = extra;
  } else {
    a["auto_pad"] = auto_pad(op, 0);
  }
  const std::string x = m.transpose(op.real(2), to_channels_first(spatial));
  Inputs inputs = {x, m.transpose(op.real(1), weights_order)};
  if (op.has(3)) inputs.push_back(op.real(3));
  const std::string y = m.add("ConvTranspose", std::move(inputs), std::move(a));
  op.set_real(0, m.transpose(y, to_channels_last(spatial)), activation);
}

void transpose_conv(Operator& op) {  // weights: output channels, rows, columns, input channels
  convolve_back(op, 2, sizes(op, {2, 1}, 0), 1, {3, 0, 1, 2}, op.activation(3));
}

void conv_3d_transpose(Operator& op) {  // weights: depth, rows, columns, output channels, input channels
  convolve_back(op, 3, sizes(op, {1, 3, 2}, 0), 0, {4, 3, 0, 1, 2}, op.activation(4));
}

Attributes window(Operator& op) {
  return {{"auto_pad", auto_pad(op, 0)}, {"strides", sizes(op, {2, 1}, 0)}, {"kernel_shape", sizes(op, {4, 3}, 0)}};
}

void average_pool(Operator& op) {
  const std::string x = op.make.transpose(op.real(0), to_channels_first(2));
  const std::string y = op.make.add("AveragePool", {x}, window(op));
  op.set_real(0, op.make.transpose(y, to_channels_last(2)), op.activation(5));
}

void max_pool(Operator& op) {
  // MaxPool takes integers of 8 bits only.
  const bool stored = op.activation(5) == Activation::kNone && (is_byte(op.in(0).dtype) || is_float(op.in(0).dtype));
  const std::string x = op.make.transpose(stored ? op.as_output(0) : op.real(0), to_channels_first(2));
  const std::string y = op.make.transpose(op.make.add("MaxPool", {x}, window(op)), to_channels_last(2));
  if (stored) return op.set(0, y);
  op.set_real(0, y, op.activation(5));
}

void l2_pool(Operator& op) {
  const std::string x = op.make.transpose(op.real(0), to_channels_first(2));
  const std::string y = op.make.add("Sqrt", {op.make.add("AveragePool", {op.make.add("Mul", {x, x})}, window(op))});
  op.set_real(0, op.make.transpose(y, to_channels_last(2)), op.activation(5));
}

void fully_connected(Operator& op) {  // weights: outputs, inputs
  Nodes& m = op.make;
  op.require(op.rank(1) == 2, "the weights' rank is not 2");
  if (op.option<std::int8_t>(1, 0) != 0) op.refuse("weights in shuffled order");
  const bool keep = op.option<bool>(2, false);
  const std::int64_t k = op.in(1).shape[1];
  const auto rows = [&](const std::string& x) {
    return keep || (op.rank(0) == 2 && op.in(0).shape[1] == k) ? x : m.reshape(x, {-1, k});
  };
  if (is_integer_layer(op, 0, 1, 2)) {
    const TensorInfo &a = op.in(0), &w = op.in(1), &out = op.out(0);
    const std::string x = rows(op.raw(0)), weights = m.transpose(op.raw(1), {1, 0});
    const std::string za = zero_of(m, a), zw = zero_of(m, w);
    std::string sum = m.add("MatMulInteger", {x, weights, za, zw});
    if (op.has(2)) sum = m.add("Add", {sum, op.raw(2)});
    const std::string factor = m.floats(rescaling(op, 0, 1)), one = m.scalar(DType::kFloat32, 1),
                      zero = zero_of(m, out);
    const std::string real = m.add("Mul", {m.cast(sum, DType::kFloat32), factor});
    return op.set(0, clamped(op, m.add("QuantizeLinear", {real, one, zero}), op.activation(0)));
  }
  const std::string x = rows(op.real(0)), w = m.transpose(op.real(1), {1, 0});
  std::string y = m.add("MatMul", {x, w});
  if (op.has(2)) y = m.add("Add", {y, op.real(2)});
  op.set_real(0, y, op.activation(0));
}

void batch_matmul(Operator& op) {
  Nodes& m = op.make;
  const auto operand = [&](std::size_t k, const std::string& x, bool transposed) {
    if (!transposed) return x;
    std::vector<std::int64_t> perm;
    for (std::int64_t d = 0; d < op.rank(k); ++d) perm.push_back(d);
    op.require(perm.size() >= 2, "an operand has no two dims to transpose");
    std::swap(perm[perm.size() - 2], perm[perm.size() - 1]);
    return m.transpose(x, perm);
  };
  const bool ta = op.option<bool>(0, false), tb = op.option<bool>(1, false);
  if (is_byte(op.in(0).dtype) && !op.in(0).quantised() && op.out(0).dtype == DType::kInt32) {
    const std::string a = operand(0, op.raw(0), ta), b = operand(1, op.raw(1), tb);
    return op.set(0, m.add("MatMulInteger", {a, b}));
  }
  if (is_integer_layer(op, 0, 1, 2) && op.in(1).quantization.per_tensor()) {
    const std::string a = operand(0, op.raw(0), ta), b = operand(1, op.raw(1), tb);
    const std::string sa = scale_of(m, op.in(0)), za = zero_of(m, op.in(0)), sb = scale_of(m, op.in(1));
    const std::string zb = zero_of(m, op.in(1)), sy = scale_of(m, op.out(0)), zy = zero_of(m, op.out(0));
    return op.set(0, m.add("QLinearMatMul", {a, sa, za, b, sb, zb, sy, zy}));
  }
  const std::string a = operand(0, op.real(0), ta), b = operand(1, op.real(1), tb);
  op.set_real(0, m.add("MatMul", {a, b}));
}

void local_response_normalization(Operator& op) {
  const std::int64_t size = 2 * std::int64_t{op.option<std::int32_t>(0, 0)} + 1;
  op.require(size > 0 && size < INT32_MAX, "its radius is out of range");
  const auto alpha = op.option<float>(2, 0) * static_cast<float>(size);  // ONNX divides by the size
  const std::string x = op.make.transpose(op.real(0), to_channels_first(2));
  const std::string y = op.make.add(
      "LRN", {x},
      {{"size", size}, {"bias", op.option<float>(1, 0)}, {"alpha", alpha}, {"beta", op.option<float>(3, 0)}});
  op.set_real(0, op.make.transpose(y, to_channels_last(2)));
}

// Rows and columns are dims 1 and 2: no transpose is needed.
void resize(Operator& op, const std::string& x, bool corners, bool half, Attributes a) {
  a["coordinate_transformation_mode"] = std::string(corners ? "align_corners" : half ? "half_pixel" : "asymmetric");
  a["axes"] = std::vector<std::int64_t>{1, 2};
  const std::string sizes = op.ints(1);
  op.make.add("Resize", {x, "", "", sizes}, std::move(a));
}

void resize_bilinear(Operator& op) {
  resize(op, op.real(0), op.option<bool>(2, false), op.option<bool>(3, false), {{"mode", std::string("linear")}});
  op.set_real(0, op.make.last().outputs[0]);
}

void resize_nearest(Operator& op) {
  const bool corners = op.option<bool>(0, false), half = op.option<bool>(1, false);
  const std::string rounding = corners || half ? "round_prefer_ceil" : "floor";
  resize(op, op.as_output(0), corners, half, {{"mode", std::string("nearest")}, {"nearest_mode", rounding}});
  op.set(0, op.make.last().outputs[0]);
}

constexpr Rule kRules[] = {
    {1, "AVERAGE_POOL_2D", average_pool},
    {3, "CONV_2D", conv_2d},
    {4, "DEPTHWISE_CONV_2D", depthwise_conv_2d},
    {9, "FULLY_CONNECTED", fully_connected},
    {12, "L2_POOL_2D", l2_pool},
    {13, "LOCAL_RESPONSE_NORMALIZATION", local_response_normalization},
    {17, "MAX_POOL_2D", max_pool},
    {23, "RESIZE_BILINEAR", resize_bilinear},
    {67, "TRANSPOSE_CONV", transpose_conv},
    {97, "RESIZE_NEAREST_NEIGHBOR", resize_nearest},
    {126, "BATCH_MATMUL", batch_matmul},
    {132, "CONV_3D", conv_3d},
    {141, "CONV_3D_TRANSPOSE", conv_3d_transpose},
};

}  // namespace

std::span<const Rule> layer_rules() { return kRules; }

}  // namespace sardonyx::tflite
