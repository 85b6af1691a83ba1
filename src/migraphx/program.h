// Programs of MIGraphX's interface: a model that is parsed, perhaps quantised, compiled for a target, and run.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "api/model.h"
#include "migraphx/graph.h"
#include "migraphx/objects.h"
#include "model/model.h"

struct migraphx_context;

namespace sardonyx::mgx {

class Stages;

struct Parameter {
  std::string name;
  migraphx_shape shape;
};

/// Shapes of a model's results for parameters of these shapes. Throws Error for a model that can't be compiled, and
/// NeedInput.
std::vector<migraphx_shape> output_shapes(const model::Model& nodes, const std::vector<Parameter>& inputs);

using Arguments = std::map<std::string, migraphx_argument>;

/// How a compiled program uses memory.
struct Placement {
  std::string target;         ///< "gpu", "ref" or "cpu"
  bool offload_copy = false;  ///< of target "gpu": arguments and results are in host memory
};

/// Copies share the compiled program. run() is thread-safe; the other members that change a program are not.
class MigraphxProgram {
 public:
  MigraphxProgram() = default;

  /// The graph that an empty program builds itself; of one that was parsed or loaded, a listing of the model's nodes
  /// that refuses additions.
  ModuleGraph& graph();
  bool has_graph() const { return graph_ && graph_->version() > 1; }
  /// Takes over what was added to the graph since. Throws Error(kInvalidArgument) for an incomplete graph.
  void settle();

  /// Reads an ONNX model. Dims that the file leaves open get the options' sizes. Throws Error: kInvalidModel,
  /// kUnsupported for a model that can't be compiled.
  static MigraphxProgram parse(std::span<const std::byte> onnx, const migraphx_onnx_options& options,
                               const std::filesystem::path& folder);
  static MigraphxProgram parse(const std::filesystem::path& path, const migraphx_onnx_options& options);
  /// A program of nodes whose inputs have these shapes.
  static MigraphxProgram of_nodes(model::Model nodes, std::vector<Parameter> inputs);

  /// Weights and activations of 16 bits ("fp16", "bf16"). Throws Error(kInvalidArgument) after compile().
  void quantize(const std::string& precision);
  /// The same for some operators, named as in MIGraphX ("dot"), of the main graph. Throws Error(kUnsupported) for an
  /// operator that can't be chosen.
  void quantize_operators(const std::string& precision, const std::vector<std::string>& names);
  /// GEMMs and convolutions of 8 bits ("int8", "fp8"). `calibration`: examples of parameters, in host memory, or the
  /// largest absolute value of tensors by their names (scalars). Without any, every tensor is taken to be below 127/64
  /// (int8) or 7 (fp8), MIGraphX's default. Throws Error(kInvalidArgument) after compile().
  void calibrate(const std::string& precision, const std::vector<migraphx_program_parameters>& calibration);

  /// Throws Error: kDevice if the target "gpu" has no device, kInvalidArgument for a program that is compiled already.
  void compile(const migraphx_target& target, const migraphx_compile_options& options);
  bool is_compiled() const { return compiled_ != nullptr || stages_ != nullptr; }
  /// For the host, in float32, with no operators fused: what results of compile() are compared with.
  void compile_reference();
  /// The program without its last nodes; the results are those of the node before them. Throws Error: kInvalidArgument
  /// for more nodes than there are, kUnsupported for a graph that the program built.
  MigraphxProgram trimmed(std::size_t nodes) const;

  /// Inputs, and after compiling for a card's memory the outputs' buffers ("main:#output_0"), which may be given or
  /// not.
  std::vector<Parameter> parameters() const;
  /// Shapes of the results. With outputs' buffers a result of rank 0 has no lengths, rather than the one of a scalar:
  /// ONNX Runtime's provider makes its outputs' dims of them.
  std::vector<migraphx_shape> outputs() const;

