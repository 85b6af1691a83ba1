// For devices without 16-bit arithmetic: float16 and bfloat16 values are stored in float32.
#pragma once
#include "graph/graph.h"

namespace sardonyx {

/// Loops, GEMMs, convolutions and attention compute and store 16-bit floats of the model in float32. 16 bits remain
/// where others see the values: inputs, outputs and constants of the graph, routines, nested graphs. Results are
/// rounded less often than in the model, except where it casts to 16 bits itself (kCastRounds).
void widen_halves(Graph& g);

}  // namespace sardonyx
