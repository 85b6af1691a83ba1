// Tables of element types.
#include "support/dtype.h"

#include "support/error.h"

namespace sardonyx {
namespace {

struct Row {
  DType type;
  std::string_view name;
  std::size_t size;
  int bits;
  char kind;  // 'b' bool, 'i' signed, 'u' unsigned, 'f' float, 'c' complex
  int onnx;   // TensorProto.DataType
};

constexpr Row kRows[kDTypeCount] = {
    {DType::kBool, "bool", 1, 1, 'b', 9},
    {DType::kInt8, "int8", 1, 8, 'i', 3},
    {DType::kInt16, "int16", 2, 16, 'i', 5},
    {DType::kInt32, "int32", 4, 32, 'i', 6},
    {DType::kInt64, "int64", 8, 64, 'i', 7},
    {DType::kUInt8, "uint8", 1, 8, 'u', 2},
    {DType::kUInt16, "uint16", 2, 16, 'u', 4},
    {DType::kUInt32, "uint32", 4, 32, 'u', 12},
    {DType::kUInt64, "uint64", 8, 64, 'u', 13},
    {DType::kFloat16, "float16", 2, 16, 'f', 10},
    {DType::kBFloat16, "bfloat16", 2, 16, 'f', 16},
    {DType::kFloat32, "float32", 4, 32, 'f', 1},
    {DType::kFloat64, "float64", 8, 64, 'f', 11},
    {DType::kFloat8E4M3FN, "float8_e4m3fn", 1, 8, 'f', 17},
    {DType::kFloat8E4M3FNUZ, "float8_e4m3fnuz", 1, 8, 'f', 18},
    {DType::kFloat8E5M2, "float8_e5m2", 1, 8, 'f', 19},
    {DType::kFloat8E5M2FNUZ, "float8_e5m2fnuz", 1, 8, 'f', 20},
    {DType::kFloat8E8M0, "float8_e8m0fnu", 1, 8, 'f', 24},
    {DType::kFloat4E2M1, "float4_e2m1fn", 1, 4, 'f', 23},
    {DType::kInt4, "int4", 1, 4, 'i', 22},
    {DType::kUInt4, "uint4", 1, 4, 'u', 21},
    {DType::kInt2, "int2", 1, 2, 'i', 26},
    {DType::kUInt2, "uint2", 1, 2, 'u', 25},
    {DType::kComplex64, "complex64", 8, 64, 'c', 14},
    {DType::kComplex128, "complex128", 16, 128, 'c', 15},
};

const Row& row(DType t) { return kRows[static_cast<int>(t)]; }

}  // namespace

std::string_view name(DType t) { return row(t).name; }

bool parse_dtype(std::string_view text, DType& out) {
  for (const Row& r : kRows)
    if (r.name == text) {
      out = r.type;
      return true;
    }
  return false;
}

std::size_t size_of(DType t) { return row(t).size; }
int bits_of(DType t) { return row(t).bits; }
bool is_float(DType t) { return row(t).kind == 'f'; }
bool is_integer(DType t) { return row(t).kind == 'i' || row(t).kind == 'u'; }
bool is_signed(DType t) { return row(t).kind == 'i' || row(t).kind == 'f'; }
int to_onnx(DType t) { return row(t).onnx; }

DType from_onnx(int data_type) {
  for (const Row& r : kRows)
    if (r.onnx == data_type) return r.type;
  if (data_type == 8)
    fail(ErrorKind::kUnsupported, "string tensors are not supported; keep text processing outside the model");
  fail(ErrorKind::kInvalidModel, "unknown ONNX element type {}", data_type);
}

}  // namespace sardonyx
