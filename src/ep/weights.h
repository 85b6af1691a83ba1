// Weights are stored once per process: equal weights of several sessions (of one model, or of models with common parts)
// share memory as long as any session uses them.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "model/bytes.h"
#include "model/model.h"
#include "support/mapped_file.h"

namespace sardonyx::ep {

class Weights {
 public:
  /// The object of this process.
  static Weights& instance();

  /// A tensor with a copy of ONNX Runtime's bytes (sub-byte types packed), or with equal bytes that are already stored.
  /// `key` receives a string that identifies the content.
  model::Tensor copy(const std::string& name, DType dtype, std::vector<std::int64_t> dims, const void* data,
                     std::string& key);
  /// A tensor in a file, which is mapped. Throws Error(kIo, kInvalidModel).
  model::Tensor map(const std::string& name, DType dtype, std::vector<std::int64_t> dims,
                    const std::filesystem::path& file, std::uint64_t offset, std::uint64_t bytes, std::string& key);

  /// The number of distinct buffers in use, and their bytes.
  struct Use {
    std::size_t buffers = 0, bytes = 0;
  };
  Use use();

 private:
  struct Held {
    std::weak_ptr<const void> owner;
    const std::byte* data = nullptr;
    std::size_t size = 0;
  };
  model::Bytes find(const std::string& key);
  model::Bytes keep(const std::string& key, model::Bytes bytes);

  std::mutex mutex_;
  std::map<std::string, Held> held_;
  std::map<std::string, std::weak_ptr<const MappedFile>> files_;
};

}  // namespace sardonyx::ep
