// The text of an operator's source.
#pragma once
#include <string>

#include "sardonyx/custom_operator.h"

namespace sardonyx::custom {

/// The source with the text of each #include "name" that is found beside the file, and #line directives so that errors
/// name the user's files and lines. Includes that are not found stay. Throws Error(kIo) for a file that can't be read,
/// kInvalidArgument for includes that never end.
std::string flattened_source(const CustomOperator& op);

/// The text of a file of at most 16 MiB. Throws Error(kIo).
std::string read_text(const std::filesystem::path& file);

}  // namespace sardonyx::custom
