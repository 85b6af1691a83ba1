// The interface to libsardonyx-compiler.so, which contains clang, LLVM and lld. It is loaded at the first compilation:
// running a program from a file or the cache needs neither its 100 MB of memory nor LLVM's start-up time.
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

/// The functions of the compiler's library. All are thread-safe and throw Error(kCompile).
struct CompilerBackend {
  /// The library's version, which must be ours.
  std::string_view version;

  /// Runs clang's cc1 with `args` on `source` (named kernel.cpp) and `headers`, the only files that it can see.
  /// `precompiled`: the result of precompile_cc1 for the same arguments and headers, or null. Throws with clang's
  /// diagnostics.
  std::string (*run_cc1)(const std::vector<std::string>& args, std::string_view source,
                         std::span<const SourceFile> headers, Emit emit, const std::string* precompiled);
  /// Parses the header named `name` and returns clang's serialised result (a precompiled header).
  std::string (*precompile_cc1)(const std::vector<std::string>& args, std::string_view name,
                                std::span<const SourceFile> headers);
  /// Links an AMDGPU relocatable object into the code object that a driver loads; see llvm/amd_link.h.
  std::string (*link_amd)(std::string_view object);
  /// Checks a relocatable object before it is linked; see llvm/amd_accumulators.h.
  bool (*keeps_own_registers)(std::string_view object, const std::string& chip);
  /// Reads the properties of kernels from a code object; see llvm/amd_report.h.
  std::vector<KernelCode> (*read_amd)(std::string_view object, const std::string& chip);
  /// Links host objects into memory with JITLink; see llvm/jit_link.h.
  std::shared_ptr<void> (*jit_link)(std::span<const std::string> objects, std::span<const RuntimeSymbol> runtime,
                                    std::unordered_map<std::string, void*>& symbols);
};

/// Loads the library on the first call. Throws Error(kUnsupported) if it is not in the same directory as this one, or
/// is of another version.
const CompilerBackend& compiler_backend();

/// Call after compiling: releases memory that only compiling needs, mostly pages of the compiler's code (which are read
/// again if needed). Does nothing if the library is not loaded. Safe while other threads compile.
void release_compiler_memory();

}  // namespace sardonyx
