// Operators that change shapes and repeat or move whole tensors. Quantised tensors keep their integers.
#include <algorithm>

#include "tflite/operator.h"

namespace sardonyx::tflite {
namespace {

constexpr std::int64_t kAllowZero = 1;

void reshape(Operator& op) {
  const bool given = op.has(1) && (op.in(1).constant || op.rank(1) == 1);
  const std::string shape = given ? op.ints(1) : op.make.ints(op.option_ints(0));
  op.set(0, op.make.add("Reshape", {op.as_output(0), shape}, {{"allowzero", kAllowZero}}));
}

void squeeze(Operator& op) {
  Inputs in = {op.as_output(0)};
  if (const auto axes = op.option_ints(0); !axes.empty()) in.push_back(op.make.ints(axes));
  op.set(0, op.make.add("Squeeze", std::move(in)));
}

void expand_dims(Operator& op) { op.set(0, op.make.add("Unsqueeze", {op.as_output(0), op.ints(1)})); }

std::string converted(Operator& op, const std::string& ints) {
  return op.out(0).dtype == DType::kInt64 ? ints : op.make.cast(ints, op.out(0).dtype);
}

void shape(Operator& op) { op.set(0, converted(op, op.make.add("Shape", {op.raw(0)}))); }

void rank(Operator& op) { op.set(0, converted(op, op.make.add("Size", {op.make.add("Shape", {op.raw(0)})}))); }

void transpose(Operator& op) {
  const auto perm = op.known_ints(1, "a permutation");
  op.set(0, op.make.transpose(op.as_output(0), perm));
}

void pack(Operator& op) {
  op.require(op.inputs() > 0, "there are no inputs");
  const std::int64_t axis = checked_axis(op, op.option<std::int32_t>(1, 0), op.rank(0) + 1);
  const std::string axes = op.make.ints({axis});
  Inputs in;
  for (std::size_t k = 0; k < op.inputs(); ++k) in.push_back(op.make.add("Unsqueeze", {op.as_output(k), axes}));
  op.set(0, op.make.add("Concat", std::move(in), {{"axis", axis}}));
}

void unpack(Operator& op) {
  const std::int64_t axis = checked_axis(op, op.option<std::int32_t>(1, 0), op.rank(0));
  const std::string axes = op.make.ints({axis}), x = op.as_output(0);
  const auto parts = op.make.add_many("Split", {x}, op.outputs(),
                                      {{"axis", axis}, {"num_outputs", static_cast<std::int64_t>(op.outputs())}});
  for (std::size_t k = 0; k < parts.size(); ++k) op.set(k, op.make.add("Squeeze", {parts[k], axes}));
}

std::int64_t one(const Operator& op, std::size_t k, const char* what) {
  const auto v = op.known_ints(k, what);
  if (v.size() != 1) op.invalid(fmt::format("{} has {} elements", what, v.size()));
  return v[0];
}

void split(Operator& op) {
  const std::int64_t axis = checked_axis(op, one(op, 0, "an axis"), op.rank(1));
  op.require(op.in(1).quantization == op.out(0).quantization, "the scales of input and outputs differ");
  const auto parts = op.make.add_many("Split", {op.raw(1)}, op.outputs(),
                                      {{"axis", axis}, {"num_outputs", static_cast<std::int64_t>(op.outputs())}});
  for (std::size_t k = 0; k < parts.size(); ++k) op.set(k, parts[k]);
}

void split_v(Operator& op) {
  const std::int64_t axis = checked_axis(op, one(op, 2, "an axis"), op.rank(0));
  auto sizes = op.known_ints(1, "sizes of a split");
  op.require(sizes.size() == op.outputs(), "there are not as many sizes as outputs");
  const auto rest = std::find(sizes.begin(), sizes.end(), -1);
  if (rest != sizes.end()) {
    std::int64_t all = op.in(0).shape[static_cast<std::size_t>(axis)];
    if (all < 0) op.refuse("a size of -1 along a dim that varies");
    for (const std::int64_t s : sizes) all -= s;
    *rest = all - 1;
  }
  for (const std::int64_t s : sizes) op.require(s >= 0, "a size is negative");
  const std::string x = op.as_output(0), lengths = op.make.ints(sizes);
  const auto parts = op.make.add_many("Split", {x, lengths}, op.outputs(), {{"axis", axis}});
  for (std::size_t k = 0; k < parts.size(); ++k) op.set(k, parts[k]);
}

void concatenation(Operator& op) {
  op.require(op.inputs() > 0, "there are no inputs");
  const std::int64_t axis = checked_axis(op, op.option<std::int32_t>(0, 0), op.rank(0));
  if (op.activation(1) == Activation::kNone) {
    Inputs in;
    for (std::size_t k = 0; k < op.inputs(); ++k) in.push_back(op.as_output(k));
    return op.set(0, op.make.add("Concat", std::move(in), {{"axis", axis}}));
  }
  Inputs in;
  for (std::size_t k = 0; k < op.inputs(); ++k) in.push_back(op.real(k));
  op.set_real(0, op.make.add("Concat", std::move(in), {{"axis", axis}}), op.activation(1));
}

// Paddings [rank, 2] in ONNX's order: all that come before, then all that come after.
std::string pads(Operator& op) {
  if (const auto p = op.constant_ints(1)) {
    std::vector<std::int64_t> out;
    for (std::size_t side = 0; side < 2; ++side)
      for (std::size_t k = side; k < p->size(); k += 2) out.push_back((*p)[k]);
    return op.make.ints(out);
  }
  const std::string wide = op.make.cast(op.raw(1), DType::kInt64);
  return op.make.reshape(op.make.transpose(wide, {1, 0}), {-1});
}

void pad(Operator& op) {
  const TensorInfo& out = op.out(0);
  const std::string x = op.as_output(0), p = pads(op);
  std::string value;
  if (op.has(2))
    value = op.rank(2) == 0 ? op.as_output(2) : op.make.reshape(op.as_output(2), {});
  else if (out.quantised())
    value = op.make.ints_as(out.dtype, {out.quantization.zero[0]}, true);  // the zero point means zero
  else
    value = op.make.scalar(out.dtype, 0);
  op.set(0, op.make.add("Pad", {x, p, value}));
}

// The part of x from `from` to `to` in steps of -1, along one axis.
std::string reversed_part(Operator& op, const std::string& x, std::int64_t axis, std::int64_t from, std::int64_t to) {
  const std::string starts = op.make.ints({from}), ends = op.make.ints({to});
  const std::string axes = op.make.ints({axis}), steps = op.make.ints({-1});
  return op.make.add("Slice", {x, starts, ends, axes, steps});
}

void mirror_pad(Operator& op) {
  std::string x = op.as_output(0);
  if (op.option<std::int8_t>(0, 0) == 0) {
    const std::string p = pads(op);
    return op.set(0, op.make.add("Pad", {x, p}, {{"mode", std::string("reflect")}}));
  }
  // Symmetric: the border is repeated, which ONNX's Pad cannot.
  const auto p = op.known_ints(1, "a padding");
  for (std::size_t k = 0; 2 * k + 1 < p.size(); ++k) {
    const auto axis = static_cast<std::int64_t>(k);
    const std::int64_t before = p[2 * k], after = p[2 * k + 1];
    op.require(before >= 0 && after >= 0 && before < INT32_MAX && after < INT32_MAX, "a padding is out of range");
    Inputs parts;
    if (before > 0) parts.push_back(reversed_part(op, x, axis, before - 1, INT64_MIN));
    parts.push_back(x);
    if (after > 0) parts.push_back(reversed_part(op, x, axis, -1, -after - 1));
    if (parts.size() > 1) x = op.make.add("Concat", std::move(parts), {{"axis", axis}});
  }
  op.set(0, x);
}

void tile(Operator& op) { op.set(0, op.make.add("Tile", {op.as_output(0), op.ints(1)})); }

void broadcast_to(Operator& op) { op.set(0, op.make.add("Expand", {op.as_output(0), op.ints(1)})); }

void fill(Operator& op) {  // dims, value
  op.require(op.in(1).quantization == op.out(0).quantization, "the scales of value and result differ");
  op.set(0, op.make.add("Expand", {op.raw(1), op.ints(0)}));
}

void zeros_like(Operator& op) {
  const TensorInfo& out = op.out(0);
  const std::string shape = op.make.add("Shape", {op.raw(0)});
  const std::string zero =
      out.quantised() ? op.make.ints_as(out.dtype, {out.quantization.zero[0]}, true) : op.make.scalar(out.dtype, 0);
  op.set(0, op.make.add("Expand", {zero, shape}));
}

void range(Operator& op) {
  Inputs in;
  for (std::size_t k = 0; k < 3; ++k) in.push_back(op.rank(k) == 0 ? op.raw(k) : op.make.reshape(op.raw(k), {}));
  op.set(0, op.make.add("Range", std::move(in)));
}

// Depth in NHWC has the block's rows and columns outside the channels, as ONNX's operators have it in NCHW.
void space_to_depth(Operator& op) {
  const std::string x = op.make.transpose(op.as_output(0), to_channels_first(2));
  const std::string y = op.make.add("SpaceToDepth", {x}, {{"blocksize", std::int64_t{op.option<std::int32_t>(0, 0)}}});
  op.set(0, op.make.transpose(y, to_channels_last(2)));
}
void depth_to_space(Operator& op) {
  const std::string x = op.make.transpose(op.as_output(0), to_channels_first(2));
  const std::string y = op.make.add(
      "DepthToSpace", {x}, {{"blocksize", std::int64_t{op.option<std::int32_t>(0, 0)}}, {"mode", std::string("DCR")}});
  op.set(0, op.make.transpose(y, to_channels_last(2)));
}

struct Blocks {
  std::vector<std::int64_t> sizes, borders;  ///< of each spatial dim; two borders each
  std::size_t rank = 0;
};

Blocks blocks_of(Operator& op) {
  Blocks b{op.known_ints(1, "a block's shape"), op.known_ints(2, "a border"), op.in(0).shape.size()};
  op.require(b.sizes.size() + 1 <= b.rank && b.borders.size() == 2 * b.sizes.size(),
             "the block does not fit the input");
  for (const std::int64_t s : b.sizes) op.require(s > 0 && s < INT32_MAX, "a block's size is out of range");
  for (const std::int64_t s : b.borders) op.require(s >= 0 && s < INT32_MAX, "a border is out of range");
  for (std::size_t k = 1; k < b.rank; ++k)
    if (op.in(0).shape[k] < 0) op.refuse("a block of dims whose size varies");
  return b;
}

void space_to_batch(Operator& op) {
  const Blocks b = blocks_of(op);
  const TensorInfo& out = op.out(0);
  const std::size_t n = b.sizes.size();
  std::vector<std::int64_t> pads(2 * b.rank), split = {-1}, perm, joined = {-1};
  const auto& shape = op.in(0).shape;
  for (std::size_t k = 0; k < n; ++k) {
    pads[k + 1] = b.borders[2 * k];
    pads[b.rank + k + 1] = b.borders[2 * k + 1];
    const std::int64_t size = shape[k + 1] + b.borders[2 * k] + b.borders[2 * k + 1];
    op.require(size % b.sizes[k] == 0, "the padded size is no multiple of the block's");
    split.insert(split.end(), {size / b.sizes[k], b.sizes[k]});
    joined.push_back(size / b.sizes[k]);
    perm.push_back(static_cast<std::int64_t>(2 * k + 2));
  }
  perm.push_back(0);
  for (std::size_t k = 0; k < n; ++k) perm.push_back(static_cast<std::int64_t>(2 * k + 1));
  for (std::size_t k = n + 1; k < b.rank; ++k) {
    split.push_back(shape[k]);
    joined.push_back(shape[k]);
    perm.push_back(static_cast<std::int64_t>(n + k));
  }
  const std::string x = op.as_output(0), p = op.make.ints(pads);
  const std::string zero =
      out.quantised() ? op.make.ints_as(out.dtype, {out.quantization.zero[0]}, true) : op.make.scalar(out.dtype, 0);
  const std::string padded = op.make.add("Pad", {x, p, zero});
  op.set(0, op.make.reshape(op.make.transpose(op.make.reshape(padded, split), perm), joined));
}

void batch_to_space(Operator& op) {
  const Blocks b = blocks_of(op);
  const std::size_t n = b.sizes.size();
  const auto& shape = op.in(0).shape;
  std::vector<std::int64_t> split = b.sizes, perm = {static_cast<std::int64_t>(n)}, joined = {-1}, starts, ends, axes;
  split.push_back(-1);
  for (std::size_t k = 1; k < b.rank; ++k) split.push_back(shape[k]);
  for (std::size_t k = 0; k < n; ++k) {
    perm.insert(perm.end(), {static_cast<std::int64_t>(n + 1 + k), static_cast<std::int64_t>(k)});
    const std::int64_t size = shape[k + 1] * b.sizes[k];
    joined.push_back(size);
    starts.push_back(b.borders[2 * k]);
    ends.push_back(size - b.borders[2 * k + 1]);
    axes.push_back(static_cast<std::int64_t>(k) + 1);
  }
  for (std::size_t k = n + 1; k < b.rank; ++k) {
    joined.push_back(shape[k]);
    perm.push_back(static_cast<std::int64_t>(n + k));
  }
  const std::string whole = op.make.reshape(op.make.transpose(op.make.reshape(op.as_output(0), split), perm), joined);
  const std::string s = op.make.ints(starts), e = op.make.ints(ends), a = op.make.ints(axes);
  op.set(0, op.make.add("Slice", {whole, s, e, a}));
}

constexpr Rule kRules[] = {
    {2, "CONCATENATION", concatenation},
    {5, "DEPTH_TO_SPACE", depth_to_space},
    {22, "RESHAPE", reshape},
    {26, "SPACE_TO_DEPTH", space_to_depth},
    {34, "PAD", pad},
    {37, "BATCH_TO_SPACE_ND", batch_to_space},
    {38, "SPACE_TO_BATCH_ND", space_to_batch},
    {39, "TRANSPOSE", transpose},
    {43, "SQUEEZE", squeeze},
    {49, "SPLIT", split},
    {60, "PADV2", pad},
    {69, "TILE", tile},
    {70, "EXPAND_DIMS", expand_dims},
    {77, "SHAPE", shape},
    {83, "PACK", pack},
    {88, "UNPACK", unpack},
    {93, "ZEROS_LIKE", zeros_like},
    {94, "FILL", fill},
    {96, "RANGE", range},
    {100, "MIRROR_PAD", mirror_pad},
    {102, "SPLIT_V", split_v},
    {110, "RANK", rank},
    {130, "BROADCAST_TO", broadcast_to},
};

}  // namespace

std::span<const Rule> shape_rules() { return kRules; }

}  // namespace sardonyx::tflite
