// Models that MIGraphX reads although ONNX forbids them.
#pragma once
#include "model/model.h"

namespace sardonyx::mgx {

/// Converts to valid ONNX, also in nested graphs: operators that ONNX has removed (ImageScaler, ConstantFill);
/// operators of com.microsoft that name no domain; numbers that are attributes of the wrong kind, or `clip` of 0;
/// attributes in place of inputs, as in older operator sets; bounds of int32; operands of different types, of 8-bit
/// floats, or of types that ONNX's operator does not take, which are converted and back.
void mend(model::Model& m);

}  // namespace sardonyx::mgx
