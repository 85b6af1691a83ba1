// Large pages: alignment and a hint to the kernel.
#include "support/pages.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <mutex>

namespace sardonyx {
namespace {

constexpr std::size_t kPage = std::size_t{2} << 20;
constexpr std::size_t kLarge = kPage / 2;  // less than that would mostly be waste
constexpr std::size_t kSlab = 32 * kPage;  // only what is used of it takes memory

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

std::shared_ptr<void> allocate_on_large_pages(std::size_t bytes) {
  if (bytes > SIZE_MAX - kPage) return nullptr;
  const std::size_t alignment = bytes >= kLarge ? kPage : 64;
  const std::size_t size = round_up(bytes ? bytes : 1, alignment);
  void* p = std::aligned_alloc(alignment, size);
  if (!p) return nullptr;
#if defined(MADV_HUGEPAGE)
  // A wish: where it is refused, small pages do.
  if (alignment == kPage) ::madvise(p, size, MADV_HUGEPAGE);
#endif
  return {p, std::free};
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
