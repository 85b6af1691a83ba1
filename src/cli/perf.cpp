// sardonyx perf: measures runs, then profiles kernels in separate runs, so that profiling does not disturb the
// measurement.
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "api/report.h"
#include "api/traffic.h"
#include "cli/commands.h"
#include "cli/page.h"
#include "cli/resident.h"

namespace sardonyx::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kMinRuns = 10;
constexpr int kMaxRuns = 1000000;
constexpr double kProfileSeconds = 1;
constexpr int kMaxProfileRuns = 20;

double since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

// Largest resident memory of this process so far, in bytes.
std::size_t peak_memory() {
  std::ifstream f("/proc/self/status");
  for (std::string line; std::getline(f, line);)
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
  return 0;
}

// Interpolates between the two nearest ranks.
double percentile(const std::vector<double>& sorted, double p) {
  const double at = p / 100 * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

struct KernelTime {
  std::string name, nodes;
  double seconds = 0;  // of one run, all its calls
  double calls = 0;    // in one run
};

std::vector<KernelTime> profile(Model& model, const Inputs& inputs) {
  std::map<std::pair<std::string, std::string>, KernelTime> sums;
  const auto start = Clock::now();
  int runs = 0;
  do {
    std::vector<StepTime> steps;
    RunOptions o;
    o.profile = &steps;
    model.run(inputs.tensors, o);
    for (const StepTime& s : steps) {
      KernelTime& t = sums[{s.what, s.origin}];
      t.name = s.what;
      t.nodes = s.origin;
      t.seconds += s.seconds;
      t.calls += 1;
    }
    ++runs;
  } while (runs < kMaxProfileRuns && since(start) < kProfileSeconds);
  std::vector<KernelTime> out;
  for (auto& [key, t] : sums) {
    if (t.name == "control") continue;  // the time of nested steps is counted there
    t.seconds /= runs;
    t.calls /= runs;
    out.push_back(std::move(t));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const KernelTime& a, const KernelTime& b) { return a.seconds > b.seconds; });
  return out;
}

}  // namespace

