// Inputs and operators of a graph, as a front end declares them.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "import/model_source.h"
#include "model/model.h"
#include "ops/op.h"

namespace sardonyx {

/// Adds an input to the graph, with the dims that `options` fix; a constant if they give its value. Throws NeedInput if
/// neither the declaration nor the options give its rank, Error(kUnsupported, kInvalidModel) for anything but a tensor
/// with an element type.
Value* add_input(Graph& graph, const model::ValueInfo& declared, const ImportOptions& options);

/// The node's operator, which may be one of `custom` (null: none). Throws Error(kUnsupported) for an unknown one, or
/// for a version that is too old.
const OpDef& operator_of(const model::Node& node, const CustomOperators* custom);

/// Sequences among a node's inputs and outputs, by their number.
struct NodeSequences {
  std::map<int, Sequence> inputs, outputs;
};

/// Appends a node's operator to the graph. `inputs`: in the operator's order, null where omitted and where `sequences`
/// has a sequence. The result has a value for each of node.outputs, null where it is "" or a sequence, which
/// `sequences` gets. `lowerer` lowers the graphs in the node's attributes. Throws Error naming the node, kInvalidModel
/// for inputs or attributes that do not fit, kUnsupported; and NeedInput.
std::vector<Value*> lower_node(const OpDef& op, const model::Node& node, Graph& graph, std::vector<Value*> inputs,
                               GraphLowerer& lowerer, NodeSequences& sequences);

/// Makes results of operators outputs of the graph too, under their names: see ImportOptions::all_outputs.
void add_all_outputs(Graph& graph, const std::map<std::string, Value*>& values);

}  // namespace sardonyx
