// ValueInfoProto and TypeProto to ValueInfo.
#include "onnx/reader.h"
#include "onnx/text.h"
#include "support/error.h"

namespace sardonyx::onnx {
namespace {

template <typename TensorType>
void read_tensor_type(const TensorType& proto, const std::string& what, ValueInfo& out) {
  // Exporters leave the type of intermediate values undefined where they don't know it.
  if (proto.elem_type() != pb::TensorProto::UNDEFINED) out.dtype = read_dtype(proto.elem_type(), what, out.unsupported);
  if (!proto.has_shape()) return;
  if (proto.shape().dim_size() > kMaxRank)
    fail(ErrorKind::kInvalidModel, "{} has rank {}; at most {} is accepted", what, proto.shape().dim_size(), kMaxRank);
  std::vector<Dim>& dims = out.shape.emplace();
  for (const pb::TensorShapeProto::Dimension& d : proto.shape().dim()) {
    Dim& dim = dims.emplace_back();
    // Some exporters name every dim that they don't know "?"; such dims are not equal.
    if (d.has_dim_param() && d.dim_param() != "?") dim.param = checked(d.dim_param(), "a dimension's name");
    if (!d.has_dim_value() || d.dim_value() == -1) continue;
    if (d.dim_value() < 0) fail(ErrorKind::kInvalidModel, "{} has the negative dimension {}", what, d.dim_value());
    dim.value = d.dim_value();
  }
}

}  // namespace

ValueInfo read_type(const pb::TypeProto& proto, const std::string& what) {
  ValueInfo out;
  switch (proto.value_case()) {
    case pb::TypeProto::kTensorType:
      read_tensor_type(proto.tensor_type(), what, out);
      break;
    case pb::TypeProto::kSparseTensorType:
      out.kind = ValueInfo::Kind::kSparse;
      read_tensor_type(proto.sparse_tensor_type(), what, out);
      break;
    case pb::TypeProto::kSequenceType:
      out.kind = ValueInfo::Kind::kSequence;
      if (proto.sequence_type().has_elem_type())
        out.element = std::make_shared<const ValueInfo>(read_type(proto.sequence_type().elem_type(), what));
      break;
    case pb::TypeProto::kOptionalType:
      out.kind = ValueInfo::Kind::kOptional;
      if (proto.optional_type().has_elem_type())
        out.element = std::make_shared<const ValueInfo>(read_type(proto.optional_type().elem_type(), what));
      break;
    case pb::TypeProto::kMapType:
      out.kind = ValueInfo::Kind::kMap;
      break;
    case pb::TypeProto::kOpaqueType:
      out.kind = ValueInfo::Kind::kOther;
      break;
    case pb::TypeProto::VALUE_NOT_SET:
      break;
  }
  return out;
}

std::uint64_t cost_of(const ValueInfo& v) {
  std::uint64_t sum = sizeof(ValueInfo) + v.name.size() + v.unsupported.size();
  if (v.shape)
    for (const Dim& d : *v.shape) sum += sizeof(Dim) + d.param.size();
  return v.element == nullptr ? sum : sum + cost_of(*v.element);
}

ValueInfo read_value_info(const pb::ValueInfoProto& proto, const std::string& what) {
  ValueInfo out = read_type(proto.type(), what);
  out.name = checked(proto.name(), "the name of a value");
  return out;
}

}  // namespace sardonyx::onnx
