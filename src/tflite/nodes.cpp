#include "tflite/nodes.h"

#include <cstring>

#include "model/bytes.h"
#include "support/error.h"

namespace sardonyx::tflite {

std::string Names::unique(const std::string& wanted) {
  if (used_.insert(wanted).second) return wanted;
  std::int64_t& next = next_[wanted];
  while (true) {
    std::string candidate = fmt::format("{}_{}", wanted, ++next);
    if (used_.insert(candidate).second) return candidate;
  }
}

void Nodes::begin(std::string origin, std::int64_t index) {
  origin_ = std::move(origin);
  index_ = index;
}

std::vector<std::string> Nodes::add_many(std::string_view op_type, Inputs inputs, std::size_t outputs,
                                         Attributes attributes) {
  model::Node& n = graph_.nodes.emplace_back();
  n.name = origin_;
  n.op_type = op_type;
  n.opset = kOpset;
  n.index = index_;
  n.inputs = std::move(inputs);
  n.attributes = std::move(attributes);
  for (std::size_t k = 0; k < outputs; ++k) n.outputs.push_back(names_.unique(fmt::format("{}/{}", origin_, op_type)));
  return n.outputs;
}

std::string Nodes::add(std::string_view op_type, Inputs inputs, Attributes attributes) {
  return add_many(op_type, std::move(inputs), 1, std::move(attributes))[0];
}

std::string Nodes::data(DType type, std::vector<std::int64_t> dims, const void* bytes, std::size_t size) {
  std::byte* out = nullptr;
  const model::Bytes block = model::aligned_zeros(size, out);
  if (size > 0) std::memcpy(out, bytes, size);
  model::Tensor& t = graph_.initializers.emplace_back();
  t.name = names_.unique(origin_ + "/constant");
  t.dtype = type;
  t.dims = std::move(dims);
  t.owner = block.owner;
  t.data = block.data;
  t.bytes = size;
  return t.name;
}

std::string Nodes::ints(const std::vector<std::int64_t>& values) {
  return data(DType::kInt64, {static_cast<std::int64_t>(values.size())}, values.data(), values.size() * 8);
}

std::string Nodes::floats(const std::vector<float>& values) {
  return data(DType::kFloat32, {static_cast<std::int64_t>(values.size())}, values.data(), values.size() * 4);
}

std::string Nodes::ints_as(DType type, const std::vector<std::int64_t>& values, bool is_scalar) {
  std::vector<std::byte> bytes(values.size() * size_of(type));
  for (std::size_t k = 0; k < values.size(); ++k)  // little-endian: the low bytes of a number come first
    std::memcpy(bytes.data() + k * size_of(type), &values[k], size_of(type));
  std::vector<std::int64_t> dims;
  if (!is_scalar) dims.push_back(static_cast<std::int64_t>(values.size()));
  return data(type, std::move(dims), bytes.data(), bytes.size());
}

std::string Nodes::scalar(DType type, double value) {
  if (type == DType::kFloat32) {
    const auto x = static_cast<float>(value);
    return data(type, {}, &x, sizeof(x));
  }
  if (type == DType::kFloat64) return data(type, {}, &value, sizeof(value));
  if (is_float(type)) return cast(scalar(DType::kFloat32, value), type);
  return ints_as(type, {static_cast<std::int64_t>(value)}, true);
}

std::string Nodes::constant(const model::Tensor& tensor) {
  model::Tensor& t = graph_.initializers.emplace_back(tensor);
  t.name = names_.unique(tensor.name);
  return t.name;
}

std::string Nodes::transpose(const std::string& x, const std::vector<std::int64_t>& perm) {
  return add("Transpose", {x}, {{"perm", perm}});
}

std::string Nodes::cast(const std::string& x, DType to) {
  return add("Cast", {x}, {{"to", std::int64_t{to_onnx(to)}}});
}

std::string Nodes::reshape(const std::string& x, const std::vector<std::int64_t>& shape) {
  const std::string dims = ints(shape);
  return add("Reshape", {x, dims}, {{"allowzero", std::int64_t{1}}});
}

}  // namespace sardonyx::tflite
