// Reading and writing whole files.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace sardonyx::mgx {

/// Throws Error(kIo).
std::string read_file(const std::filesystem::path& path);
/// Writes under a temporary name in the same folder, then renames. Throws Error(kIo).
void write_file(const std::filesystem::path& path, std::string_view bytes);

}  // namespace sardonyx::mgx
