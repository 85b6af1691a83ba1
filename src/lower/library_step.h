// What of a product a vendor's library (vendor/product_library.h) can do as well as our own kernels.
#pragma once
#include <functional>

#include "codegen/tile_codegen.h"
#include "lower/build.h"

namespace sardonyx {

/// What building a program lends.
struct LibraryBuilder {
  const BuildOptions& options;
  Program& program;
  std::function<int(Value*)> buffer;  ///< the number of the buffer that holds a value
};

/// Gives `step`, which `source` was made for, the library's form of the product, if it has one that is to be timed or
/// was measured to be faster.
void add_library(const LibraryBuilder& builder, const TileKernel& tile, const codegen::GpuTileSource& source,
                 TileLaunchStep& step);

}  // namespace sardonyx
