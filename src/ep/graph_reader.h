// Conversion of ONNX Runtime's graphs to the library's models.
#pragma once
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ep/ort.h"
#include "model/model.h"

namespace sardonyx::ep {

/// The DType of an ONNX element type. Throws Error(kUnsupported), naming `what`, for strings and unknown types.
DType dtype_of(ONNXTensorElementDataType type, const std::string& what);
/// The inverse.
ONNXTensorElementDataType onnx_type(DType dtype);

/// A group of nodes as a model: its inputs are the values that the nodes read from outside, its initializers the
/// constants.
struct GroupModel {
  model::Model model;
  std::string key;  ///< identifies the model and its weights
};

/// Reads nodes of one graph. All functions throw Error for what is unsupported.
class GraphReader {
 public:
  /// `graph`: has the operator sets and initializers of the nodes.
  GraphReader(const Ort& ort, const OrtGraph* graph);

  /// The model of `nodes`, which are in topological order. `outputs`: its outputs. A node has the same index in
  /// the model as in `nodes`.
  GroupModel group(std::span<const OrtNode* const> nodes, std::span<const OrtValueInfo* const> outputs);
  /// Dtype and shape. Throws Error(kUnsupported) for anything but a tensor of a supported type.
  model::ValueInfo value(const OrtValueInfo* v);
  std::int64_t opset(const std::string& domain) const;

 private:
  model::Node node(const OrtNode* n, int depth);
  void attributes(const OrtNode* n, model::Node& out);
  model::GraphPtr nested(const OrtGraph* g, int depth);
  model::Tensor tensor(const OrtValue* v, const std::string& name);
  model::Tensor initializer(const OrtValueInfo* v);
  void note_weight(const model::Tensor& t);

  const Ort& ort_;
  const OrtGraph* graph_;
  std::map<std::string, std::int64_t, std::less<>> opsets_;
  std::string key_;      ///< key of the tensor that was read last
  std::string weights_;  ///< keys of a group's weights
  std::map<std::string, std::pair<model::Tensor, std::string>>
      constants_;  ///< by name, with their keys; each is read once
};

/// "node 'conv1' (Conv)", or with its output's name if it has no name.
std::string describe(const Ort& ort, const OrtNode* n);

}  // namespace sardonyx::ep
