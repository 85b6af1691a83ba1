#include "migraphx/files.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "support/error.h"
#include "support/mapped_file.h"

namespace sardonyx::mgx {

std::string read_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  static std::atomic<unsigned> count = 0;
  std::filesystem::path temporary = path;
  temporary += fmt::format(".{}.{}.tmp", ::getpid(), count++);
  std::ofstream file(temporary, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  std::error_code error;
  if (file) {
    std::filesystem::rename(temporary, path, error);
    if (!error) return;
  }
  const std::string why = error ? error.message() : std::strerror(errno);
  std::filesystem::remove(temporary, error);
  fail(ErrorKind::kIo, "{}: can't be written: {}", path.string(), why);
}

}  // namespace sardonyx::mgx
