// Options of compiling and of running, and what a model says about its tensors.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sardonyx/compile_options.h"
#include "sardonyx/dtype.h"

namespace sardonyx {

/// A tensor that a model takes or gives. A dim is a number ("224"), a symbol ("batch") or an expression of symbols
/// ("2*n + 1"). Symbols of one name are equal in a run.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<std::string> shape;
  bool known_rank = true;  ///< false: any rank; `shape` is empty then
};

/// How a model's GEMMs and convolutions run with precision "int8" or "fp8".
struct QuantizationReport {
  int quantized = 0;                  ///< GEMMs and convolutions that run in 8 bits
  std::vector<std::string> in_float;  ///< the others, with reasons: "node 3 'conv1' (Conv): it has groups"
};

/// Something that models can run on.
struct DeviceInfo {
  std::string name;          ///< what Options::device takes
  std::string description;   ///< the processor's own name
  std::string target;        ///< what code is generated for
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
  /// A stream of the model's GPU (CUstream, hipStream_t) that the run's work goes to; null: one of the model's own. The
  /// host ignores it.
  void* stream = nullptr;
  /// False, with a stream: returns when the work has been given to the stream. What goes to the host's memory is
  /// complete all the same.
  bool synchronize = true;
};

/// Bytes of device memory that a compiled model uses.
struct MemoryUse {
  std::uint64_t constants = 0;  ///< weights, and what is computed from them once
  std::uint64_t arena = 0;      ///< the largest arena of a run so far: temporaries, and inputs and outputs on their way
  std::uint64_t now = 0;        ///< of a GPU: everything that is allocated now, of all runs at a time
  std::uint64_t peak = 0;       ///< of a GPU: the most that ever was
};

}  // namespace sardonyx
