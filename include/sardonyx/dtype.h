// Element types of tensors, with ONNX's names and semantics.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sardonyx {

/// Element types. Sub-byte types (int4, uint4, int2, uint2, float4e2m1) occupy one byte per element in memory (signed
/// ones sign-extended), so that every element of every tensor has an address.
enum class DType : std::uint8_t {
  kBool,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kFloat8E4M3FN,
  kFloat8E4M3FNUZ,
  kFloat8E5M2,
  kFloat8E5M2FNUZ,
  kFloat8E8M0,
  kFloat4E2M1,
  kInt4,
  kUInt4,
  kInt2,
  kUInt2,
  kComplex64,   ///< storage only; operators on them are refused
  kComplex128,  ///< likewise
};
inline constexpr int kDTypeCount = 25;

/// Name as numpy and ml_dtypes spell it: "float32", "bfloat16", "float8_e4m3fn", "int4".
std::string_view name(DType t);
/// The inverse of name(); false when there is no such type.
bool parse_dtype(std::string_view text, DType& out);
/// Bytes one element occupies in memory (1 for sub-byte types and bool).
std::size_t size_of(DType t);
/// Bits of the value itself (4 for int4).
int bits_of(DType t);
/// float16, bfloat16, float32, float64, float8*, float4.
bool is_float(DType t);
bool is_integer(DType t);  ///< signed or unsigned, not bool
bool is_signed(DType t);   ///< signed integers and floats

}  // namespace sardonyx
