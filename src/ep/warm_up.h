// First runs of a compiled group when a session is made, so that the application's first runs are not the slow ones.
#pragma once
#include <cstdint>
#include <vector>

#include "ep/compiled_group.h"
#include "ep/ort.h"

namespace sardonyx::ep {

/// Runs the group on zeros once for each batch size in `batches`. The batch is the first dim of the first input whose
/// first dim is a symbol. A group without one is not run. Sizes that cannot be run are logged with the reason.
void warm_up(const CompiledGroup& group, const std::vector<std::int64_t>& batches, const Log& log);

}  // namespace sardonyx::ep
