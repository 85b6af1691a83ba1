// A program's structure as bytes: everything except the elements of its constants. program_file.h defines the files.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "program/program.h"

namespace sardonyx {

/// Throws Error(kUnsupported) if the expressions of sizes are too long.
std::string serialize(const Program& program);

/// What the program computes, without its machine code, which may not be compiled yet: equal for programs that differ
/// only in that, and in the elements of constants. It can't be read back. Throws as serialize() does.
std::string serialize_without_code(const Program& program);

/// The inverse of serialize(), for untrusted bytes. `constants` become the program's. Throws Error(kInvalidModel) for
/// bytes that serialize() did not write, or if validate() refuses the program. The machine code in it is not checked.
std::shared_ptr<Program> deserialize(std::span<const std::byte> bytes, std::vector<Data> constants);

}  // namespace sardonyx
