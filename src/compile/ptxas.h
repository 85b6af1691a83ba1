// NVIDIA's assembler, where one is installed: PTX becomes a card's machine code in a process of its own. The driver
// compiles PTX as well, but one kernel at a time, and what its linker compiles in parallel is relocatable code, for
// which registers are not set apart as kernels ask. So a first run that needs fifty kernels takes seconds with the
// driver and a fraction of one with the assembler.
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
  int cuda = 0;      ///< the version of CUDA that the driver is for: 12040 is 12.4
};

/// An assembler.
struct Ptxas {
  std::filesystem::path program;
  int cuda = 0;         ///< the version of CUDA that it belongs to
  std::string version;  ///< its own words
};

/// Where to look for one. This library reads no environment variables: its interfaces do (api/environment.h).
struct PtxasSearch {
  std::string program;                  ///< a path, "off" (none), or empty: the usual places
  std::string path;                     ///< folders, separated by ':' (PATH)
  std::vector<std::string> toolkits{};  ///< folders of CUDA toolkits (CUDA_HOME, CUDA_PATH)
  auto operator<=>(const PtxasSearch&) const = default;
};

/// The usual places, in the order in which they are tried: beside the library (Python's packages nvidia-cuda-nvcc and
/// triton bring one), in `path`, in `toolkits`, in /usr/local/cuda. Folders that are not absolute are left out: they
/// would depend on where a program is started.
std::vector<std::filesystem::path> ptxas_places(const PtxasSearch& search);

/// Asks the programs for their version; the first that knows PTX of `oldest` (12010) and whose machine code a driver of
/// version `newest` takes: one of the same or an older major version. None: `why` says so.
std::optional<Ptxas> find_ptxas(std::span<const std::filesystem::path> places, int oldest, int newest,
                                std::string& why);

/// Machine code for `chip` ("sm_90a"), which must run PTX of the text's own ".target". Throws Error(kCompile) with the
/// assembler's reason, Error(kIo).
std::string assemble(const Ptxas& assembler, const std::string& ptx, const std::string& chip);

/// Machine code by the assembler of this machine, which is looked for once for each `search`, through `cache` (null:
/// none). Nothing if there is no assembler that suits, or if it fails (which is said on stderr, once): the driver
/// compiles PTX then. Thread-safe.
std::optional<std::string> assemble_here(const std::string& ptx, const PtxCard& card, CodeCache* cache,
                                         const PtxasSearch& search);

}  // namespace sardonyx
