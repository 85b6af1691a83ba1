// Compiling and running programs.
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <optional>

#include "device/driver.h"
#include "import/node_source.h"
#include "migraphx/argument.h"
#include "migraphx/guard.h"
#include "migraphx/program.h"
#include "migraphx/shape.h"
#include "migraphx/stages.h"
#include "migraphx/temporary.h"
#include "options/compile_options.h"
#include "options/parse.h"
#include "options/provider_variables.h"
#include "sardonyx/sardonyx.h"
#include "support/error.h"

namespace sardonyx::mgx {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

int threads() {
  const std::string text = variable("SARDONYX_THREADS");
  if (text.empty()) return 0;
  char* end = nullptr;
  const long n = std::strtol(text.c_str(), &end, 10);
  if (*end != 0 || n < 0 || n > 4096)
    fail(ErrorKind::kInvalidArgument, "SARDONYX_THREADS is '{}'; it must be a number up to 4096", text);
  return static_cast<int>(n);
}

/// The parameter's dims, where the program's input has this rank: MIGraphX has no rank 0.
std::vector<std::int64_t> dims_for(const migraphx_shape& s, std::size_t rank) {
  if (rank == 0 && elements_of(s) == 1) return {};
  return {s.lengths.begin(), s.lengths.end()};
}

void check_range(const Parameter& p, const std::vector<std::int64_t>& dims) {
  if (!p.shape.is_dynamic() || dims.size() != p.shape.dynamic.size()) return;  // the rank is checked by the model
  for (std::size_t k = 0; k < dims.size(); ++k) {
    const migraphx_dynamic_dimension& d = p.shape.dynamic[k];
    const auto n = static_cast<std::size_t>(dims[k]);
    if (n < d.min || n > d.max)
      fail(ErrorKind::kInvalidArgument, "parameter '{}': dim {} is {}, and must be {} to {}", p.name, k, n, d.min,
           d.max);
  }
}

// MIGraphX's variables (docs/options.md). Those of ONNX Runtime's providers are read by the providers. The first time,
// the variables that have no effect are named on stderr.
void read_variables(Options& o) {
  std::map<std::string, std::string> variables = migraphx_variables(environ);
  std::erase_if(variables, [](const auto& v) { return !v.first.starts_with("MIGRAPHX_"); });
  std::vector<std::string> notes, warnings;
  for (const VariableOption& v : options_of_variables(variables, notes, warnings)) {
    const std::string who = "environment variable " + v.variable;
    if (v.option == "exhaustive_tune") {
      if (parse_bool(who, v.value) && is_gpu_name(o.device)) o.tuning = "exhaustive";
    } else if (v.option != "threads" || o.threads == 0) {  // SARDONYX_THREADS wins
      set_option(o, *find_option(v.option), who, v.value);
    }
  }
  static std::once_flag once;
  std::call_once(once, [&] {
    for (const std::string& text : notes) print_note("migraphx_program_compile", text);
    for (const std::string& text : warnings) print_note("migraphx_program_compile", text);
  });
}

}  // namespace

std::string gpu_device() {
  std::string chosen = variable("SARDONYX_DEVICE");
  if (!chosen.empty()) return chosen;
  const Driver& hip = hip_driver();
  int device = 0;
  hip.require(hip.get_device(&device), "asking for the current device");
  return "hip:" + std::to_string(device);
}

Options MigraphxProgram::compile_options(const std::string& target) const {
  Options o;
  if (target == "gpu") o.device = gpu_device();
  o.threads = threads();
  const char* cache = std::getenv("SARDONYX_CACHE_DIR");
  o.cache_dir = cache ? std::filesystem::path(cache) : user_cache_directory();
  return o;
}

void MigraphxProgram::compile(const migraphx_target& target, const migraphx_compile_options& options) {
  require_uncompiled("a second compilation is not possible; parsing");
  if (graph_) graph_->freeze();
  if (has_graph() && graph_->has_custom_operators()) {
    stages_ = std::make_shared<const Stages>(graph_->main(), precision_, target, options);
    placement_ = {target.name, options.offload_copy};
    return;
  }
  Options o = compile_options(target.name);
  read_variables(o);
  o.precision = precision_;
  if (options.exhaustive_tune && is_gpu_name(o.device)) o.tuning = "exhaustive";
  std::optional<MemoryFile> table;
  if (!calibration_.empty()) o.calibration_table = table.emplace(calibration_).path();
  compiled_ = std::make_shared<Model>(std::make_unique<NodeSource>(*nodes_), o);
  placement_ = {target.name, options.offload_copy};
  const QuantizationReport products = compiled_->quantization();
  if (!calibration_.empty() && products.quantized == 0 && !products.in_float.empty())
    print_note("migraphx_program_compile",
               fmt::format("nothing is computed in {}; {}{}", precision_, products.in_float.front(),
                           products.in_float.size() > 1 ? ", and others" : ""));
  if (compiled_->gpu()) stream_ = compiled_->gpu()->create_stream();
}

