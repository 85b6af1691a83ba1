// Running a program, on the host or a GPU.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "compile/host_module.h"
#include "device/memory.h"
#include "host/tile_kernel.h"
#include "program/program.h"
#include "sardonyx/device.h"
#include "sardonyx/options.h"
#include "sardonyx/tensor.h"
#include "support/error.h"
#include "vendor/product_library.h"

namespace sardonyx {

using HostTensor = Tensor;
inline HostTensor allocate_tensor(DType dtype, std::vector<std::int64_t> dims) {
  return Tensor::allocate(dtype, std::move(dims));
}

/// Where temporaries lie in the arena for given values of the symbols.
struct ArenaPlan {
  std::vector<std::pair<int, std::size_t>> offsets;  ///< buffer, offset in bytes
  std::size_t total = 0;                             ///< bytes
  std::size_t live = 0;                              ///< the most bytes that are needed at a time: no arena is smaller
  /// Temporaries whose size is known only in the course of a run; they are allocated when they are written.
  int unplanned = 0;
};

/// The program was made for sizes that these are not (CheckOp::assumption): compile it for these.
class AssumptionFailed : public Error {
 public:
  explicit AssumptionFailed(const std::string& message) : Error(ErrorKind::kInvalidArgument, message) {}
};

class CodeCache;  // compile/cache.h
struct DeviceConstants;
class TileTuner;

/// Where a run's outputs go.
struct OutputSink {
  OutputAllocator allocate;
  /// If given: memory of the host that holds output `index` already; true if it was taken, and allocate() is not asked.
  std::function<bool(std::size_t index, Tensor&& tensor)> take;
};

/// A program made ready: code linked, constants computed. run() is safe from many threads at once.
class Executor {
 public:
  /// `memory`: of the GPU that runs it, for a program of a GPU's code; null for the host's. `graphs`: on a GPU, replay
  /// runs of known sizes as captured graphs.
  /// `communicator`: for a program with steps that several processes do together. Throws Error(kInvalidArgument) if
  /// such a program has none. `cache`: keeps machine code that NVIDIA's assembler makes; null: it is made anew.
  Executor(std::shared_ptr<const Program> program, int threads, std::shared_ptr<DeviceMemory> memory = nullptr,
           bool graphs = true, std::shared_ptr<Communicator> communicator = nullptr,
           std::shared_ptr<CodeCache> cache = nullptr);
  ~Executor();

  /// Times tilings when sizes are first seen; to be called before the first run.
  void tune(std::shared_ptr<TileTuner> tuner) { tuner_ = std::move(tuner); }

  /// Where vendors' libraries of products are (vendor/product_library.h); "off": they are not used, whatever was
  /// measured. To be called before the first run.
  void use_library(std::string path) { library_path_ = std::move(path); }

  const Program& program() const { return *program_; }
  std::shared_ptr<const Program> shared_program() const { return program_; }
  /// Inputs in the order of input_names; dtypes and dims are checked against the declaration. Throws AssumptionFailed
  /// before it asks for any output's memory.
  void run(const std::vector<TensorView>& inputs, const OutputSink& sink, const RunOptions& options = {});
  /// The same in the host's memory. Returns outputs in the order of output_names.
  std::vector<HostTensor> run(const std::vector<HostTensor>& inputs, const RunOptions& options = {});
  /// Values of the symbols for inputs of these dims. Throws Error(kInvalidArgument) when ranks or dims don't fit the
  /// declaration.
  SymbolValues bind(const std::vector<std::vector<std::int64_t>>& input_dims) const;
  /// The outputs' dims for such values; -1 where one is known only in the course of a run.
  std::vector<std::vector<std::int64_t>> output_dims(const SymbolValues& symbols) const;
  /// Bytes of constants, and of the largest arena so far.
  std::size_t constant_bytes() const { return constant_bytes_; }
  std::size_t arena_bytes() const { return arena_bytes_; }
  /// What run() does for inputs that give symbols these values, when inputs and outputs are in the host's memory.
  /// Throws Error(kInvalidArgument) for sizes that make no tensor.
  ArenaPlan plan(const SymbolValues& symbols) const;

 private:
  /// What a GPU's arena has room for besides temporaries: copies of inputs, and of outputs on their way to the host.
  struct Staged {
    std::vector<bool> inputs, outputs;
  };
  struct Context;
  struct Plan;
  struct Run;
  struct Lives;
  /// Null if there is none that can be used.
  std::shared_ptr<const ProductLibrary> product_library();
  void check_group();
  class ConstantLoader;
  void load_code(std::shared_ptr<CodeCache> cache);
  void place_constants();
  void find_lives(const Block& block, const std::vector<bool>& inputs);
  void find_outputs();
  void compute_constants(const std::vector<bool>& used);
  void load_constants(std::vector<bool> used);
  ArenaPlan plan(const SymbolValues& symbols, const Staged& staged) const;
  std::unique_ptr<Context> acquire();
  void release(std::unique_ptr<Context> c);

  std::shared_ptr<const Program> program_;
  int threads_;
  std::shared_ptr<DeviceMemory> memory_;
  Gpu* gpu_ = nullptr;  ///< of memory_
  bool graphs_;
  std::shared_ptr<TileTuner> tuner_;
  std::string library_path_;
  std::atomic<bool> library_warned_ = false, library_used_ = false;
  std::shared_ptr<Communicator> communicator_;
  bool collective_ = false;    ///< some steps need it
  bool launches_only_ = true;  ///< main is launches whose sizes the inputs' dims give, and checks of such
  std::unique_ptr<HostModule> module_;
  std::vector<std::shared_ptr<GpuModule>> gpu_modules_;
  std::vector<void*> kernels_;  ///< on the host
  void* gpu_kernel(int kernel) const;
  bool lazy_ = false;                                    ///< a GPU's kernels are made when they are first asked for
  mutable std::vector<std::atomic<void*>> gpu_kernels_;  ///< those that were needed so far
  std::vector<bool> start_early_;                        ///< by kernel: GpuLaunch::starts_early
  std::map<const Block*, std::unique_ptr<Lives>> lives_;
  int step_count_ = 0;                ///< of all blocks
  std::vector<int> input_last_used_;  ///< by input: the last step of main that reads it
  std::vector<int> direct_output_;    ///< by buffer: the output that steps may write straight to its place, or -1
  bool early_outputs_ = true;         ///< outputs' memory may be asked for before the last step is done
  std::vector<std::shared_ptr<const void>> constant_owners_;  ///< by buffer
  std::shared_ptr<const DeviceConstants> device_constants_;   ///< on a GPU, all of them
  std::vector<const void*> constants_;                        ///< by buffer; on the device
  std::size_t constant_bytes_ = 0;
  std::size_t arena_bytes_ = 0;
  std::mutex mutex_;
  std::mutex packed_mutex_;
  std::map<int, std::shared_ptr<host::PackedWeights>> packed_;  ///< constant weights of tile kernels, by buffer
  std::vector<std::unique_ptr<Context>> idle_;
};

}  // namespace sardonyx
