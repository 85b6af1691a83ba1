// Running a program with every intermediate value.
#include "import/node_source.h"
#include "migraphx/argument.h"
#include "migraphx/program.h"
#include "migraphx/shape.h"
#include "support/error.h"

namespace sardonyx::mgx {
namespace {

migraphx_argument argument_of(const Tensor& t, const std::string& what) {
  migraphx_argument a;
  a.shape = shape_of_dims(type_of(t.dtype, what), t.dims);
  a.owner = t.owner;
  a.data = t.data;
  return a;
}

/// A value of the program, as a listing numbers it.
struct Step {
  std::size_t index;
  std::string name, value;
};

/// The steps of a graph that the program built: its instructions.
std::vector<Step> steps_of(const Module& main) {
  std::vector<Step> all;
  for (std::size_t k = 0; k < main.instructions().size(); ++k) {
    const Instruction& i = *main.instructions()[k];
    for (const Result& r : i.results) all.push_back({k, to_text(i.op), r.name});
  }
  return all;
}

/// The model with the result of every instruction as an output, constant ones too.
model::Model with_all_results(model::Model m, const Module& main) {
  for (const InstructionPtr& i : main.instructions()) {
    if (i->nodes.empty()) continue;
    for (const Result& r : i->results) m.graph.outputs.push_back(declare(r.name, r.shape));
  }
  return m;
}

/// The steps of a model: its nodes, after its inputs and constants.
std::vector<Step> steps_of(const model::Graph& graph) {
  std::vector<Step> all;
  std::size_t at = graph.inputs.size() + graph.initializers.size();
  for (const model::Node& n : graph.nodes) {
    for (const std::string& output : n.outputs)
      if (!output.empty()) all.push_back({at, n.op_type, output});
    ++at;
  }
  return all;
}

}  // namespace

std::vector<migraphx_argument> MigraphxProgram::run_trace(const Arguments& parameters, const Seen& seen) const {
  if (!is_compiled()) fail(ErrorKind::kInvalidArgument, "the program must be compiled before it runs");
  require_no_custom_operators("traced");
  if (!nodes_)
    fail(ErrorKind::kUnsupported,
         "a program that was loaded after compiling has no intermediate values; parse the model");
  if (uses_device_memory())
    fail(ErrorKind::kUnsupported, "values in device memory can't be traced; compile with offload_copy");
  Options o = compile_options(placement_.target);
  o.precision = precision_;
  o.all_outputs = !has_graph();
  Model model(std::make_unique<NodeSource>(has_graph() ? with_all_results(*nodes_, graph_->main()) : *nodes_), o);
  std::map<std::string, Tensor> inputs;
  for (const TensorInfo& input : model.inputs()) {
    const auto found = parameters.find(input.name);
    if (found == parameters.end()) fail(ErrorKind::kInvalidArgument, "the parameter '{}' is missing", input.name);
    Tensor t = packed(found->second, "parameter '" + input.name + "'");
    if (input.shape.empty() && t.elements() == 1) t.dims.clear();
    inputs[input.name] = std::move(t);
  }
  const std::vector<Tensor> values = model.run(inputs);
  const std::vector<std::string> names = model.output_names();
  std::map<std::string, const Tensor*> by_name;
  for (std::size_t k = 0; k < values.size(); ++k) by_name.emplace(names[k], &values[k]);
  for (const auto& [name, t] : inputs) by_name.emplace(name, &t);
  for (const Step& s : has_graph() ? steps_of(graph_->main()) : steps_of(nodes_->graph))
    if (const auto found = by_name.find(s.value); found != by_name.end())
      seen(s.index, s.name, argument_of(*found->second, s.name));
  std::vector<migraphx_argument> results;
  for (std::size_t k = 0; k < outputs_.size(); ++k) results.push_back(argument_of(values.at(k), names[k]));
  return results;
}

}  // namespace sardonyx::mgx
