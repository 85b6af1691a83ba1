#include "import/lower_node.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "import/type_rules.h"
#include "support/placed_error.h"

namespace sardonyx {
namespace {

Exprs declared_shape(Graph& graph, const model::ValueInfo& input, const ImportOptions& options) {
  Exprs shape;
  if (const auto exact = options.shapes.find(input.name); exact != options.shapes.end()) {
    shape.assign(exact->second.begin(), exact->second.end());
    return shape;
  }
  const auto nameless = [&](std::size_t k) { return graph.symbols().dim(input.name + "." + std::to_string(k)); };
  if (!input.shape) {
    const auto rank = options.ranks.find(input.name);
    if (rank == options.ranks.end())
      throw NeedInput{input.name, NeedInput::kRank, "the model declares no shape for it"};
    for (int k = 0; k < rank->second; ++k) shape.push_back(nameless(static_cast<std::size_t>(k)));
    return shape;
  }
  for (const model::Dim& d : *input.shape) {
    if (d.value)
      shape.push_back(*d.value);
    else if (d.param.empty())
      shape.push_back(nameless(shape.size()));
    else if (const auto fixed = options.dims.find(d.param); fixed != options.dims.end())
      shape.push_back(fixed->second);
    else
      shape.push_back(graph.symbols().named_dim(d.param));
  }
  return shape;
}

}  // namespace

Value* add_input(Graph& graph, const model::ValueInfo& declared, const ImportOptions& options) {
  if (const auto it = options.values.find(declared.name); it != options.values.end()) {
    const Tensor& known = it->second;
    Value* v = graph.add_constant(known.dtype, known.dims,
                                  {known.owner, static_cast<const std::byte*>(known.data), known.bytes()});
    v->name = declared.name;
    return v;
  }
  if (declared.kind != model::ValueInfo::Kind::kTensor)
    fail(ErrorKind::kUnsupported, "input '{}' is not a tensor (sequences, optionals and maps are not supported)",
         declared.name);
  if (!declared.dtype)
    fail(declared.unsupported.empty() ? ErrorKind::kInvalidModel : ErrorKind::kUnsupported, "input '{}' {}",
         declared.name, declared.unsupported.empty() ? "has no element type" : declared.unsupported);
  return graph.add_input(declared.name, *declared.dtype, declared_shape(graph, declared, options));
}

const OpDef& operator_of(const model::Node& node, const CustomOperators* custom) {
  const OpDef* def = find_operator(node.domain, node.op_type, custom);
  if (!def)
    fail(ErrorKind::kUnsupported,
         "{}: operator {}{} is not supported; docs/operators.md lists the supported ones, and docs/custom-operators.md "
         "describes how to define a custom operator",
         node.describe(), node.domain.empty() ? "" : node.domain + "::", node.op_type);
  if (node.domain.empty() && node.opset < def->min_opset)
    fail(ErrorKind::kUnsupported,
         "{}: {} of operator set {} is not supported, only from {} on; convert the model with onnx.version_converter",
         node.describe(), node.op_type, node.opset, def->min_opset);
  return *def;
}

std::vector<Value*> lower_node(const OpDef& op, const model::Node& node, Graph& graph, std::vector<Value*> inputs,
                               GraphLowerer& lowerer, NodeSequences& sequences) {
  if (!op.sequences && !sequences.inputs.empty())
    fail(ErrorKind::kUnsupported, "{}: input {} is a sequence, which {} does not take here", node.describe(),
         sequences.inputs.begin()->first, node.op_type);
  check_types(node, inputs);
  const std::string saved = graph.origin;
  const std::string origin = node.name.empty() ? node.op_type : node.name + " (" + node.op_type + ")";
  graph.origin = origin;
  OpContext context(node, graph, std::move(inputs), lowerer);
  context.set_sequences(std::move(sequences.inputs));
  try {
    op.lower(context);
  } catch (const Error& e) {
    const auto* placed = dynamic_cast<const PlacedError*>(&e);
    if (placed && placed->place() == origin) throw;
    rethrow_at(e, node.describe());
  } catch (const std::out_of_range&) {  // a list in the model is shorter than its operator needs
    fail(ErrorKind::kInvalidModel, "{}: an attribute or a list of sizes has too few elements", node.describe());
  }
  graph.origin = saved;
  std::vector<Value*> outputs = context.outputs();
  sequences.outputs = context.sequence_outputs();
  for (std::size_t k = 0; k < node.outputs.size(); ++k) {
    if (node.outputs[k].empty()) {
      outputs[k] = nullptr;
      continue;
    }
    if (sequences.outputs.count(static_cast<int>(k))) continue;
    if (!outputs[k]) fail(ErrorKind::kUnsupported, "{}: output {} is not supported", node.describe(), k);
    if (outputs[k]->name.empty()) outputs[k]->name = node.outputs[k];
  }
  return outputs;
}

void add_all_outputs(Graph& graph, const std::map<std::string, Value*>& values) {
  const std::set<std::string> listed(graph.output_names.begin(), graph.output_names.end());
  std::vector<std::pair<const std::string*, Value*>> order;
  for (const auto& [name, v] : values)
    if (v->producer && !v->producer->as<ConstantOp>() && !listed.count(name)) order.emplace_back(&name, v);
  // In the model's order: values are numbered as they are made.
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second->id < b.second->id; });
  for (const auto& [name, v] : order) {
    graph.outputs.push_back(v);
    graph.output_names.push_back(*name);
  }
}

}  // namespace sardonyx
