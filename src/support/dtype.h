// Element types (sardonyx/dtype.h, which is installed), and their numbers in ONNX files.
#pragma once
#include "sardonyx/dtype.h"

namespace sardonyx {

/// ONNX TensorProto.DataType numbers. from_onnx throws Error(kUnsupported) for string and undefined ones.
int to_onnx(DType t);
DType from_onnx(int data_type);

}  // namespace sardonyx
