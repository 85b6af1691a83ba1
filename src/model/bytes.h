// Memory of tensors.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "support/dtype.h"

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

struct Tensor;  // model.h
/// A tensor whose elements these bytes are.
Tensor tensor_of(std::string name, DType dtype, std::vector<std::int64_t> dims, Bytes bytes);

}  // namespace sardonyx::model
