// A compiled model: what the command line, Python and other languages use.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compile/cache.h"
#include "import/import.h"
#include "onnx/model.h"
#include "program/executor.h"

namespace sardonyx {

/// What loading is busy with: "reading", "importing", "compiling" (with counts of translation units), "ready".
struct Progress {
  std::string_view stage;
  std::size_t done = 0, total = 0;
};

struct ModelOptions {
  int threads = 0;                             ///< for running and compiling; 0: all cores
  std::filesystem::path cache_dir;             ///< of compiled code; empty: no cache on disk
  std::map<std::string, std::int64_t> dims;    ///< fixes symbolic dims by name
  bool fuse = true;
  bool all_outputs = false;                    ///< every named intermediate value becomes an output
  std::function<void(const Progress&)> progress;  ///< called while loading and compiling, from one thread at a time
};

/// A tensor that a model takes or gives. A dim is a number, or an expression of symbols such as "batch" or "(2 * n + 1)".
struct TensorInfo {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<std::string> shape;
  bool known_rank = true;
};

class Model {
 public:
  /// Loads and compiles. Throws Error.
  static std::unique_ptr<Model> load(const std::filesystem::path& path, const ModelOptions& options = {});
  static std::unique_ptr<Model> parse(std::span<const std::byte> bytes, const ModelOptions& options = {});
  explicit Model(onnx::Model model, const ModelOptions& options);

  std::vector<TensorInfo> inputs() const;
  std::vector<TensorInfo> outputs() const;
  std::vector<std::string> output_names() const;
  /// Runs the model on inputs by name. Safe from many threads at once. Returns outputs in order.
  std::vector<HostTensor> run(const std::map<std::string, HostTensor>& inputs, const RunOptions& options = {});
  /// The program for general inputs; null if the model needs an input's value to be compiled (then it is compiled at the first run).
  const Executor* executor() const { return general_.get(); }
  /// The program that run() uses for these inputs, compiled if need be. Throws as run() does.
  std::shared_ptr<Executor> executor_for(const std::map<std::string, HostTensor>& inputs);
  /// The model as its file says.
  const onnx::Model& source() const { return model_; }
  int threads() const { return threads_; }
  const CodeCache& cache() const { return *cache_; }

 private:
  void report(std::string_view stage, std::size_t done = 0, std::size_t total = 0) const;
  std::shared_ptr<Executor> compile(const ImportOptions& import);
  std::shared_ptr<Executor> variant(const std::map<std::string, HostTensor>& inputs);

  onnx::Model model_;
  ModelOptions options_;
  int threads_;
  std::unique_ptr<CodeCache> cache_;
  std::shared_ptr<Executor> general_;
  /// Inputs that must be known to compile, found so far.
  std::vector<NeedInput> needs_;
  std::map<std::string, std::shared_ptr<Executor>> variants_;
  std::mutex mutex_;
};

}  // namespace sardonyx
