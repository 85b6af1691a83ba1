// A ModelSource for models that are lists of nodes: all that a front end for such a format needs.
#pragma once
#include "import/model_source.h"
#include "model/model.h"

namespace sardonyx {

class NodeSource : public ModelSource {
 public:
  explicit NodeSource(model::Model nodes) : nodes_(std::move(nodes)) {}
  Signature signature(const std::map<std::string, std::int64_t>& dims) const override;
  std::unique_ptr<Graph> import(const ImportOptions& options) const override;
  QuantizationReport quantize(const CalibrationTable& table, DType type) override;
  void release_weights() override;
  std::map<std::string, std::string> metadata() const override;
  const model::Model* nodes() const override { return &nodes_; }

 private:
  model::Model nodes_;
};

}  // namespace sardonyx
