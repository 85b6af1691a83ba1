// A best-fit arena: device memory is allocated in large chunks and handed out in small pieces, so that repeated runs do
// not allocate from the device. Adjacent free pieces of a chunk are merged.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "sardonyx/memory_budget.h"

namespace sardonyx::ep {

struct ArenaOptions {
  std::size_t limit = 0;                 ///< bytes that may be allocated from the device; 0: no limit
  std::shared_ptr<MemoryBudget> budget;  ///< shared budget, if others count against the limit too
  bool same_as_requested = false;        ///< chunks of the size asked for, instead of powers of two
};

struct ArenaStats {
  std::size_t limit = 0, in_use = 0, max_in_use = 0, total = 0, largest = 0;
  std::uint64_t allocations = 0, extensions = 0;
};

/// Safe from many threads.
class Arena {
 public:
  struct Source {
    std::function<std::shared_ptr<void>(std::size_t)> allocate;  ///< throws if out of memory
    std::function<void()> empty_cache;                           ///< may be empty; called when allocate() throws
  };
  /// `who` is for messages: "AMDGPUExecutionProvider's memory on hip:0".
  Arena(Source source, ArenaOptions options, std::string who);

  /// Aligned to 256 bytes. Throws Error(kDevice) beyond the limit, or with the device's error.
  void* allocate(std::size_t bytes);
  void free(void* p);
  ArenaStats stats() const;
  /// Called for each chunk that is added (true) or removed (false).
  std::function<void(const void* begin, std::size_t bytes, bool added)> on_chunk;
  ~Arena();

 private:
  struct Chunk {
    std::shared_ptr<void> memory;
    std::size_t size = 0;
  };
  struct Piece {
    std::size_t size = 0;
    bool free = true;
    char* chunk = nullptr;
  };
  using Pieces = std::map<char*, Piece>;
  void extend(std::size_t bytes);
  void insert_free(Pieces::iterator p);
  void trim();

  Source source_;
  ArenaOptions options_;
  std::string who_;
  mutable std::mutex mutex_;
  std::map<char*, Chunk> chunks_;
  Pieces pieces_;                                 // by address
  std::set<std::pair<std::size_t, char*>> free_;  // by size
  ArenaStats stats_;
  std::size_t next_ = 1 << 20;  // size of the next chunk, if chunks are powers of two
};

}  // namespace sardonyx::ep