void perf_command(const Options& options) {
  Loaded loaded = load_model(options);
  Model& model = *loaded.model;
  const Inputs inputs = inputs_for(model, options);
  const auto first_start = Clock::now();
  const std::shared_ptr<Executor> executor = program_for(model, inputs, options.quiet);
  std::optional<ResidentRuns> resident;
  if (options.perf.resident) resident.emplace(model, inputs);
  const auto run = [&] {
    if (!resident) {
      model.run(inputs.tensors);
      return;
    }
    resident->start();
    resident->wait();
  };
  run();
  const double first_run = since(first_start);
  const std::size_t peak_load = peak_memory();

  std::vector<double> times;
  double total = 0;
  {
    ProgressLine line(!options.quiet);
    for (int k = 0; k < options.perf.warmup; ++k) {
      line.show("warming up", static_cast<std::size_t>(k) + 1, static_cast<std::size_t>(options.perf.warmup));
      run();
    }
    const int wanted = options.perf.runs;
    const auto start = Clock::now();
    auto shown = start;
    while (wanted ? static_cast<int>(times.size()) < wanted
                  : static_cast<int>(times.size()) < kMinRuns ||
                        (since(start) < options.perf.seconds && times.size() < kMaxRuns)) {
      const auto t = Clock::now();
      run();
      times.push_back(since(t));
      if (since(shown) < 0.1) continue;  // drawing takes time from the machine, if not from the measurement
      shown = Clock::now();
      if (wanted)
        line.show("measuring", times.size(), static_cast<std::size_t>(wanted));
      else
        line.show("measuring", static_cast<std::size_t>(std::min(since(start), options.perf.seconds) * 10),
                  static_cast<std::size_t>(std::max(1.0, options.perf.seconds * 10)));
    }
  }
  total = std::accumulate(times.begin(), times.end(), 0.0);
  const std::size_t peak = peak_memory();
  std::vector<double> sorted = times;
  std::sort(sorted.begin(), sorted.end());
  BackToBack stream;
  if (resident) stream = back_to_back(*resident, percentile(sorted, 50), options.perf.seconds / 2);
  const double mean = total / static_cast<double>(times.size());
  double variance = 0;
  for (double t : times) variance += (t - mean) * (t - mean) / static_cast<double>(times.size());
  const std::vector<KernelTime> kernels = profile(model, inputs);
  double kernel_seconds = 0;
  for (const KernelTime& k : kernels) kernel_seconds += k.seconds;
  double load[1] = {0};
  if (getloadavg(load, 1) != 1) load[0] = -1;

  const CacheStats cache = model.cache().stats();
  const Program& program = executor->program();
  std::vector<std::vector<std::int64_t>> dims;
  for (const std::string& n : program.input_names) dims.push_back(inputs.tensors.at(n).dims);
  const Traffic traffic = traffic_of(program, executor->bind(dims));
  const double throughput = resident ? percentile(stream.groups, 50) : mean;  // seconds of one run
  nlohmann::ordered_json j;
  j["model"] = options.model.file.filename().string();
  j["device"] = model.device_name();
  j["target"] = program.target;
  j["threads"] = model.threads();
  j["load_average"] = load[0];
  for (const TensorInfo& t : model.inputs()) {
    const HostTensor& x = inputs.tensors.at(t.name);
    j["inputs"].push_back({{"name", t.name}, {"dtype", name(x.dtype)}, {"shape", x.dims}});
  }
  j["load_seconds"] = loaded.seconds;
  for (const auto& s : loaded.stages) j["load_stages"][s.name] = s.seconds;
  j["cache"] = {{"hits", cache.hits}, {"misses", cache.misses}};
  j["first_run_seconds"] = first_run;
  j["runs"] = times.size();
  j["warmup"] = options.perf.warmup;
  j["latency_seconds"] = {{"mean", mean},
                          {"std", std::sqrt(variance)},
                          {"min", sorted.front()},
                          {"p50", percentile(sorted, 50)},
                          {"p90", percentile(sorted, 90)},
                          {"p95", percentile(sorted, 95)},
                          {"p99", percentile(sorted, 99)},
                          {"max", sorted.back()}};
  j["resident"] = resident.has_value();
  if (resident)
    j["back_to_back_seconds"] = {{"p50", throughput},
                                 {"min", stream.groups.front()},
                                 {"max", stream.groups.back()},
                                 {"runs", stream.runs},
                                 {"groups", stream.groups.size()}};
  j["runs_per_second"] = 1 / throughput;
  j["bytes_per_run"] = traffic.bytes;
  j["bytes_per_second"] = traffic.bytes / throughput;
  j["tensors_of_unknown_size"] = traffic.unknown;
  j["kernels_per_run"] = kernels_per_run(program);
  j["memory_bytes"] = {{"peak", peak},
                       {"peak_after_first_run", peak_load},
                       {"weights", executor->constant_bytes()},
                       {"arena", executor->arena_bytes()}};
  j["kernel_seconds"] = kernel_seconds;
  for (const KernelTime& k : kernels)
    j["kernels"].push_back({{"name", k.name}, {"nodes", k.nodes}, {"seconds", k.seconds}, {"calls", k.calls}});
  j["times"] = times;
  const auto replace = nlohmann::ordered_json::error_handler_t::replace;
  if (!options.perf.html.empty()) write_text(options.perf.html, page("perf.html", j.dump(-1, ' ', false, replace)));
  if (!options.perf.json.empty()) write_text(options.perf.json, j.dump(2, ' ', false, replace) + "\n");
  if (options.perf.json == "-" || options.perf.html == "-") return;

  fmt::print("{} on {}, {} threads (load average {:.1f})\n", printable(options.model.file.filename().string()),
             model.device_name() == "host" ? "the host" : model.device_name(), model.threads(), load[0]);
  for (const TensorInfo& t : model.inputs()) {
    const HostTensor& x = inputs.tensors.at(t.name);
    fmt::print("  {} {}\n", printable(t.name), type_text(x.dtype, x.dims));
  }
  fmt::print("\nload       {}", human_seconds(loaded.seconds));
  std::string stages;
  for (const auto& s : loaded.stages) stages += (stages.empty() ? "" : ", ") + s.name + " " + human_seconds(s.seconds);
  fmt::print(" ({}; {} objects from the cache, {} compiled)\nfirst run  {}\n", stages, cache.hits, cache.misses,
             human_seconds(first_run));
  fmt::print("latency    p50 {}  p90 {}  p95 {}  p99 {}  min {}  max {}  mean {} ± {}  ({} runs after {} to warm up)\n",
             human_seconds(percentile(sorted, 50)), human_seconds(percentile(sorted, 90)),
             human_seconds(percentile(sorted, 95)), human_seconds(percentile(sorted, 99)),
             human_seconds(sorted.front()), human_seconds(sorted.back()), human_seconds(mean),
             human_seconds(std::sqrt(variance)), times.size(), options.perf.warmup);
  fmt::print("throughput {:.2f} runs/s, {} kernels each\n", 1 / throughput, kernels_per_run(program));
  if (resident)
    fmt::print("           {} a run without waiting between runs (median of {} times {}; {} to {})\n",
               human_seconds(throughput), stream.groups.size(), stream.runs, human_seconds(stream.groups.front()),
               human_seconds(stream.groups.back()));
  fmt::print("traffic    {} a run, {}/s{}\n", human_bytes(traffic.bytes), human_bytes(traffic.bytes / throughput),
             traffic.unknown ? fmt::format(" ({} tensors of unknown size not counted)", traffic.unknown) : "");
  fmt::print("memory     {} at most (weights {}, arena {})\n", human_bytes(static_cast<double>(peak)),
             human_bytes(static_cast<double>(executor->constant_bytes())),
             human_bytes(static_cast<double>(executor->arena_bytes())));
  if (options.perf.top == 0) return;
  fmt::print("\n");
  Table table({"kernel", ">time", ">share", ">calls", "nodes of the model"});
  for (std::size_t k = 0; k < kernels.size() && k < static_cast<std::size_t>(options.perf.top); ++k) {
    const KernelTime& t = kernels[k];
    table.add({t.name, human_seconds(t.seconds),
               fmt::format("{:.1f} %", 100 * t.seconds / std::max(kernel_seconds, 1e-12)),
               fmt::format("{:.4g}", t.calls), cut(t.nodes, 90)});
  }
  table.print();
  if (kernels.size() > static_cast<std::size_t>(options.perf.top))
    fmt::print("  and {} more; --top N shows them, --json all of them\n",
               kernels.size() - static_cast<std::size_t>(options.perf.top));
}

}  // namespace sardonyx::cli