  /// Returns when the results are complete. Parameters that the program does not have are ignored. Throws
  /// Error(kInvalidArgument) for missing ones and those that don't fit.
  std::vector<migraphx_argument> run(const Arguments& parameters) const;
  /// The same on a stream of the device: returns when the work is enqueued, unless results are in host memory. Null
  /// is the driver's default stream, for which it waits.
  std::vector<migraphx_argument> run_on_stream(const Arguments& parameters, void* stream) const;

  /// run() with every intermediate value, in the order of the nodes: `seen` gets the position, the operator and the
  /// value, in host memory. Nothing is fused away, so it takes longer; parameters and results are in host memory.
  /// Throws as run(); kUnsupported for a program in device memory, or one that was loaded after compiling.
  using Seen = std::function<void(std::size_t, const std::string&, const migraphx_argument&)>;
  std::vector<migraphx_argument> run_trace(const Arguments& parameters, const Seen& seen) const;

  /// The stream on which run() works if it gets none; null on the host. Throws Error(kInvalidArgument) before
  /// compile().
  void* stream();
  void finish();
  /// A context of the interface is the program that it belongs to.
  migraphx_context* context() const { return reinterpret_cast<migraphx_context*>(const_cast<MigraphxProgram*>(this)); }

  /// MIGraphX's listing, with the model's operators.
  std::string text() const;
  /// Whether both have the same nodes, parameters and precision.
  bool operator==(const MigraphxProgram& other) const;

  /// Writes the program, compiled or not, to a file that only load() reads. Throws Error(kIo); kUnsupported for a
  /// program without a model.
  void save(const std::filesystem::path& path, const std::string& format) const;
  static MigraphxProgram load(const std::filesystem::path& path, const std::string& format);
  /// The same with the file's bytes.
  std::string serialize(const std::string& format) const;
  static MigraphxProgram deserialize(std::string bytes, const std::string& format);

 private:
  friend class ProgramFile;
  void describe_outputs();
  std::map<std::string, migraphx_shape> value_shapes() const;
  migraphx_shape result_shape(migraphx_shape s) const;
  void require_uncompiled(const char* what) const;
  void require_no_custom_operators(const char* what) const;
  Options compile_options(const std::string& target) const;
  std::vector<migraphx_argument> run(const Arguments& parameters, const RunOptions& options) const;
  TensorView view(const TensorInfo& input, const migraphx_argument& a, std::vector<Tensor>& copies) const;
  /// Whether callers pass the card's memory. Where the host takes the card's place, this is the host's.
  bool has_output_parameters() const { return compiled_ && placement_.target == "gpu" && !placement_.offload_copy; }
  bool uses_device_memory() const { return has_output_parameters() && compiled_->gpu(); }

  std::shared_ptr<ModuleGraph> graph_;         ///< null unless the program builds its own graph
  std::size_t settled_ = 1;                    ///< the version of the graph from which nodes_ was made
  std::shared_ptr<const model::Model> nodes_;  ///< null if only compiled code was loaded
  std::vector<Parameter> inputs_;
  std::vector<migraphx_shape> outputs_;
  std::string precision_ = "fp32";
  std::string calibration_;  ///< with 8 bits: a calibration table (import/calibration.h)
  Placement placement_;
  std::shared_ptr<Model> compiled_;
  std::shared_ptr<const Stages> stages_;  ///< in place of compiled_: with custom operators
  std::shared_ptr<void> stream_;
};

/// The name under which a program takes the buffer of an output.
std::string output_parameter(std::size_t index);
/// The device of the target "gpu": the environment's SARDONYX_DEVICE, otherwise HIP's current device. Throws
/// Error(kDevice) if there is none.
std::string gpu_device();

}  // namespace sardonyx::mgx

struct migraphx_program {
  mutable sardonyx::mgx::MigraphxProgram program;

  /// With all that was added to its graph.
  sardonyx::mgx::MigraphxProgram& settled() const {
    program.settle();
    return program;
  }
};
