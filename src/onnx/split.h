// Takes large weights out of a serialised model before protobuf reads it, which would copy them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sardonyx::onnx {

struct SplitModel {
  /// The ModelProto without the raw_data that `raw` refers to.
  std::string structure;
  /// For each element of graph.initializer, in order: its raw_data in the original; empty if that is still in
  /// `structure`.
  std::vector<std::span<const std::byte>> raw;
};

/// Raw data below this size stays in `structure`.
inline constexpr std::size_t kSplitBytes = std::size_t{1} << 16;

/// Never throws because of the contents of `model`: what is not valid in protobuf's wire format is copied to
/// `structure`, for protobuf to refuse. Source: protocol buffers' documentation, "Encoding"; field numbers: onnx.proto
/// (graph 7, initializer 5, raw_data 9).
SplitModel split_model(std::span<const std::byte> model);

}  // namespace sardonyx::onnx
