// The numbers of TFLite's schema (tensorflow/compiler/mlir/lite/schema/schema.fbs): fields of tables, element types,
// operators.
#pragma once
#include <cstdint>

namespace sardonyx::tflite {

namespace field {
enum Model { kVersion = 0, kOperatorCodes = 1, kSubgraphs = 2, kDescription = 3, kBuffers = 4, kSignatures = 7 };
enum OperatorCode { kOldCode = 0, kCustomCode = 1, kCode = 3 };
enum Subgraph { kTensors = 0, kInputs = 1, kOutputs = 2, kOperators = 3, kSubgraphName = 4 };
enum Tensor {
  kShape = 0,
  kType = 1,
  kBuffer = 2,
  kTensorName = 3,
  kQuantization = 4,
  kIsVariable = 5,
  kSparsity = 6,
  kShapeSignature = 7,
  kExternalBuffer = 10
};
enum Quantization { kScale = 2, kZeroPoint = 3, kDetailsType = 4, kAxis = 6 };
enum Operator { kOpcode = 0, kOpInputs = 1, kOpOutputs = 2, kOptionsType = 3, kOptions = 4 };
enum Buffer { kData = 0, kOffset = 1, kSize = 2 };
enum Signature { kSignatureInputs = 0, kSignatureOutputs = 1, kSignatureKey = 2, kSignatureSubgraph = 4 };
enum TensorMap { kMapName = 0, kMapTensor = 1 };
}  // namespace field

enum class Type : std::int8_t {
  kFloat32 = 0,
  kFloat16 = 1,
  kInt32 = 2,
  kUInt8 = 3,
  kInt64 = 4,
  kString = 5,
  kBool = 6,
  kInt16 = 7,
  kComplex64 = 8,
  kInt8 = 9,
  kFloat64 = 10,
  kComplex128 = 11,
  kUInt64 = 12,
  kResource = 13,
  kVariant = 14,
  kUInt32 = 15,
  kUInt16 = 16,
  kInt4 = 17,
  kBFloat16 = 18
};

enum class Padding : std::int8_t { kSame = 0, kValid = 1 };
enum class Activation : std::int8_t { kNone = 0, kRelu = 1, kReluN1To1 = 2, kRelu6 = 3, kTanh = 4, kSignBit = 5 };

/// BuiltinOperator of operators that others refer to; operators.cpp has the table of all.
inline constexpr std::int32_t kCustomOperator = 32;

}  // namespace sardonyx::tflite
