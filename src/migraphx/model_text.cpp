#include "migraphx/model_text.h"

#include <cstring>

#include "support/error.h"
#include "support/text.h"

namespace sardonyx::mgx {
namespace {

using namespace model;

std::string tensor_text(const Tensor& t) { return fmt::format("{}[{}]", name(t.dtype), fmt::join(t.dims, ", ")); }

struct AttributeText {
  std::string operator()(std::int64_t v) const { return std::to_string(v); }
  std::string operator()(float v) const { return fmt::format("{}f", v); }
  std::string operator()(const std::string& v) const { return quote(v); }
  std::string operator()(const Tensor& v) const { return tensor_text(v); }
  std::string operator()(const GraphPtr& v) const { return "graph " + v->name; }
  std::string operator()(const ValueInfo&) const { return "type"; }
  template <typename T>
  std::string operator()(const std::vector<T>& list) const {
    std::vector<std::string> parts;
    for (const T& v : list) parts.push_back((*this)(v));
    return fmt::format("[{}]", fmt::join(parts, ", "));
  }
};

void graph_text(const Graph& g, const std::string& indent, std::string& out) {
  for (const Tensor& t : g.initializers) out += fmt::format("{}{} = @literal -> {}\n", indent, t.name, tensor_text(t));
  for (const Node& n : g.nodes) {
    std::vector<std::string> attributes;
    for (const auto& [key, value] : n.attributes) attributes.push_back(key + "=" + std::visit(AttributeText{}, value));
    out +=
        fmt::format("{}{} = {}{}[{}]({})\n", indent, fmt::join(n.outputs, ", "), n.domain.empty() ? "" : n.domain + ".",
                    n.op_type, fmt::join(attributes, ","), fmt::join(n.inputs, ", "));
    for (const auto& [key, value] : n.attributes)
      if (const auto* nested = std::get_if<GraphPtr>(&value)) graph_text(**nested, indent + "  ", out);
  }
  std::vector<std::string> outputs;
  for (const ValueInfo& v : g.outputs) outputs.push_back(v.name);
  out += fmt::format("{}@return({})\n", indent, fmt::join(outputs, ", "));
}

bool same(const Tensor& a, const Tensor& b) {
  if (a.dtype != b.dtype || a.dims != b.dims || a.bytes != b.bytes) return false;
  return a.bytes == 0 || a.data == b.data || std::memcmp(a.data, b.data, a.bytes) == 0;
}

bool same(const Graph& a, const Graph& b) {
  if (a.initializers.size() != b.initializers.size() || a.nodes.size() != b.nodes.size()) return false;
  for (std::size_t k = 0; k < a.initializers.size(); ++k)
    if (!same(a.initializers[k], b.initializers[k])) return false;
  for (std::size_t k = 0; k < a.nodes.size(); ++k) {
    for (const auto& [key, value] : a.nodes[k].attributes) {
      const Attribute* other = b.nodes[k].find(key);
      if (other == nullptr || other->index() != value.index()) return false;
      if (const auto* t = std::get_if<Tensor>(&value); t && !same(*t, std::get<Tensor>(*other))) return false;
      if (const auto* g = std::get_if<GraphPtr>(&value); g && !same(**g, *std::get<GraphPtr>(*other))) return false;
    }
  }
  return true;
}

}  // namespace

std::string model_text(const Model& m) {
  std::string out;
  graph_text(m.graph, "", out);
  return out;
}

bool same_weights(const Model& a, const Model& b) { return same(a.graph, b.graph); }

}  // namespace sardonyx::mgx
