// Finds and loads the compiler's library.
#include "compile/backend.h"

#include <dlfcn.h>

#include <filesystem>

#include "support/error.h"
#include "support/version.h"

namespace sardonyx {
namespace {

constexpr const char* kLibrary = "libsardonyx-compiler.so";

/// The folder of the library (or program) that this function is in.
std::filesystem::path own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&compiler_backend), &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code ignored;
  return std::filesystem::weakly_canonical(info.dli_fname, ignored).parent_path();
}

const CompilerBackend& load() {
  const std::filesystem::path path = own_folder() / kLibrary;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    fail(ErrorKind::kUnsupported, "the compiler can't be loaded: {}; reinstall Sardonyx, or run a saved program",
         why ? why : path.string());
  }
  using Entry = const CompilerBackend* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "sardonyx_compiler_backend"));
  if (entry == nullptr || entry()->version != version())
    fail(ErrorKind::kUnsupported, "{} does not belong to this libsardonyx ({}); reinstall Sardonyx", path.string(),
         version());
  return *entry();
}

}  // namespace

const CompilerBackend& compiler_backend() {
  static const CompilerBackend& backend = load();
  return backend;
}

}  // namespace sardonyx
