// Reads ONNX files into model::Model. No protobuf in this header.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "model/bytes.h"
#include "model/model.h"

namespace sardonyx::onnx {

// What this component reads files into.
using model::Attribute;
using model::Dim;
using model::Graph;
using model::GraphPtr;
using model::Model;
using model::Node;
using model::Tensor;
using model::ValueInfo;

struct LoadOptions {
  /// Tensors without data become unsupported ones instead of an error, to inspect graphs whose weights were stripped.
  bool allow_missing_weights = false;
};

/// Reads a model. External data must lie in the model's folder (symbolic links resolved) and is mapped, not read: the
/// file must not be truncated while a Tensor of it lives. Throws Error(kIo) for unreadable files, kInvalidModel for
/// malformed ones, kUnsupported for operator sets outside kMinOpset..kMaxOpset; the message starts with the path.
Model load(const std::filesystem::path& path, const LoadOptions& options = {});

/// The same from memory. With an empty `base_dir` external data is refused.
Model parse(std::span<const std::byte> bytes, const std::filesystem::path& base_dir = {},
            const LoadOptions& options = {});

/// The same, where the external data is in memory: `memory` has it by its locations. Tensors use it without a copy,
/// wherever it has Tensor's layout, and share its owners.
Model parse(std::span<const std::byte> bytes, std::map<std::string, model::Bytes> memory);

/// A serialised TensorProto (.pb test data). External data is refused.
Tensor parse_tensor(std::span<const std::byte> bytes);

/// The serialised TensorProto of a tensor in Tensor's layout, with raw_data (sub-byte types packed).
/// Throws Error(kInvalidArgument) if data does not hold exactly the elements.
std::string serialize_tensor(std::string_view name, DType dtype, std::span<const std::int64_t> dims,
                             std::span<const std::byte> data);

}  // namespace sardonyx::onnx
