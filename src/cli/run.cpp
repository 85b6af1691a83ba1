// sardonyx run: one run, its outputs shown and saved.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "api/replicas.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/element_values.h"
#include "cli/model_loading.h"
#include "cli/terminal.h"

namespace sardonyx::cli {
namespace {

// Statistics of the finite elements, and how many others there are.
void add_row(Table& table, const std::string& name, const Tensor& t) {
  const std::int64_t n = t.elements() * (part_type(t.dtype) == t.dtype ? 1 : 2);
  double low = INFINITY, high = -INFINITY, sum = 0;
  std::int64_t finite = 0;
  for (std::int64_t k = 0; k < n; ++k) {
    const double v = decode(t.dtype, t.data, k);
    if (!std::isfinite(v)) continue;
    low = std::min(low, v);
    high = std::max(high, v);
    sum += v;
    ++finite;
  }
  std::string first;
  for (std::int64_t k = 0; k < std::min<std::int64_t>(n, 4); ++k)
    first += fmt::format("{}{:.5g}", k ? " " : "", decode(t.dtype, t.data, k));
  if (n > 4) first += " …";
  const std::string other = n > finite ? fmt::format("  ({} not finite)", n - finite) : "";
  if (finite == 0)
    table.add({cut(name, 40), type_text(t.dtype, t.dims), "-", "-", "-", first + other});
  else
    table.add({cut(name, 40), type_text(t.dtype, t.dims), fmt::format("{:.5g}", low), fmt::format("{:.5g}", high),
               fmt::format("{:.5g}", sum / static_cast<double>(finite)), first + other});
}

// Which outputs go to which file. Checked before the run, which may take long.
std::vector<std::pair<std::string, std::string>> plan_outputs(const std::vector<std::string>& texts,
                                                              const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, std::string>> out;  // name ("" for all), file
  for (const std::string& text : texts) {
    std::string name, file = text;
    for (const std::string& n : names)
      if (text.starts_with(n + "=") && n.size() >= name.size()) {
        name = n;
        file = text.substr(n.size() + 1);
      }
    if (!is_tensor_file(file))
      fail(ErrorKind::kInvalidArgument, "--output {}: the file's name must end in .npy, .npz or .pb", text);
    const bool archive = file.ends_with(".npz");
    if (name.empty() && text.find('=') != std::string::npos)
      fail(ErrorKind::kInvalidArgument, "--output {}: the model has no output '{}'; its outputs are: {}", text,
           text.substr(0, text.find('=')), fmt::join(names, ", "));
    if (name.empty() && !archive) {
      if (names.size() != 1)
        fail(ErrorKind::kInvalidArgument,
             "--output {}: which output? give NAME=FILE with one of: {}; or an .npz file for all", text,
             fmt::join(names, ", "));
      name = names[0];
    }
    out.emplace_back(name, file);
  }
  return out;
}

// The model on the further devices too; null if there is one device only.
std::unique_ptr<Replicas> replicas_of(const Arguments& arguments, Loaded& first) {
  if (arguments.run.devices.empty()) return nullptr;
  std::vector<std::shared_ptr<Model>> models = {first.model};
  for (std::size_t k = 1; k < arguments.run.devices.size(); ++k) {
    Arguments other = arguments;
    other.model.compile.device = arguments.run.devices[k];
    Loaded loaded = load_model(other);
    first.seconds += loaded.seconds;
    models.push_back(loaded.model);
  }
  return std::make_unique<Replicas>(std::move(models));
}

}  // namespace

void run_command(const Arguments& arguments) {
  if (!arguments.run.save_inputs.empty() && !arguments.run.save_inputs.ends_with(".npz"))
    fail(ErrorKind::kInvalidArgument, "--save-inputs {}: the name must end with .npz", arguments.run.save_inputs);
  Loaded loaded = load_model(arguments);
  Model& model = *loaded.model;
  const std::unique_ptr<Replicas> replicas = replicas_of(arguments, loaded);
  const auto files = plan_outputs(arguments.run.outputs, model.output_names());
  const Inputs inputs = inputs_for(model, arguments);
  if (!arguments.run.save_inputs.empty())
    write_tensors(arguments.run.save_inputs, {inputs.tensors.begin(), inputs.tensors.end()});
  if (!replicas) program_for(model, inputs, arguments.quiet);
  std::vector<StepTime> steps;
  RunOptions run;
  if (arguments.run.profile) run.profile = &steps;
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Tensor> outputs = replicas ? replicas->run(inputs.tensors, run) : model.run(inputs.tensors, run);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::vector<std::string> names = model.output_names();

  fmt::print("Loaded in {}, ran in {} on {} with {} threads\n\n", human_seconds(loaded.seconds), human_seconds(seconds),
             replicas                        ? fmt::format("{}", fmt::join(replicas->device_names(), ", "))
             : model.device_name() == "host" ? "the host"
                                             : model.device_name(),
             model.threads());
  Table table({"input", "type", ">min", ">max", ">mean", "values"});
  for (const TensorInfo& t : model.inputs()) add_row(table, t.name, inputs.tensors.at(t.name));
  if (!table.empty()) table.print();
  if (!inputs.generated.empty())
    fmt::print("  (generated with seed {}: {})\n", arguments.input.seed,
               printable(fmt::format("{}", fmt::join(inputs.generated, ", "))));
  fmt::print("\n");
  Table results({"output", "type", ">min", ">max", ">mean", "values"});
  for (std::size_t k = 0; k < outputs.size(); ++k) add_row(results, names[k], outputs[k]);
  results.print();
  if (arguments.run.profile) {
    fmt::print("\n");
    Table times({"kernel", ">time", "nodes of the model"});
    for (const StepTime& s : steps) times.add({s.what, human_seconds(s.seconds), cut(s.origin, 100)});
    times.print();
  }
  for (const auto& [name, file] : files) {
    NamedTensors list;
    for (std::size_t k = 0; k < outputs.size(); ++k)
      if (name.empty() || names[k] == name) list.emplace_back(names[k], outputs[k]);
    write_tensors(file, list);
  }
}

}  // namespace sardonyx::cli
