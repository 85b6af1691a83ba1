// Memory of tensors.
#pragma once
#include <cstddef>
#include <memory>

namespace sardonyx::model {

/// Alignment of memory that is allocated for tensors: a cache line, and the widest vector register.
inline constexpr std::size_t kAlignment = 64;

/// Bytes, and the object that keeps them alive.
struct Bytes {
  std::shared_ptr<const void> owner;
  const std::byte* data = nullptr;
  std::size_t size = 0;
};

/// A zeroed buffer aligned to kAlignment; `data` receives where to write.
Bytes aligned_zeros(std::size_t size, std::byte*& data);

}  // namespace sardonyx::model
