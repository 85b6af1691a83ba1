// lld for ELF, in process. The only file that includes lld's headers.
#include "compile/llvm/amd_link.h"

#include <lld/Common/CommonLinkerContext.h>
#include <lld/Common/Driver.h>
#include <llvm/Support/raw_ostream.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>

#include "compile/llvm/llvm_process.h"
#include "support/error.h"

LLD_HAS_DRIVER(elf)

namespace sardonyx {
namespace {

/// A private directory, deleted with this object.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::error_code ignored;
    for (const std::filesystem::path& base :
         {std::filesystem::path("/dev/shm"), std::filesystem::temp_directory_path(ignored)}) {
      std::string pattern = (base / "sardonyx-XXXXXX").string();
      if (::mkdtemp(pattern.data()) != nullptr) {
        path_ = pattern;
        return;
      }
    }
    fail(ErrorKind::kIo, "no temporary directory can be made in /dev/shm or {}, and linking for an AMD GPU needs one",
         std::filesystem::temp_directory_path(ignored).string());
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const char* name) const { return (path_ / name).string(); }
  /// `text` without the directory's random name.
  std::string without_path(std::string text) const {
    const std::string prefix = path_.string() + "/";
    for (std::size_t at; (at = text.find(prefix)) != std::string::npos;) text.erase(at, prefix.size());
    return text;
  }

 private:
  std::filesystem::path path_;
};

void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) fail(ErrorKind::kIo, "can't write {}", path);
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  if (!in) fail(ErrorKind::kIo, "can't read {}", path);
  return std::move(bytes).str();
}

}  // namespace

std::string link_amd(std::string_view object) {
  static std::mutex one_at_a_time;
  const TemporaryDirectory directory;
  const std::string in = directory.file("kernel.o"), out = directory.file("kernel.hsaco");
  write_file(in, object);
  std::string messages;
  bool done = false;
  {
    const std::lock_guard lock(one_at_a_time);
    run_guarded([&] {
      llvm::raw_string_ostream log(messages);
      // One hash table of symbols, which kernel_names.h rewrites, and no local symbols, which nothing reads.
      const char* args[] = {"ld.lld",
                            "-shared",
                            "--no-undefined",
                            "--build-id=none",
                            "--hash-style=sysv",
                            "--discard-all",
                            "--threads=1",
                            "--no-mmap-output-file",
                            "-o",
                            out.c_str(),
                            in.c_str()};
      done = lld::elf::link(args, log, log, /*exitEarly=*/false, /*disableOutput=*/false);
      lld::CommonLinkerContext::destroy();
    });
  }
  if (!done)
    fail(ErrorKind::kCompile, "the embedded linker refused an AMD code object:\n{}", directory.without_path(messages));
  return read_file(out);
}

}  // namespace sardonyx
