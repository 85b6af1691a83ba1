#include "import/node_source.h"

#include "import/import.h"
#include "import/quantize.h"

namespace sardonyx {

Signature NodeSource::signature(const std::map<std::string, std::int64_t>& dims) const {
  std::vector<model::ValueInfo> inputs;
  for (const model::ValueInfo& v : nodes_.graph.inputs)
    if (!v.has_default) inputs.push_back(v);
  return declared_signature(inputs, nodes_.graph.outputs, dims);
}

std::unique_ptr<Graph> NodeSource::import(const ImportOptions& options) const { return import_model(nodes_, options); }

QuantizationReport NodeSource::quantize(const CalibrationTable& table, DType type) {
  return quantize_layers(nodes_, table, type);
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
