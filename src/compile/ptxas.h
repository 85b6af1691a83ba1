// NVIDIA's assembler, if one is installed: compiles PTX to machine code in a separate process. The driver compiles PTX
// too, but one kernel at a time; its linker compiles in parallel, but relocatable code, which ignores a kernel's
// register settings. A first run that needs fifty kernels takes seconds with the driver, and a fraction of a second
// with the assembler.
#pragma once
#include <compare>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sardonyx {

class CodeCache;  // compile/cache.h

/// A card and its driver.
struct PtxCard {
  std::string chip;  ///< what machine code is for: "sm_90a", "sm_120"
  int cuda = 0;      ///< the version of CUDA that the driver supports: 12040 is 12.4
};

/// An assembler.
struct Ptxas {
  std::filesystem::path program;
  int cuda = 0;         ///< the version of CUDA that it belongs to
  std::string version;  ///< as it reports it
};

/// Where to look for one. This library reads no environment variables; the interfaces do (api/environment.h).
struct PtxasSearch {
  std::string program;                  ///< a path, "off" (none), or empty: the usual places
  std::string path;                     ///< directories, separated by ':' (PATH)
  std::vector<std::string> toolkits{};  ///< directories of CUDA toolkits (CUDA_HOME, CUDA_PATH)
  auto operator<=>(const PtxasSearch&) const = default;
};

/// The usual places, in search order: next to the library (Python's packages nvidia-cuda-nvcc and triton contain one),
/// in `path`, in `toolkits`, in /usr/local/cuda. Relative directories are skipped, because they depend on the working
/// directory.
std::vector<std::filesystem::path> ptxas_places(const PtxasSearch& search);

/// Runs the programs to get their versions. Returns the first that supports PTX of `oldest` (12010) and whose machine
/// code a driver of version `newest` accepts: the same or an older major version. Empty if there is none; `why` then
/// says so.
std::optional<Ptxas> find_ptxas(std::span<const std::filesystem::path> places, int oldest, int newest,
                                std::string& why);

/// Compiles PTX to machine code for `chip` ("sm_90a"), which must be able to run the text's ".target". Throws
/// Error(kCompile) with the assembler's message, or Error(kIo).
std::string assemble(const Ptxas& assembler, const std::string& ptx, const std::string& chip);

/// Compiles with this machine's assembler, which is searched for once for each `search`, through `cache` (null: none).
/// Empty if there is no suitable assembler, or if it fails (which is reported on stderr, once): the driver then
/// compiles the PTX. Thread-safe.
std::optional<std::string> assemble_here(const std::string& ptx, const PtxCard& card, CodeCache* cache,
                                         const PtxasSearch& search);

}  // namespace sardonyx
