#include "formats/open.h"

#include <utility>

#include "import/node_source.h"
#include "onnx/load.h"
#include "support/error.h"
#include "support/mapped_file.h"
#include "tflite/load.h"

namespace sardonyx {

namespace {

/// What the file itself says; false for files that cannot be read, whose front end then says why.
bool is_tflite_file(const std::filesystem::path& path) {
  try {
    const MappedFile file(path);
    return tflite::is_tflite({file.data(), file.size()});
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::unique_ptr<ModelSource> open_model(const std::filesystem::path& path, const OpenOptions& options) {
  if (is_tflite_file(path)) return std::make_unique<NodeSource>(tflite::load(path));
  return std::make_unique<NodeSource>(onnx::load(path, {.allow_missing_weights = options.allow_missing_weights}));
}

std::unique_ptr<ModelSource> parse_model(std::span<const std::byte> bytes, const std::filesystem::path& folder) {
  if (tflite::is_tflite(bytes)) return std::make_unique<NodeSource>(tflite::parse(bytes));
  return std::make_unique<NodeSource>(onnx::parse(bytes, folder));
}

std::unique_ptr<ModelSource> parse_model(std::span<const std::byte> bytes, std::map<std::string, model::Bytes> memory) {
  return std::make_unique<NodeSource>(onnx::parse(bytes, std::move(memory)));
}

}  // namespace sardonyx
