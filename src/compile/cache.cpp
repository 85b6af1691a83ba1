// CodeCache over POSIX files.
#include "compile/cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "compile/compiler.h"
#include "compile/hash.h"

namespace sardonyx {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".sdx";
constexpr std::string_view kTemporaryPrefix = "writing-";
constexpr std::time_t kStaleSeconds = 3600;  // an older temporary file belongs to a process that died

/// The beginning of an entry's file; the blob follows.
struct Header {
  char magic[8] = {'S', 'D', 'X', 'C', 'A', 'C', 'H', '1'};
  std::array<std::uint8_t, 32> key{};
  std::array<std::uint8_t, 32> checksum{};
  std::uint64_t size = 0;
  bool operator==(const Header&) const = default;
};
static_assert(sizeof(Header) == 80);

/// LLVM's C implementation of BLAKE3, of which no other part of LLVM is needed.
struct File {
  int fd;
  explicit File(int f) : fd(f) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd >= 0) ::close(fd);
  }
};

bool read_all(int fd, void* to, std::size_t size) {
  auto* p = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t n = ::read(fd, p, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

bool write_all(int fd, const void* from, std::size_t size) {
  auto* p = static_cast<const char*>(from);
  while (size > 0) {
    const ssize_t n = ::write(fd, p, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

struct Entry {
  fs::path path;
  std::uint64_t bytes;
  timespec used;
  bool temporary;
};

/// The cache's own files in `directory`, in no order.
std::vector<Entry> scan(const fs::path& directory) {
  std::vector<Entry> entries;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const bool temporary = name.starts_with(kTemporaryPrefix);
    const bool entry = name.size() == 64 + kSuffix.size() && name.ends_with(kSuffix) &&
                       name.find_first_not_of("0123456789abcdef") == 64;
    struct stat s;
    if ((!temporary && !entry) || ::lstat(it->path().c_str(), &s) != 0 || !S_ISREG(s.st_mode)) continue;
    entries.push_back({it->path(), static_cast<std::uint64_t>(s.st_size), s.st_mtim, temporary});
  }
  return entries;
}

/// Creates `directory` (its parents with default permissions, itself for this user only). Returns why it can't be used,
/// or "".
std::string prepare(const fs::path& directory) {
  std::error_code error;
  if (directory.has_parent_path()) fs::create_directories(directory.parent_path(), error);
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return "can't make the cache directory " + directory.string() + ": " + std::strerror(errno);
  struct stat s;
  if (::stat(directory.c_str(), &s) != 0)
    return "can't use the cache directory " + directory.string() + ": " + std::strerror(errno);
  if (!S_ISDIR(s.st_mode)) return "the cache directory " + directory.string() + " is not a directory";
  if ((s.st_uid != ::geteuid() && s.st_uid != 0) || (s.st_mode & S_IWOTH) != 0)
    return "the cache directory " + directory.string() +
           " belongs to another user or may be written by everybody, so its code can't be trusted; use another "
           "directory";
  return {};
}

}  // namespace

std::string CacheKey::hex() const {
  std::string text;
  for (const std::uint8_t b : bytes) {
    text += "0123456789abcdef"[b >> 4];
    text += "0123456789abcdef"[b & 15];
  }
  return text;
}

CacheKey cache_key(std::span<const std::string_view> parts) { return {hash_of_parts(parts)}; }

CacheKey cache_key(const CompileJob& job) {
  const std::string level = std::to_string(job.options.opt_level),
                    kind = std::to_string(static_cast<int>(job.target.kind)),
                    flags = std::string(job.options.debug_info ? "debug" : "") +
                            (job.options.kernel_language ? "kernel language" : "");
  const std::string counts = std::to_string(job.headers.size()) + " " + std::to_string(job.options.defines.size());
  std::vector<std::string_view> parts = {"code", compiler_version(), kind, job.target.arch, level, flags,
                                         counts, job.source};
  for (const SourceFile& h : job.headers) parts.insert(parts.end(), {h.name, h.text});
  parts.insert(parts.end(), job.options.defines.begin(), job.options.defines.end());
  parts.insert(parts.end(), job.options.extra_cc1.begin(), job.options.extra_cc1.end());
  return cache_key(parts);
}

fs::path default_cache_directory(std::string_view xdg_cache_home, std::string_view home) {
  if (fs::path(xdg_cache_home).is_absolute()) return fs::path(xdg_cache_home) / "sardonyx";
  if (fs::path(home).is_absolute()) return fs::path(home) / ".cache" / "sardonyx";
  return {};
}

CodeCache::CodeCache(CacheOptions options) : options_(std::move(options)), unchecked_bytes_(options_.max_bytes) {
  const std::string reason = options_.directory.empty() ? "no cache directory is given" : prepare(options_.directory);
  enabled_ = reason.empty();
  if (!enabled_) warn(reason);
}

fs::path CodeCache::path_of(const CacheKey& key) const {
  return options_.directory / (key.hex() + std::string(kSuffix));
}

void CodeCache::warn(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (stats_.warning.empty()) stats_.warning = reason;
}

bool CodeCache::contains(const CacheKey& key) const { return enabled_ && ::access(path_of(key).c_str(), R_OK) == 0; }

std::optional<std::string> CodeCache::get(const CacheKey& key) {
  std::optional<std::string> blob;
  bool corrupted = false;
  if (enabled_) {
    const fs::path path = path_of(key);
    const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (file.fd >= 0) {
      struct stat s;
      Header header;
      const auto limit = options_.max_bytes + sizeof header;
      // Compare with the file's size before allocating anything.
      if (::fstat(file.fd, &s) == 0 && S_ISREG(s.st_mode) && static_cast<std::uint64_t>(s.st_size) <= limit &&
          read_all(file.fd, &header, sizeof header) &&
          header.size == static_cast<std::uint64_t>(s.st_size) - sizeof header) {
        blob.emplace(header.size, '\0');
        Header expected;
        expected.key = key.bytes;
        expected.size = header.size;
        if (read_all(file.fd, blob->data(), blob->size())) expected.checksum = hash_of(*blob);
        if (header != expected) blob.reset();
      }
      corrupted = !blob;
      if (corrupted) ::unlink(path.c_str());
      if (blob) ::futimens(file.fd, nullptr);  // marks the use; fails in a read-only directory
    }
  }
  const std::lock_guard lock(mutex_);
  ++(blob ? stats_.hits : stats_.misses);
  stats_.corrupted += corrupted;
  return blob;
}

void CodeCache::put(const CacheKey& key, std::string_view blob) {
  if (!enabled_ || blob.size() > options_.max_bytes) return;
  Header header;
  header.key = key.bytes;
  header.size = blob.size();
  header.checksum = hash_of(blob);
  std::string temporary = (options_.directory / (std::string(kTemporaryPrefix) + "XXXXXX")).string();
  bool written = false;
  int error = 0;
  {
    const File file(::mkostemp(temporary.data(), O_CLOEXEC));
    written = file.fd >= 0 && write_all(file.fd, &header, sizeof header) &&
              write_all(file.fd, blob.data(), blob.size()) && ::rename(temporary.c_str(), path_of(key).c_str()) == 0;
    if (!written) error = errno;
    if (!written && file.fd >= 0) ::unlink(temporary.c_str());
  }
  if (!written)
    return warn("can't write to the cache directory " + options_.directory.string() + ": " + std::strerror(error));
  bool check = false;
  {
    const std::lock_guard lock(mutex_);
    ++stats_.stored;
    unchecked_bytes_ += blob.size() + sizeof header;
    check = unchecked_bytes_ >= options_.max_bytes / 16;
    if (check) unchecked_bytes_ = 0;
  }
  if (check) evict();
}

// A process scans the directory when it is new and then whenever it has written a sixteenth of the bound, and evicts
// down to seven eighths. So the bound may be exceeded temporarily, by a sixteenth per writing process. Two processes
// that evict at the same time choose nearly the same entries, so no lock is needed, which a stopped process could hold
// forever.
void CodeCache::evict() {
  std::vector<Entry> entries = scan(options_.directory);
  std::uint64_t bytes = 0, evicted = 0;
  const std::time_t now = ::time(nullptr);
  for (const Entry& e : entries) {
    if (e.temporary && now - e.used.tv_sec > kStaleSeconds) ::unlink(e.path.c_str());
    bytes += e.temporary ? 0 : e.bytes;
  }
  std::erase_if(entries, [](const Entry& e) { return e.temporary; });
  if (bytes > options_.max_bytes - options_.max_bytes / 16) {
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
    });
    for (const Entry& e : entries) {
      if (bytes <= options_.max_bytes - options_.max_bytes / 8) break;
      const bool deleted = ::unlink(e.path.c_str()) == 0;
      if (!deleted && errno != ENOENT) continue;
      bytes -= e.bytes;
      evicted += deleted;
    }
  }
  const std::lock_guard lock(mutex_);
  stats_.evicted += evicted;
}

void CodeCache::clear() {
  if (!enabled_) return;
  for (const Entry& e : scan(options_.directory))
    if (!e.temporary && ::unlink(e.path.c_str()) != 0 && errno != ENOENT)
      warn("can't delete from the cache directory " + options_.directory.string() + ": " + std::strerror(errno));
}

CacheStats CodeCache::stats() const {
  CacheStats stats;
  {
    const std::lock_guard lock(mutex_);
    stats = stats_;
  }
  if (!enabled_) return stats;
  for (const Entry& e : scan(options_.directory)) {
    if (e.temporary) continue;
    ++stats.entries;
    stats.bytes += e.bytes;
  }
  return stats;
}

}  // namespace sardonyx
