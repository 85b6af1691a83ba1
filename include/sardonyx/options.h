// Options of compiling and of running, and descriptions of a model's tensors.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sardonyx/compile_options.h"
#include "sardonyx/dtype.h"

namespace sardonyx {

/// An input or output of a model. A dim is a number ("224"), a symbol ("batch") or an expression of symbols ("2*n +
/// 1"). Symbols with the same name are equal in a run.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<std::string> shape;
  bool known_rank = true;  ///< false: any rank; `shape` is empty then
};

/// How a model's GEMMs and convolutions run with precision "int8" or "fp8"; and with "fp16" and a calibration table,
/// which nodes stay in float32 because their values leave float16's range.
struct QuantizationReport {
  int quantized = 0;                  ///< GEMMs and convolutions that run in 8 bits (fp16: in 16)
  std::vector<std::string> in_float;  ///< the others, with reasons: "node 3 'conv1' (Conv): it has groups"
};

/// A device that can run models.
struct DeviceInfo {
  std::string name;          ///< for Options::device
  std::string description;   ///< the device's own name
  std::string target;        ///< target of generated code
  int threads = 1;           ///< of a GPU: compute units
  std::uint64_t memory = 0;  ///< bytes
};

/// How long one step of a run took.
struct StepTime {
  std::string what;    ///< the kernel or routine
  std::string origin;  ///< the model's nodes that it computes
  double seconds = 0;
};

/// How to run.
struct RunOptions {
  int threads = 0;                           ///< 0: the number given when compiling
  std::vector<StepTime>* profile = nullptr;  ///< if given, the time of each step is appended
  /// A stream of the model's GPU (CUstream, hipStream_t) for the run's work; null: one of the model's own. Ignored on
  /// the host.
  void* stream = nullptr;
  /// If false, and there is a stream, the run returns when its work has been enqueued. Outputs in host memory are
  /// complete even then.
  bool synchronize = true;
};

/// Bytes of device memory that a compiled model uses.
struct MemoryUse {
  std::uint64_t constants = 0;  ///< weights, and constants computed from them
  std::uint64_t arena = 0;      ///< the largest arena of a run so far: temporaries, and copies of inputs and outputs
  std::uint64_t now = 0;        ///< GPU: bytes allocated now, for all concurrent runs
  std::uint64_t peak = 0;       ///< GPU: maximum of `now` so far
};

}  // namespace sardonyx
