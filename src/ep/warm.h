// What is done with a group right after it is compiled, if options ask for it.
#pragma once
#include <string>

#include "ep/compiled_group.h"
#include "ep/ort.h"

namespace sardonyx::ep {

/// Runs the group once for each of the batch sizes, on zeros, so that the first real runs of these sizes are warm. The
/// batch is the first dim of the first input that has a symbol there. Says in the log what it can't warm up, and why.
void warm_up(const CompiledGroup& group, const std::vector<std::int64_t>& batches, const Log& log);

/// Writes what a group became to `folder`/NAME.txt: its nodes, its kernels with the nodes that each computes.
void dump(const CompiledGroup& group, const std::string& name, const std::filesystem::path& folder, const Log& log);

}  // namespace sardonyx::ep
