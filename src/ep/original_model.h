// The model that an EPContext model was compiled from: its identity, and the subgraph that an EPContext node replaces.
#pragma once
#include <filesystem>
#include <span>
#include <string>

#include "ep/graph_reader.h"

namespace sardonyx::ep {

/// Identifies the content of the file. Weights in external files are not included. Throws Error(kIo).
std::string fingerprint(const std::filesystem::path& file);

/// The subgraph of the model in `file` that computes the values `outputs` from the values `inputs`, which are given by
/// name and type. `recorded`: fingerprint() when the program was compiled, "" if unknown.
///
/// Throws Error: kIo; kInvalidModel if the file has changed, or if `outputs` are not values of the model or depend on
/// more than `inputs`.
GroupModel original_subgraph(const std::filesystem::path& file, const std::string& recorded,
                             std::span<const model::ValueInfo> inputs, std::span<const model::ValueInfo> outputs);

}  // namespace sardonyx::ep
