// Internal to fuse/: float32 models with weights and activations stored in 16 bits.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// Operands and results of GEMMs, convolutions and attention become float16 or bfloat16 (options.precision), as does
/// what is computed from them, or from sums of 8-bit products, element-wise or over small windows. Arithmetic and sums
/// stay in float32. So do the model's inputs and outputs, long reductions (statistics of softmax and normalisation),
/// their logarithms (log-softmax and log-sum-exp), and what routines and control flow read. Values beyond float16's
/// range are clamped to it, so that masks of -1e38 stay finite.
///
/// Values whose calibrated range (options.ranges) reaches beyond half of float16's range stay float32, with the GEMMs,
/// convolutions and attention that read them; so do values without a range that are computed from these, and GEMMs
/// whose weights leave the range. A remark says which results stay float32 and why.
void narrow_floats(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
