// Internal to fuse/: 8-bit integer GEMM and convolution as tile kernels.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// The routines integer_matmul and integer_conv become operations on 8-bit tensors with int32 sums, modulo 2^32:
///   sum of (a - za)(b - zb) = sum of a'b' - zb' sum of a' - za' sum of b' + K za' zb'
/// where x' is x, or x -+ 128 where its type has to change: a' is of FuseOptions::integer_left (int8 on GPUs, or uint8
/// if that makes za' 0 and the GPU multiplies it; uint8 on the host, whose instructions multiply unsigned by signed
/// bytes), b' is int8. Sums of b' are computed once when b is constant. Convolutions whose weights have a zero point
/// stay routines.
void lower_integer_gemm(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
