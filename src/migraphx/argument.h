// Arguments of MIGraphX's interface: tensors in memory.
#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "migraphx/objects.h"
#include "sardonyx/tensor.h"

namespace sardonyx::mgx {

/// Zeroed host memory of its own. Throws Error(kInvalidArgument) for a dynamic shape.
migraphx_argument zeros(const migraphx_shape& shape);
/// Host memory with pseudo-random elements, those that MIGraphX generates: floats from -1 to 15/16 in steps of 1/16.
migraphx_argument generate(const migraphx_shape& shape, std::uint64_t seed);
/// The elements in row-major order, in host memory: those of the argument itself if it is standard. It must be in host
/// memory. Throws Error(kInvalidArgument) for null data.
Tensor packed(const migraphx_argument& a, const std::string& what);
/// Same shape and same elements; floats of 32 and 64 bits may differ by one in the last place, as in MIGraphX. Throws
/// Error(kUnsupported) for device memory.
bool equal(const migraphx_argument& a, const migraphx_argument& b);
/// As an ONNX TensorProto (.pb). Throws Error(kIo).
void save(const migraphx_argument& a, const std::filesystem::path& path);
/// What save() wrote. Throws Error: kIo, kInvalidModel.
migraphx_argument load_argument(const std::filesystem::path& path);

}  // namespace sardonyx::mgx
