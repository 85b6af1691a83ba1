#include "ops/families.h"

namespace sardonyx {

void register_all(OpRegistry& r) {
#define SDX_CALL(family) register_##family(r);
  SDX_OPERATOR_FAMILIES(SDX_CALL)
#undef SDX_CALL
}

}  // namespace sardonyx
