#include "support/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

#include "support/error.h"
#include "support/text.h"

namespace sardonyx {
namespace {

// Files that are mapped now: begin and end addresses.
struct Mappings {
  std::mutex mutex;
  std::map<std::uintptr_t, std::uintptr_t> ends;
};

Mappings& mappings() {
  static Mappings all;
  return all;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe must not wait for a writer before fstat can refuse it.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail(ErrorKind::kIo, "can't open {}: {}", quote(path.native()), std::strerror(errno));
  struct stat info{};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    fail(ErrorKind::kIo, "{} is not a regular file", quote(path.native()));
  }
  size_ = static_cast<std::size_t>(info.st_size);
  if (size_ > 0) {
    void* p = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    const int error = errno;
    ::close(fd);
    if (p == MAP_FAILED) fail(ErrorKind::kIo, "can't map {}: {}", quote(path.native()), std::strerror(error));
    data_ = static_cast<const std::byte*>(p);
    const std::lock_guard lock(mappings().mutex);
    mappings().ends[reinterpret_cast<std::uintptr_t>(p)] = reinterpret_cast<std::uintptr_t>(p) + size_;
  } else {
    ::close(fd);
  }
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  const std::lock_guard lock(mappings().mutex);
  mappings().ends.erase(reinterpret_cast<std::uintptr_t>(data_));
  ::munmap(const_cast<std::byte*>(data_), size_);
}

void forget_pages(const void* data, std::size_t size) {
  const std::lock_guard lock(mappings().mutex);
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  const auto after = mappings().ends.upper_bound(begin);
  if (after == mappings().ends.begin() || begin + size > std::prev(after)->second) return;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = (begin + page - 1) / page * page, last = (begin + size) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace sardonyx
