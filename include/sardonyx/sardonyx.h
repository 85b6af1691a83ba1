// Sardonyx: compiles ONNX models and runs them. This header and those it includes are the library's C++ interface.
//
//   sardonyx::CompiledModel model = sardonyx::CompiledModel::from_file("model.onnx");
//   sardonyx::Tensor x = sardonyx::Tensor::allocate(sardonyx::DType::kFloat32, {1, 3, 224, 224});
//   ... fill x.as<float>() ...
//   std::map<std::string, sardonyx::Tensor> outputs = model.run({{"x", x}});
//
// A model is compiled once, for all sizes of its symbolic dims. Functions throw only sardonyx::Error, whose kind()
// tells a caller how to react, and std::bad_alloc.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sardonyx/communicator.h"
#include "sardonyx/custom_operator.h"
#include "sardonyx/device.h"
#include "sardonyx/dtype.h"
#include "sardonyx/error.h"
#include "sardonyx/options.h"
#include "sardonyx/tensor.h"

namespace sardonyx {

/// The library's version, "0.1.0".
std::string_view version();

/// The devices that can run models, the default first.
std::vector<DeviceInfo> devices();

/// Where Sardonyx's programs store compiled code: $XDG_CACHE_HOME/sardonyx, otherwise $HOME/.cache/sardonyx; empty if
/// neither variable is an absolute path.
std::filesystem::path user_cache_directory();

/// A compiled model. Copies share it, and all members are thread-safe.
class CompiledModel {
 public:
  /// Reads an .onnx file (with its external data) and compiles it. Throws kIo for an unreadable file, kInvalidModel for
  /// a malformed one, kUnsupported for a model that Sardonyx can't run, kInvalidArgument for invalid options.
  static CompiledModel from_file(const std::filesystem::path& path, const Options& options = {});
  /// The same from the bytes of an .onnx file. External data is refused, because there is no directory.
  static CompiledModel from_bytes(std::span<const std::byte> onnx, const Options& options = {});

  /// Loads a file written by save(). It is mapped for the weights, so it must not change while the model exists.
  /// A program file contains machine code: load it only from sources from which you would run a program. Checksums
  /// detect damage, not malice. Throws kIo, kInvalidModel (damaged, or not a program file), kUnsupported (written by
  /// another version, or for another processor: compile the model again), kDevice (its GPU can't be used). `threads`:
  /// for runs; 0: all cores. `device`: for a program for GPUs, the GPU; "host" then means the first suitable one.
  /// `cache_dir`: as Options::cache_dir, for machine code from NVIDIA's assembler.
  static CompiledModel load(const std::filesystem::path& path, int threads = 0, const std::string& device = "host",
                            const std::filesystem::path& cache_dir = {});
  /// The same with all options that apply to a compiled program (OptionInfo::at_load). Throws kInvalidArgument
  /// if another option differs from its default.
  static CompiledModel load(const std::filesystem::path& path, const Options& options);
  /// Writes the compiled program with its weights to one file (under a temporary name first, then renamed). Throws kIo;
  /// kUnsupported for a model that is compiled for each value of an input.
  void save(const std::filesystem::path& path) const;

  /// Returns when all kernels are compiled, also those that runs so far did not need and that are compiled in the
  /// background unless Options::compile_ahead is set. Uses all threads. Throws kCompile.
  void wait() const;

  /// In the model's order.
  std::vector<TensorInfo> inputs() const;
  std::vector<TensorInfo> outputs() const;
  /// Symbols in the inputs' dims, which the sizes of the inputs determine.
  std::vector<std::string> symbols() const;
  /// The metadata of the model's file, by its author's names. Program files have none.
  std::map<std::string, std::string> metadata() const;

  /// The outputs' dims for inputs with these dims, without running; a dim that depends on data is -1. All inputs must
  /// be given. Throws kInvalidArgument for wrong names, ranks and dims; kUnsupported for a model that is compiled for
  /// each value of an input.
  std::map<std::string, std::vector<std::int64_t>> output_dims(
      const std::map<std::string, std::vector<std::int64_t>>& input_dims) const;

  /// Runs the model: all inputs by name, outputs by name. The outputs own their memory. Throws kInvalidArgument for
  /// wrong names, dtypes, ranks and dims.
  std::map<std::string, Tensor> run(const std::map<std::string, Tensor>& inputs, const RunOptions& options = {}) const;
  /// Runs the model on tensors in place, also in device memory: all inputs in the order of inputs(). Kernels write
  /// outputs directly to the memory that `outputs` returns, except an output that is also an input, a constant or
  /// another output, which is copied. Throws as run() does.
  void run(const std::vector<TensorView>& inputs, const OutputAllocator& outputs, const RunOptions& options = {}) const;
  /// Device memory in use.
  MemoryUse memory() const;
  /// Which GEMMs and convolutions run in 8 bits; empty with other precisions.
  QuantizationReport quantization() const;

 private:
  struct Impl;
  explicit CompiledModel(std::shared_ptr<Impl> impl);
  friend class GraphBuilder;
  std::shared_ptr<Impl> impl_;
};

/// Value of an operator's attribute.
using AttributeValue = std::variant<std::int64_t, float, std::string, Tensor, std::vector<std::int64_t>,
                                    std::vector<float>, std::vector<std::string>>;

/// Builds a graph of ONNX operators in memory, in execution order.
///
///   sardonyx::GraphBuilder g;
///   const std::string x = g.input("x", sardonyx::DType::kFloat32, {"batch", 8});
///   const std::string y = g.op("Relu", {g.op("MatMul", {x, g.constant(weights)})});
///   g.output(y, "y");
///   sardonyx::CompiledModel model = g.compile();
///
/// Values are identified by their names, which the calls return. Operators are checked when the graph is compiled.
class GraphBuilder {
 public:
  /// A dim of an input: a size, or the name of a symbol.
  struct Dim {
    std::int64_t size = -1;
    std::string symbol;
    Dim(int n) : size(n) {}                       // NOLINT: shapes read naturally
    Dim(std::int64_t n) : size(n) {}              // NOLINT
    Dim(const char* s) : symbol(s) {}             // NOLINT
    Dim(std::string s) : symbol(std::move(s)) {}  // NOLINT
  };

  /// `opset`: version of ONNX's operators; 0: the newest that Sardonyx supports.
  explicit GraphBuilder(std::int64_t opset = 0);
  ~GraphBuilder();
  GraphBuilder(GraphBuilder&&) noexcept;
  GraphBuilder& operator=(GraphBuilder&&) noexcept;

  /// An input of the model. Throws kInvalidArgument for a name in use or a negative size.
  std::string input(const std::string& name, DType dtype, const std::vector<Dim>& shape);
  /// A constant; its elements are copied.
  std::string constant(const Tensor& value);
  /// One operator with one output. `inputs` are names of values; "" stands for an omitted optional one. Throws
  /// kInvalidArgument for a value that does not exist.
  std::string op(const std::string& type, const std::vector<std::string>& inputs,
                 const std::map<std::string, AttributeValue>& attributes = {}, const std::string& domain = "");
  /// The same with `outputs` outputs.
  std::vector<std::string> op_with_outputs(std::size_t outputs, const std::string& type,
                                           const std::vector<std::string>& inputs,
                                           const std::map<std::string, AttributeValue>& attributes = {},
                                           const std::string& domain = "");
  /// Makes a value an output of the model, called `name`. Throws kInvalidArgument for a value that does not exist or a
  /// name in use.
  void output(const std::string& value, const std::string& name);

  /// Compiles the graph in its current state. Throws as CompiledModel::from_file does.
  CompiledModel compile(const Options& options = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sardonyx
