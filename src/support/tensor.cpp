// Tensors in host memory.
#include "sardonyx/tensor.h"

#include <cstdlib>

#include "support/error.h"
#include "support/pages.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 46;  // more than any machine's memory

}  // namespace

Tensor Tensor::allocate_with(DType dtype, std::vector<std::int64_t> dims,
                             std::shared_ptr<void> (*memory)(std::size_t)) {
  auto bytes = static_cast<std::int64_t>(size_of(dtype));
  bool fits = true, empty = false;
  for (const std::int64_t d : dims) {
    if (d < 0)
      fail(ErrorKind::kInvalidArgument, "a tensor with dims [{}]: a dim can't be negative", fmt::join(dims, ", "));
    empty |= d == 0;
    fits = fits && (d == 0 || !__builtin_mul_overflow(bytes, d, &bytes));
  }
  if (empty) bytes = 0;
  if (!empty && (!fits || bytes > kMaxBytes))
    fail(ErrorKind::kInvalidArgument, "a tensor with dims [{}] does not fit into memory; use smaller dims",
         fmt::join(dims, ", "));
  Tensor t;
  t.dtype = dtype;
  t.dims = std::move(dims);
  // One cache line more than needed: vector code may read past the end.
  t.owner = memory((static_cast<std::size_t>(bytes) + 127) / 64 * 64);
  if (!t.owner) fail(ErrorKind::kDevice, "out of memory: a tensor of {} bytes", bytes);
  t.data = t.owner.get();
  return t;
}

Tensor Tensor::allocate(DType dtype, std::vector<std::int64_t> dims) {
  return allocate_with(dtype, std::move(dims), [](std::size_t bytes) {
    return std::shared_ptr<void>(std::aligned_alloc(64, bytes), std::free);
  });
}

Tensor Tensor::allocate_result(DType dtype, std::vector<std::int64_t> dims) {
  return allocate_with(dtype, std::move(dims), allocate_reusable);
}

Tensor Tensor::borrow(DType dtype, std::vector<std::int64_t> dims, const void* data) {
  Tensor t;
  t.dtype = dtype;
  t.dims = std::move(dims);
  t.data = const_cast<void*>(data);  // inputs are only read
  return t;
}

std::int64_t Tensor::elements() const {
  std::int64_t n = 1;
  for (const std::int64_t d : dims) n *= d;
  return n;
}

void Tensor::wrong_type() const {
  fail(ErrorKind::kInvalidArgument, "the tensor's elements are {}; ask for them as a type of {} bytes", name(dtype),
       size_of(dtype));
}

}  // namespace sardonyx
