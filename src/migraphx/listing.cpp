// The main module of a program that was read: its nodes as instructions, to look at.
#include "import/node_source.h"
#include "migraphx/program.h"
#include "migraphx/shape.h"
#include "ops/op.h"
#include "support/error.h"

namespace sardonyx::mgx {
namespace {

using nlohmann::json;

struct AttributeJson {
  json operator()(std::int64_t v) const { return v; }
  json operator()(float v) const { return v; }
  json operator()(const std::string& v) const { return v; }
  json operator()(const std::vector<std::int64_t>& v) const { return v; }
  json operator()(const std::vector<float>& v) const { return v; }
  json operator()(const std::vector<std::string>& v) const { return v; }
  template <typename T>
  json operator()(const T&) const {
    return nullptr;  // tensors, graphs and types are not listed
  }
};

json attributes_of(const model::Node& n) {
  json all = json::object();
  for (const auto& [key, value] : n.attributes)
    if (json j = std::visit(AttributeJson{}, value); !j.is_null()) all[key] = std::move(j);
  return all;
}

bool is_known(DType t) {
  try {
    type_of(t, "");
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

void ModuleGraph::list(const model::Graph& graph, const std::map<std::string, migraphx_shape>& shapes) {
  Module& main = *modules_.at("main");
  std::map<std::string, InstructionPtr> makers;
  const auto add = [&](Instruction::Kind kind, migraphx_operation op, const std::vector<std::string>& results) {
    const std::shared_ptr<Instruction> i = main.start(op);
    i->kind = kind;
    for (const std::string& name : results) {
      const auto shape = shapes.find(name);
      const migraphx_shape unknown{migraphx_shape_tuple_type, {}, {}, {}};
      i->results.push_back({name, shape == shapes.end() ? unknown : shape->second});
      makers[name] = i;
    }
    i->is_tuple = i->results.size() > 1;
    main.instructions_.push_back(i);
    return i;
  };
  for (const model::ValueInfo& v : graph.inputs)
    if (!v.has_default) add(Instruction::Kind::kParameter, {"@param", {{"parameter", v.name}}}, {v.name});
  for (const model::Tensor& t : graph.initializers)
    add(Instruction::Kind::kLiteral, {"@literal", json::object()}, {t.name})->constants.push_back(t);
  for (const model::Node& n : graph.nodes) {
    const auto i = add(Instruction::Kind::kOperator, {n.op_type, attributes_of(n)}, n.outputs);
    for (const std::string& input : n.inputs)
      if (const auto maker = makers.find(input); maker != makers.end()) i->inputs.push_back(maker->second);
  }
  const auto end = add(Instruction::Kind::kReturn, {"@return", json::object()}, {});
  for (const model::ValueInfo& v : graph.outputs)
    if (const auto maker = makers.find(v.name); maker != makers.end()) end->inputs.push_back(maker->second);
  main.return_ = end;
}

std::map<std::string, migraphx_shape> MigraphxProgram::value_shapes() const {
  std::map<std::string, migraphx_shape> shapes;
  for (const Parameter& p : inputs_) shapes[p.name] = p.shape;
  for (const model::Tensor& t : nodes_->graph.initializers)
    if (t.unsupported.empty() && is_known(t.dtype)) shapes[t.name] = shape_of_dims(type_of(t.dtype, t.name), t.dims);
  model::Model all = *nodes_;
  try {
    ImportOptions options;
    options.all_outputs = true;
    const std::unique_ptr<Graph> graph = NodeSource(*nodes_).import(options);
    all.graph.outputs.clear();
    for (std::size_t k = 0; k < graph->outputs.size(); ++k) {
      if (!is_known(graph->outputs[k]->dtype)) continue;
      all.graph.outputs.emplace_back().name = graph->output_names[k];
    }
    const std::vector<migraphx_shape> found = output_shapes(all, inputs_);
    for (std::size_t k = 0; k < found.size(); ++k) shapes[all.graph.outputs[k].name] = found[k];
  } catch (const NeedInput&) {
    return shapes;  // shapes depend on values
  }
  return shapes;
}

}  // namespace sardonyx::mgx
