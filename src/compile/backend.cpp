// Finds and loads the compiler's library.
#include "compile/backend.h"

#include <dlfcn.h>
#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <filesystem>

#include "support/error.h"
#include "support/version.h"

namespace sardonyx {
namespace {

constexpr const char* kLibrary = "libsardonyx-compiler.so";

/// The directory of the library (or program) that contains this function.
std::filesystem::path own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&compiler_backend), &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code ignored;
  return std::filesystem::weakly_canonical(info.dli_fname, ignored).parent_path();
}

std::atomic<bool> loaded = false;

// Drops the read-only pages of the compiler's libraries: clean pages of files, which the system reads again if needed.
int forget_code(dl_phdr_info* info, std::size_t, void*) {
  const std::string_view name(info->dlpi_name ? info->dlpi_name : "");
  const bool ours =
      name.ends_with(kLibrary) || name.find("/libLLVM.so") != name.npos || name.find("/libclang-cpp.so") != name.npos;
  if (!ours) return 0;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  for (int k = 0; k < info->dlpi_phnum; ++k) {
    const ElfW(Phdr) & h = info->dlpi_phdr[k];
    if (h.p_type != PT_LOAD || (h.p_flags & PF_W) != 0) continue;
    const std::uintptr_t begin = (info->dlpi_addr + h.p_vaddr + page - 1) / page * page;
    const std::uintptr_t end = (info->dlpi_addr + h.p_vaddr + h.p_memsz) / page * page;
    if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }
  return 0;
}

// Whether every library of the process sees another LLVM (TensorFlow's, say). Its symbols would take the place of our
// LLVM's, even those with versions, unless our libraries look among themselves first.
int lookup_order() {
  constexpr const char* kSymbol = "_ZN4llvm11LLVMContextC1Ev";  // llvm::LLVMContext::LLVMContext()
#if defined(RTLD_DEEPBIND)
  if (dlsym(RTLD_DEFAULT, kSymbol) != nullptr) return RTLD_DEEPBIND;
#endif
  return 0;
}

const CompilerBackend& load() {
  const std::filesystem::path path = own_folder() / kLibrary;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | lookup_order());
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
  loaded = true;
  return *entry();
}

}  // namespace

const CompilerBackend& compiler_backend() {
  static const CompilerBackend& backend = load();
  return backend;
}

void release_compiler_memory() {
  if (!loaded) return;
#if defined(__GLIBC__)
  ::malloc_trim(0);
#endif
  dl_iterate_phdr(forget_code, nullptr);
}

}  // namespace sardonyx
