// AttributeProto to Attribute, and the nested graphs in them.
#include <algorithm>

#include "onnx/reader.h"
#include "onnx/text.h"
#include "support/error.h"

namespace sardonyx::onnx {
namespace {

using Type = pb::AttributeProto;

/// The attribute's type; where the file does not say (IR version 1), the type of the one field that is set.
Type::AttributeType type_of(const pb::AttributeProto& a) {
  if (a.type() != Type::UNDEFINED) return a.type();
  if (a.has_f()) return Type::FLOAT;
  if (a.has_i()) return Type::INT;
  if (a.has_s()) return Type::STRING;
  if (a.has_t()) return Type::TENSOR;
  if (a.has_g()) return Type::GRAPH;
  if (a.has_sparse_tensor()) return Type::SPARSE_TENSOR;
  if (a.has_tp()) return Type::TYPE_PROTO;
  if (a.floats_size() > 0) return Type::FLOATS;
  if (a.ints_size() > 0) return Type::INTS;
  if (a.strings_size() > 0) return Type::STRINGS;
  if (a.tensors_size() > 0) return Type::TENSORS;
  if (a.graphs_size() > 0) return Type::GRAPHS;
  if (a.sparse_tensors_size() > 0) return Type::SPARSE_TENSORS;
  if (a.type_protos_size() > 0) return Type::TYPE_PROTOS;
  return Type::UNDEFINED;
}

/// The variant's alternative that holds a type: to compare a reference with what it refers to.
std::size_t alternative(Type::AttributeType type) {
  switch (type) {
    case Type::INT:
      return 0;
    case Type::FLOAT:
      return 1;
    case Type::STRING:
      return 2;
    case Type::TENSOR:
    case Type::SPARSE_TENSOR:
      return 3;
    case Type::GRAPH:
      return 4;
    case Type::TYPE_PROTO:
      return 5;
    case Type::INTS:
      return 6;
    case Type::FLOATS:
      return 7;
    case Type::STRINGS:
      return 8;
    case Type::TENSORS:
    case Type::SPARSE_TENSORS:
      return 9;
    case Type::GRAPHS:
      return 10;
    case Type::TYPE_PROTOS:
      return 11;
    default:
      return std::variant_npos;
  }
}

using onnx::cost_of;  // of a ValueInfo
std::uint64_t cost_of(const Tensor& t) {
  return sizeof(Tensor) + t.name.size() + 8 * t.dims.size() + t.unsupported.size();
}
std::uint64_t cost_of(const std::string& s) { return sizeof(std::string) + s.size(); }

template <typename T>
std::uint64_t sum_of_costs(const std::vector<T>& list) {
  std::uint64_t sum = 0;
  for (const T& v : list) sum += cost_of(v);
  return sum;
}

}  // namespace

GraphPtr ModelReader::read_nested(pb::GraphProto& proto, const Frame& frame, const Scope& scope, int depth,
                                  const std::string& node) {
  auto graph = std::make_shared<Graph>(read_graph(proto, frame, &scope, depth + 1));
  std::unordered_set<std::string_view> own;
  for (const ValueInfo& v : graph->inputs) own.insert(v.name);
  for (const Tensor& t : graph->initializers) own.insert(t.name);
  for (const Node& n : graph->nodes) own.insert(n.outputs.begin(), n.outputs.end());
  std::unordered_set<std::string> captured;
  const auto reads = [&](const std::string& name) {
    if (!name.empty() && !own.contains(name)) captured.insert(name);
  };
  for (const Node& n : graph->nodes) {
    for (const std::string& name : n.inputs) reads(name);
    for (const auto& [key, value] : n.attributes) {
      if (const auto* g = std::get_if<GraphPtr>(&value))
        for (const std::string& name : captures_.at(g->get())) reads(name);
      if (const auto* gs = std::get_if<std::vector<GraphPtr>>(&value))
        for (const GraphPtr& g : *gs)
          for (const std::string& name : captures_.at(g.get())) reads(name);
    }
  }
  for (const ValueInfo& v : graph->outputs) reads(v.name);
  captures_[graph.get()].assign(captured.begin(), captured.end());
  return graph;
}

std::uint64_t ModelReader::cost_of_attribute(const Attribute& a) const {
  // Each node with the graph lists its captured names when nodes are sorted.
  const auto captured = [&](const GraphPtr& g) { return sum_of_costs(captures_.at(g.get())); };
  if (const auto* v = std::get_if<std::string>(&a)) return cost_of(*v);
  if (const auto* v = std::get_if<Tensor>(&a)) return cost_of(*v);
  if (const auto* v = std::get_if<GraphPtr>(&a)) return captured(*v);
  if (const auto* v = std::get_if<ValueInfo>(&a)) return onnx::cost_of(*v);
  if (const auto* v = std::get_if<std::vector<std::int64_t>>(&a)) return v->size() * sizeof(std::int64_t);
  if (const auto* v = std::get_if<std::vector<float>>(&a)) return v->size() * sizeof(float);
  if (const auto* v = std::get_if<std::vector<std::string>>(&a)) return sum_of_costs(*v);
  if (const auto* v = std::get_if<std::vector<Tensor>>(&a)) return sum_of_costs(*v);
  if (const auto* v = std::get_if<std::vector<ValueInfo>>(&a)) return sum_of_costs(*v);
  std::uint64_t sum = 0;
  if (const auto* v = std::get_if<std::vector<GraphPtr>>(&a))
    for (const GraphPtr& g : *v) sum += sizeof(g) + captured(g);
  return sum;
}

bool ModelReader::read_attribute(pb::AttributeProto& proto, const Frame& frame, const Scope& scope, int depth,
                                 const std::string& node, Attribute& out) {
  const std::string what = node + ": attribute " + quote(proto.name());
  const Type::AttributeType type = type_of(proto);
  if (!proto.ref_attr_name().empty()) {
    if (frame.function == nullptr)
      fail(ErrorKind::kInvalidModel, "{} refers to a function's attribute {}, outside of any function", what,
           quote(proto.ref_attr_name()));
    const auto found = frame.arguments.find(proto.ref_attr_name());
    if (found == frame.arguments.end()) return false;
    if (type != Type::UNDEFINED && alternative(type) != found->second.index())
      fail(ErrorKind::kInvalidModel, "{} refers to {}, which the function's caller gives another type", what,
           quote(proto.ref_attr_name()));
    out = found->second;
    charge(cost_of_attribute(out), what);
    return true;
  }
  const auto present = [&](bool has) {
    if (!has) fail(ErrorKind::kInvalidModel, "{} has no value of its type", what);
  };
  switch (type) {
    case Type::FLOAT:
      out = proto.f();
      break;
    case Type::INT:
      out = std::int64_t{proto.i()};
      break;
    case Type::STRING:
      out = proto.s();
      break;
    case Type::TENSOR:
      present(proto.has_t()), out = tensors_.read(*proto.mutable_t(), what);
      break;
    case Type::SPARSE_TENSOR:
      present(proto.has_sparse_tensor()), out = tensors_.read(*proto.mutable_sparse_tensor(), what);
      break;
    case Type::TYPE_PROTO:
      present(proto.has_tp()), out = read_type(proto.tp(), what);
      break;
    case Type::GRAPH:
      present(proto.has_g()), out = read_nested(*proto.mutable_g(), frame, scope, depth, node);
      break;
    case Type::FLOATS:
      out = std::vector<float>(proto.floats().begin(), proto.floats().end());
      break;
    case Type::INTS:
      out = std::vector<std::int64_t>(proto.ints().begin(), proto.ints().end());
      break;
    case Type::STRINGS:
      out = std::vector<std::string>(proto.strings().begin(), proto.strings().end());
      break;
    case Type::TENSORS:
    case Type::SPARSE_TENSORS: {
      std::vector<Tensor> list;
      for (pb::TensorProto& t : *proto.mutable_tensors()) list.push_back(tensors_.read(t, what));
      for (pb::SparseTensorProto& t : *proto.mutable_sparse_tensors()) list.push_back(tensors_.read(t, what));
      out = std::move(list);
      break;
    }
    case Type::GRAPHS: {
      std::vector<GraphPtr> list;
      for (pb::GraphProto& g : *proto.mutable_graphs()) list.push_back(read_nested(g, frame, scope, depth, node));
      out = std::move(list);
      break;
    }
    case Type::TYPE_PROTOS: {
      std::vector<ValueInfo> list;
      for (const pb::TypeProto& t : proto.type_protos()) list.push_back(read_type(t, what));
      out = std::move(list);
      break;
    }
    default:
      fail(ErrorKind::kInvalidModel, "{} has no value", what);
  }
  if (frame.function != nullptr) charge(cost_of_attribute(out), what);
  return true;
}

}  // namespace sardonyx::onnx
