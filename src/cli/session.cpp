// Shared by several commands: loads a model with progress, and makes its inputs.
#include <fmt/format.h>

#include <chrono>

#include "cli/commands.h"
#include "options/compile_options.h"
#include "program/program_file.h"
#include "support/error.h"

namespace sardonyx::cli {
namespace {
using Clock = std::chrono::steady_clock;
double since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

// A compiled program accepts only the options that apply at loading.
void refuse_late_options(const Options& options) {
  if (const OptionInfo* o = option_for_compiling(options.model.compile))
    fail(ErrorKind::kInvalidArgument, "{}: {} is compiled already; compile the model itself",
         o->flag.empty() ? o->name : o->flag, options.model.file.string());
}

}  // namespace

Loaded load_model(const Options& options, bool all_outputs) {
  Loaded out;
  const std::string file = options.model.file.filename().string();
  ProgressLine line(!options.quiet);
  const auto start = Clock::now();
  if (is_program_file(options.model.file)) {
    refuse_late_options(options);
    line.show("loading " + file);
    out.model = Model::load_program(options.model.file, options.model.compile);
    out.seconds = since(start);
    out.stages.push_back({"loading", out.seconds});
    return out;
  }
  auto stage_start = start;
  std::string stage;
  ModelOptions m = options.model.compile;
  m.all_outputs = all_outputs;
  m.progress = [&](const Progress& p) {
    if (p.stage != stage) {
      if (!stage.empty()) out.stages.push_back({stage, since(stage_start)});
      stage = p.stage;
      stage_start = Clock::now();
    }
    line.show(fmt::format("{} {}", stage, file), p.done, p.total);
  };
  out.model = Model::load(options.model.file, m);
  const QuantizationReport& q = out.model->quantization();
  if (!options.quiet && q.quantized + q.in_float.size() > 0) {
    line.clear();
    fmt::print(stderr, "{} of {} products run in {}\n", q.quantized, q.quantized + q.in_float.size(), m.precision);
    for (const std::string& product : q.in_float) fmt::print(stderr, "  in float32: {}\n", product);
  }
  if (stage != "ready") out.stages.push_back({stage, since(stage_start)});
  out.seconds = since(start);
  return out;
}

Inputs inputs_for(const Model& model, const Options& options) {
  std::vector<TensorInfo> wanted = model.inputs();
  for (TensorInfo& t : wanted)
    for (std::string& d : t.shape)
      if (auto it = options.model.compile.dims.find(d); it != options.model.compile.dims.end())
        d = std::to_string(it->second);
  return make_inputs(wanted, options.input, options.model.dims);
}

std::shared_ptr<Executor> program_for(Model& model, const Inputs& inputs, bool quiet) {
  ProgressLine line(!quiet && !model.executor());
  line.show("compiling for these inputs");
  return model.executor_for(inputs.tensors);
}

std::string type_text(DType dtype, const std::vector<std::string>& dims) {
  return fmt::format("{} [{}]", name(dtype), fmt::join(dims, ", "));
}
std::string type_text(DType dtype, const std::vector<std::int64_t>& dims) {
  return fmt::format("{} [{}]", name(dtype), fmt::join(dims, ", "));
}

void write_text(const std::string& file, const std::string& text) {
  if (file != "-") return write_file(file, text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    fail(ErrorKind::kIo, "stdout can't be written");
}

}  // namespace sardonyx::cli
