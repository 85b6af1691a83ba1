// What a generated kernel needs, as data: code generation writes it, programs store it, and the compiler, the runtime
// and reports read it. Nothing is derived from a kernel's text or name.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sardonyx {

/// The code generator of a kernel.
enum class KernelFamily : std::uint8_t {
  kLoop,       ///< element-wise loops and reductions
  kRoutine,    ///< sorting, scatter, recurrent cells and the like
  kGemm,       ///< GEMM and convolution
  kAttention,  ///< softmax(scale * Q K^T + bias) V
  kCustom,     ///< a user's source
};
/// "loop", "routine", "gemm", "attention", "custom".
std::string_view name(KernelFamily family);

/// Blocks of a cluster that every NVIDIA GPU with clusters runs; a kernel with more asks the driver for it.
constexpr std::uint32_t kPortableCluster = 8;

/// Launch bounds of a GPU kernel, and what follows from them for register allocation. 0: no bound.
struct LaunchBounds {
  std::uint32_t threads = 0;     ///< threads of a block: the maximum on NVIDIA, exactly so many on AMD (0: 256)
  std::uint32_t min_blocks = 0;  ///< NVIDIA: minimum blocks per multiprocessor, which limits registers
  std::uint32_t min_waves = 0;   ///< AMD: minimum waves per SIMD (occupancy), which limits registers
  std::uint32_t cluster = 0;     ///< NVIDIA, sm_90 and later: blocks of a cluster, along x
  bool operator==(const LaunchBounds&) const = default;
};

/// What LaunchStep::work counts.
enum class WorkUnit : std::uint8_t {
  kItem,    ///< operations per work item
  kLaunch,  ///< operations of the whole launch
};

struct KernelSpec {
  KernelFamily family = KernelFamily::kLoop;
  std::string body;                  ///< C++ text after the kernel's name: parameters and statements
  std::string source;                ///< kCustom: the user's text before the kernel, in the dialect of kernels/custom.h
  std::vector<std::string> headers;  ///< in src/kernels, besides prelude.h (host) or gpu_kernels.h (GPUs)
  LaunchBounds bounds;
  std::uint32_t shared_bytes = 0;  ///< dynamic shared memory (LDS) of a block
  WorkUnit work_unit = WorkUnit::kItem;
  /// The kernel writes new rows after those of a tensor, and copies the old rows only if input and output are different
  /// memory. So its output may reuse the memory of its input.
  bool appends_in_place = false;
  bool operator==(const KernelSpec&) const = default;
};

/// The C++ definition of the kernel as a function named `symbol`, for the host or a GPU.
std::string definition_of(const KernelSpec& spec, std::string_view symbol, bool gpu);
/// The `#include` lines that these kernels need, each header once, sorted by name. A custom kernel is alone in its
/// translation unit, and its source follows.
std::string includes_of(const std::vector<const KernelSpec*>& specs, bool gpu);

}  // namespace sardonyx
