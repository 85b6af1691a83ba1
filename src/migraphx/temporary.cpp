#include "migraphx/temporary.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "support/error.h"

namespace sardonyx::mgx {

MemoryFile::MemoryFile(std::string_view bytes) : fd_(::memfd_create("sardonyx", MFD_CLOEXEC)) {
  if (fd_ < 0) fail(ErrorKind::kIo, "a file in memory can't be created: {}", std::strerror(errno));
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int code = errno;
      ::close(fd_);
      fail(ErrorKind::kIo, "a file in memory can't be written: {}", std::strerror(code));
    }
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

MemoryFile::~MemoryFile() { ::close(fd_); }

std::filesystem::path MemoryFile::path() const { return fmt::format("/proc/self/fd/{}", fd_); }

TemporaryFolder::TemporaryFolder() {
  std::error_code error;
  std::string name = (std::filesystem::temp_directory_path(error) / "sardonyx-XXXXXX").string();
  if (error || ::mkdtemp(name.data()) == nullptr)
    fail(ErrorKind::kIo, "a temporary folder can't be created: {}", error ? error.message() : std::strerror(errno));
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace sardonyx::mgx
