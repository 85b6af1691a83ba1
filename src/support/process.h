// Other programs, run and waited for.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace sardonyx {

/// A folder of its own in the system's folder for temporary files (TMPDIR), deleted with this object. Throws
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
/// `log`. Returns its exit status, 128 + the signal that ended it, or -1 if it can't be started or (in a process that
/// ignores SIGCHLD) its status can't be had.
int run_program(const std::vector<std::string>& arguments, const std::filesystem::path& log);

}  // namespace sardonyx
