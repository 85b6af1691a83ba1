// A compiled model: what the C++ interface, the command line, Python and other languages are made of.
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

/// Throws Error where a model could not be compiled with these options for a target ("host", "gfx942"), whatever model
/// it is: kInvalidArgument, kUnsupported, kIo for a calibration table that can't be read.
void check_options(const ModelOptions& options, const std::string& target);

/// All members are safe from many threads at once.
class Model {
 public:
  /// Loads and compiles. Throws Error.
  static std::unique_ptr<Model> load(const std::filesystem::path& path, const ModelOptions& options = {});
  /// The same from a file's bytes. `folder`: where files that they refer to lie; empty: they may refer to none.
  static std::unique_ptr<Model> parse(std::span<const std::byte> bytes, const ModelOptions& options = {},
                                      const std::filesystem::path& folder = {});
  /// Compiles a model of any format. Throws Error.
  Model(std::unique_ptr<ModelSource> source, const ModelOptions& options);
  /// Loads what save() wrote (program/program_file.h). Of `options`, those that apply at loading count (OptionInfo); as
  /// the device, "host" means the first GPU of the right kind if the program is for GPUs.
  static std::unique_ptr<Model> load_program(const std::filesystem::path& path, ModelOptions options = {});
  /// The same for a program that is in memory.
  static std::unique_ptr<Model> from_program(std::shared_ptr<const Program> program, ModelOptions options);
  /// Compiles for a GPU ("gfx942", "sm_90") that need not be here; the code is kept in the cache. Throws
  /// Error(kUnsupported) if the program depends on an input's value, and for the host's own target.
  static std::shared_ptr<Program> compile_for(const std::string& target, std::unique_ptr<ModelSource> source,
                                              const ModelOptions& options = {});
  /// Throws Error: kIo, or kUnsupported without executor().
  void save(const std::filesystem::path& path) const;
  /// How many programs have been compiled and kept: one, and one for each value, rank or sizes that needed its own.
  std::size_t program_count() const;

  /// What the model takes: constants given as inputs with defaults are left out.
  const std::vector<TensorInfo>& inputs() const { return inputs_; }
  std::vector<TensorInfo> outputs() const;
  /// Symbols in the inputs' dims.
  std::vector<std::string> symbols() const;
  std::vector<std::string> output_names() const;
  /// Runs the model on inputs by name. Returns outputs in order.
  std::vector<HostTensor> run(const std::map<std::string, HostTensor>& inputs, const RunOptions& options = {});
  /// Runs the model on tensors where they lie, in the order of inputs(); see CompiledModel::run.
  void run(const std::vector<TensorView>& inputs, const OutputSink& sink, const RunOptions& options = {});
  /// What tuning has measured since this object was made.
  std::vector<TuningDecision> tuning_decisions() const;
  /// Tensors by name in the order of inputs(). Throws for names that do not fit.
  std::vector<TensorView> in_order(const std::map<std::string, TensorView>& inputs) const;
  /// What it has of the device's memory.
  MemoryUse memory() const;
  /// The outputs' dims, in order, for inputs of these dims; -1 where a dim depends on data. Throws Error:
  /// kInvalidArgument for names, ranks and dims that do not fit, kUnsupported without executor().
  std::vector<std::vector<std::int64_t>> output_dims(
      const std::map<std::string, std::vector<std::int64_t>>& input_dims) const;

  /// The program for general inputs; null if the model needs an input's value to be compiled (then it is compiled at
  /// the first run).
  const Executor* executor() const { return general_.get(); }
  /// The program that run() uses for these inputs, compiled if need be. Throws as run() does.
  std::shared_ptr<Executor> executor_for(const std::map<std::string, HostTensor>& inputs);
  /// The model's nodes as its file has them; the initializers' data may be gone once executor() is there. Throws
  /// Error(kUnsupported) after load_program(), and for models of a format without nodes.
  const model::Model& nodes() const;
  /// What the model's file says about itself; nothing after load_program().
  std::map<std::string, std::string> metadata() const;
  /// What became of the products with a precision of 8 bits; nothing with others.
  const QuantizationReport& quantization() const { return quantization_; }
  int threads() const { return threads_; }
  /// What really runs it: "host", or the full name of a card ("cuda:0").
  std::string device_name() const { return gpu_ ? gpu_->info().name : "host"; }
  /// The card; null: the host.
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
  std::unique_ptr<Backend> backend() const;
  /// The program for the values (and ranks) of the inputs that it needs to know; `exact`: and for these very dims.
  std::shared_ptr<Executor> variant(const std::vector<TensorView>& inputs, bool exact = false);

  std::shared_ptr<Executor> exact_or_general(const std::vector<TensorView>& inputs);
  /// How to import the model where the inputs that `needs` names are known. Appends to `key` what tells such programs
  /// apart.
  ImportOptions import_options(const std::vector<TensorView>& inputs, const std::vector<NeedInput>& needs,
                               std::string& key) const;
  /// An input's elements in memory of the host.
  Tensor host_copy(const TensorView& input) const;
  /// The program's inputs in its order.
  std::vector<TensorView> ordered(const Executor& e, const std::vector<TensorView>& inputs) const;

  std::unique_ptr<ModelSource> source_;  ///< null after load_program()
  ModelOptions options_;
  QuantizationReport quantization_;
  int threads_;
  std::vector<TensorInfo> inputs_;
  std::vector<TensorInfo> declared_outputs_;        ///< by source_; of a program, see general_
  std::map<std::string, std::size_t> input_index_;  ///< in inputs_
  std::shared_ptr<Gpu> gpu_;                        ///< what runs it; null: the host
  std::shared_ptr<DeviceMemory> memory_;            ///< of gpu_
  std::shared_ptr<CodeCache> cache_;
  std::shared_ptr<TuningDatabase> tuning_;  ///< null: none
  std::shared_ptr<DatabaseTuner> tuner_;    ///< null: nothing is timed
  std::shared_ptr<Executor> general_;
  std::atomic<bool> broadcasts_ = false;  ///< some sizes needed a program of their own

  mutable std::mutex progress_mutex_;  ///< held while Options::progress runs
  /// Programs for values, ranks or sizes of inputs. They are compiled without a lock of ours.
  LoadingCache<Executor> variants_{256};
  mutable std::mutex mutex_;  // guards what follows
  /// Inputs that must be known to compile, found so far.
  std::vector<NeedInput> needs_;
};

}  // namespace sardonyx