void MigraphxProgram::compile_reference() {
  require_uncompiled("a second compilation is not possible; parsing");
  require_no_custom_operators("compiled for comparison");
  if (graph_) graph_->freeze();
  Options o = compile_options("ref");
  o.fuse = false;
  compiled_ = std::make_shared<Model>(std::make_unique<NodeSource>(*nodes_), o);
  placement_ = {"ref", false};
}

TensorView MigraphxProgram::view(const TensorInfo& input, const migraphx_argument& a,
                                 std::vector<Tensor>& copies) const {
  const std::string what = "parameter '" + input.name + "'";
  TensorView v;
  v.dtype = dtype_of(a.shape.type);
  v.dims = dims_for(a.shape, input.shape.size());
  v.data = a.data;
  if (elements_of(a.shape) > 0 && a.data == nullptr) fail(ErrorKind::kInvalidArgument, "{} has no data", what);
  const bool on_device = uses_device_memory();
  v.on_device = on_device;
  if (is_standard(a.shape)) return v;
  if (on_device)
    fail(ErrorKind::kUnsupported, "{} has strides ({}); pass a packed tensor in device memory", what, to_text(a.shape));
  copies.push_back(packed(a, what));
  v.data = copies.back().data;
  return v;
}

std::vector<migraphx_argument> MigraphxProgram::run(const Arguments& parameters) const {
  if (stages_) return stages_->run(parameters, nullptr, context());
  RunOptions o;
  o.stream = stream_.get();
  return run(parameters, o);
}

std::vector<migraphx_argument> MigraphxProgram::run_on_stream(const Arguments& parameters, void* stream) const {
  if (stages_) return stages_->run(parameters, stream, context());
  if (!stream_) return run(parameters);
  if (!stream) {
    // Our own stream does not wait for the default one.
    compiled_->gpu()->synchronize(nullptr);
    return run(parameters);
  }
  RunOptions o;
  o.stream = stream;
  o.synchronize = false;
  return run(parameters, o);
}

std::vector<migraphx_argument> MigraphxProgram::run(const Arguments& parameters, const RunOptions& options) const {
  if (!is_compiled()) fail(ErrorKind::kInvalidArgument, "the program must be compiled before it runs");
  std::vector<Tensor> copies;
  std::vector<TensorView> inputs;
  for (const TensorInfo& input : compiled_->inputs()) {
    const auto found = parameters.find(input.name);
    if (found == parameters.end()) fail(ErrorKind::kInvalidArgument, "the parameter '{}' is missing", input.name);
    inputs.push_back(view(input, found->second, copies));
    for (const Parameter& p : inputs_)
      if (p.name == input.name) check_range(p, inputs.back().dims);
  }
  const bool on_device = uses_device_memory();
  std::vector<migraphx_argument> results(outputs_.size());
  OutputSink sink;
  sink.allocate = [&](std::size_t k, DType dtype, const std::vector<std::int64_t>& dims) {
    migraphx_argument& r = results.at(k);
    const migraphx_shape shape = shape_of_dims(type_of(dtype, "an output"), dims);
    r.shape = result_shape(shape);
    r.on_device = on_device;
    if (!outputs_.at(k).is_dynamic() && !(outputs_[k] == shape))
      fail(ErrorKind::kInvalidModel, "output {} has the shape {}, and the model declares {}", k, to_text(shape),
           to_text(outputs_[k]));
    const std::size_t bytes = bytes_of(r.shape);
    const auto buffer = has_output_parameters() ? parameters.find(output_parameter(k)) : parameters.end();
    if (buffer != parameters.end()) {
      if (bytes_of(buffer->second.shape) < bytes || (buffer->second.data == nullptr && bytes > 0))
        fail(ErrorKind::kInvalidArgument, "the parameter '{}' has {} bytes; the output needs {}", buffer->first,
             bytes_of(buffer->second.shape), bytes);
      r.data = buffer->second.data;
      r.owner = buffer->second.owner;
    } else {
      r.owner = on_device ? compiled_->gpu()->allocate(bytes) : Tensor::allocate_result(dtype, dims).owner;
      r.data = r.owner.get();
    }
    return OutputMemory{r.data, on_device};
  };
  compiled_->run(inputs, sink, options);
  return results;
}

void* MigraphxProgram::stream() {
  if (!is_compiled()) fail(ErrorKind::kInvalidArgument, "a program has no context before it is compiled");
  return stages_ ? stages_->stream() : stream_.get();
}

void MigraphxProgram::finish() {
  if (stream() == nullptr) return;
  Gpu* gpu = stages_ ? stages_->gpu() : compiled_->gpu().get();
  gpu->synchronize(stream());
}

}  // namespace sardonyx::mgx
