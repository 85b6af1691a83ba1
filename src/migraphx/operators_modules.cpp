// Operators that run modules, and those that choose results.
#include "migraphx/emitter.h"
#include "support/error.h"

namespace sardonyx::mgx {
namespace {

using Ints = Emitter::Ints;
using Names = Emitter::Names;

model::GraphPtr graph_of(const Module& m) { return std::make_shared<const model::Graph>(m.onnx_graph()); }

/// ONNX wants conditions and counts without a length.
std::string without_length(Emitter& e, std::size_t k) { return e.node("Squeeze", {e.in(k)}); }

void if_else(Emitter& e) {
  const Module &then_branch = e.module(0), &else_branch = e.module(1);
  const std::size_t results = then_branch.results().size();
  if (!then_branch.parameters().empty() || !else_branch.parameters().empty())
    e.refuse("modules with parameters; they can use the values of the modules around them");
  if (results == 0 || else_branch.results().size() != results) e.invalid("its modules need equal numbers of results");
  const std::string condition = e.cast(without_length(e, 0), DType::kBool);
  for (const std::string& r : e.nodes(results, "If", {condition},
                                      {{"then_branch", graph_of(then_branch)}, {"else_branch", graph_of(else_branch)}}))
    e.result(r);
  e.tuple();
}

model::Node simple_node(const char* type, Names inputs, std::string output) {
  model::Node n;
  n.op_type = type;
  n.opset = kGraphOpset;
  n.inputs = std::move(inputs);
  n.outputs = {std::move(output)};
  return n;
}

/// The body's number of the iteration and its conditions have one length in MIGraphX, and none in ONNX.
model::GraphPtr loop_body(const Module& m) {
  model::Graph g = m.onnx_graph();
  model::Tensor one;
  static constexpr std::int64_t kOne = 1;
  one.name = m.name() + ":#one";
  one.dtype = DType::kInt64;
  one.dims = {1};
  one.data = reinterpret_cast<const std::byte*>(&kOne);
  one.bytes = sizeof(kOne);
  for (std::size_t k = 0; k < 2; ++k) {
    const std::string inner = g.inputs[k].name;
    g.inputs[k].name = inner + "#scalar";
    g.inputs[k].shape.emplace();
    g.nodes.insert(g.nodes.begin(), simple_node("Reshape", {g.inputs[k].name, one.name}, inner));
  }
  g.initializers.push_back(one);
  model::ValueInfo& condition = g.outputs[0];
  g.nodes.push_back(simple_node("Squeeze", {condition.name}, condition.name + "#scalar"));
  condition.name += "#scalar";
  condition.shape.emplace();
  for (std::size_t k = 0; k < g.nodes.size(); ++k) g.nodes[k].index = static_cast<std::int64_t>(k);
  return std::make_shared<const model::Graph>(std::move(g));
}

/// The inputs are the largest number of iterations, the first condition, and the values that are carried from one
/// iteration to the next. The module's parameters are, in the order in which they were added, the number of the
/// iteration, the condition and these values; its results the condition, these values, and values to be stacked.
void loop(Emitter& e) {
  const Module& body = e.module(0);
  const std::size_t carried = e.inputs() - 2, results = body.results().size();
  if (body.parameters().size() != carried + 2)
    e.invalid(fmt::format("its module has {} parameters instead of {}", body.parameters().size(), carried + 2));
  if (results < carried + 1) e.invalid(fmt::format("its module has {} results instead of {}", results, carried + 1));
  for (const std::int64_t direction : e.ints("scan_output_directions"))
    if (direction != 0) e.refuse("the attribute scan_output_directions");
  Names inputs{without_length(e, 0), e.cast(without_length(e, 1), DType::kBool)};
  for (std::size_t k = 2; k < e.inputs(); ++k) inputs.push_back(e.in(k));
  for (const std::string& r : e.nodes(results - 1, "Loop", inputs, {{"body", loop_body(body)}})) e.result(r);
  e.tuple();
}

void get_tuple_elem(Emitter& e) {
  const Instruction& from = *e.instruction().inputs[0];
  const std::int64_t index = e.integer("index");
  if (!from.is_tuple || index < 0 || index >= static_cast<std::int64_t>(from.results.size()))
    e.invalid(fmt::format("its input has {} results, no number {}", from.results.size(), index));
  e.alias(from.results[static_cast<std::size_t>(index)]);
}

void undefined(Emitter&) {}

constexpr OperatorRule kRules[] = {
    {"get_tuple_elem", 1, 1, R"({"index": 0})", get_tuple_elem},
    {"if", 1, 1, "{}", if_else},
    {"loop", 2, -1, R"({"max_iterations": 10, "scan_output_directions": []})", loop},
    {"undefined", 0, 0, "{}", undefined},
};

}  // namespace

std::span<const OperatorRule> module_operators() { return kRules; }

}  // namespace sardonyx::mgx
