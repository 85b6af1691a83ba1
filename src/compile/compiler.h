// The embedded compiler: text in our freestanding C++20 kernel dialect becomes machine code in this process, through
// clang, LLVM and lld, on any machine and without an SDK. This header needs no LLVM.
//
// The dialect: C++20, freestanding, no exceptions, no RTTI, no system headers (there is no file system: only the
// headers handed in can be included, as "name"). Floating point follows IEEE 754 with NaN, infinities and signed zeros,
// except that a*b+c may become one fused operation (`#pragma clang fp contract(off)` forbids it) and that errno,
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

/// What to compile for. `arch` is "gfx942" or "sm_90a" for GPUs; for a host it is "ARCH CPU FEATURES": "x86_64",
/// "x86_64 znver4" or "x86_64 znver4 +avx2,-sse4a", and the same with "aarch64".
struct Target {
  TargetKind kind = TargetKind::kHost;
  std::string arch;
  bool operator==(const Target&) const = default;
};

/// This machine's CPU with the features that it and its operating system really have. Detected once.
const Target& host_target();
/// "gfx942", "sm_90", "host" (this machine), "x86_64", "aarch64" (any such CPU), or what to_string returns.
/// Throws Error(kUnsupported) with the list of known names.
Target parse_target(std::string_view text);
/// The names parse_target accepts.
std::vector<std::string> known_targets();

struct CompileOptions {
  int opt_level = 3;                     ///< 0 to 3
  bool debug_info = false;               ///< line tables and variables
  std::vector<std::string> defines;      ///< "NAME" or "NAME=VALUE"
  std::vector<std::string> extra_cc1{};  ///< further arguments of clang's cc1, after ours
};

/// Compiles `source`. Returns an ELF relocatable object for a host target, a linked HSA code object for AMD, PTX text
/// for NVIDIA. Thread-safe. Throws Error(kCompile) with clang's diagnostics (file "kernel.cpp", line, column),
/// Error(kUnsupported) for an unknown target.
std::string compile(std::string_view source, std::span<const SourceFile> headers, const Target& target,
                    const CompileOptions& options = {});

/// One compile() of compile_all. `headers` must outlive the call.
struct CompileJob {
  std::string source;
  std::span<const SourceFile> headers;
  Target target;
  CompileOptions options;
};

/// Compiles `jobs` on `threads` threads (at least 1), looking in `cache` first and storing there (null: no cache).
/// Equal jobs are compiled once. Returns results in the order of jobs; rethrows the first failing job's Error.
/// `progress` is called, from one thread at a time, with how many different jobs are done and how many there are.
std::vector<std::string> compile_all(std::span<const CompileJob> jobs, int threads, CodeCache* cache,
                                     const std::function<void(std::size_t, std::size_t)>& progress = {});

/// Names the embedded compiler and what we do with it: part of every cache key.
const std::string& compiler_version();

}  // namespace sardonyx
