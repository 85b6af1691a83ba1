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
  register_recurrent(r);
  register_quantize(r);
}

}  // namespace sardonyx
