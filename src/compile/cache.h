// A content-addressed cache of blobs on disk: compiled code, and other results that are expensive and a pure function
// of a key.
//
// One directory, one file per entry. A file contains its own key and a checksum, is written under a temporary name and
// renamed, and is verified whenever it is read. So any number of processes may share a directory, and a damaged entry
// costs one recomputation. When the entries exceed the bound, the least recently used are deleted. Errors of the file
// system never throw: if a directory can't be used, nothing is cached, and stats() says why.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sardonyx {

struct CompileJob;

/// A BLAKE3 hash.
struct CacheKey {
  std::array<std::uint8_t, 32> bytes{};
  std::string hex() const;
  bool operator==(const CacheKey&) const = default;
};

/// Hashes `parts` with their lengths, so that {"ab", "c"} and {"a", "bc"} differ. The first part should be a tag that
/// is unique to the kind of blob.
CacheKey cache_key(std::span<const std::string_view> parts);
/// Key of one compilation: source, headers, target, options and compiler version.
CacheKey cache_key(const CompileJob& job);

struct CacheOptions {
  /// Created if missing, with its parents, for this user only. Empty: no caching. Because cached code is executed, a
  /// directory that belongs to another user (except root) or is writable by everybody is refused.
  std::filesystem::path directory;
  std::uint64_t max_bytes = std::uint64_t{1} << 30;  ///< bound on all entries together
};

/// `xdg_cache_home`/sardonyx, or `home`/.cache/sardonyx when the former is empty or not absolute; empty when both are.
/// Pass the environment's XDG_CACHE_HOME and HOME.
std::filesystem::path default_cache_directory(std::string_view xdg_cache_home, std::string_view home);

/// Statistics of this object, and the directory's current contents.
struct CacheStats {
  std::uint64_t hits = 0, misses = 0, stored = 0, evicted = 0;
  std::uint64_t corrupted = 0;  ///< damaged entries, which were deleted; each also counts as a miss
  std::uint64_t entries = 0, bytes = 0;
  std::string warning;  ///< why caching is off or incomplete (the first reason); empty if all is well
};

/// Thread-safe.
class CodeCache {
 public:
  explicit CodeCache(CacheOptions options);

  /// The blob stored under `key`, if it exists and is intact.
  std::optional<std::string> get(const CacheKey& key);
  /// Whether there is an entry for `key`; it may be damaged. Not counted as a hit or a miss.
  bool contains(const CacheKey& key) const;
  /// Stores `blob` under `key`. A blob larger than the bound is not stored.
  void put(const CacheKey& key, std::string_view blob);
  /// Deletes all entries; other files in the directory stay.
  void clear();
  CacheStats stats() const;

 private:
  std::filesystem::path path_of(const CacheKey& key) const;
  void warn(const std::string& reason);
  void evict();

  const CacheOptions options_;
  bool enabled_ = false;
  mutable std::mutex mutex_;  // guards what follows
  CacheStats stats_;
  std::uint64_t unchecked_bytes_;  // written since the last scan of the directory
};

}  // namespace sardonyx
