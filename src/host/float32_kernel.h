// Implements a kernel on half types with one on float32, for CPUs whose half kernels are missing or slow.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "host/tile_kernel.h"
#include "support/dtype.h"

namespace sardonyx::host {

/// A tensor of a kernel: its type and number of elements.
struct TensorSize {
  DType type;
  std::int64_t count;
};

struct Float32KernelDesc {
  TensorSize src, weights, out;
  std::vector<TensorSize> operands;
  bool weights_constant;
  int threads;
};

/// Converts inputs that are not float32 into scratch, runs `inner` there and rounds its result once. Constant weights
/// are stored in float32.
std::shared_ptr<const TileKernel> make_float32_kernel(std::shared_ptr<const TileKernel> inner, Float32KernelDesc desc);

}  // namespace sardonyx::host
