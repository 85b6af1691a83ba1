// Accessors of Tensor and Node.
#include "model/model.h"

#include "support/error.h"
#include "support/placed_error.h"
#include "support/text.h"

namespace sardonyx::model {
namespace {

/// The attribute as T, null if absent; throws if it is of another type.
template <typename T>
const T* get(const Node& node, std::string_view attribute, const char* type) {
  const Attribute* a = node.find(attribute);
  if (a == nullptr) return nullptr;
  const T* value = std::get_if<T>(a);
  if (value == nullptr)
    throw PlacedError(ErrorKind::kInvalidModel,
                      fmt::format("{}: attribute {} should be {}", node.describe(), quote(attribute), type),
                      node.describe());
  return value;
}

}  // namespace

std::int64_t Tensor::elements() const {
  std::int64_t n = 1;
  for (const std::int64_t d : dims) n *= d;
  return n;
}

void Tensor::require() const {
  if (!unsupported.empty()) fail(ErrorKind::kUnsupported, "tensor {}: {}", quote(name), unsupported);
}

void Tensor::require_size(std::size_t element_size) const {
  require();
  check(size_of(dtype) == element_size, "tensor {} of {} is read as elements of {} bytes", quote(name),
        sardonyx::name(dtype), element_size);
}

std::string Node::describe() const {
  std::string out = fmt::format("node {} ", index);
  if (!name.empty()) out += quote(name) + " ";
  const std::string op = quote(op_type), space = domain.empty() ? "" : quote(domain);
  return out + "(" + (space.empty() ? "" : space.substr(1, space.size() - 2) + "::") + op.substr(1, op.size() - 2) +
         ")";
}

const Attribute* Node::find(std::string_view attribute) const {
  const auto found = attributes.find(attribute);
  return found == attributes.end() ? nullptr : &found->second;
}

std::int64_t Node::get_int(std::string_view attribute, std::int64_t fallback) const {
  const auto* v = get<std::int64_t>(*this, attribute, "an integer");
  return v != nullptr ? *v : fallback;
}

float Node::get_float(std::string_view attribute, float fallback) const {
  const auto* v = get<float>(*this, attribute, "a float");
  return v != nullptr ? *v : fallback;
}

std::string Node::get_string(std::string_view attribute, std::string_view fallback) const {
  const auto* v = get<std::string>(*this, attribute, "a string");
  return v != nullptr ? *v : std::string(fallback);
}

std::vector<std::int64_t> Node::get_ints(std::string_view attribute, const std::vector<std::int64_t>& fallback) const {
  const auto* v = get<std::vector<std::int64_t>>(*this, attribute, "a list of integers");
  return v != nullptr ? *v : fallback;
}

std::vector<float> Node::get_floats(std::string_view attribute, const std::vector<float>& fallback) const {
  const auto* v = get<std::vector<float>>(*this, attribute, "a list of floats");
  return v != nullptr ? *v : fallback;
}

const Tensor* Node::get_tensor(std::string_view attribute) const { return get<Tensor>(*this, attribute, "a tensor"); }

GraphPtr Node::get_graph(std::string_view attribute) const {
  const auto* v = get<GraphPtr>(*this, attribute, "a graph");
  return v != nullptr ? *v : nullptr;
}

}  // namespace sardonyx::model
