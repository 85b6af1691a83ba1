// From a list of nodes to a graph.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "import/model_source.h"
#include "model/model.h"
#include "support/error.h"

namespace sardonyx {

/// What import_model() throws when a node can't be lowered.
class RefusedNode : public Error {
 public:
  RefusedNode(const Error& e, std::int64_t index) : Error(e), index_(index) {}
  /// model::Node::index of the node of the model's own graph that it is, or that holds it in a nested graph.
  std::int64_t index() const { return index_; }

 private:
  std::int64_t index_;
};

/// Lowers a model. Throws Error (kInvalidModel, kUnsupported) naming the node, which is a RefusedNode where one node is
/// the reason, or NeedInput when a variant per input value is needed.
std::unique_ptr<Graph> import_model(const model::Model& model, const ImportOptions& options = {});

/// A refused node, for reports.
struct Refusal {
  std::string node, reason;
};
/// Every node of the model that has no lowering at all (by operator name), without lowering anything. `custom`: as
/// ImportOptions::custom.
std::vector<Refusal> unsupported_nodes(const model::Model& model, const CustomOperators* custom = nullptr);

}  // namespace sardonyx
