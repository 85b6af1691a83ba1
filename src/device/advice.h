// What to do when a driver finds no card: usually its devices are missing, or this user may not open them.
#pragma once
#include <filesystem>
#include <functional>
#include <string>

namespace sardonyx {

/// How to look at files; tests have others.
struct FileAccess {
  std::function<bool(const std::filesystem::path&)> exists;
  std::function<bool(const std::filesystem::path&)> usable;  ///< may be read and written
  static const FileAccess& system();
};

/// "; ..." to end a message with, or "" if nothing is wrong with the devices. `dev` is /dev.
std::string amd_advice(const std::filesystem::path& dev = "/dev", const FileAccess& files = FileAccess::system());
std::string nvidia_advice(const std::filesystem::path& dev = "/dev", const FileAccess& files = FileAccess::system());

}  // namespace sardonyx
