#include "device/memory.h"

#include <algorithm>
#include <cstring>

#include "support/error.h"

namespace sardonyx {
namespace {

// Pinned memory: small for models whose tensors all fit, otherwise large enough to copy at full speed.
constexpr std::size_t kSmallChunk = std::size_t{256} << 10, kChunk = std::size_t{4} << 20;

}  // namespace

void DeviceMemory::take(std::uint64_t bytes) {
  const std::uint64_t now = used_.fetch_add(bytes) + bytes;
  if (limit_ > 0 && now > limit_) {
    used_ -= bytes;
    fail(ErrorKind::kDevice,
         "{}: {} more bytes of device memory would exceed the model's limit: {} of {} bytes are in use; raise the "
         "limit, or use smaller inputs",
         gpu_->info().name, bytes, now - bytes, limit_);
  }
  if (budget_ && !budget_->take(bytes)) {
    used_ -= bytes;
    fail(ErrorKind::kDevice,
         "{}: {} more bytes for weights and temporaries would exceed the limit of {} bytes, of which {} are taken, {} "
         "of "
         "them by this model; raise the limit (gpu_mem_limit), or use smaller inputs",
         gpu_->info().name, bytes, budget_->limit(), budget_->used(), now - bytes);
  }
  std::uint64_t peak = peak_;
  while (peak < now && !peak_.compare_exchange_weak(peak, now)) {
  }
}

void DeviceMemory::give_back(std::uint64_t bytes) {
  used_ -= bytes;
  if (budget_) budget_->give_back(bytes);
}

std::shared_ptr<void> DeviceMemory::allocate(std::size_t bytes) {
  take(bytes);
  std::shared_ptr<void> memory;
  try {
    if (budget_ && budget_->source()) {
      const Gpu::Scope scope(*gpu_);  // the application allocates on its thread's current device
      memory = budget_->source()(bytes);
    } else {
      memory = gpu_->allocate(bytes);
    }
  } catch (...) {
    give_back(bytes);
    throw;
  }
  void* p = memory.get();
  return std::shared_ptr<void>(p, [self = shared_from_this(), memory = std::move(memory), bytes](void*) mutable {
    memory.reset();
    self->give_back(bytes);
  });
}

std::shared_ptr<void> MemoryPool::allocate(std::size_t bytes) {
  bytes = std::max<std::size_t>((bytes + 255) / 256 * 256, 256);
  auto best = free_.end();
  for (auto b = free_.begin(); b != free_.end(); ++b)
    if (b->size >= bytes && b->size / 2 <= bytes && (best == free_.end() || b->size < best->size)) best = b;
  Block block{bytes, nullptr};
  if (best != free_.end()) {
    block = std::move(*best);
    free_.erase(best);
  } else {
    try {
      block.memory = memory_->allocate(bytes);
    } catch (const Error&) {
      if (free_.empty()) throw;
      trim();
      block.memory = memory_->allocate(bytes);
    }
  }
  void* p = block.memory.get();
  return std::shared_ptr<void>(p, [self = shared_from_this(), block = std::move(block)](void*) mutable {
    self->free_.push_back(std::move(block));
  });
}

char* GpuTransfers::reserve(std::size_t bytes, GpuStream stream) {
  Chunk* c = &chunks_[current_];
  if (c->used + bytes > c->size && c->used > 0) {
    c->done->record(stream);
    current_ ^= 1;
    c = &chunks_[current_];
    if (c->done) c->done->synchronize();
    c->used = 0;
  }
  if (bytes > c->size) {
    c->memory.reset();
    c->size = 0;
    const std::size_t size = bytes <= kSmallChunk ? kSmallChunk : kChunk;
    c->memory = gpu_->allocate_pinned(size);
    c->size = size;
  }
  if (!c->done) c->done = gpu_->create_event();
  char* at = static_cast<char*>(c->memory.get()) + c->used;
  c->used += (bytes + 63) / 64 * 64;
  return at;
}

void GpuTransfers::upload(void* to, const void* from, std::size_t bytes, GpuStream stream) {
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t n = std::min(kChunk, bytes - done);
    char* staged = reserve(n, stream);
    std::memcpy(staged, static_cast<const char*>(from) + done, n);
    gpu_->upload(static_cast<char*>(to) + done, staged, n, stream);
    done += n;
  }
}

void GpuTransfers::download(void* to, const void* from, std::size_t bytes, GpuStream stream) {
  char* const target = static_cast<char*>(to);
  const char* const source = static_cast<const char*>(from);
  if (bytes == 0) return;
  if (bytes <= kSmallChunk) {
    const char* staged = reserve(bytes, stream);
    gpu_->download(const_cast<char*>(staged), source, bytes, stream);
    gpu_->synchronize(stream);
    std::memcpy(target, staged, bytes);
    return;
  }
  gpu_->synchronize(stream);  // wait until nothing reads the chunks
  char* staged[2];
  for (int k = 0; k < 2; ++k) {
    current_ = k;
    chunks_[k].used = 0;
    staged[k] = reserve(std::min(kChunk, bytes), stream);
  }
  // Double buffering: while a part is copied out of its chunk, the next one is in flight.
  const std::size_t parts = (bytes - 1) / kChunk + 1;
  const auto size = [&](std::size_t k) { return std::min(kChunk, bytes - k * kChunk); };
  for (std::size_t k = 0; k <= parts; ++k) {
    if (k < parts) {
      gpu_->download(staged[k % 2], source + k * kChunk, size(k), stream);
      chunks_[k % 2].done->record(stream);
    }
    if (k == 0) continue;
    chunks_[(k - 1) % 2].done->synchronize();
    std::memcpy(target + (k - 1) * kChunk, staged[(k - 1) % 2], size(k - 1));
  }
  for (Chunk& c : chunks_) c.used = 0;
}

}  // namespace sardonyx
