#include "formats/open.h"

#include "import/node_source.h"
#include "onnx/load.h"

namespace sardonyx {

std::unique_ptr<ModelSource> open_model(const std::filesystem::path& path, const OpenOptions& options) {
  return std::make_unique<NodeSource>(onnx::load(path, {.allow_missing_weights = options.allow_missing_weights}));
}

std::unique_ptr<ModelSource> parse_model(std::span<const std::byte> bytes, const std::filesystem::path& folder) {
  return std::make_unique<NodeSource>(onnx::parse(bytes, folder));
}

}  // namespace sardonyx
