#include "ops/families.h"

namespace sardonyx {

void register_all(OpRegistry& r) {
  register_elementwise(r);
  register_shape(r);
  register_matmul(r);
}

}  // namespace sardonyx
