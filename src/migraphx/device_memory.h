// Device memory for arguments, on the device of the target "gpu".
#pragma once
#include "migraphx/objects.h"

namespace sardonyx::mgx {

/// An argument in the memory of the target "gpu", or for `pinned` in host memory that the device can access. Where that
/// target is the host, it is host memory. Throws Error(kDevice).
migraphx_argument allocate_on_gpu(const migraphx_shape& shape, bool pinned);
/// Copies; done when they return. to_gpu() throws Error(kInvalidArgument) for what is in device memory already,
/// from_gpu() for what is not.
migraphx_argument to_gpu(const migraphx_argument& a, bool pinned);
migraphx_argument from_gpu(const migraphx_argument& a);
/// Waits for all work of the device.
void synchronize_gpu();

}  // namespace sardonyx::mgx
