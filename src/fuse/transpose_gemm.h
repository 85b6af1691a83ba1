// Internal to fuse/: GEMMs whose result is only read transposed.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// Swaps the operands of a GEMM, (A B)^T = B^T A^T, where a loop reads its result transposed, together with another
/// tensor that it reads in order (an MLP over tokens: x + gamma (x^T w + bias)^T). The loop then becomes the GEMM's
/// epilogue, and reads and writes contiguous memory. Element-wise loops in between follow. Other transposing loops are
/// left to untranspose, which gives them the GEMM's order instead. A remark says which GEMMs are too narrow.
void transpose_gemm(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
