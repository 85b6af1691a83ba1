#include "import/node_source.h"

#include "import/import.h"
#include "import/quantize.h"

namespace sardonyx {
namespace {

using Dims = std::map<std::string, std::int64_t>;

// An unnamed dim has the name that the importer gives its symbol.
std::string dim_text(const model::Dim& d, const std::string& tensor, std::size_t k, const Dims& dims) {
  if (d.value) return std::to_string(*d.value);
  if (d.param.empty()) return tensor + "." + std::to_string(k);
  const auto fixed = dims.find(d.param);
  return fixed == dims.end() ? d.param : std::to_string(fixed->second);
}

TensorInfo info_of(const model::ValueInfo& v, const Dims& dims) {
  TensorInfo t;
  t.name = v.name;
  if (v.dtype) t.dtype = *v.dtype;
  t.known_rank = v.shape.has_value();
  if (v.shape)
    for (std::size_t k = 0; k < v.shape->size(); ++k) t.shape.push_back(dim_text((*v.shape)[k], v.name, k, dims));
  return t;
}

}  // namespace

Signature NodeSource::signature(const Dims& dims) const {
  Signature s;
  for (const model::ValueInfo& v : nodes_.graph.inputs) {
    if (!v.has_default) s.inputs.push_back(info_of(v, dims));
    if (!v.shape) continue;
    for (const model::Dim& d : *v.shape)
      if (!d.param.empty()) s.dims.insert(d.param);
  }
  for (const model::ValueInfo& v : nodes_.graph.outputs) s.outputs.push_back(info_of(v, dims));
  return s;
}

std::unique_ptr<Graph> NodeSource::import(const ImportOptions& options) const { return import_model(nodes_, options); }

QuantizationReport NodeSource::quantize(const CalibrationTable& table, DType type) {
  return quantize_products(nodes_, table, type);
}

void NodeSource::release_weights() {
  for (model::Tensor& t : nodes_.graph.initializers) {
    t.owner.reset();
    t.data = nullptr;
    t.bytes = 0;
    t.unsupported = "its data was released after compiling";
  }
}

std::map<std::string, std::string> NodeSource::metadata() const {
  return {nodes_.metadata.begin(), nodes_.metadata.end()};
}

}  // namespace sardonyx
