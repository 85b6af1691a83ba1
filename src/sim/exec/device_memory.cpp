// See device_memory.h. Addresses are not reused until the whole range has been used once, so that a use after free is
// not mistaken for a use of the next allocation.
#include "sim/exec/device_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>

namespace sardonyx::sim {
namespace {
constexpr std::uint64_t kGap = 256;          // unowned bytes after each allocation, to catch off-by-one stores
constexpr std::size_t kFreedRecords = 4096;  // freed ranges remembered for messages
constexpr std::uint64_t kPage = 4096;
}  // namespace

DeviceMemory& DeviceMemory::instance() {
  static DeviceMemory* memory = new DeviceMemory;  // kernels of other threads may outlive static destruction
  return *memory;
}

DeviceMemory::DeviceMemory() : freed_(kFreedRecords) {
  for (std::uint64_t bytes = 4ull << 40; bytes >= 1ull << 30; bytes >>= 1) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) continue;
    arena_ = next_ = reinterpret_cast<std::uint64_t>(p);
    arenaEnd_ = arena_ + bytes;
    break;
  }
}

std::uint64_t DeviceMemory::allocate(std::size_t size, MemoryKind kind, int device, unsigned flags,
                                     std::size_t alignment) {
  std::unique_lock lock(mutex_);
  if (size > arenaEnd_ - arena_) return 0;
  bool counted = kind == MemoryKind::kDevice || kind == MemoryKind::kManaged;
  auto limit = limits_.find(device);
  if (counted && limit != limits_.end() && used_[device] + size > limit->second) return 0;
  std::uint64_t reserve = std::max<std::uint64_t>(size, 1) + kGap;
  std::uint64_t base = (next_ + alignment - 1) / alignment * alignment;
  if (base + reserve > arenaEnd_) {
    // Second pass: the first gap between live allocations that is large enough.
    base = arena_;
    for (const auto& [start, a] : live_) {
      if (start < arena_ || start >= arenaEnd_) continue;
      if (start >= base + reserve) break;
      base = std::max(base, (a->end() + kGap + alignment - 1) / alignment * alignment);
    }
    if (base + reserve > arenaEnd_) return 0;
    for (auto& [start, bytes] : freed_)
      if (start >= base && start < base + reserve) bytes = 0;
  } else {
    next_ = base + reserve;
  }
  auto a = std::make_shared<Allocation>();
  a->base = base;
  a->size = size;
  a->kind = kind;
  a->device = device;
  a->flags = flags;
  if (trackWrites_.load() && kind == MemoryKind::kDevice) a->shadow = std::make_shared<MemoryShadow>(size);
  live_[base] = std::move(a);
  if (counted) used_[device] += size;
  return base;
}

void MemoryShadow::mark(std::uint64_t offset, std::uint64_t size) {
  for (std::uint64_t at = offset, end = offset + size; at < end;) {
    std::uint64_t n = std::min(end - at, 64 - at % 64);
    std::uint64_t bits = (n == 64 ? ~0ull : (1ull << n) - 1) << (at % 64);
    auto& word = bits_[at / 64];
    if ((word.load(std::memory_order_relaxed) & bits) != bits) word.fetch_or(bits, std::memory_order_relaxed);
    at += n;
  }
}

std::uint64_t MemoryShadow::firstUnwritten(std::uint64_t offset, std::uint64_t size) const {
  for (std::uint64_t at = offset; at < offset + size; ++at)
    if (!written(at)) return at;
  return kNone;
}

void DeviceMemory::noteHostWrite(std::uint64_t to, std::uint64_t from, std::uint64_t size) {
  auto target = find(to);
  if (!target || !target->shadow || size > target->end() - to) return;
  auto source = from ? find(from) : nullptr;
  if (!source || !source->shadow || size > source->end() - from) {
    target->shadow->mark(to - target->base, size);
    return;
  }
  for (std::uint64_t i = 0; i < size; ++i)
    if (source->shadow->written(from - source->base + i)) target->shadow->mark(to - target->base + i, 1);
}

bool DeviceMemory::release(std::uint64_t address) {
  std::unique_lock lock(mutex_);
  auto it = live_.find(address);
  if (it == live_.end()) return false;
  const Allocation& a = *it->second;
  if (a.kind == MemoryKind::kDevice || a.kind == MemoryKind::kManaged) used_[a.device] -= a.size;
  if (a.kind != MemoryKind::kRegistered) {
    // Includes the pages at both ends, unless another allocation overlaps them: addresses are not reused for long, and
    // many small allocations would keep a page each.
    std::uint64_t first = a.base / kPage * kPage, last = (a.end() + kPage - 1) / kPage * kPage;
    if (it != live_.begin() && std::prev(it)->second->end() > first) first += kPage;
    if (auto after = std::next(it); after != live_.end() && after->first < last) last -= kPage;
    if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
    freed_[freedCount_++ % kFreedRecords] = {a.base, a.size};
  }
  live_.erase(it);
  generation_.fetch_add(1, std::memory_order_release);
  return true;
}

bool DeviceMemory::add(std::uint64_t address, std::size_t size, unsigned flags) {
  std::unique_lock lock(mutex_);
  auto after = live_.lower_bound(address);
  if (after != live_.end() && after->first < address + size) return false;
  if (after != live_.begin() && std::prev(after)->second->end() > address) return false;
  auto a = std::make_shared<Allocation>();
  a->base = address;
  a->size = size;
  a->kind = MemoryKind::kRegistered;
  a->flags = flags;
  live_[address] = std::move(a);
  return true;
}

std::shared_ptr<const Allocation> DeviceMemory::find(std::uint64_t address) const {
  std::shared_lock lock(mutex_);
  auto it = live_.upper_bound(address);
  if (it == live_.begin()) return nullptr;
  --it;
  // The address past the end of an allocation does not belong to it.
  return address < it->second->end() || (it->second->size == 0 && address == it->first) ? it->second : nullptr;
}

std::string DeviceMemory::describe(std::uint64_t address) const {
  std::shared_lock lock(mutex_);
  auto it = live_.upper_bound(address);
  if (it != live_.begin()) {
    const Allocation& a = *std::prev(it)->second;
    if (address - a.end() < kGap)
      return fmt::format("{} bytes past the end of the allocation of {} bytes at 0x{:x}", address - a.end(), a.size,
                         a.base);
  }
  for (const auto& [start, bytes] : freed_)
    if (address >= start && address - start < bytes)
      return fmt::format("in the allocation of {} bytes at 0x{:x}, which was freed", bytes, start);
  if (it != live_.end() && it->first - address < kGap)
    return fmt::format("{} bytes before the allocation of {} bytes at 0x{:x}", it->first - address, it->second->size,
                       it->first);
  return "in no allocation";
}

std::uint64_t DeviceMemory::used(int device) const {
  std::shared_lock lock(mutex_);
  auto it = used_.find(device);
  return it == used_.end() ? 0 : it->second;
}

void DeviceMemory::setLimit(int device, std::uint64_t bytes) {
  std::unique_lock lock(mutex_);
  limits_[device] = bytes;
}

void DeviceMemory::setReadOnly(std::uint64_t base, std::vector<std::pair<std::uint64_t, std::uint64_t>> writable) {
  std::unique_lock lock(mutex_);
  auto it = live_.find(base);
  if (it == live_.end()) return;
  it->second->readOnly = true;
  it->second->writable = std::move(writable);
}

}  // namespace sardonyx::sim
