// Tensor data in files beside a model: which files may be opened, and mapping them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "model/bytes.h"
#include "support/dtype.h"
#include "support/mapped_file.h"

namespace sardonyx::onnx {

using model::aligned_zeros;
using model::Bytes;

/// Whether `size` bytes of elements may be used where they are: if they are aligned to 16 bytes, or if they are many
/// and the CPU does not require alignment.
bool is_aligned(const void* data, std::size_t size);

/// The elements in Tensor's layout in a buffer aligned to model::kAlignment, from the file's layout: packed_size()
/// bytes.
Bytes converted_copy(const void* data, DType dtype, std::size_t elements);

/// The files that one model's tensors may refer to.
class ExternalFiles {
 public:
  ExternalFiles() = default;  ///< none: every reference is refused
  /// Files that are in memory, by their locations.
  explicit ExternalFiles(std::map<std::string, Bytes> memory) : memory_(std::move(memory)) {}
  /// Files under any of the folders, which are canonical paths (no symbolic links in them).
  explicit ExternalFiles(std::vector<std::filesystem::path> roots) : roots_(std::move(roots)) {}

  /// The elements that start at `offset` of the file that `location` names relative to the first root, in Tensor's
  /// layout. Mapped where the file has that layout at an address aligned to 16 bytes, else copied. `tensor` is for
  /// messages. Throws Error(kInvalidModel) for a location outside the roots or a range outside the file, kIo for
  /// unreadable files.
  Bytes read(const std::string& location, std::uint64_t offset, DType dtype, std::uint64_t elements,
             const std::string& tensor);

 private:
  struct File {
    std::shared_ptr<const MappedFile> map;
    std::uint64_t copied = 0;  ///< bytes copied so far: overlapping ranges must not multiply a small file
    std::map<std::tuple<std::uint64_t, std::uint64_t, DType>, Bytes> copies;  ///< by (offset, elements, dtype)
  };
  File& open(const std::string& location, const std::string& tensor);

  std::vector<std::filesystem::path> roots_;
  std::map<std::string, Bytes> memory_;
  std::map<std::filesystem::path, File> files_;  ///< by resolved path
  std::map<std::string, File*> by_location_;
};

}  // namespace sardonyx::onnx
