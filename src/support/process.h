// Running other programs, and temporary directories.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace sardonyx {

/// A new directory in the system's directory for temporary files (TMPDIR), deleted with this object. Throws
/// Error(kIo).
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Runs arguments[0], looked for in PATH if it is a bare name, with no input and with its stdout and stderr in the file
/// `log`. Returns its exit status, 128 + the signal that ended it, or -1 if it cannot be started or (in a process that
/// ignores SIGCHLD) its status is not available.
int run_program(const std::vector<std::string>& arguments, const std::filesystem::path& log);

}  // namespace sardonyx
