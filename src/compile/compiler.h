// The embedded compiler: compiles text in our freestanding C++20 kernel dialect to machine code, in this process,
// through clang, LLVM and lld. It needs no SDK. This header does not depend on LLVM.
//
// The dialect: C++20, freestanding, no exceptions, no RTTI, no system headers (there is no file system: only the
// headers that are passed in can be included, as "name"). Floating point follows IEEE 754 with NaN, infinities and
// signed zeros, except that a*b+c may be fused (unless `#pragma clang fp contract(off)` forbids it) and that errno,
// exception flags and rounding modes are not observable. Entry points:
//   host    extern "C" functions
//   AMD     extern "C" [[clang::amdgpu_kernel]] void functions
//   NVIDIA  extern "C" [[clang::nvptx_kernel]] void functions
#pragma once
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sardonyx {

class CodeCache;  // compile/cache.h

/// A header that the source includes as "name"; it exists in memory only.
struct SourceFile {
  std::string name;
  std::string text;
};

enum class TargetKind { kHost, kAmdgpu, kNvptx };

/// A compilation target. `arch` is "gfx942" or "sm_90a" for GPUs; for a host it is "ARCH CPU FEATURES": "x86_64",
/// "x86_64 znver4" or "x86_64 znver4 +avx2,-sse4a", and the same with "aarch64".
struct Target {
  TargetKind kind = TargetKind::kHost;
  std::string arch;
  bool operator==(const Target&) const = default;
};

/// This machine's CPU, with the features that it has and its operating system supports. Detected once.
const Target& host_target();
/// Parses "gfx942", "sm_90", "host" (this machine), "x86_64", "aarch64" (any such CPU), or a result of to_string.
/// Throws Error(kUnsupported) with the list of known names.
Target parse_target(std::string_view text);
/// The names parse_target accepts.
std::vector<std::string> known_targets();

struct CompileOptions {
  int opt_level = 3;                     ///< 0 to 3
  bool debug_info = false;               ///< line tables and variables
  bool kernel_language = false;          ///< a GPU's own language, device side: CUDA for NVIDIA, HIP for AMD; else C++
  std::vector<std::string> defines;      ///< "NAME" or "NAME=VALUE"
  std::vector<std::string> extra_cc1{};  ///< further arguments of clang's cc1, after ours
};

/// Compiles `source`. Returns an ELF relocatable object for a host target, a linked HSA code object for AMD, PTX text
/// for NVIDIA. Thread-safe. Throws Error(kCompile) with clang's diagnostics (file "kernel.cpp", line, column),
/// Error(kUnsupported) for an unknown target.
std::string compile(std::string_view source, std::span<const SourceFile> headers, const Target& target,
                    const CompileOptions& options = {});

/// A compilation through the cache. `headers` must outlive the call.
struct CompileJob {
  std::string source;
  std::span<const SourceFile> headers;
  Target target;
  CompileOptions options;
};

/// The result of a job from the cache, or compiled and stored there (null: no cache). Throws as compile() above.
std::string compile(const CompileJob& job, CodeCache* cache);
/// Compiles `jobs` on `threads` threads (at least 1). `cache` is searched first and filled (null: no cache). Equal jobs
/// are compiled once. Returns results in the order of jobs; rethrows the error of the first failing job. `progress` is
/// called with the number of finished distinct jobs and of all, one call at a time.
std::vector<std::string> compile_all(std::span<const CompileJob> jobs, int threads, CodeCache* cache,
                                     const std::function<void(std::size_t, std::size_t)>& progress = {});

/// Identifies the embedded compiler and its use here; part of every cache key.
const std::string& compiler_version();

}  // namespace sardonyx
