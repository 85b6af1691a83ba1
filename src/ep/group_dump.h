// The text file that the option dump_dir writes for each compiled group.
#pragma once
#include <filesystem>
#include <string>

#include "ep/compiled_group.h"
#include "ep/ort.h"

namespace sardonyx::ep {

/// Writes the group's inputs, outputs and kernels, and the nodes that each kernel computes, to `folder`/`name`.txt. A
/// file that cannot be written is logged as a warning.
void dump_group(const CompiledGroup& group, const std::string& name, const std::filesystem::path& folder,
                const Log& log);

}  // namespace sardonyx::ep
