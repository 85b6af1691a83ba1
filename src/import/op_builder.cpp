#include "import/op_builder.h"

#include "import/lower_node.h"

namespace sardonyx {
namespace {

class NoNestedGraphs : public GraphLowerer {
  std::vector<Value*> lower_body(const model::Graph& body, Graph&, const std::vector<Value*>&) override {
    fail(ErrorKind::kUnsupported,
         "the nested graph '{}' has no names of values to refer to; import the model as a list of nodes", body.name);
  }
  bool assume(const model::Node&) override { return false; }  // asked of nested graphs only
};

}  // namespace

OpBuilder::OpBuilder(const ImportOptions& options, std::int64_t opset)
    : options_(options), opset_(opset), graph_(std::make_unique<Graph>()) {}

Value* OpBuilder::input(const model::ValueInfo& declared) { return add_input(*graph_, declared, options_); }

Value* OpBuilder::constant(const Tensor& value) {
  return graph_->add_constant(value.dtype, value.dims,
                              {value.owner, static_cast<const std::byte*>(value.data), value.bytes()});
}

Value* OpBuilder::op(const std::string& type, std::vector<Value*> inputs, Attributes attributes,
                     const std::string& domain) {
  return op_with_outputs(1, type, std::move(inputs), std::move(attributes), domain)[0];
}

std::vector<Value*> OpBuilder::op_with_outputs(std::size_t outputs, const std::string& type, std::vector<Value*> inputs,
                                               Attributes attributes, const std::string& domain) {
  model::Node node;
  node.op_type = type;
  node.domain = domain;
  node.opset = domain.empty() ? opset_ : 1;
  node.index = count_++;
  node.name = fmt::format("{}_{}", type, node.index);
  node.attributes = std::move(attributes);
  for (const Value* v : inputs) node.inputs.push_back(v ? v->name : "");  // for messages
  for (std::size_t k = 0; k < outputs; ++k) node.outputs.push_back(k ? fmt::format("{}.{}", node.name, k) : node.name);
  NoNestedGraphs lowerer;
  NodeSequences sequences;
  std::vector<Value*> results =
      lower_node(operator_of(node, options_.custom.get()), node, *graph_, std::move(inputs), lowerer, sequences);
  if (!sequences.outputs.empty()) fail(ErrorKind::kUnsupported, "{}: makes a sequence", node.describe());
  for (std::size_t k = 0; k < outputs; ++k) results_[node.outputs[k]] = results[k];
  return results;
}

void OpBuilder::output(const std::string& name, Value* value) {
  graph_->outputs.push_back(value);
  graph_->output_names.push_back(name);
}

std::unique_ptr<Graph> OpBuilder::finish() {
  if (options_.all_outputs) add_all_outputs(*graph_, results_);
  return std::move(graph_);
}

}  // namespace sardonyx
