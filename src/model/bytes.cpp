#include "model/bytes.h"

#include <cstdint>
#include <cstdlib>
#include <new>

namespace sardonyx::model {

Bytes aligned_zeros(std::size_t size, std::byte*& data) {
  // calloc leaves large blocks to the kernel's zero pages, so that a mostly empty tensor costs little memory.
  void* block = std::calloc(size + kAlignment, 1);
  if (block == nullptr) throw std::bad_alloc();
  std::shared_ptr<void> owner(block, std::free);
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  data = static_cast<std::byte*>(block) + (kAlignment - address % kAlignment) % kAlignment;
  return {std::move(owner), data, size};
}

}  // namespace sardonyx::model
