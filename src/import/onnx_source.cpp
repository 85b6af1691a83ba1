#include "import/onnx_source.h"

#include "import/import.h"
#include "import/quantize.h"

namespace sardonyx {
namespace {

using Dims = std::map<std::string, std::int64_t>;

// An unnamed dim has the name that the importer gives its symbol.
std::string dim_text(const onnx::Dim& d, const std::string& tensor, std::size_t k, const Dims& dims) {
  if (d.value) return std::to_string(*d.value);
  if (d.param.empty()) return tensor + "." + std::to_string(k);
  const auto fixed = dims.find(d.param);
  return fixed == dims.end() ? d.param : std::to_string(fixed->second);
}

TensorInfo info_of(const onnx::ValueInfo& v, const Dims& dims) {
  TensorInfo t;
  t.name = v.name;
  if (v.dtype) t.dtype = *v.dtype;
  t.known_rank = v.shape.has_value();
  if (v.shape)
    for (std::size_t k = 0; k < v.shape->size(); ++k) t.shape.push_back(dim_text((*v.shape)[k], v.name, k, dims));
  return t;
}

}  // namespace

Signature OnnxSource::signature(const Dims& dims) const {
  Signature s;
  for (const onnx::ValueInfo& v : model_.graph.inputs) {
    if (!v.has_default) s.inputs.push_back(info_of(v, dims));
    if (!v.shape) continue;
    for (const onnx::Dim& d : *v.shape)
      if (!d.param.empty()) s.dims.insert(d.param);
  }
  for (const onnx::ValueInfo& v : model_.graph.outputs) s.outputs.push_back(info_of(v, dims));
  return s;
}

std::unique_ptr<Graph> OnnxSource::import(const ImportOptions& options) const { return import_model(model_, options); }

QuantizationReport OnnxSource::quantize(const CalibrationTable& table, DType type) {
  return quantize_products(model_, table, type);
}

void OnnxSource::release_weights() {
  for (onnx::Tensor& t : model_.graph.initializers) {
    t.owner.reset();
    t.data = nullptr;
    t.bytes = 0;
    t.unsupported = "its data was released after compiling";
  }
}

std::map<std::string, std::string> OnnxSource::metadata() const {
  return {model_.metadata.begin(), model_.metadata.end()};
}

const onnx::Model& onnx_model(const ModelSource* source) {
  if (const auto* onnx = dynamic_cast<const OnnxSource*>(source)) return onnx->model();
  fail(ErrorKind::kUnsupported, "this needs the ONNX model, and {} was given",
       source ? "a model of another format" : "a compiled program");
}

}  // namespace sardonyx
