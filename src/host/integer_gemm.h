// Exact products of 8-bit integers into int32, on every instruction set.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "host/buffer.h"
#include "support/dtype.h"

namespace sardonyx::host {

/// How many zero points a matrix has. They are of its own element type.
enum class ZeroPoints : std::uint8_t {
  kNone,
  kOne,
  kEach,  ///< one for each row of a, or each column of b; the same in every batch
};

/// out[batch..., M, N] = (a[batch_a..., M, K] - zero_a) * (b[batch_b..., K, N] - zero_b), modulo 2^32 as int32 sums
/// are. Operands are row-major.
struct IntegerGemmDesc {
  std::vector<std::int64_t> batch_a;  ///< leading extents; broadcast against batch_b as numpy's matmul does
  std::vector<std::int64_t> batch_b;
  std::int64_t m = 0, n = 0, k = 0;
  bool trans_b = false;     ///< b is stored [..., N, K]
  DType a = DType::kUInt8;  ///< int8 or uint8, also b
  DType b = DType::kInt8;
  ZeroPoints zero_a = ZeroPoints::kNone, zero_b = ZeroPoints::kNone;
  int threads = 1;
};

/// A constant b with its zero points taken off, ready for products with any number of rows and batches of a.
struct PackedIntegers {
  explicit PackedIntegers(std::size_t bytes) : data(bytes) {}
  Buffer data;
};

/// The same in memory of one's own: how much, at a multiple of 64, and packing. Needs n, k and all that is b's.
std::size_t packed_integer_bytes(const IntegerGemmDesc& desc);
void pack_integers(const IntegerGemmDesc& desc, const void* b, const void* zero_b, void* out);

/// Packs all batches of b. zero_b may be null without zero points.
std::shared_ptr<const PackedIntegers> pack_integers(const IntegerGemmDesc& desc, const void* b, const void* zero_b);

struct IntegerGemmArgs {
  const void* a = nullptr;
  const void* zero_a = nullptr;
  const void* b = nullptr;  ///< or null, and packed
  const void* zero_b = nullptr;
  const PackedIntegers* packed = nullptr;
  const void* panels = nullptr;  ///< or packed in one's own memory
  std::int32_t* out = nullptr;
  void* scratch = nullptr;  ///< integer_gemm_scratch() bytes at a multiple of 64
};

/// Bytes of working memory for one run; more if b does not come packed.
std::size_t integer_gemm_scratch(const IntegerGemmDesc& desc, bool packed);

/// Throws Error(kInternal) for a description that does not fit.
void integer_gemm(const IntegerGemmDesc& desc, const IntegerGemmArgs& args);

}  // namespace sardonyx::host
