// Internal to fuse/: attention whose result is quantised in the order in which a model goes on with it.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// A loop that transposes attention's result and computes bytes of each element (QuantizeLinear) is divided: the
/// bytes are computed in attention's own order, which its epilogue can do, and a loop that only moves them follows.
/// Attention then stores them in that loop's order (fuse/layouts.h).
void quantize_attention(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
