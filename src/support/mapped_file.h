// Files in memory.
#pragma once
#include <cstddef>
#include <filesystem>

namespace sardonyx {

/// A regular file, mapped read-only for as long as this object lives. Truncating the file meanwhile ends the process
/// with SIGBUS, as with every mapping.
class MappedFile {
 public:
  /// Throws Error(kIo) if `path` is not a readable regular file.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Hint that these bytes will not be needed soon: pages of a MappedFile are dropped, and read again when accessed.
/// Other memory is not changed.
void forget_pages(const void* data, std::size_t size);

}  // namespace sardonyx
