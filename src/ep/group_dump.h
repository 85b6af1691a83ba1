// The files that the option dump_dir writes for each compiled group.
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

/// Writes the group's part of the model to `folder`/`name`.onnx, so that it can be looked at and run alone. A model
/// that one file can't hold, or a file that cannot be written, is logged as a warning.
void dump_model(const model::Model& model, const std::string& name, const std::filesystem::path& folder,
                const Log& log);

}  // namespace sardonyx::ep
