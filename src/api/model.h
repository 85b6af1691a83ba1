// A compiled model, on which the C++ interface, the command line, Python and other languages are built.
#pragma once
#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/tuner.h"
#include "compile/cache.h"
#include "device/memory.h"
#include "import/model_source.h"
#include "runtime/executor.h"
#include "sardonyx/options.h"
#include "support/loading_cache.h"

namespace sardonyx {

using ModelOptions = Options;

/// Throws Error if no model can be compiled with these options for a target ("host", "gfx942"): kInvalidArgument,
/// kUnsupported, and kIo for a calibration table that can't be read.
void check_options(const ModelOptions& options, const std::string& target);

/// All members are thread-safe.
class Model {
 public:
  /// Loads and compiles. Throws Error.
  static std::unique_ptr<Model> load(const std::filesystem::path& path, const ModelOptions& options = {});
  /// The same from a file's bytes. `folder`: the directory of files that they refer to; empty: they may refer to none.
  static std::unique_ptr<Model> parse(std::span<const std::byte> bytes, const ModelOptions& options = {},
                                      const std::filesystem::path& folder = {});
  /// Compiles a model of any format. Throws Error.
  Model(std::unique_ptr<ModelSource> source, const ModelOptions& options);
  /// Loads what save() wrote (program/program_file.h). Only those of `options` are used that apply at loading
  /// (OptionInfo). The device "host" means the first suitable GPU if the program is for GPUs.
  static std::unique_ptr<Model> load_program(const std::filesystem::path& path, ModelOptions options = {});
  /// The same for a program in memory.
  static std::unique_ptr<Model> from_program(std::shared_ptr<const Program> program, ModelOptions options);
  /// Compiles for a GPU ("gfx942", "sm_90") that need not be present; the code is stored in the cache. Throws
  /// Error(kUnsupported) if the program depends on an input's value, and for the host's own target.
  static std::shared_ptr<Program> compile_for(const std::string& target, std::unique_ptr<ModelSource> source,
                                              const ModelOptions& options = {});
  /// Waits as wait() does. Throws Error: kIo, kUnsupported without executor(), and the compiler's.
  void save(const std::filesystem::path& path) const;
  /// Compiles at once, on all threads, what would otherwise be compiled in the background, and returns when the
  /// programs that exist are complete. Throws the compiler's error.
  void wait() const;
  /// Objects (of a few kernels each) of the programs in use: all, those that have been compiled, and of these the ones
  /// that compiling the model or a run waited for; the others were compiled in the background.
  struct Compiled {
    std::size_t objects = 0, ready = 0, on_demand = 0;
  };
  Compiled compiled() const;
  /// The number of programs in use: one, and one for each value, rank or sizes that needed its own.
  std::size_t program_count() const;

  /// The model's inputs, without constants that are inputs with a default.
  const std::vector<TensorInfo>& inputs() const { return inputs_; }
  std::vector<TensorInfo> outputs() const;
  /// Symbols in the inputs' dims.
  std::vector<std::string> symbols() const;
  std::vector<std::string> output_names() const;
  /// Runs the model on inputs by name. Returns outputs in order.
  std::vector<HostTensor> run(const std::map<std::string, HostTensor>& inputs, const RunOptions& options = {});
  /// Runs the model on tensors in place, in the order of inputs(); see CompiledModel::run.
  void run(const std::vector<TensorView>& inputs, const OutputSink& sink, const RunOptions& options = {});
  /// What tuning has measured since this object was created.
  std::vector<TuningDecision> tuning_decisions() const;
  /// Tensors by name, in the order of inputs(). Throws for unknown or missing names.
  std::vector<TensorView> in_order(const std::map<std::string, TensorView>& inputs) const;
  /// Device memory in use.
  MemoryUse memory() const;
  /// The outputs' dims, in order, for inputs with these dims; -1 where a dim depends on data. Throws Error:
  /// kInvalidArgument for wrong names, ranks or dims, kUnsupported without executor().
  std::vector<std::vector<std::int64_t>> output_dims(
      const std::map<std::string, std::vector<std::int64_t>>& input_dims) const;

