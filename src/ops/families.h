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
void register_scan(OpRegistry& r);
void register_contrib_activation(OpRegistry& r);
void register_contrib_norm(OpRegistry& r);
void register_contrib_quantize(OpRegistry& r);
void register_contrib_attention(OpRegistry& r);
void register_group_query_attention(OpRegistry& r);
void register_contrib_matmul(OpRegistry& r);
void register_moe(OpRegistry& r);
void register_recurrent(OpRegistry& r);
void register_quantize(OpRegistry& r);
void register_activation(OpRegistry& r);
void register_bits_and_math(OpRegistry& r);
void register_collective(OpRegistry& r);
void register_cast(OpRegistry& r);
void register_rearrange(OpRegistry& r);
void register_slice(OpRegistry& r);
void register_pad(OpRegistry& r);
void register_gather(OpRegistry& r);
void register_generators(OpRegistry& r);
void register_reduce(OpRegistry& r);
void register_scatter(OpRegistry& r);
void register_ordering(OpRegistry& r);
void register_select(OpRegistry& r);
void register_random(OpRegistry& r);
void register_einsum(OpRegistry& r);
void register_spectral(OpRegistry& r);
void register_text(OpRegistry& r);
void register_matrix(OpRegistry& r);
void register_attention(OpRegistry& r);
void register_linear_attention(OpRegistry& r);
void register_loss(OpRegistry& r);
void register_resize(OpRegistry& r);
void register_grid_sample(OpRegistry& r);
void register_roi(OpRegistry& r);

}  // namespace sardonyx
