// Tables of element types.
#include "support/dtype.h"

#include <iterator>

#include "support/error.h"

namespace sardonyx {
namespace {

constexpr DTypeInfo kRows[] = {
    {DType::kBool, "bool", 1, 1, 'b', 9, 9, 6, "bool"},
    {DType::kInt8, "int8", 1, 8, 'i', 3, 3, 0, "i8"},
    {DType::kInt16, "int16", 2, 16, 'i', 5, 5, 0, "i16"},
    {DType::kInt32, "int32", 4, 32, 'i', 6, 6, 0, "i32"},
    {DType::kInt64, "int64", 8, 64, 'i', 7, 7, 0, "i64"},
    {DType::kUInt8, "uint8", 1, 8, 'u', 2, 2, 1, "u8"},
    {DType::kUInt16, "uint16", 2, 16, 'u', 4, 4, 1, "u16"},
    {DType::kUInt32, "uint32", 4, 32, 'u', 12, 12, 1, "u32"},
    {DType::kUInt64, "uint64", 8, 64, 'u', 13, 13, 1, "u64"},
    {DType::kFloat16, "float16", 2, 16, 'f', 10, 10, 2, "f16", {5, 10, 15, FloatFormat::kIeee}},
    {DType::kBFloat16, "bfloat16", 2, 16, 'f', 16, 16, 4, "bf16", {8, 7, 127, FloatFormat::kIeee}},
    {DType::kFloat32, "float32", 4, 32, 'f', 1, 1, 2, "f32"},
    {DType::kFloat64, "float64", 8, 64, 'f', 11, 11, 2, "f64"},
    {DType::kFloat8E4M3FN, "float8_e4m3fn", 1, 8, 'f', 17, 17, 10, "f8e4m3fn", {4, 3, 7, FloatFormat::kFn}},
    {DType::kFloat8E4M3FNUZ, "float8_e4m3fnuz", 1, 8, 'f', 18, 18, 11, "f8e4m3fnuz", {4, 3, 8, FloatFormat::kFnuz}},
    {DType::kFloat8E5M2, "float8_e5m2", 1, 8, 'f', 19, 19, 12, "f8e5m2", {5, 2, 15, FloatFormat::kIeee}},
    {DType::kFloat8E5M2FNUZ, "float8_e5m2fnuz", 1, 8, 'f', 20, 20, 13, "f8e5m2fnuz", {5, 2, 16, FloatFormat::kFnuz}},
    {DType::kFloat8E8M0, "float8_e8m0fnu", 1, 8, 'f', 24, 26, 14, "f8e8m0"},
    {DType::kFloat4E2M1, "float4_e2m1fn", 1, 4, 'f', 23, 23, -1, "f4e2m1", {2, 1, 1, FloatFormat::kFinite}},
    {DType::kInt4, "int4", 1, 4, 'i', 22, 22, -1, "i4"},
    {DType::kUInt4, "uint4", 1, 4, 'u', 21, 21, -1, "u4"},
    {DType::kInt2, "int2", 1, 2, 'i', 26, 25, -1, "i2"},
    {DType::kUInt2, "uint2", 1, 2, 'u', 25, 24, -1, "u2"},
    {DType::kComplex64, "complex64", 8, 64, 'c', 14, 0, 5, nullptr},
    {DType::kComplex128, "complex128", 16, 128, 'c', 15, 0, 5, nullptr},
};

constexpr bool in_order() {
  for (int k = 0; k < kDTypeCount; ++k)
    if (static_cast<int>(kRows[k].type) != k) return false;
  return std::size(kRows) == kDTypeCount;
}
static_assert(in_order(), "a row for each type, in the order of the enumeration");

}  // namespace

const DTypeInfo& dtype_info(DType t) { return kRows[static_cast<int>(t)]; }
std::span<const DTypeInfo> all_dtypes() { return kRows; }
const FloatFormat* float_format(DType t) {
  return dtype_info(t).format.mantissa_bits > 0 ? &dtype_info(t).format : nullptr;
}

std::string_view name(DType t) { return dtype_info(t).name; }

bool parse_dtype(std::string_view text, DType& out) {
  for (const DTypeInfo& r : kRows)
    if (r.name == text) {
      out = r.type;
      return true;
    }
  return false;
}

std::size_t size_of(DType t) { return dtype_info(t).size; }
int bits_of(DType t) { return dtype_info(t).bits; }
bool is_float(DType t) { return dtype_info(t).kind == 'f'; }
bool is_integer(DType t) { return dtype_info(t).kind == 'i' || dtype_info(t).kind == 'u'; }
bool is_signed(DType t) { return dtype_info(t).kind == 'i' || dtype_info(t).kind == 'f'; }
int to_onnx(DType t) { return dtype_info(t).onnx; }

DType from_onnx(int data_type) {
  for (const DTypeInfo& r : kRows)
    if (r.onnx == data_type) return r.type;
  if (data_type == 8)
    fail(ErrorKind::kUnsupported, "string tensors are not supported; keep text processing outside the model");
  fail(ErrorKind::kInvalidModel, "unknown ONNX element type {}", data_type);
}

}  // namespace sardonyx
