// Operators that run subgraphs, and those that are known and refused.
#include "tflite/operator.h"

namespace sardonyx::tflite {
namespace {

/// Inlines a subgraph into the graph of `op`, with values for its inputs.
std::vector<std::string> inlined(Operator& op, std::size_t subgraph, const std::vector<std::string>& inputs,
                                 model::Graph& into) {
  Converter body(op.graph.file(), subgraph, into, op.make.names(), op.graph.depth() + 1);
  op.require(body.info().inputs.size() == inputs.size(), "its inputs do not fit the subgraph's");
  for (std::size_t k = 0; k < inputs.size(); ++k) body.bind(body.info().inputs[k], inputs[k]);
  body.run();
  return body.outputs();
}

model::ValueInfo declared(const std::string& name, std::optional<DType> dtype = std::nullopt) {
  model::ValueInfo out;
  out.name = name;
  out.dtype = dtype;
  return out;
}

void if_op(Operator& op) {  // condition, then what the branches take
  const std::string condition = op.rank(0) == 0 ? op.raw(0) : op.make.reshape(op.raw(0), {});
  std::vector<std::string> inputs;
  for (std::size_t k = 1; k < op.inputs(); ++k) inputs.push_back(op.raw(k));
  Attributes branches;
  for (int k = 0; k < 2; ++k) {
    auto branch = std::make_shared<model::Graph>();
    branch->name = k == 0 ? "then" : "else";
    const auto out = inlined(op, static_cast<std::size_t>(op.option<std::int32_t>(k, 0)), inputs, *branch);
    op.require(out.size() == op.outputs(), "a branch has another number of outputs");
    // A branch may return what it was given: a graph's outputs are values of its own.
    Nodes nodes(*branch, op.make.names());
    nodes.begin(branch->name, 0);
    for (const std::string& v : out) branch->outputs.push_back(declared(nodes.add("Identity", {v})));
    branches[k == 0 ? "then_branch" : "else_branch"] = model::GraphPtr(std::move(branch));
  }
  const auto results = op.make.add_many("If", {condition}, op.outputs(), std::move(branches));
  for (std::size_t k = 0; k < results.size(); ++k) op.set(k, results[k]);
}

void while_op(Operator& op) {
  const auto condition = static_cast<std::size_t>(op.option<std::int32_t>(0, 0));
  const auto body = static_cast<std::size_t>(op.option<std::int32_t>(1, 0));
  op.require(op.inputs() == op.outputs(), "inputs and outputs differ in number");
  std::vector<std::string> state;
  for (std::size_t k = 0; k < op.inputs(); ++k) state.push_back(op.raw(k));
  const auto decide = [&](const std::vector<std::string>& values, model::Graph& into) {
    const auto out = inlined(op, condition, values, into);
    op.require(out.size() == 1, "its condition has several outputs");
    Nodes nodes(into, op.make.names());
    nodes.begin("condition", 0);
    return nodes.reshape(out[0], {});
  };
  Inputs inputs = {"", decide(state, op.make.graph())};
  inputs.insert(inputs.end(), state.begin(), state.end());
  auto loop = std::make_shared<model::Graph>();
  loop->name = "body";
  Names& names = op.make.names();
  loop->inputs.push_back(declared(names.unique("iteration"), DType::kInt64));
  loop->inputs.push_back(declared(names.unique("go_on"), DType::kBool));
  std::vector<std::string> values;
  for (std::size_t k = 0; k < op.inputs(); ++k) {
    values.push_back(names.unique(op.in(k).name));
    loop->inputs.push_back(declared(values.back(), op.in(k).dtype));
  }
  const auto next = inlined(op, body, values, *loop);
  op.require(next.size() == op.outputs(), "its body has another number of outputs");
  loop->outputs.push_back(declared(decide(next, *loop)));
  Nodes nodes(*loop, names);
  nodes.begin(loop->name, 0);
  for (const std::string& v : next) loop->outputs.push_back(declared(nodes.add("Identity", {v})));
  const auto results =
      op.make.add_many("Loop", std::move(inputs), op.outputs(), {{"body", model::GraphPtr(std::move(loop))}});
  for (std::size_t k = 0; k < results.size(); ++k) op.set(k, results[k]);
}

void refused(Operator& op) { op.refuse("an operator without a counterpart here"); }
void lookup(Operator& op) {
  op.refuse("a lookup, which is not supported: export a model that begins after it, and do it outside");
}
void state(Operator& op) { op.refuse("state that runs keep"); }
void generator(Operator& op) { op.refuse("random numbers of TFLite's generator"); }

constexpr Rule kRules[] = {
    {118, "IF", if_op},
    {119, "WHILE", while_op},
    {10, "HASHTABLE_LOOKUP", lookup},
    {15, "LSH_PROJECTION", refused},
    {16, "LSTM", refused},
    {24, "RNN", state},
    {27, "SVDF", state},
    {29, "CONCAT_EMBEDDINGS", refused},
    {30, "SKIP_GRAM", lookup},
    {31, "CALL", refused},
    {33, "EMBEDDING_LOOKUP_SPARSE", refused},
    {46, "BIDIRECTIONAL_SEQUENCE_RNN", refused},
    {51, "DELEGATE", refused},
    {52, "BIDIRECTIONAL_SEQUENCE_LSTM", refused},
    {68, "SPARSE_TO_DENSE", refused},
    {80, "FAKE_QUANT", refused},
    {113, "MATRIX_DIAG", refused},
    {115, "MATRIX_SET_DIAG", refused},
    {124, "DENSIFY", refused},
    {125, "SEGMENT_SUM", refused},
    {129, "CALL_ONCE", state},
    {131, "RFFT2D", refused},
    {133, "IMAG", refused},
    {134, "REAL", refused},
    {135, "COMPLEX_ABS", refused},
    {136, "HASHTABLE", lookup},
    {137, "HASHTABLE_FIND", lookup},
    {138, "HASHTABLE_IMPORT", lookup},
    {139, "HASHTABLE_SIZE", lookup},
    {142, "VAR_HANDLE", state},
    {143, "READ_VARIABLE", state},
    {144, "ASSIGN_VARIABLE", state},
    {145, "BROADCAST_ARGS", refused},
    {146, "RANDOM_STANDARD_NORMAL", generator},
    {147, "BUCKETIZE", refused},
    {148, "RANDOM_UNIFORM", generator},
    {149, "MULTINOMIAL", generator},
    {153, "UNSORTED_SEGMENT_PROD", refused},
    {154, "UNSORTED_SEGMENT_MAX", refused},
    {155, "UNSORTED_SEGMENT_SUM", refused},
    {157, "UNSORTED_SEGMENT_MIN", refused},
    {159, "BITCAST", refused},
};

}  // namespace

std::span<const Rule> control_rules() { return kRules; }

}  // namespace sardonyx::tflite
