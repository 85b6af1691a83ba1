// One registration function per file of operators. A new file adds its line here and in families.cpp.
#pragma once
#include "ops/op.h"

namespace sardonyx {

void register_all(OpRegistry& r);

void register_elementwise(OpRegistry& r);
void register_shape(OpRegistry& r);
void register_matmul(OpRegistry& r);
void register_conv(OpRegistry& r);
void register_pool(OpRegistry& r);
void register_norm(OpRegistry& r);
void register_control_flow(OpRegistry& r);
void register_recurrent(OpRegistry& r);
void register_quantize(OpRegistry& r);

}  // namespace sardonyx
