// Internal to fuse/: 8-bit integer GEMM and convolution, for devices with matrix instructions for them.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// The routines integer_matmul and integer_conv (which the host has kernels for) become operations on int8 tensors:
///   sum of (a - za)(b - zb) = sum of a'b' - zb' sum of a' - za' sum of b' + K za' zb'
/// where x' = x for int8 and x - 128 for uint8. Sums of b' are computed once when b is constant. Convolutions whose
/// weights have a zero point stay as they are.
void lower_integer_products(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
