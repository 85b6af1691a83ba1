// Best fit over chunks of a device's memory; see arena.h.
#include "ep/arena.h"

#include <algorithm>
#include <bit>

#include "support/error.h"

namespace sardonyx::ep {
namespace {

constexpr std::size_t kUnit = 256;  // of sizes and addresses: what HIP and CUDA align allocations to
constexpr std::size_t kLargestStep = std::size_t{1}
                                     << 30;  // chunks double up to this size: beyond it they would waste memory

}  // namespace

Arena::Arena(Source source, ArenaOptions options, std::string who)
    : source_(std::move(source)), options_(std::move(options)), who_(std::move(who)) {
  stats_.limit = options_.limit;
  if (options_.limit && !options_.budget) options_.budget = std::make_shared<MemoryBudget>(options_.limit);
  if (options_.budget)
    options_.budget->add_reclaimer(this, [this] {
      const std::lock_guard lock(mutex_);
      trim();
    });
}

Arena::~Arena() {
  if (options_.budget) {
    options_.budget->remove_reclaimer(this);
    options_.budget->give_back(stats_.total);
  }
  if (on_chunk)
    for (const auto& [begin, c] : chunks_) on_chunk(begin, c.size, false);
}

void Arena::insert_free(Pieces::iterator p) {
  p->second.free = true;
  free_.emplace(p->second.size, p->first);
}

// Frees chunks without pieces in use.
void Arena::trim() {
  for (auto it = pieces_.begin(); it != pieces_.end();) {
    const auto chunk = chunks_.find(it->first);
    if (chunk == chunks_.end() || !it->second.free || it->second.size != chunk->second.size) {
      ++it;
      continue;
    }
    free_.erase({it->second.size, it->first});
    stats_.total -= chunk->second.size;
    if (options_.budget) options_.budget->give_back(chunk->second.size);
    if (on_chunk) on_chunk(chunk->first, chunk->second.size, false);
    chunks_.erase(chunk);
    it = pieces_.erase(it);
  }
}

void Arena::extend(std::size_t bytes) {
  std::size_t size = bytes;
  if (!options_.same_as_requested) size = std::max(std::bit_ceil(bytes), next_);
  // The lock is held, so only this arena may be asked to free memory.
  const auto take = [&](std::size_t n) { return !options_.budget || options_.budget->try_take(n); };
  if (!take(size)) {
    size = bytes;  // the rest of the limit
    bool taken = take(size);
    if (!taken) {
      trim();
      taken = take(size);
    }
    if (!taken)
      fail(ErrorKind::kDevice,
           "{}: {} bytes are needed, {} of the limit of {} are taken ({} by tensors, {} of these in use, the rest by "
           "weights and temporaries); raise gpu_mem_limit, or use smaller inputs",
           who_, bytes, options_.budget->used(), options_.budget->limit(), stats_.total, stats_.in_use);
  }
  Chunk c;
  try {
    try {
      c.memory = source_.allocate(size);
    } catch (const Error&) {
      trim();
      if (source_.empty_cache) source_.empty_cache();
      if (options_.budget) options_.budget->give_back(size - bytes);
      size = bytes;
      c.memory = source_.allocate(size);
    }
  } catch (...) {
    if (options_.budget) options_.budget->give_back(size);
    throw;
  }
  c.size = size;
  char* begin = static_cast<char*>(c.memory.get());
  if (on_chunk) on_chunk(begin, size, true);
  chunks_[begin] = std::move(c);
  stats_.total += size;
  ++stats_.extensions;
  next_ = std::min(next_ * 2, kLargestStep);
  insert_free(pieces_.emplace(begin, Piece{size, true, begin}).first);
}

void* Arena::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  if (bytes > SIZE_MAX - kUnit) fail(ErrorKind::kDevice, "{}: cannot allocate {} bytes", who_, bytes);
  bytes = (bytes + kUnit - 1) / kUnit * kUnit;
  const std::lock_guard lock(mutex_);
  auto best = free_.lower_bound({bytes, nullptr});
  if (best == free_.end()) {
    extend(bytes);
    best = free_.lower_bound({bytes, nullptr});
  }
  const auto piece = pieces_.find(best->second);
  free_.erase(best);
  if (piece->second.size > bytes) {  // split off the rest
    const auto rest =
        pieces_.emplace(piece->first + bytes, Piece{piece->second.size - bytes, true, piece->second.chunk}).first;
    insert_free(rest);
    piece->second.size = bytes;
  }
  piece->second.free = false;
  ++stats_.allocations;
  stats_.in_use += bytes;
  stats_.max_in_use = std::max(stats_.max_in_use, stats_.in_use);
  stats_.largest = std::max(stats_.largest, bytes);
  return piece->first;
}

void Arena::free(void* p) {
  if (!p) return;
  const std::lock_guard lock(mutex_);
  auto piece = pieces_.find(static_cast<char*>(p));
  if (piece == pieces_.end() || piece->second.free) return;  // not from this arena
  stats_.in_use -= piece->second.size;
  if (auto next = std::next(piece);
      next != pieces_.end() && next->second.free && next->second.chunk == piece->second.chunk) {
    free_.erase({next->second.size, next->first});
    piece->second.size += next->second.size;
    pieces_.erase(next);
  }
  if (piece != pieces_.begin())
    if (auto before = std::prev(piece); before->second.free && before->second.chunk == piece->second.chunk) {
      free_.erase({before->second.size, before->first});
      before->second.size += piece->second.size;
      pieces_.erase(piece);
      piece = before;
    }
  insert_free(piece);
}

ArenaStats Arena::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace sardonyx::ep
