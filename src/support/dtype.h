// The table of element types, from which everything that depends on a type's format is derived. The enumeration itself
// is in sardonyx/dtype.h, which is installed.
#pragma once
#include <span>

#include "sardonyx/dtype.h"

namespace sardonyx {

/// A binary floating-point format of up to 16 bits: a sign, an exponent and a mantissa.
struct FloatFormat {
  int exponent_bits, mantissa_bits, bias;
  /// Codes that are not finite numbers; see the ONNX specification's pages on float8 and float4. kIeee: infinities and
  /// NaN in the largest exponent. kFn: NaN in the largest code. kFnuz: NaN in the code of -0. kFinite: none.
  enum Special { kIeee, kFn, kFnuz, kFinite } special;
};

struct DTypeInfo {
  DType type;
  std::string_view name;  ///< as numpy and ml_dtypes spell it
  std::size_t size;       ///< bytes of an element in memory
  int bits;
  char kind;                ///< 'b' bool, 'i' signed, 'u' unsigned, 'f' float, 'c' complex
  int onnx;                 ///< TensorProto.DataType
  int onnxruntime;          ///< ONNXTensorElementDataType; 0: missing there, or not supported
  int dlpack;               ///< DLDataTypeCode; -1: none
  const char* kernel_name;  ///< in kernels (prelude_types.h); null: no arithmetic
  FloatFormat format{};     ///< of floats of at most 16 bits; without a mantissa for others
};

const DTypeInfo& dtype_info(DType t);
/// In the order of the enumeration.
std::span<const DTypeInfo> all_dtypes();
/// The format of a float of up to 16 bits; null for other types.
const FloatFormat* float_format(DType t);

/// ONNX TensorProto.DataType numbers. from_onnx throws Error(kUnsupported) for string and undefined ones.
int to_onnx(DType t);
DType from_onnx(int data_type);

}  // namespace sardonyx
