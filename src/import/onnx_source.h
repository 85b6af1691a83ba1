// An ONNX model as a source of graphs.
#pragma once
#include "import/model_source.h"
#include "onnx/model.h"

namespace sardonyx {

class OnnxSource : public ModelSource {
 public:
  explicit OnnxSource(onnx::Model model) : model_(std::move(model)) {}
  Signature signature(const std::map<std::string, std::int64_t>& dims) const override;
  std::unique_ptr<Graph> import(const ImportOptions& options) const override;
  QuantizationReport quantize(const CalibrationTable& table, DType type) override;
  void release_weights() override;
  std::map<std::string, std::string> metadata() const override;
  const onnx::Model& model() const { return model_; }

 private:
  onnx::Model model_;
};

/// The ONNX model of a source. Throws Error(kUnsupported) for null (a compiled program) and for other formats.
const onnx::Model& onnx_model(const ModelSource* source);

}  // namespace sardonyx
