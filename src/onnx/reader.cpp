// Graphs and nodes. Names are resolved while reading: each scope maps the file's names to the Model's, which differ
// where a nested graph redefines an outer name and in bodies of functions.
#include "onnx/reader.h"

#include <algorithm>

#include "onnx/text.h"
#include "onnx/topological_sort.h"
#include "support/error.h"

namespace sardonyx::onnx {
namespace {

// Limits what inlining functions may produce: a factor per byte of the file, and a minimum for small files with many
// calls. A node counts with a fixed size plus its names and lists. Nested calls can grow exponentially.
constexpr std::uint64_t kInlineFactor = 64;
constexpr std::uint64_t kInlineFloor = std::uint64_t{64} << 20;
constexpr std::uint64_t kNodeCost = 512;

/// Bytes of a graph's contents other than its nodes and its tensors' data.
std::uint64_t cost_of(const Graph& graph) {
  std::uint64_t sum = sizeof(Graph) + graph.name.size();
  for (const auto* list : {&graph.inputs, &graph.outputs, &graph.value_info})
    for (const ValueInfo& v : *list) sum += onnx::cost_of(v);
  for (const Tensor& t : graph.initializers) sum += sizeof(t) + t.name.size() + 8 * t.dims.size();
  return sum;
}

std::string in_function(const Frame& frame) {
  return frame.function == nullptr ? "" : " in function " + quote(frame.function->name());
}

}  // namespace

std::string normal_domain(const std::string& domain) {
  return domain == "ai.onnx" ? "" : checked(domain, "the domain");
}

OpsetMap read_opsets(const google::protobuf::RepeatedPtrField<pb::OperatorSetIdProto>& imports,
                     const std::string& what) {
  OpsetMap out;
  for (const pb::OperatorSetIdProto& o : imports) {
    if (o.version() < 1)
      fail(ErrorKind::kInvalidModel, "{} imports version {} of operator set {}; versions start at 1", what, o.version(),
           quote(o.domain()));
    std::int64_t& version = out[normal_domain(o.domain())];
    version = std::max<std::int64_t>(version, o.version());  // of several, the format takes the highest
  }
  return out;
}

ModelReader::ModelReader(pb::ModelProto& proto, TensorReader tensors, std::uint64_t bytes)
    : proto_(proto), tensors_(std::move(tensors)), max_inlined_(kInlineFloor + kInlineFactor * bytes) {}

Model ModelReader::read() {
  Model model;
  model.ir_version = proto_.ir_version();
  if (model.ir_version < 1) fail(ErrorKind::kInvalidModel, "not an ONNX model: it has no IR version");
  if (model.ir_version > pb::IR_VERSION)
    fail(ErrorKind::kUnsupported,
         "IR version {} is newer than {}, the newest that is known; save the model with an older onnx package",
         model.ir_version, static_cast<std::int64_t>(pb::IR_VERSION));
  if (!proto_.has_graph()) fail(ErrorKind::kInvalidModel, "the model has no graph");
  model.producer_name = checked(proto_.producer_name(), "the producer's name");
  model.producer_version = checked(proto_.producer_version(), "the producer's version");
  model.domain = checked(proto_.domain(), "the model's domain");
  model.model_version = proto_.model_version();
  for (const pb::StringStringEntryProto& e : proto_.metadata_props())
    model.metadata[checked(e.key(), "a metadata key")] = checked(e.value(), "a metadata value");
  opsets_ = read_opsets(proto_.opset_import(), "the model");
  // Operator sets came with IR version 3; before, there was only the first one.
  if (model.ir_version < 3) opsets_.try_emplace("", 1);
  model.opsets = opsets_;

  read_functions();
  collect_names(proto_.graph());
  Frame frame;
  frame.opsets = opsets_;
  model.graph = read_graph(*proto_.mutable_graph(), frame, nullptr, 0);

  std::unordered_set<std::string_view> initialized, outputs;
  for (const Tensor& t : model.graph.initializers) initialized.insert(t.name);
  for (ValueInfo& v : model.graph.inputs) {
    v.has_default = initialized.contains(v.name);
    if (v.kind == ValueInfo::Kind::kTensor && !v.dtype && v.unsupported.empty() && !v.has_default)
      fail(ErrorKind::kInvalidModel, "graph input {} declares no element type", quote(v.name));
  }
  if (model.graph.outputs.empty()) fail(ErrorKind::kInvalidModel, "the model's graph has no outputs");
  for (const ValueInfo& v : model.graph.outputs)
    if (!outputs.insert(v.name).second)
      fail(ErrorKind::kInvalidModel, "graph output {} is listed twice", quote(v.name));
  return model;
}

void ModelReader::collect_names(const pb::GraphProto& graph) {
  for (const pb::ValueInfoProto& v : graph.input()) used_.insert(v.name());
  for (const pb::TensorProto& t : graph.initializer()) used_.insert(t.name());
  for (const pb::SparseTensorProto& t : graph.sparse_initializer()) used_.insert(t.values().name());
  for (const pb::NodeProto& n : graph.node()) {
    for (const std::string& name : n.output()) used_.insert(name);
    for (const pb::AttributeProto& a : n.attribute()) {
      collect_names(a.g());
      for (const pb::GraphProto& g : a.graphs()) collect_names(g);
    }
  }
}

std::string ModelReader::unique(const std::string& wanted) {
  if (used_.insert(wanted).second) return wanted;
  std::int64_t& next = suffix_[wanted];
  for (;;) {
    std::string name = wanted + "_" + std::to_string(++next);
    if (used_.insert(name).second) return name;
  }
}

void ModelReader::charge(std::uint64_t bytes, const std::string& node) {
  inlined_ += bytes;
  if (inlined_ > max_inlined_)
    fail(ErrorKind::kUnsupported,
         "inlining the model's functions makes more than {} MiB of nodes, at {}; inline them with onnx.inliner, or "
         "simplify the model",
         max_inlined_ >> 20, node);
}

void ModelReader::declare(Scope& scope, const Frame& frame, const std::string& name, const std::string& what) {
  if (name.empty()) fail(ErrorKind::kInvalidModel, "{} has no name", what);
  checked(name, what);
  std::string own = name;
  if (frame.function != nullptr) {
    own = unique(frame.prefix + name);
    charge(4 * own.size(), what);  // counted in the scope, among the used names, at the node, and in the sort
  } else {
    for (const Scope* s = scope.parent; s != nullptr; s = s->parent)
      if (s->names.contains(name)) {
        own = unique(name);
        break;
      }
  }
  if (!scope.names.emplace(name, std::move(own)).second)
    fail(ErrorKind::kInvalidModel, "{} is defined twice in the same graph", what);
}

const std::string& ModelReader::resolve(const Scope& scope, const std::string& name, const std::string& reader) const {
  for (const Scope* s = &scope; s != nullptr; s = s->parent)
    if (const auto found = s->names.find(name); found != s->names.end()) return found->second;
  fail(ErrorKind::kInvalidModel, "{} reads {}, which no input, initializer or node defines", reader, quote(name));
}

std::int64_t ModelReader::opset_of(const Frame& frame, const std::string& domain, const std::string& node) const {
  auto found = frame.opsets.find(domain);
  bool known = found != frame.opsets.end();
  if (!known && frame.function != nullptr) {
    // A function should import the opsets of its nodes; exporters leave out those that the model imports anyway.
    found = opsets_.find(domain);
    known = found != opsets_.end();
  }
  // Some tools leave out ONNX Runtime's own domain, of which there is one version.
  if (!known && domain == "com.microsoft") return 1;
  if (!known)
    fail(ErrorKind::kInvalidModel,
         "{}: the model imports no operator set for the domain {}; add it to its opset_import", node,
         quote(domain.empty() ? "ai.onnx" : domain));
  if (domain.empty() && (found->second < model::kMinOpset || found->second > model::kMaxOpset))
    fail(ErrorKind::kUnsupported,
         "{}: operator set {} is not among the supported versions {} to {}; convert the model with "
         "onnx.version_converter",
         node, found->second, model::kMinOpset, model::kMaxOpset);
  return found->second;
}

Graph ModelReader::read_graph(pb::GraphProto& proto, const Frame& frame, const Scope* outer, int depth) {
  if (depth > kMaxGraphDepth) fail(ErrorKind::kUnsupported, "graphs are nested more than {} deep", kMaxGraphDepth);
  Graph graph;
  graph.name = checked(proto.name(), "the graph's name");
  Scope scope;
  scope.parent = outer;

  // All names first: nodes need not be sorted yet.
  for (const pb::ValueInfoProto& v : proto.input()) {
    const std::string what = "graph input " + quote(v.name());
    declare(scope, frame, v.name(), what);
    graph.inputs.push_back(read_value_info(v, what));
    graph.inputs.back().name = scope.names.at(v.name());
  }
  std::unordered_set<std::string_view> inputs, initialized;
  for (const pb::ValueInfoProto& v : proto.input()) inputs.insert(v.name());
  const auto add_initializer = [&](const std::string& name, auto& tensor) {
    const std::string what = "initializer " + quote(name) + in_function(frame);
    if (!initialized.insert(name).second) fail(ErrorKind::kInvalidModel, "{} is defined twice", what);
    if (!inputs.contains(name)) declare(scope, frame, name, what);
    graph.initializers.push_back(tensors_.read(tensor, what));
    graph.initializers.back().name = scope.names.at(name);
  };
  for (pb::TensorProto& t : *proto.mutable_initializer()) add_initializer(t.name(), t);
  for (pb::SparseTensorProto& t : *proto.mutable_sparse_initializer()) add_initializer(t.values().name(), t);
  for (const pb::NodeProto& n : proto.node())
    for (const std::string& name : n.output())
      if (!name.empty()) declare(scope, frame, name, "value " + quote(name) + in_function(frame));

  graph.nodes.reserve(static_cast<std::size_t>(proto.node_size()));
  for (int i = 0; i < proto.node_size(); ++i) read_node(*proto.mutable_node(i), i, frame, scope, depth, graph.nodes);
  for (const pb::ValueInfoProto& v : proto.output()) {
    const std::string what = "graph output " + quote(v.name()) + in_function(frame);
    graph.outputs.push_back(read_value_info(v, what));
    graph.outputs.back().name = resolve(scope, v.name(), what);
  }
  std::unordered_set<std::string_view> typed;
  for (const pb::ValueInfoProto& v : proto.value_info()) {
    const auto known = scope.names.find(v.name());
    if (known == scope.names.end() || !typed.insert(v.name()).second)
      continue;  // of a value that is not there, or again
    graph.value_info.push_back(read_value_info(v, "value " + quote(v.name())));
    graph.value_info.back().name = known->second;
  }
  if (frame.function != nullptr) charge(cost_of(graph), "graph " + quote(graph.name));
  finish(graph);
  return graph;
}

void ModelReader::read_node(pb::NodeProto& proto, std::int64_t index, const Frame& frame, const Scope& scope, int depth,
                            std::vector<Node>& out) {
  Node node;
  node.index = index;
  node.name = frame.prefix + checked(proto.name(), "a node's name");
  node.op_type = checked(proto.op_type(), "a node's operator");
  node.domain = normal_domain(proto.domain());
  const std::string what = node.describe() + in_function(frame);
  if (node.op_type.empty()) fail(ErrorKind::kInvalidModel, "{} has no operator", what);
  for (const std::string& name : proto.input()) node.inputs.push_back(name.empty() ? "" : resolve(scope, name, what));
  for (const std::string& name : proto.output()) node.outputs.push_back(name.empty() ? "" : scope.names.at(name));
  for (pb::AttributeProto& a : *proto.mutable_attribute()) {
    const std::string& name = checked(a.name(), "an attribute's name");
    if (name.empty()) fail(ErrorKind::kInvalidModel, "{} has an attribute without a name", what);
    Attribute value;
    if (!read_attribute(a, frame, scope, depth, what, value)) continue;
    if (!node.attributes.emplace(name, std::move(value)).second)
      fail(ErrorKind::kInvalidModel, "{} has the attribute {} twice", what, quote(name));
  }
  if (frame.function != nullptr) {
    std::uint64_t cost =
        kNodeCost + node.name.size() + 64 * (node.attributes.size() + node.inputs.size() + node.outputs.size());
    for (const std::string& name : node.inputs) cost += 2 * name.size();
    charge(cost, what);
  }
  if (pb::FunctionProto* function = find_function(proto)) {
    inline_call(*function, node, frame, depth, out);
    return;
  }
  if (!proto.overload().empty())
    fail(ErrorKind::kInvalidModel, "{} calls the overload {} of a function that the model does not have", what,
         quote(proto.overload()));
  node.opset = opset_of(frame, node.domain, what);
  out.push_back(std::move(node));
}

void ModelReader::finish(Graph& graph) {
  std::vector<std::vector<std::string>> captured(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    for (const auto& [name, value] : graph.nodes[i].attributes) {
      const auto add = [&](const GraphPtr& g) {
        const std::vector<std::string>& names = captures_.at(g.get());
        captured[i].insert(captured[i].end(), names.begin(), names.end());
      };
      if (const auto* g = std::get_if<GraphPtr>(&value)) add(*g);
      if (const auto* gs = std::get_if<std::vector<GraphPtr>>(&value))
        for (const GraphPtr& g : *gs) add(g);
    }
  sort_topologically(graph.nodes, captured);
}

}  // namespace sardonyx::onnx
