// The generated protobuf classes of onnx-ml.proto, in namespace sardonyx::onnx::pb. Only for .cpp files of this
// component.
#pragma once
#if defined(__GNUC__)
#pragma GCC system_header
#endif
#include "onnx_pb/onnx_model.pb.h"
