// Products of which one row is used.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// A product whose users all read the same row of it (the logits of the last token) computes that row only.
void trim_rows(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