  /// The program for general inputs; null if an input's value must be known to compile (it is then compiled at the
  /// first run).
  const Executor* executor() const { return general_.get(); }
  /// The program that run() uses for these inputs, compiled if necessary. Throws as run() does.
  std::shared_ptr<Executor> executor_for(const std::map<std::string, HostTensor>& inputs);
  /// The nodes of the model's file; data of initializers may be gone once executor() exists. Throws Error(kUnsupported)
  /// after load_program(), and for formats without nodes.
  const model::Model& nodes() const;
  /// The metadata of the model's file; empty after load_program().
  std::map<std::string, std::string> metadata() const;
  /// Which GEMMs and convolutions were quantised, with a precision of 8 bits; otherwise empty.
  const QuantizationReport& quantization() const { return quantization_; }
  int threads() const { return threads_; }
  /// The device that runs the model: "host", or a GPU's full name ("cuda:0").
  std::string device_name() const { return gpu_ ? gpu_->info().name : "host"; }
  /// The GPU; null for the host.
  const std::shared_ptr<Gpu>& gpu() const { return gpu_; }
  const CodeCache& cache() const { return *cache_; }

 private:
  Model(std::shared_ptr<const Program> program, const ModelOptions& options, std::shared_ptr<Gpu> gpu);
  void report(std::string_view stage, std::size_t done = 0, std::size_t total = 0) const;
  void open_tuning();
  void check_dim_names(const std::set<std::string>& names) const;
  void use_gpu(std::shared_ptr<Gpu> gpu);
  std::vector<TensorView> views(const std::map<std::string, HostTensor>& inputs) const;
  void check_inputs(const std::vector<TensorView>& inputs) const;
  std::shared_ptr<Executor> compile(const ImportOptions& import);
  /// The model with its weights, which are read again if they were released. Throws Error(kUnsupported) if that can't
  /// be done.
  const ModelSource& with_weights();
  std::unique_ptr<Backend> backend() const;
  std::vector<std::shared_ptr<Executor>> executors() const;
  /// The program for the values (and ranks) of the inputs that must be known; `exact`: and for exactly these dims.
  std::shared_ptr<Executor> variant(const std::vector<TensorView>& inputs, bool exact = false);

  std::shared_ptr<Executor> exact_or_general(const std::vector<TensorView>& inputs);
  /// The import options under which the inputs that `needs` names are known. Appends to `key` what distinguishes these
  /// programs.
  ImportOptions import_options(const std::vector<TensorView>& inputs, const std::vector<NeedInput>& needs,
                               std::string& key) const;
  /// An input's elements, copied to host memory.
  Tensor host_copy(const TensorView& input) const;
  /// The program's inputs in its order.
  std::vector<TensorView> ordered(const Executor& e, const std::vector<TensorView>& inputs) const;

  std::unique_ptr<ModelSource> source_;  ///< null after load_program()
  bool released_ = false;                ///< source_ has no weights any more
  std::filesystem::path file_;           ///< that source_ was loaded from; empty: from memory
  ModelOptions options_;
  std::shared_ptr<const CustomOperators> custom_;  ///< that it was made with
  QuantizationReport quantization_;
  std::shared_ptr<const std::map<std::string, float, std::less<>>> ranges_;  ///< for fp16; null: unknown
  int threads_;
  std::vector<TensorInfo> inputs_;
  std::vector<TensorInfo> declared_outputs_;        ///< from source_; those of a program are in general_
  std::map<std::string, std::size_t> input_index_;  ///< in inputs_
  std::shared_ptr<Gpu> gpu_;                        ///< that runs it; null: the host
  std::shared_ptr<DeviceMemory> memory_;            ///< of gpu_
  std::shared_ptr<CodeCache> cache_;
  std::shared_ptr<TuningDatabase> tuning_;  ///< null: none
  std::shared_ptr<DatabaseTuner> tuner_;    ///< null: nothing is timed
  std::shared_ptr<Executor> general_;
  std::atomic<bool> broadcasts_ = false;  ///< some sizes needed a program of their own

  mutable std::mutex progress_mutex_;  ///< held while Options::progress runs
  /// Programs for values, ranks or sizes of inputs. No lock of this class is held while they are compiled.
  LoadingCache<Executor> variants_{256};
  mutable std::mutex mutex_;  // guards what follows
  /// Inputs that must be known to compile, as found so far.
  std::vector<NeedInput> needs_;
  std::unique_ptr<ModelSource> reloaded_;  ///< from file_, if sizes needed another program after weights were released
};

}  // namespace sardonyx
