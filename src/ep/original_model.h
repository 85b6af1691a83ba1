// The model that an EPContext model was compiled from: which file it is, and the part of it that a node stands for.
#pragma once
#include <filesystem>
#include <span>
#include <string>

#include "ep/graph_reader.h"

namespace sardonyx::ep {

/// Text that differs whenever the file does. Weights in other files are not looked at. Throws Error(kIo).
std::string fingerprint(const std::filesystem::path& file);

/// The part of the model in `file` that computes `outputs` from `inputs`, which are values of it by name; `inputs` and
/// `outputs` bring their types. `recorded`: fingerprint() when the program was compiled, "" if not known.
///
/// Throws Error: kIo; kInvalidModel for a file that changed since, and where `outputs` are no values of the model or
/// depend on more than `inputs`.
GroupModel original_subgraph(const std::filesystem::path& file, const std::string& recorded,
                             std::span<const onnx::ValueInfo> inputs, std::span<const onnx::ValueInfo> outputs);

}  // namespace sardonyx::ep
