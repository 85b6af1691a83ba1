// Internal to fuse/: a model in float32 that keeps its weights and activations in 16 bits.
#pragma once
#include "graph/graph.h"

namespace sardonyx {

/// Operands of matrix products, convolutions and attention become float16 or bfloat16 (`type`), as do their results and
/// what is computed from these element by element or over small windows. Arithmetic and sums stay in float32; so do the
/// model's inputs and outputs, long reductions (statistics of softmax and normalisation) and whatever routines and
/// control flow read. Values beyond float16's range are kept at its ends, so that masks of -1e38 stay finite.
void narrow_floats(Graph& g, DType type);

}  // namespace sardonyx
