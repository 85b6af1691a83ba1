// sardonyx perf --timing: what a run takes on an AMD GPU by the simulated GPU's clock (docs/amd-clock.md).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/inputs.h"
#include "cli/model_loading.h"
#include "cli/terminal.h"
#include "device/simulated_clock.h"
#include "support/error.h"
#include "tensor_files/tensor_files.h"

namespace sardonyx::cli {
namespace {

using nlohmann::ordered_json;

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

/// The cause for which the launch's waves lose most, and its share.
std::string worst(const ordered_json& launch) {
  std::pair<double, std::string> most;
  for (const auto& [cause, share] : launch["lost"].items()) most = std::max(most, {share.get<double>(), cause});
  return most.second.empty() ? "" : fmt::format("{} {}", most.second, percent(most.first));
}

void print_launches(const ordered_json& launches, std::size_t rows) {
  std::vector<const ordered_json*> sorted;
  for (const ordered_json& l : launches) sorted.push_back(&l);
  std::stable_sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) {
    return a->at("us").template get<double>() > b->at("us").template get<double>();
  });
  Table table({"launch", ">time", ">busiest", ">workgroups", ">waves a SIMD", ">issued", "lost most"});
  for (std::size_t k = 0; k < std::min(rows, sorted.size()); ++k) {
    const ordered_json& l = *sorted[k];
    table.add({cut(l["kernel"].get<std::string>(), 24), human_seconds(l["us"].get<double>() * 1e-6),
               fmt::format("{} {}", l["limited_by"].get<std::string>(), percent(l["limit_share"])),
               std::to_string(l["workgroups"].get<std::int64_t>()), std::to_string(l["waves_per_simd"].get<int>()),
               percent(l["issued"]), worst(l)});
  }
  table.print();
}

void print_steps(const std::vector<StepTime>& steps, std::size_t rows) {
  std::map<std::pair<std::string, std::string>, double> sums;
  double total = 0;
  for (const StepTime& s : steps)
    if (s.what != "control") sums[{s.what, s.origin}] += s.seconds, total += s.seconds;
  std::vector<std::pair<double, std::pair<std::string, std::string>>> sorted;
  for (const auto& [names, seconds] : sums) sorted.emplace_back(seconds, names);
  std::sort(sorted.rbegin(), sorted.rend());
  Table table({"kernel", ">time with its launch", ">share", "nodes of the model"});
  for (std::size_t k = 0; k < std::min(rows, sorted.size()); ++k)
    table.add({sorted[k].second.first, human_seconds(sorted[k].first),
               percent(sorted[k].first / std::max(total, 1e-12)), cut(sorted[k].second.second, 90)});
  table.print();
}

}  // namespace

void require_simulated(const Arguments& arguments) {
  if (!is_simulated_name(arguments.model.compile.device))
    fail(ErrorKind::kInvalidArgument,
         "--timing estimates times on an AMD GPU from what a simulated one executes: choose one, as with --device "
         "sim:gfx942; other devices are measured without it");
}

void perf_timing_command(const Arguments& arguments) {
  const PerfArguments& perf = arguments.perf;
  require_simulated(arguments);
  Loaded loaded = load_model(arguments);
  Model& model = *loaded.model;
  const Inputs inputs = inputs_for(model, arguments);
  program_for(model, inputs, arguments.quiet);
  std::vector<StepTime> steps;
  RunOptions options;
  options.profile = &steps;
  ordered_json j;
  {
    const SimulatedClock clock(perf.sample ? SimulatedTiming::kSample : SimulatedTiming::kAll);
    model.run(inputs.tensors, options);
    j = ordered_json::parse(simulated_launches());
    if (!perf.timeline.empty()) write_text(perf.timeline, simulated_timeline());
  }
  double busy = 0, total = 0;
  for (const ordered_json& l : j["launches"]) {
    busy += l["us"].get<double>() * 1e-6;
    total += (l["us"].get<double>() + l["launch_us"].get<double>()) * 1e-6;
  }
  j["model"] = arguments.model.file.filename().string();
  j["device"] = model.device_name();
  j["estimated_seconds"] = total;
  j["estimated_kernel_seconds"] = busy;
  for (const StepTime& s : steps)
    j["steps"].push_back({{"name", s.what}, {"nodes", s.origin}, {"estimated_seconds", s.seconds}});
  if (!perf.json.empty()) write_text(perf.json, j.dump(2) + "\n");
  if (perf.json == "-" || perf.timeline == "-") return;
  const auto rows = static_cast<std::size_t>(perf.top);
  fmt::print("{} on {}: {} a run, estimated: {} launches of {} in all, {} between them\n\n",
             printable(arguments.model.file.filename().string()), model.device_name(), human_seconds(total),
             j["launches"].size(), human_seconds(busy), human_seconds(total - busy));
  if (rows == 0) return;
  print_steps(steps, rows);
  fmt::print("\n");
  print_launches(j["launches"], rows);
}

}  // namespace sardonyx::cli
