// The files of operators, each of which defines its operators in register_NAME(). A new file adds its name to this
// list.
#pragma once
#include "ops/op.h"

namespace sardonyx {

// clang-format off
#define SDX_OPERATOR_FAMILIES(F) \
  F(activation) \
  F(attention) \
  F(bits_and_math) \
  F(cast) \
  F(collective) \
  F(contrib_activation) \
  F(contrib_attention) \
  F(contrib_matmul) \
  F(contrib_norm) \
  F(contrib_quantize) \
  F(control_flow) \
  F(conv) \
  F(einsum) \
  F(elementwise) \
  F(gather) \
  F(generators) \
  F(grid_sample) \
  F(group_query_attention) \
  F(linear_attention) \
  F(loss) \
  F(matmul) \
  F(matrix) \
  F(moe) \
  F(norm) \
  F(ordering) \
  F(pad) \
  F(paged_attention) \
  F(pool) \
  F(quantize) \
  F(random) \
  F(rearrange) \
  F(recurrent) \
  F(reduce) \
  F(resize) \
  F(roi) \
  F(scan) \
  F(scatter) \
  F(select) \
  F(sequence) \
  F(shape) \
  F(slice) \
  F(spectral) \
  F(text)
// clang-format on

#define SDX_DECLARE(family) void register_##family(OpRegistry& r);
SDX_OPERATOR_FAMILIES(SDX_DECLARE)
#undef SDX_DECLARE

void register_all(OpRegistry& r);

}  // namespace sardonyx
