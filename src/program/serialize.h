// A program's structure as bytes: everything but the elements of its constants. Files around it: program_file.h.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "program/program.h"

namespace sardonyx {

/// Throws Error(kUnsupported) for a program with sizes that are too long expressions.
std::string serialize(const Program& program);

/// The inverse, checked: the bytes may come from anybody. `constants` become the program's. Throws Error(kInvalidModel)
/// for bytes that serialize() did not write, or whose program validate() refuses. Not checked is what the machine code
/// in it does.
std::shared_ptr<Program> deserialize(std::span<const std::byte> bytes, std::vector<Data> constants);

}  // namespace sardonyx
