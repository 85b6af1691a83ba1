// Files for interfaces that take a path.
#pragma once
#include <filesystem>
#include <string_view>

namespace sardonyx::mgx {

/// A file in memory.
class MemoryFile {
 public:
  /// Throws Error(kIo).
  explicit MemoryFile(std::string_view bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  /// Valid in this process while the object lives.
  std::filesystem::path path() const;

 private:
  int fd_;
};

/// A new folder that only this user can open, deleted with its contents when the object dies.
class TemporaryFolder {
 public:
  /// Throws Error(kIo).
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace sardonyx::mgx
