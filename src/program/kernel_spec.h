// What one generated kernel needs, as data: code generation writes it, programs keep it, and the compiler, the runtime
// and reports read it. Nothing else is known of a kernel, in particular nothing from its text or its name.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sardonyx {

/// Which code generator a kernel comes from.
enum class KernelFamily : std::uint8_t {
  kLoop,       ///< element-wise loops and reductions
  kRoutine,    ///< sorting, scatter, recurrent cells and the like
  kGemm,       ///< matrix products and convolutions
  kAttention,  ///< softmax(scale * Q K^T + bias) V
};
/// "loop", "routine", "gemm", "attention".
std::string_view name(KernelFamily family);

/// What a GPU kernel demands of its launches, and of the registers that the compiler gives it. 0: no demand.
struct LaunchBounds {
  std::uint32_t threads = 0;     ///< most threads of a block (NVIDIA; AMD's kernels all have blocks of 256)
  std::uint32_t min_blocks = 0;  ///< NVIDIA: blocks that fit on a multiprocessor, which limits registers
  std::uint32_t min_waves = 0;   ///< AMD: waves that fit on a SIMD, which limits registers
  std::uint32_t cluster = 0;     ///< NVIDIA, sm_90 and later: blocks of a cluster, along x
  bool operator==(const LaunchBounds&) const = default;
};

/// How the operations of a kernel are counted in LaunchStep::work.
enum class WorkUnit : std::uint8_t {
  kPoint,   ///< for one point of the grid
  kLaunch,  ///< for the whole launch
};

struct KernelSpec {
  KernelFamily family = KernelFamily::kLoop;
  std::string body;                  ///< C++ text behind the kernel's name: parameters and statements
  std::vector<std::string> headers;  ///< of src/kernels, besides prelude.h (host) or gpu_kernels.h (GPUs)
  LaunchBounds bounds;
  std::uint32_t shared_bytes = 0;  ///< dynamic shared memory (LDS) of a block
  WorkUnit work_unit = WorkUnit::kPoint;
  /// Writes rows behind those of a tensor and copies the others only where input and output are different memory, so
  /// that its output may take the memory of its input.
  bool appends_in_place = false;
  bool operator==(const KernelSpec&) const = default;
};

/// The C++ definition of the kernel as a function named `symbol`, for the host or for a GPU.
std::string definition_of(const KernelSpec& spec, std::string_view symbol, bool gpu);
/// The `#include` lines that these kernels need together, each header once, in the order of their names.
std::string includes_of(const std::vector<const KernelSpec*>& specs, bool gpu);

}  // namespace sardonyx
