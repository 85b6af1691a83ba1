#include "migraphx/loops.h"

#include <algorithm>
#include <cstring>

#include "model/bytes.h"
#include "support/error.h"

namespace sardonyx::mgx {
namespace {

using model::Node;

class LoopBounds {
 public:
  LoopBounds(model::Model& m, const migraphx_onnx_options& options) : model_(m), options_(options) {}

  void run() {
    std::vector<Node> nodes;
    nodes.swap(model_.graph.nodes);
    for (Node& n : nodes) {
      if (n.domain.empty() && n.op_type == "Loop" && n.get_graph("body") != nullptr && n.inputs.size() >= 2)
        bound(n);
      else
        add(std::move(n));
    }
  }

 private:
  void add(Node n) {
    n.index = static_cast<std::int64_t>(model_.graph.nodes.size());
    model_.graph.nodes.push_back(std::move(n));
  }

  std::string integers(const std::string& name, const std::vector<std::int64_t>& values, bool scalar = false) {
    std::vector<std::int64_t> dims;
    if (!scalar) dims = {static_cast<std::int64_t>(values.size())};
    std::byte* to = nullptr;
    model::Bytes bytes = model::aligned_zeros(values.size() * sizeof(std::int64_t), to);
    std::memcpy(to, values.data(), bytes.size);
    model_.graph.initializers.push_back(model::tensor_of(name, DType::kInt64, std::move(dims), std::move(bytes)));
    return name;
  }

  std::string node(const char* type, std::vector<std::string> inputs, std::string output,
                   std::map<std::string, model::Attribute, std::less<>> attributes = {}) {
    Node n;
    n.op_type = type;
    n.opset = 21;
    n.inputs = std::move(inputs);
    n.outputs = {output};
    n.attributes = std::move(attributes);
    add(std::move(n));
    return output;
  }

  const model::Tensor* constant(const std::string& name) const {
    for (const model::Tensor& t : model_.graph.initializers)
      if (t.name == name) return &t;
    for (const Node& n : model_.graph.nodes)
      if (n.op_type == "Constant" && n.domain.empty() && n.outputs[0] == name) return n.get_tensor("value");
    return nullptr;
  }

  /// The number of iterations if the model says it.
  std::optional<std::int64_t> count(const std::string& input) const {
    const model::Tensor* t = input.empty() ? nullptr : constant(input);
    if (!t || !t->unsupported.empty() || t->dtype != DType::kInt64 || t->elements() != 1) return std::nullopt;
    return t->as<std::int64_t>()[0];
  }

  void bound(Node& loop) {
    const std::int64_t most = std::min(count(loop.inputs[0]).value_or(options_.loop_iterations.value_or(10)),
                                       options_.loop_limit.value_or(65535));
    if (most < 0) fail(ErrorKind::kInvalidArgument, "{}: {} iterations", loop.describe(), most);
    const std::string base = loop.outputs.empty() ? "loop" : loop.outputs.back();
    const std::string largest = integers(base + "#most", {most}, true);
    loop.inputs[0] = loop.inputs[0].empty() ? largest : node("Min", {loop.inputs[0], largest}, base + "#count");
    std::vector<std::pair<std::string, std::string>> stacked;
    for (std::size_t k = loop.inputs.size() - 2; k < loop.outputs.size(); ++k) {
      if (loop.outputs[k].empty()) continue;
      stacked.emplace_back(loop.outputs[k] + "#stacked", loop.outputs[k]);
      loop.outputs[k] = stacked.back().first;
    }
    add(std::move(loop));
    const std::string length = integers(base + "#length", {most}), zero = integers(base + "#zero", {0});
    for (const auto& [from, to] : stacked) {
      const std::string done =
          node("Shape", {from}, from + ".done", {{"start", std::int64_t{0}}, {"end", std::int64_t{1}}});
      const std::string missing = node("Sub", {length, done}, from + ".missing");
      const std::string pads = node("Concat", {zero, missing}, from + ".pads", {{"axis", std::int64_t{0}}});
      node("Pad", {from, pads, "", zero}, to);
    }
  }

  model::Model& model_;
  const migraphx_onnx_options& options_;
};

}  // namespace

void bound_loops(model::Model& m, const migraphx_onnx_options& options) {
  if (options.loop_iterations || options.loop_limit) LoopBounds(m, options).run();
}

}  // namespace sardonyx::mgx
