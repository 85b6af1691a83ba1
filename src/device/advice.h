// What to do if a driver finds no card: usually its device files are missing, or this user may not open them.
#pragma once
#include <filesystem>
#include <functional>
#include <string>

namespace sardonyx {

/// Access to files, which tests replace.
struct FileAccess {
  std::function<bool(const std::filesystem::path&)> exists;
  std::function<bool(const std::filesystem::path&)> usable;  ///< can be read and written
  static const FileAccess& system();
};

/// Advice to append to a message ("; ..."), or "" if nothing is wrong with the device files. `dev` is /dev.
std::string amd_advice(const std::filesystem::path& dev = "/dev", const FileAccess& files = FileAccess::system());
std::string nvidia_advice(const std::filesystem::path& dev = "/dev", const FileAccess& files = FileAccess::system());

}  // namespace sardonyx
