// Opens model files of every format that there is a front end for: ONNX (onnx/) and TensorFlow Lite (tflite/). What
// the bytes say decides, not the file's name.
#pragma once
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "import/model_source.h"
#include "model/bytes.h"

namespace sardonyx {

struct OpenOptions {
  /// Weights that the file does not have are no error until the model is imported: to look at graphs without weights.
  bool allow_missing_weights = false;
};

/// Throws Error, with the path before the message: kIo for unreadable files, kInvalidModel for malformed ones,
/// kUnsupported.
std::unique_ptr<ModelSource> open_model(const std::filesystem::path& path, const OpenOptions& options = {});

/// The same for a file's bytes. `folder`: where files that they refer to lie; empty: they may refer to none.
std::unique_ptr<ModelSource> parse_model(std::span<const std::byte> bytes, const std::filesystem::path& folder = {});

/// The same for an ONNX file's bytes whose external data is in memory: onnx/load.h.
std::unique_ptr<ModelSource> parse_model(std::span<const std::byte> bytes, std::map<std::string, model::Bytes> memory);

}  // namespace sardonyx
