// 16 bits for some operators: conversions before and after them.
#include <set>

#include "import/node_source.h"
#include "migraphx/operators.h"
#include "migraphx/program.h"
#include "support/dtype.h"
#include "support/error.h"

namespace sardonyx::mgx {
namespace {

/// ONNX's operators that an operator of MIGraphX stands for.
std::set<std::string> onnx_operators(const std::vector<std::string>& names) {
  static const std::map<std::string, std::set<std::string>> kLayers = {
      {"dot", {"MatMul", "Gemm"}},
      {"convolution", {"Conv"}},
      {"convolution_backwards", {"ConvTranspose"}},
      {"pooling", {"AveragePool", "MaxPool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"}}};
  std::set<std::string> all;
  for (const std::string& name : names) {
    const auto layer = kLayers.find(name);
    const std::string onnx = layer == kLayers.end() ? operator_rule(name).onnx : "";
    if (layer != kLayers.end())
      all.insert(layer->second.begin(), layer->second.end());
    else if (!onnx.empty() && std::isupper(static_cast<unsigned char>(onnx[0])) != 0)
      all.insert(onnx);
    else
      fail(ErrorKind::kUnsupported, "the operator '{}' can't have a precision of its own; name others, or none for all",
           name);
  }
  return all;
}

/// The values of float32.
std::set<std::string> floats(const model::Model& nodes) {
  ImportOptions options;
  options.all_outputs = true;
  const std::unique_ptr<Graph> graph = NodeSource(nodes).import(options);
  std::set<std::string> all;
  for (const Value* v : graph->inputs)
    if (v->dtype == DType::kFloat32) all.insert(v->name);
  for (std::size_t k = 0; k < graph->outputs.size(); ++k)
    if (graph->outputs[k]->dtype == DType::kFloat32) all.insert(graph->output_names[k]);
  for (const model::Tensor& t : nodes.graph.initializers)
    if (t.unsupported.empty() && t.dtype == DType::kFloat32) all.insert(t.name);
  return all;
}

model::Node cast(std::int64_t opset, std::string from, std::string to, DType type) {
  model::Node n;
  n.op_type = "Cast";
  n.opset = opset;
  n.inputs = {std::move(from)};
  n.outputs = {std::move(to)};
  n.attributes["to"] = static_cast<std::int64_t>(to_onnx(type));
  return n;
}

}  // namespace

void MigraphxProgram::quantize_operators(const std::string& precision, const std::vector<std::string>& names) {
  require_uncompiled("quantisation");
  require_no_custom_operators("quantised for some operators");
  const DType narrow = precision == "fp16" ? DType::kFloat16 : DType::kBFloat16;
  const std::set<std::string> wanted = onnx_operators(names), wide = floats(*nodes_);
  model::Model m = *nodes_;
  std::vector<model::Node> nodes;
  nodes.swap(m.graph.nodes);
  std::size_t count = 0;
  const auto add = [&](model::Node n) {
    n.index = static_cast<std::int64_t>(m.graph.nodes.size());
    m.graph.nodes.push_back(std::move(n));
  };
  for (model::Node& n : nodes) {
    const bool chosen =
        n.domain.empty() && wanted.contains(n.op_type) && !n.inputs.empty() && wide.contains(n.inputs[0]);
    if (!chosen) {
      add(std::move(n));
      continue;
    }
    std::vector<model::Node> after;
    for (std::string& input : n.inputs) {
      if (!wide.contains(input)) continue;
      const std::string name = fmt::format("{}#{}{}", input, precision, count++);
      add(cast(n.opset, input, name, narrow));
      input = name;
    }
    for (std::string& output : n.outputs) {
      if (!wide.contains(output)) continue;
      const std::string name = fmt::format("{}#{}{}", output, precision, count++);
      after.push_back(cast(n.opset, name, output, DType::kFloat32));
      output = name;
    }
    add(std::move(n));
    for (model::Node& a : after) add(std::move(a));
  }
  nodes_ = std::make_shared<const model::Model>(std::move(m));
  describe_outputs();
}

}  // namespace sardonyx::mgx
