// The element types that ONNX's own definition allows, checked before an operator is lowered.
#pragma once
#include <vector>

#include "graph/graph.h"
#include "model/model.h"

namespace sardonyx {

/// Throws Error(kInvalidModel), naming the node, for an input whose dtype its operator does not take, or for inputs of
/// different dtypes that must have the same. Inputs are in the node's order, null where absent. Operators of other
/// domains than ONNX's are not checked.
void check_types(const model::Node& node, const std::vector<Value*>& inputs);

}  // namespace sardonyx
