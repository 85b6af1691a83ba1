#include "model/bytes.h"

#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#include "model/model.h"

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

Tensor tensor_of(std::string name, DType dtype, std::vector<std::int64_t> dims, Bytes bytes) {
  Tensor t;
  t.name = std::move(name);
  t.dtype = dtype;
  t.dims = std::move(dims);
  t.owner = std::move(bytes.owner);
  t.data = bytes.data;
  t.bytes = bytes.size;
  return t;
}

}  // namespace sardonyx::model
