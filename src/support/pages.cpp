// Large pages: alignment and a hint to the kernel.
#include "support/pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace sardonyx {
namespace {

constexpr std::size_t kPage = std::size_t{2} << 20;  // bytes of a huge page on x86-64 and AArch64
constexpr std::size_t kLarge = kPage / 2;            // smaller blocks would waste most of a large page
constexpr std::size_t kSlab = 32 * kPage;            // untouched pages of it take no memory

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

/// Freed blocks, the oldest first.
class ReturnedBlocks {
 public:
  static constexpr std::size_t kMost = 32 * kPage;
  struct Block {
    std::shared_ptr<void> memory;
    std::size_t size = 0;
  };

  /// Takes a block of this size or up to a quarter larger; an empty Block if there is none.
  Block take(std::size_t size) {
    const std::lock_guard lock(mutex_);
    std::size_t best = count_;
    for (std::size_t k = 0; k < count_; ++k) {
      const bool fits = blocks_[k].size >= size && blocks_[k].size <= size + size / 4;
      if (fits && (best == count_ || blocks_[k].size < blocks_[best].size)) best = k;
    }
    return best == count_ ? Block{} : remove(best);
  }

  void put(Block block) {
    Block dropped[kBlocks];  // freed after the lock is released
    std::size_t drops = 0;
    const std::lock_guard lock(mutex_);
    while (count_ > 0 && (count_ == kBlocks || total_ + block.size > kMost)) dropped[drops++] = remove(0);
    total_ += block.size;
    blocks_[count_++] = std::move(block);
  }

 private:
  static constexpr std::size_t kBlocks = 16;

  Block remove(std::size_t k) {
    Block block = std::move(blocks_[k]);
    total_ -= block.size;
    std::move(blocks_.begin() + static_cast<std::ptrdiff_t>(k) + 1,
              blocks_.begin() + static_cast<std::ptrdiff_t>(count_), blocks_.begin() + static_cast<std::ptrdiff_t>(k));
    --count_;
    return block;
  }

  std::mutex mutex_;
  std::array<Block, kBlocks> blocks_;
  std::size_t count_ = 0, total_ = 0;
};

ReturnedBlocks& returned_blocks() {
  static auto& blocks = *new ReturnedBlocks;  // results may outlive every other static
  return blocks;
}

}  // namespace

std::shared_ptr<void> allocate_on_large_pages(std::size_t bytes) {
  if (bytes > SIZE_MAX - kPage) return nullptr;
  const std::size_t alignment = bytes >= kLarge ? kPage : 64;
  const std::size_t size = round_up(bytes ? bytes : 1, alignment);
  void* p = std::aligned_alloc(alignment, size);
  if (!p) return nullptr;
#if defined(MADV_HUGEPAGE)
  // Only a hint: if it is refused, small pages are used.
  if (alignment == kPage) ::madvise(p, size, MADV_HUGEPAGE);
#endif
  return {p, std::free};
}

std::shared_ptr<void> allocate_reusable(std::size_t bytes) {
  if (bytes < kLarge || bytes > ReturnedBlocks::kMost / 2) return allocate_on_large_pages(bytes);
  const std::size_t size = round_up(bytes, kPage);
  auto block = returned_blocks().take(size);
  if (!block.memory) block = {allocate_on_large_pages(size), size};
  void* p = block.memory.get();
  if (!p) return nullptr;
  // The deleter owns the memory, and keeps it for later results.
  return {p, [block = std::move(block)](void*) mutable { returned_blocks().put(std::move(block)); }};
}

std::shared_ptr<void> allocate_piece(std::size_t bytes) {
  if (bytes >= kSlab / 2) return allocate_on_large_pages(bytes);
  static std::mutex mutex;
  static std::weak_ptr<void> current;
  static std::size_t used = 0;
  bytes = round_up(bytes ? bytes : 1, 64);
  const std::lock_guard lock(mutex);
  std::shared_ptr<void> slab = current.lock();
  if (!slab || used + bytes > kSlab) {
    slab = allocate_on_large_pages(kSlab);
    if (!slab) return nullptr;
    current = slab;
    used = 0;
  }
  void* piece = static_cast<char*>(slab.get()) + used;
  used += bytes;
  return {std::move(slab), piece};
}

}  // namespace sardonyx
