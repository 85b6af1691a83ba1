// GEMMs that a vendor's library (vendor/gemm_library.h) can compute as well as our own kernels.
#pragma once
#include "fuse/schedule.h"
#include "lower/program_builder.h"

namespace sardonyx {

/// Adds the vendor's library to `step`, which computes `tile`, as further candidates, if the library supports the GEMM
/// and is to be timed or was measured to be faster for some sizes.
void add_library(ProgramBuilder& builder, const TileKernel& tile, ChoiceStep& step);

}  // namespace sardonyx
