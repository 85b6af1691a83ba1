// For devices without 16-bit arithmetic: float16 and bfloat16 values are kept in float32.
#pragma once
#include "graph/graph.h"

namespace sardonyx {

/// What loops, products, convolutions and attention compute in 16-bit floats they compute in float32 instead, and pass
/// on so. 16 bits remain where others see them: inputs, outputs and constants of the graph, routines, nested graphs.
/// Results are then rounded less often than the model says, except where it casts to 16 bits itself (kCastRounds): that
/// stays.
void widen_halves(Graph& g);

}  // namespace sardonyx
