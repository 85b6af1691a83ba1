// Tensors in host memory: inputs and outputs of a model.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "sardonyx/dtype.h"
#include "sardonyx/error.h"

namespace sardonyx {

/// A row-major tensor. Sub-byte element types take one byte each. A copy shares the memory.
struct Tensor {
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> dims;  ///< empty: a scalar, with one element
  std::shared_ptr<void> owner;     ///< keeps `data` alive; null for borrowed memory
  void* data = nullptr;

  /// Uninitialised memory of its own, aligned to 64 bytes. Throws Error(kInvalidArgument) for a negative dim or a size
  /// beyond the address space, Error(kDevice) when memory is exhausted.
  static Tensor allocate(DType dtype, std::vector<std::int64_t> dims);
  /// The same for results of repeated runs: reuses memory that earlier results freed, of which the process keeps up to
  /// 64 MiB. run() returns such tensors.
  static Tensor allocate_result(DType dtype, std::vector<std::int64_t> dims);
  /// Memory of the caller, which must stay valid and unchanged while a model uses it; inputs are only read.
  static Tensor borrow(DType dtype, std::vector<std::int64_t> dims, const void* data);

  /// The number of elements: the product of dims.
  std::int64_t elements() const;
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(dtype); }

  /// The elements. T is float for float32, double for float64, and any type of the same size for others (std::uint16_t
  /// for float16). Throws Error(kInvalidArgument) when T does not fit the dtype.
  template <typename T>
  std::span<T> as() const {
    const bool fits = std::is_same_v<std::remove_cv_t<T>, float>    ? dtype == DType::kFloat32
                      : std::is_same_v<std::remove_cv_t<T>, double> ? dtype == DType::kFloat64
                                                                    : sizeof(T) == size_of(dtype);
    if (!fits) wrong_type();
    return {static_cast<T*>(data), static_cast<std::size_t>(elements())};
  }

 private:
  [[noreturn]] void wrong_type() const;
  static Tensor allocate_with(DType dtype, std::vector<std::int64_t> dims,
                              std::shared_ptr<void> (*memory)(std::size_t));
};

}  // namespace sardonyx
