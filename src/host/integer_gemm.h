// Exact GEMMs of 8-bit integers with int32 sums, on every instruction set.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "host/buffer.h"
#include "support/dtype.h"

namespace sardonyx::host {

/// How many zero points a matrix has. They have its element type.
enum class ZeroPoints : std::uint8_t {
  kNone,
  kOne,
  kEach,  ///< one for each row of a, or each column of b; the same in every batch
};

/// out[batch..., M, N] = (a[batch_a..., M, K] - zero_a) * (b[batch_b..., K, N] - zero_b), modulo 2^32. Operands are
/// row-major.
struct IntegerGemmDesc {
  std::vector<std::int64_t> batch_a;  ///< leading extents; broadcast against batch_b as numpy's matmul does
  std::vector<std::int64_t> batch_b;
  std::int64_t m = 0, n = 0, k = 0;
  bool trans_b = false;     ///< b is stored [..., N, K]
  DType a = DType::kUInt8;  ///< int8 or uint8; likewise b
  DType b = DType::kInt8;
  ZeroPoints zero_a = ZeroPoints::kNone, zero_b = ZeroPoints::kNone;
  int threads = 1;
};

/// A constant b minus its zero points, packed for any number of rows and batches of a.
struct PackedIntegers {
  explicit PackedIntegers(std::size_t bytes) : data(bytes) {}
  Buffer data;
};

/// The same in memory that the caller supplies: its size in bytes (aligned to 64), and packing. Reads n, k and what
/// describes b.
std::size_t packed_integer_bytes(const IntegerGemmDesc& desc);
void pack_integers(const IntegerGemmDesc& desc, const void* b, const void* zero_b, void* out);

/// Packs all batches of b. zero_b may be null if there are no zero points.
std::shared_ptr<const PackedIntegers> pack_integers(const IntegerGemmDesc& desc, const void* b, const void* zero_b);

struct IntegerGemmArgs {
  const void* a = nullptr;
  const void* zero_a = nullptr;
  const void* b = nullptr;  ///< or null, if packed
  const void* zero_b = nullptr;
  const PackedIntegers* packed = nullptr;
  const void* panels = nullptr;  ///< or packed in memory of the caller
  std::int32_t* out = nullptr;
  void* scratch = nullptr;  ///< integer_gemm_scratch() bytes, aligned to 64
};

/// Bytes of scratch memory of one run; more if b is not packed.
std::size_t integer_gemm_scratch(const IntegerGemmDesc& desc, bool packed);

/// Throws Error(kInternal) if the description contradicts itself.
void integer_gemm(const IntegerGemmDesc& desc, const IntegerGemmArgs& args);

}  // namespace sardonyx::host
