// From an ONNX model to a graph.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "graph/graph.h"
#include "onnx/model.h"
#include "ops/op.h"
#include "support/error.h"

namespace sardonyx {

struct ImportOptions {
  /// Inputs of the model whose value is known: they become constants (see NeedInput). dims and dtype must fit the
  /// declaration.
  std::map<std::string, onnx::Tensor> values;
  /// Ranks of inputs that the model declares without a shape.
  std::map<std::string, int> ranks;
  /// Dims of inputs, by name, for a program of these very sizes.
  std::map<std::string, std::vector<std::int64_t>> shapes;
  /// Fixed sizes of symbolic dims, by name ("batch" -> 1).
  std::map<std::string, std::int64_t> dims;
  /// Also make every named intermediate value an output (for `verify --bisect`).
  bool all_outputs = false;
};

/// What import_model() throws when a node can't be lowered.
class RefusedNode : public Error {
 public:
  RefusedNode(const Error& e, std::int64_t index) : Error(e), index_(index) {}
  /// onnx::Node::index of the node of the model's own graph that it is, or that holds it in a nested graph.
  std::int64_t index() const { return index_; }

 private:
  std::int64_t index_;
};

/// Lowers a model. Throws Error (kInvalidModel, kUnsupported) naming the node, which is a RefusedNode where one node is
/// the reason, or NeedInput when a variant per input value is needed.
std::unique_ptr<Graph> import_model(const onnx::Model& model, const ImportOptions& options = {});

/// A refused node, for reports.
struct Refusal {
  std::string node, reason;
};
/// Every node of the model that has no lowering at all (by operator name), without lowering anything.
std::vector<Refusal> unsupported_nodes(const onnx::Model& model);

}  // namespace sardonyx
