// GEMM through the vendor's own library: NVIDIA's cuBLASLt, AMD's hipBLASLt. It is loaded at run time and not needed to
// build. It runs only what tuning has measured to be faster than our own kernels.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "program/choice.h"
#include "sardonyx/dtype.h"

namespace sardonyx {

/// out[z, row, col] = activation(sum over k of a[z, row, k] b[z, k, col] + bias[col] + residual[z, row, col]); all
/// tensors are contiguous and row-major.
struct LibraryGemm {
  std::int64_t batches = 1, m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;  ///< a is stored as [k, m], b as [n, k]
  bool one_a = false, one_b = false;      ///< one matrix for all batches
  DType type = DType::kFloat32;           ///< of a and b: float32, float16, bfloat16
  DType out = DType::kFloat32;            ///< of out, bias and residual: that type, or float32
  LibraryEpilogue epilogue;
};

/// Device memory, each aligned to 16 bytes. Null if the GEMM has no such tensor.
struct LibraryTensors {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;
  const void* residual = nullptr;
  void* out = nullptr;
  void* workspace = nullptr;  ///< kLibraryWorkspace bytes, aligned to 256
};

/// An algorithm of the library for a GEMM. Thread-safe.
class GemmPlan {
 public:
  virtual ~GemmPlan() = default;
  /// Enqueues the GEMM on a stream, which may be capturing. Throws Error(kDevice) with the library's reason.
  virtual void run(const LibraryTensors& tensors, GpuStream stream) const = 0;
};

class GemmLibrary {
 public:
  virtual ~GemmLibrary() = default;
  /// "cuBLASLt 13.1.0": measurements are valid for this version only.
  const std::string& name() const { return name_; }
  /// The library's algorithms by its own heuristic, the most promising first; empty if it does not support this.
  /// Thread-safe.
  virtual std::vector<std::shared_ptr<const GemmPlan>> plans(const LibraryGemm& product, int at_most) const = 0;

 protected:
  std::string name_;
};

/// The library for a GPU, loaded once per card and path. `path`: the file, or empty for the loader's search path
/// (LD_LIBRARY_PATH, the system's directories, what the process has loaded already). Null, with what is missing in
/// `why`, if none is usable. For a simulated card it is null unless `path` names one.
std::shared_ptr<const GemmLibrary> open_gemm_library(const std::shared_ptr<Gpu>& gpu, const std::string& path,
                                                     std::string& why);

/// The name of a library's algorithm number `at` for a GEMM with this epilogue: "cuBLASLt 13.1.0 #0 bias relu".
std::string library_candidate(const std::string& library, std::size_t at, const LibraryEpilogue& epilogue);

}  // namespace sardonyx
