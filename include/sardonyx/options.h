// Options of compiling and running, and what a model says of its tensors.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sardonyx/dtype.h"
#include "sardonyx/memory_budget.h"

namespace sardonyx {

class Communicator;

/// What compiling is busy with: "reading", "importing", "compiling" (then with counts of translation units), "ready".
struct Progress {
  std::string_view stage;
  std::size_t done = 0, total = 0;
};

/// How to compile.
struct Options {
  std::string device = "host";  ///< "host": this machine's CPU; "hip", "cuda:1": a GPU; see devices()
  /// "fp32": the model's own types. "fp16", "bf16": a GPU keeps the weights and activations of products, convolutions
  /// and attention in 16 bits, and what is computed from them element by element; sums, statistics of softmax and
  /// normalisation, and the model's inputs and outputs keep their types. The host computes in float32 all the same.
  /// "int8", "fp8": products and convolutions of float32 activations by constant weights run in 8 bits, with ranges
  /// from `calibration_table`; what it has no range of stays in float32. fp8 is float8 e4m3, on GPUs that multiply it:
  /// gfx942, gfx950, gfx1200, gfx1201.
  std::string precision = "fp32";
  /// For int8 and fp8: how large the model's tensors get. A file that ONNX Runtime's calibrators write (json, cache or
  /// flatbuffers), or TensorRT's cache; docs/precision.md says how to make one.
  std::filesystem::path calibration_table;
  int threads = 0;  ///< for compiling and running; 0: all cores
  /// Keeps compiled code on disk, so that compiling the same model again is quick. Empty: no cache. Code in it is
  /// executed, so a directory that others may write to is not used. See user_cache_directory().
  std::filesystem::path cache_dir;
  std::map<std::string, std::int64_t> dims;  ///< fixes symbolic dims by name: {"batch", 1}
  /// How kernels of a GPU's matrix products, convolutions and attention are chosen. "off": by rule, or as the database
  /// says. "first-use": the few most promising are timed when a run first has some sizes; "exhaustive": all. Such runs
  /// take longer, and what they find is kept in the database.
  std::string tuning = "off";
  /// Measured choices, made by tuning. Empty: none, with tuning `tuning.sqlite` in the cache's folder.
  std::filesystem::path tuning_database;
  /// The vendor's library of products (NVIDIA's cuBLASLt, AMD's hipBLASLt), whose products are candidates of tuning
  /// and run where they were measured to be the fastest. Empty: the one that the loader finds, if there is one; a path:
  /// that file; "off": none, whatever was measured.
  std::string product_library;
  bool fuse = true;                       ///< false: one kernel for each value, to find a fault
  bool all_outputs = false;               ///< every named intermediate value becomes an output
  std::uint64_t device_memory_limit = 0;  ///< bytes of a GPU's memory that the model may take; 0: no limit
  /// What several models may take of a GPU's memory together, besides device_memory_limit; null: no such limit.
  std::shared_ptr<MemoryBudget> device_memory_budget;
  /// For a model with nodes that sum or gather over several processes (com.microsoft's AllReduce and AllGather): this
  /// process's place among them, on the same device. See sardonyx/communicator.h.
  std::shared_ptr<Communicator> communicator;
  bool graphs = true;                             ///< on a GPU, runs of known sizes are replayed as one captured graph
  std::function<void(const Progress&)> progress;  ///< called while compiling, from one thread at a time
};

/// A tensor that a model takes or gives. A dim is a number ("224"), a symbol ("batch") or an expression of symbols
/// ("2*n + 1"). Symbols of one name are equal in a run.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<std::string> shape;
  bool known_rank = true;  ///< false: any rank; `shape` is empty then
};

/// What became of a model's products with precision "int8" or "fp8".
struct QuantizationReport {
  int quantized = 0;                  ///< products that run in 8 bits
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

/// Bytes of the device's memory that a compiled model has.
struct MemoryUse {
  std::uint64_t constants = 0;  ///< weights, and what is computed from them once
  std::uint64_t arena = 0;      ///< the largest arena of a run so far: temporaries, and inputs and outputs on their way
  std::uint64_t now = 0;        ///< of a GPU: everything that is allocated now, of all runs at a time
  std::uint64_t peak = 0;       ///< of a GPU: the most that ever was
};

}  // namespace sardonyx
