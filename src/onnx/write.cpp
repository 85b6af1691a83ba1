#include "onnx/write.h"

#include "onnx/proto.h"
#include "onnx/tensor.h"
#include "onnx/text.h"
#include "support/dtype.h"
#include "support/error.h"

namespace sardonyx::onnx {
namespace {

using model::Graph;
using model::GraphPtr;
using model::Node;
using model::Tensor;
using model::ValueInfo;

void write(const Tensor& t, pb::TensorProto& out) {
  t.require();
  write_tensor(out, t.name, t.dtype, t.dims, {t.data, t.bytes});
}

template <typename TensorType>
void write_tensor_type(const ValueInfo& v, TensorType& out) {
  if (v.dtype) out.set_elem_type(to_onnx(*v.dtype));
  if (!v.shape) return;
  auto& shape = *out.mutable_shape();
  for (const model::Dim& d : *v.shape) {
    auto& dim = *shape.add_dim();
    if (d.value)
      dim.set_dim_value(*d.value);
    else if (!d.param.empty())
      dim.set_dim_param(d.param);
  }
}

void write_type(const ValueInfo& v, pb::TypeProto& out) {
  if (!v.unsupported.empty()) fail(ErrorKind::kUnsupported, "{} can't be written: {}", quote(v.name), v.unsupported);
  switch (v.kind) {
    case ValueInfo::Kind::kTensor:
      if (v.dtype || v.shape) write_tensor_type(v, *out.mutable_tensor_type());
      break;
    case ValueInfo::Kind::kSparse:
      write_tensor_type(v, *out.mutable_sparse_tensor_type());
      break;
    case ValueInfo::Kind::kSequence:
      out.mutable_sequence_type();
      if (v.element) write_type(*v.element, *out.mutable_sequence_type()->mutable_elem_type());
      break;
    case ValueInfo::Kind::kOptional:
      out.mutable_optional_type();
      if (v.element) write_type(*v.element, *out.mutable_optional_type()->mutable_elem_type());
      break;
    case ValueInfo::Kind::kMap:
    case ValueInfo::Kind::kOther:
      fail(ErrorKind::kUnsupported, "{} is neither a tensor nor a sequence of tensors, and can't be written",
           quote(v.name));
  }
}

void write(const ValueInfo& v, pb::ValueInfoProto& out) {
  out.set_name(v.name);
  write_type(v, *out.mutable_type());
}

class Writer {
 public:
  explicit Writer(const model::Model& model) : model_(model) {}

  void write(const Graph& g, pb::GraphProto& out) {
    out.set_name(g.name.empty() ? "graph" : g.name);
    for (const Tensor& t : g.initializers) onnx::write(t, *out.add_initializer());
    for (const ValueInfo& v : g.inputs) onnx::write(v, *out.add_input());
    for (const ValueInfo& v : g.outputs) onnx::write(v, *out.add_output());
    for (const Node& n : g.nodes) write(n, *out.add_node());
  }

 private:
  void write(const Node& n, pb::NodeProto& out) {
    const auto version = model_.opsets.find(n.domain);
    if (version == model_.opsets.end() || version->second != n.opset)
      fail(ErrorKind::kUnsupported,
           "{} is of version {} of its operator set, the model has another one; such a model "
           "can't be written",
           n.describe(), n.opset);
    out.set_name(n.name);
    out.set_op_type(n.op_type);
    out.set_domain(n.domain);
    for (const std::string& name : n.inputs) out.add_input(name);
    for (const std::string& name : n.outputs) out.add_output(name);
    for (const auto& [key, value] : n.attributes) {
      pb::AttributeProto& a = *out.add_attribute();
      a.set_name(key);
      std::visit([&](const auto& v) { write_value(v, a); }, value);
    }
  }

  void write_value(std::int64_t v, pb::AttributeProto& a) {
    a.set_type(pb::AttributeProto::INT);
    a.set_i(v);
  }
  void write_value(float v, pb::AttributeProto& a) {
    a.set_type(pb::AttributeProto::FLOAT);
    a.set_f(v);
  }
  void write_value(const std::string& v, pb::AttributeProto& a) {
    a.set_type(pb::AttributeProto::STRING);
    a.set_s(v);
  }
  void write_value(const Tensor& v, pb::AttributeProto& a) {
    a.set_type(pb::AttributeProto::TENSOR);
    onnx::write(v, *a.mutable_t());
  }
  void write_value(const GraphPtr& v, pb::AttributeProto& a) {
    a.set_type(pb::AttributeProto::GRAPH);
    write(*v, *a.mutable_g());
  }
  void write_value(const ValueInfo& v, pb::AttributeProto& a) {
    a.set_type(pb::AttributeProto::TYPE_PROTO);
    write_type(v, *a.mutable_tp());
  }
  void write_value(const std::vector<std::int64_t>& list, pb::AttributeProto& a) {
    a.set_type(pb::AttributeProto::INTS);
    for (const std::int64_t v : list) a.add_ints(v);
  }
  void write_value(const std::vector<float>& list, pb::AttributeProto& a) {
    a.set_type(pb::AttributeProto::FLOATS);
    for (const float v : list) a.add_floats(v);
  }
  void write_value(const std::vector<std::string>& list, pb::AttributeProto& a) {
    a.set_type(pb::AttributeProto::STRINGS);
    for (const std::string& v : list) a.add_strings(v);
  }
  void write_value(const std::vector<Tensor>& list, pb::AttributeProto& a) {
    a.set_type(pb::AttributeProto::TENSORS);
    for (const Tensor& v : list) onnx::write(v, *a.add_tensors());
  }
  void write_value(const std::vector<GraphPtr>& list, pb::AttributeProto& a) {
    a.set_type(pb::AttributeProto::GRAPHS);
    for (const GraphPtr& v : list) write(*v, *a.add_graphs());
  }
  void write_value(const std::vector<ValueInfo>& list, pb::AttributeProto& a) {
    a.set_type(pb::AttributeProto::TYPE_PROTOS);
    for (const ValueInfo& v : list) write_type(v, *a.add_type_protos());
  }

  const model::Model& model_;
};

}  // namespace

std::string serialize(const model::Model& model) {
  pb::ModelProto proto;
  proto.set_ir_version(std::max<std::int64_t>(model.ir_version, 8));  // initializers need not be inputs
  proto.set_producer_name(model.producer_name);
  proto.set_producer_version(model.producer_version);
  proto.set_domain(model.domain);
  proto.set_model_version(model.model_version);
  for (const auto& [domain, version] : model.opsets) {
    pb::OperatorSetIdProto& opset = *proto.add_opset_import();
    opset.set_domain(domain);
    opset.set_version(version);
  }
  for (const auto& [key, value] : model.metadata) {
    pb::StringStringEntryProto& entry = *proto.add_metadata_props();
    entry.set_key(key);
    entry.set_value(value);
  }
  Writer(model).write(model.graph, *proto.mutable_graph());
  if (proto.ByteSizeLong() > INT32_MAX)
    fail(ErrorKind::kUnsupported, "the model has {} bytes; an ONNX file with its weights inside ends at 2 GiB",
         proto.ByteSizeLong());
  return proto.SerializeAsString();
}

}  // namespace sardonyx::onnx
