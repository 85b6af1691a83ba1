// GEMMs that a vendor's library (vendor/product_library.h) can compute as well as our own kernels.
#pragma once
#include "fuse/schedule.h"
#include "lower/program_builder.h"

namespace sardonyx {

/// Adds to `step`, which computes `tile`, the library's form of the product, if there is one and it is to be timed or
/// was measured to be faster for some sizes.
void add_library(ProgramBuilder& builder, const TileKernel& tile, ChoiceStep& step);

}  // namespace sardonyx
