// Convolutions and transposed convolutions of known sizes, with a fused epilogue.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "epilogue/post_op.h"
#include "host/tile_kernel.h"

namespace sardonyx::host {

/// How input and output are stored. Channels last is as fast as oneDNN's own blocked layouts. Channels first takes 1.3
/// to 2 times as long, depthwise 5 times.
enum class ImageLayout : std::uint8_t {
  kChannelsLast,   ///< [N, spatial..., C]
  kChannelsFirst,  ///< [N, C, spatial...], ONNX's
};

/// ONNX's Conv and ConvTranspose. Only the first `spatial` values of arrays are used. Weights are stored as in ONNX:
/// [out_channels, in_channels / groups, kernel...], transposed: [in_channels, out_channels / groups, kernel...].
struct ConvDesc {
  int spatial = 2;  ///< 1, 2 or 3
  std::int64_t batch = 1, in_channels = 0, out_channels = 0, groups = 1;
  using Extents = std::array<std::int64_t, 3>;
  Extents in{}, out{}, kernel{};
  Extents stride{1, 1, 1}, dilation{1, 1, 1};
  Extents pad_begin{}, pad_end{};  ///< non-negative. For a transposed convolution `out` includes ONNX's output_padding
  bool transposed = false;
  ImageLayout layout = ImageLayout::kChannelsLast;
  DType src = DType::kFloat32;  ///< float32, float16 or bfloat16; also that of weights and dst; sums are float32
  DType weights = DType::kFloat32;
  DType dst = DType::kFloat32;
  bool bias = false;
  std::vector<PostOp> post;      ///< operands' dims are of rank spatial + 2, in dst's axis order
  bool weights_constant = true;  ///< weights are passed packed (TileArgs::packed)
  int threads = 1;
  bool exact = false;  ///< no transformed operands (Winograd), whose sums are rounded where direct ones would not be
};

/// As find_gemm().
std::shared_ptr<const TileKernel> find_convolution(const ConvDesc& desc, std::string& why);

}  // namespace sardonyx::host
