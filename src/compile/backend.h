// The door to libsardonyx-compiler.so, which holds clang, LLVM and lld. It is loaded at the first compilation: a
// program that comes from a file or the cache runs without it, and so without the 100 MB of memory and the start-up
// time that LLVM takes.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compile/compiler.h"
#include "compile/host_runtime.h"
#include "compile/kernel_code.h"

namespace sardonyx {

enum class Emit { kObject, kAssembly };

/// What the compiler's library does for us. Everything is thread-safe and throws Error(kCompile).
struct CompilerBackend {
  /// Of the library itself; another one than ours is refused.
  std::string_view version;

  /// Runs clang's cc1 with `args` on `source` (named kernel.cpp) and `headers`. The compiler sees no other file.
  /// `precompiled`: what precompile_cc1 returned for the same arguments and headers, or null. Throws with the
  /// diagnostics.
  std::string (*run_cc1)(const std::vector<std::string>& args, std::string_view source,
                         std::span<const SourceFile> headers, Emit emit, const std::string* precompiled);
  /// Parses the header named `name` and returns clang's serialised result (a precompiled header).
  std::string (*precompile_cc1)(const std::vector<std::string>& args, std::string_view name,
                                std::span<const SourceFile> headers);
  /// Links an AMDGPU relocatable object into the code object that a driver loads; see llvm/amd_link.h.
  std::string (*link_amd)(std::string_view object);
  /// What a code object says of its kernels; see llvm/amd_report.h.
  std::vector<KernelCode> (*read_amd)(std::string_view object, const std::string& chip);
  /// Links host objects into memory with JITLink; see llvm/jit_link.h.
  std::shared_ptr<void> (*jit_link)(std::span<const std::string> objects, std::span<const RuntimeSymbol> runtime,
                                    std::unordered_map<std::string, void*>& symbols);
};

/// Loads the library when it is first called. Throws Error(kUnsupported) when it is not beside this one, or of another
/// version.
const CompilerBackend& compiler_backend();

/// After compiling: gives back memory that only compiling needs, the pages of the compiler's code above all (they are
/// read again when they are executed). Does nothing if the library is not loaded. Safe while other threads compile.
void release_compiler_memory();

}  // namespace sardonyx
