#include "ops/families.h"

namespace sardonyx {

void register_all(OpRegistry& r) {
  register_elementwise(r);
  register_shape(r);
  register_matmul(r);
  register_conv(r);
  register_pool(r);
  register_norm(r);
  register_control_flow(r);
  register_scan(r);
  register_contrib_activation(r);
  register_contrib_norm(r);
  register_contrib_quantize(r);
  register_contrib_attention(r);
  register_group_query_attention(r);
  register_contrib_matmul(r);
  register_moe(r);
  register_recurrent(r);
  register_quantize(r);
  register_activation(r);
  register_bits_and_math(r);
  register_collective(r);
  register_cast(r);
  register_rearrange(r);
  register_slice(r);
  register_pad(r);
  register_gather(r);
  register_generators(r);
  register_reduce(r);
  register_scatter(r);
  register_ordering(r);
  register_select(r);
  register_random(r);
  register_einsum(r);
  register_spectral(r);
  register_text(r);
  register_matrix(r);
  register_attention(r);
  register_linear_attention(r);
  register_loss(r);
  register_resize(r);
  register_grid_sample(r);
  register_roi(r);
}

}  // namespace sardonyx
