// ONNX Runtime's graphs to the library's models.
#pragma once
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ep/ort.h"
#include "onnx/model.h"

namespace sardonyx::ep {

/// ONNX's number of an element type as a DType. Throws Error(kUnsupported), naming `what`, for strings and types that
/// we do not know.
DType dtype_of(ONNXTensorElementDataType type, const std::string& what);
/// The inverse.
ONNXTensorElementDataType onnx_type(DType dtype);

/// A group of nodes as a model: its inputs are what the nodes read from elsewhere, its initializers the constants.
struct GroupModel {
  onnx::Model model;
  std::string key;  ///< text that differs whenever the model or its weights do
};

/// Reads nodes of one graph. All functions throw Error with what is unsupported.
class GraphReader {
 public:
  /// `graph`: whose operator sets and initializers nodes refer to.
  GraphReader(const Ort& ort, const OrtGraph* graph);

  /// The model of `nodes`, which are in topological order. `outputs`: values that it must give. A node's index in the
  /// model is its place in `nodes`.
  GroupModel group(std::span<const OrtNode* const> nodes, std::span<const OrtValueInfo* const> outputs);
  /// Dtype and shape. Throws Error(kUnsupported) for anything but a tensor of a type that we know.
  onnx::ValueInfo value(const OrtValueInfo* v);
  std::int64_t opset(const std::string& domain) const;

 private:
  onnx::Node node(const OrtNode* n, int depth);
  void attributes(const OrtNode* n, onnx::Node& out);
  onnx::GraphPtr nested(const OrtGraph* g, int depth);
  onnx::Tensor tensor(const OrtValue* v, const std::string& name);
  onnx::Tensor initializer(const OrtValueInfo* v);
  void note_weight(const onnx::Tensor& t);

  const Ort& ort_;
  const OrtGraph* graph_;
  std::map<std::string, std::int64_t, std::less<>> opsets_;
  std::string key_;                                                        ///< of the tensor read last
  std::string weights_;                                                    ///< keys of a group's weights
  std::map<std::string, std::pair<onnx::Tensor, std::string>> constants_;  ///< by name: read once, with their keys
};

/// "node 'conv1' (Conv)", or with its output's name where it has no name.
std::string describe(const Ort& ort, const OrtNode* n);

}  // namespace sardonyx::ep
