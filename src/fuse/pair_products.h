// Gated layers: act(x . G) * (x . U) becomes one product, of which the columns of G and U lie side by side in pairs, so
// that its epilogue has both (TileKernel::pairs). Weights are put into that order when they are loaded.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// For each loop that reads two products of one left operand with constants at its own position, and is all that reads
/// them; or both halves of the columns of one product.
void pair_products(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
