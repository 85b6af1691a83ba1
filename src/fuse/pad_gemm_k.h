// Internal to fuse/: GEMMs whose K is no whole number of vectors, for devices that load operands 16 bytes at a time.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// Pads K with zeros to the next multiple of 16 bytes where a GEMM of 16-bit floats reads both operands as they are in
/// memory (196 tokens that an MLP mixes). The loop that computes an operand writes the zeros itself; other operands are
/// copied, constant ones when the program is loaded, and so is one of whose tensor K takes several dims (attention's
/// heads and their elements). So are operands of any K whose contiguous elements belong to different matrices.
/// Element-wise loads of such an operand take several times as long as the copy: each element is loaded once for every
/// tile of the other operand.
void pad_gemm_k(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
