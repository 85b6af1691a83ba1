// Entry points of the kernels that users wrote (kernels/custom.h).
#pragma once
#include <vector>

#include "graph/graph.h"
#include "program/kernel_spec.h"

namespace sardonyx::codegen {

struct CustomKernelSource {
  KernelSpec kernel;
  std::vector<int> tensors;  ///< indices into the node's inputs, then outputs: the kernel's buffers
};

/// The entry point of a launch of a routine with these params. Its arguments on a GPU: the tensors, and the params
/// after the launch's sizes as 64-bit numbers. On the host: those of a generated loop, whose work items are blocks; the
/// numbers begin with the sizes of the grid and of a block and the bytes of shared memory.
CustomKernelSource custom_kernel(const CustomLaunch& launch, const Exprs& params, bool gpu);

}  // namespace sardonyx::codegen
