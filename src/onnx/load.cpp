// load() and parse(): bytes to ModelProto, with protobuf's limits, then to Model.
#include <google/protobuf/io/coded_stream.h>

#include "onnx/external_data.h"
#include "onnx/model.h"
#include "onnx/proto.h"
#include "onnx/reader.h"
#include "onnx/text.h"
#include "support/error.h"

namespace sardonyx::onnx {
namespace fs = std::filesystem;
namespace {

// Protobuf messages nest through graphs in attributes: four levels for each nested graph, three for its node's own.
constexpr int kMaxMessageDepth = 100;

Model parse_with(std::span<const std::byte> bytes, ExternalFiles files, const LoadOptions& options) {
  if (bytes.empty()) fail(ErrorKind::kInvalidModel, "the model is empty");
  if (bytes.size() > INT32_MAX)
    fail(ErrorKind::kUnsupported,
         "the model has {} bytes; protobuf files end at 2 GiB: save its weights as external data", bytes.size());
  // The stream knows its end, so that a length which goes beyond it is an error before anything is allocated for it.
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                                static_cast<int>(bytes.size()));
  stream.SetRecursionLimit(kMaxMessageDepth);
  pb::ModelProto proto;
  if (!proto.ParsePartialFromCodedStream(&stream) || !stream.ConsumedEntireMessage())
    fail(ErrorKind::kInvalidModel, "not an ONNX model, or truncated: it can't be read as protobuf");
  return ModelReader(proto, TensorReader(std::move(files), options), bytes.size()).read();
}

fs::path canonical_folder(const fs::path& folder) {
  std::error_code error;
  fs::path path = fs::canonical(folder.empty() ? "." : folder, error);
  if (error) fail(ErrorKind::kIo, "can't open the folder {}: {}", quote(folder.native()), error.message());
  return path;
}

}  // namespace

Model load(const fs::path& path, const LoadOptions& options) {
  try {
    const MappedFile file(path);
    std::vector<fs::path> roots{canonical_folder(path.parent_path())};
    // Download caches keep a folder of links to one of files: what lies beside the model's real file is the model's
    // too.
    if (fs::path real = fs::canonical(path).parent_path(); real != roots.front()) roots.push_back(std::move(real));
    return parse_with({file.data(), file.size()}, ExternalFiles(std::move(roots)), options);
  } catch (const Error& e) {
    throw Error(e.kind(), path.string() + ": " + e.what());
  } catch (const fs::filesystem_error& e) {
    throw Error(ErrorKind::kIo, path.string() + ": " + e.what());
  }
}

Model parse(std::span<const std::byte> bytes, const fs::path& base_dir, const LoadOptions& options) {
  return parse_with(bytes, base_dir.empty() ? ExternalFiles() : ExternalFiles({canonical_folder(base_dir)}), options);
}

}  // namespace sardonyx::onnx
