// Files of operator definitions; docs/custom-operators.md describes them.
#pragma once
#include <filesystem>
#include <vector>

#include "sardonyx/custom_operator.h"

namespace sardonyx::custom {

/// Throws Error: kIo; kInvalidArgument with file and line for what is not such a file.
std::vector<CustomOperator> read_toml(const std::filesystem::path& file);
/// The same for a file's text.
std::vector<CustomOperator> parse_toml(std::string_view text, const std::filesystem::path& file);

}  // namespace sardonyx::custom
