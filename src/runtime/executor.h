// Runs a program on a device (backend.h).
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "program/program.h"
#include "runtime/assumption.h"
#include "runtime/backend.h"
#include "runtime/memory_plan.h"
#include "sardonyx/device.h"
#include "sardonyx/options.h"
#include "sardonyx/tensor.h"

namespace sardonyx {

using HostTensor = Tensor;
inline HostTensor allocate_tensor(DType dtype, std::vector<std::int64_t> dims) {
  return Tensor::allocate(dtype, std::move(dims));
}

struct DeviceConstants;

/// Where a run's outputs are stored.
struct OutputSink {
  OutputAllocator allocate;
  /// Optional: offers host memory that already holds output `index`. If it returns true, allocate() is not called.
  std::function<bool(std::size_t index, Tensor&& tensor)> take;
};

/// A program that is ready to run: code linked, constants computed. run() is thread-safe.
class Executor {
 public:
  /// Loads the program's code and computes its constants. Throws Error(kInvalidArgument) for a program with collectives
  /// if the backend has no communicator or one of another size, and kInvalidModel for routines that do not exist.
  Executor(std::shared_ptr<const Program> program, int threads, std::unique_ptr<Backend> backend);
  ~Executor();

  const Program& program() const { return *program_; }
  std::shared_ptr<const Program> shared_program() const { return program_; }
  /// Inputs in the order of input_names; their dtypes and dims are checked against the declaration. Throws
  /// AssumptionFailed before it asks for memory for any output.
  void run(const std::vector<TensorView>& inputs, const OutputSink& sink, const RunOptions& options = {});
  /// The same in the host's memory. Returns outputs in the order of output_names.
  std::vector<HostTensor> run(const std::vector<HostTensor>& inputs, const RunOptions& options = {});
  /// Values of the symbols for inputs with these dims. Throws Error(kInvalidArgument) if ranks or dims contradict the
  /// declaration.
  SymbolValues bind(const std::vector<std::vector<std::int64_t>>& input_dims) const;
  /// The outputs' dims for such values; -1 where a dim is known only at run time.
  std::vector<std::vector<std::int64_t>> output_dims(const SymbolValues& symbols) const;
  /// Bytes of constants, and of the largest arena so far.
  std::size_t constant_bytes() const { return constant_bytes_; }
  std::size_t arena_bytes() const { return arena_bytes_; }
  /// The arena that run() uses for these values of the symbols, if inputs and outputs are in host memory. Throws
  /// Error(kInvalidArgument) for invalid sizes.
  ArenaPlan plan(const SymbolValues& symbols) const;

 private:
  /// On a device with memory of its own, what the arena holds besides temporaries: copies of inputs, and of outputs
  /// before they are copied to the host.
  struct Staged {
    std::vector<bool> inputs, outputs;
  };
  struct Context;
  struct Plan;
  struct Run;
  struct Lives;
  void check_group();
  class ConstantLoader;
  void place_constants();
  bool has_known_sizes(const ProgramStep& s, const std::vector<bool>& inputs) const;
  void find_lives(const Block& block, const std::vector<bool>& inputs);
  void find_outputs();
  void compute_constants(const std::vector<bool>& used);
  void load_constants(std::vector<bool> used);
  ArenaPlan plan(const SymbolValues& symbols, const Staged& staged) const;
  std::unique_ptr<Context> acquire();
  void release(std::unique_ptr<Context> c);

  std::shared_ptr<const Program> program_;
  int threads_;
  std::unique_ptr<Backend> backend_;
  bool separate_memory_;       ///< the backend has memory of its own
  bool collective_ = false;    ///< the program has collectives
  bool launches_only_ = true;  ///< main has only launches, with sizes from the inputs' dims, and checks
  std::map<const Block*, std::unique_ptr<Lives>> lives_;
  int step_count_ = 0;                ///< of all blocks
  std::vector<int> input_last_used_;  ///< by input: the last step of main that reads it
  std::vector<int> direct_output_;    ///< by buffer: the output that steps may write directly, or -1
  bool early_outputs_ = true;         ///< memory of outputs may be requested before the last step is done
  std::vector<std::shared_ptr<const void>> constant_owners_;  ///< by buffer
  std::shared_ptr<const DeviceConstants> device_constants_;   ///< with separate memory: all of them
  std::vector<const void*> constants_;                        ///< by buffer; on the device
  std::size_t constant_bytes_ = 0;
  std::size_t arena_bytes_ = 0;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Context>> idle_;
};

}  // namespace sardonyx
