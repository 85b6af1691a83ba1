// Internal to fuse/: reductions over windows of several dims, one dim at a time.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// Reduces large windows (pooling) along one dim after the other: a window of 13 x 13 then has 26 terms instead of 169.
/// The first loop reduces along the last dim of the window, for all positions of the other dims. Extremes are stored in
/// the image's type, which is exact; sums in that of the reduction. FuseOptions::separate_windows says how many terms a
/// window has at least.
void separate_windows(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
