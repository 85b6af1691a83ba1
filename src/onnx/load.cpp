// load() and parse(): bytes to ModelProto, with protobuf's limits, then to Model.
#include "onnx/load.h"

#include <google/protobuf/io/coded_stream.h>

#include "onnx/external_data.h"
#include "onnx/proto.h"
#include "onnx/reader.h"
#include "onnx/split.h"
#include "onnx/text.h"
#include "support/error.h"

namespace sardonyx::onnx {
namespace fs = std::filesystem;
namespace {

// Protobuf messages nest through graphs in attributes: four levels for each nested graph, three for its node's own.
constexpr int kMaxMessageDepth = 100;

/// `file`: the mapping that contains `bytes`, if large weights may stay in it.
Model parse_with(std::span<const std::byte> bytes, const std::shared_ptr<const MappedFile>& file, ExternalFiles files,
                 const LoadOptions& options) {
  if (bytes.empty()) fail(ErrorKind::kInvalidModel, "the model is empty");
  if (bytes.size() > INT32_MAX)
    fail(ErrorKind::kUnsupported,
         "the model has {} bytes; protobuf files end at 2 GiB: save its weights as external data", bytes.size());
  SplitModel split;
  const std::size_t size = bytes.size();
  if (file) {
    split = split_model(bytes);
    bytes = std::as_bytes(std::span(split.structure));
  }
  // The stream knows its end, so a length beyond it is an error before anything is allocated.
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                                static_cast<int>(bytes.size()));
  stream.SetRecursionLimit(kMaxMessageDepth);
  pb::ModelProto proto;
  if (!proto.ParsePartialFromCodedStream(&stream) || !stream.ConsumedEntireMessage())
    fail(ErrorKind::kInvalidModel, "not an ONNX model, or truncated: it can't be read as protobuf");
  TensorReader tensors(std::move(files), options);
  if (static_cast<std::size_t>(proto.graph().initializer_size()) == split.raw.size())
    for (std::size_t k = 0; k < split.raw.size(); ++k)
      if (!split.raw[k].empty())
        tensors.add_raw(proto.graph().initializer(static_cast<int>(k)),
                        {file, split.raw[k].data(), split.raw[k].size()});
  return ModelReader(proto, std::move(tensors), size).read();
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
    const auto file = std::make_shared<const MappedFile>(path);
    std::vector<fs::path> roots{canonical_folder(path.parent_path())};
    // Download caches keep a directory of links to files elsewhere: files next to the real file belong to the model
    // too.
    if (fs::path real = fs::canonical(path).parent_path(); real != roots.front()) roots.push_back(std::move(real));
    return parse_with({file->data(), file->size()}, file, ExternalFiles(std::move(roots)), options);
  } catch (const Error& e) {
    throw Error(e.kind(), path.string() + ": " + e.what());
  } catch (const fs::filesystem_error& e) {
    throw Error(ErrorKind::kIo, path.string() + ": " + e.what());
  }
}

Model parse(std::span<const std::byte> bytes, const fs::path& base_dir, const LoadOptions& options) {
  return parse_with(bytes, nullptr, base_dir.empty() ? ExternalFiles() : ExternalFiles({canonical_folder(base_dir)}),
                    options);
}

Model parse(std::span<const std::byte> bytes, std::map<std::string, model::Bytes> memory) {
  return parse_with(bytes, nullptr, ExternalFiles(std::move(memory)), {});
}

}  // namespace sardonyx::onnx
