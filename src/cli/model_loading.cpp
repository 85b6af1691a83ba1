#include "cli/model_loading.h"

#include <fmt/format.h>

#include <chrono>

#include "cli/arguments.h"
#include "cli/terminal.h"
#include "options/compile_options.h"
#include "program/program_file.h"
#include "support/error.h"

namespace sardonyx::cli {
namespace {
using Clock = std::chrono::steady_clock;
double since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

// A compiled program accepts only the options that apply at loading.
void refuse_late_options(const Arguments& arguments) {
  if (const OptionInfo* o = option_for_compiling(arguments.model.compile))
    fail(ErrorKind::kInvalidArgument, "{}: {} is compiled already; compile the model itself",
         o->flag.empty() ? o->name : o->flag, arguments.model.file.string());
}

}  // namespace

Loaded load_model(const Arguments& arguments, bool all_outputs) {
  Loaded out;
  const std::string file = arguments.model.file.filename().string();
  ProgressLine line(!arguments.quiet);
  const auto start = Clock::now();
  if (is_program_file(arguments.model.file)) {
    refuse_late_options(arguments);
    line.show("loading " + file);
    out.model = Model::load_program(arguments.model.file, arguments.model.compile);
    out.seconds = since(start);
    out.stages.push_back({"loading", out.seconds});
    return out;
  }
  auto stage_start = start;
  std::string stage;
  ModelOptions m = arguments.model.compile;
  m.all_outputs = all_outputs;
  // The model keeps this function, and calls it again when it compiles for other inputs: then what it refers to is
  // gone.
  const auto loading = std::make_shared<bool>(true);
  m.progress = [&, loading](const Progress& p) {
    if (!*loading) return;
    if (p.stage != stage) {
      if (!stage.empty()) out.stages.push_back({stage, since(stage_start)});
      stage = p.stage;
      stage_start = Clock::now();
    }
    line.show(fmt::format("{} {}", stage, file), p.done, p.total);
  };
  out.model = Model::load(arguments.model.file, m);
  *loading = false;
  const QuantizationReport& q = out.model->quantization();
  if (!arguments.quiet && q.quantized + q.in_float.size() > 0) {
    line.clear();
    if (m.precision == "fp16")
      fmt::print(stderr,
                 "{} nodes stay in float32, because their values leave the range of fp16 or come near its end\n",
                 q.in_float.size());
    else
      fmt::print(stderr, "{} of {} GEMMs and convolutions run in {}\n", q.quantized, q.quantized + q.in_float.size(),
                 m.precision);
    for (const std::string& node : q.in_float) fmt::print(stderr, "  in float32: {}\n", node);
  }
  if (stage != "ready") out.stages.push_back({stage, since(stage_start)});
  out.seconds = since(start);
  return out;
}

Inputs inputs_for(const Model& model, const Arguments& arguments) {
  std::vector<TensorInfo> wanted = model.inputs();
  for (TensorInfo& t : wanted)
    for (std::string& d : t.shape)
      if (auto it = arguments.model.compile.dims.find(d); it != arguments.model.compile.dims.end())
        d = std::to_string(it->second);
  return make_inputs(wanted, arguments.input, arguments.model.dims);
}

std::shared_ptr<Executor> program_for(Model& model, const Inputs& inputs, bool quiet) {
  ProgressLine line(!quiet && !model.executor());
  line.show("compiling for these inputs");
  return model.executor_for(inputs.tensors);
}

}  // namespace sardonyx::cli
