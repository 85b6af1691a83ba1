// GEMM and convolution written as reduction loops: their definition, for devices and types without a tile kernel.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// out[vars] = sum over k of a * b. Accumulates in float32 (int32 for integers, float64 for float64).
LoopOp loop_of_matmul(const MatMulOp& m, DType out);
/// The direct convolution. `inputs`: x, w and, with a bias, the bias; taps outside the image contribute 0.
LoopOp loop_of_conv(const ConvOp& c, const std::vector<Value*>& inputs, const Value* out);
/// Makes loops of the GEMMs and convolutions that options.accepts_tile refuses, with a remark why. With few_threads,
/// GEMMs that it takes with copied operands remain GEMMs.
void lower_refused_tiles(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
