// Loops with a fixed number of iterations, as MIGraphX compiles them.
#pragma once
#include "migraphx/objects.h"
#include "model/model.h"

namespace sardonyx::mgx {

/// Gives each Loop of the main graph a largest number of iterations: the model's if that is a constant, otherwise the
/// options' default; at most the options' limit. What iterations produce is stacked to that length, with zeros for
/// those that did not happen. Does nothing unless the options were set.
void bound_loops(model::Model& m, const migraphx_onnx_options& options);

}  // namespace sardonyx::mgx
