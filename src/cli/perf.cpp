// sardonyx perf: measures runs, then profiles kernels in separate runs, so that profiling does not disturb the
// measurement.
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "api/report.h"
#include "api/traffic.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/html_page.h"
#include "cli/model_loading.h"
#include "cli/resident_runs.h"
#include "cli/terminal.h"
#include "tensor_files/tensor_files.h"

namespace sardonyx::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kMinRuns = 10;           // for a median and a spread, however long a run takes
constexpr int kMaxRuns = 1000000;      // whose times are kept in memory
constexpr double kProfileSeconds = 1;  // of runs that time each kernel: long enough for a mean, unnoticed otherwise
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

// What was measured. Times are in seconds, memory in bytes.
struct Measurements {
  double load_average = 0;  // of the machine; -1: unknown
  double first_run = 0;
  std::vector<double> runs;                // in the order in which they ran
  std::optional<BackToBack> back_to_back;  // with --resident
  std::vector<KernelTime> kernels;
  double kernel_seconds = 0;  // of one run
  int kernels_per_run = 0;
  std::string target;
  Traffic traffic;
  CacheStats cache;
  std::size_t peak_after_first_run = 0, peak = 0, weights = 0, arena = 0;
};

struct Latency {
  double mean = 0, deviation = 0, min = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};

Latency latency_of(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const auto count = static_cast<double>(times.size());
  Latency l;
  l.mean = std::accumulate(times.begin(), times.end(), 0.0) / count;
  for (const double t : times) l.deviation += (t - l.mean) * (t - l.mean) / count;
  l.deviation = std::sqrt(l.deviation);
  l.min = times.front();
  l.p50 = percentile(times, 50);
  l.p90 = percentile(times, 90);
  l.p95 = percentile(times, 95);
  l.p99 = percentile(times, 99);
  l.max = times.back();
  return l;
}

// Seconds of a run at full throughput: without waiting between runs if that was measured.
double seconds_per_run(const Measurements& m, const Latency& latency) {
  return m.back_to_back ? percentile(m.back_to_back->groups, 50) : latency.mean;
}

std::vector<double> measure_runs(const PerfArguments& perf, bool quiet, const std::function<void()>& run) {
  ProgressLine line(!quiet);
  for (int k = 0; k < perf.warmup; ++k) {
    line.show("warming up", static_cast<std::size_t>(k) + 1, static_cast<std::size_t>(perf.warmup));
    run();
  }
  const auto start = Clock::now();
  const auto enough = [&](std::size_t runs) {
    if (perf.runs > 0) return runs >= static_cast<std::size_t>(perf.runs);
    return runs >= kMinRuns && (since(start) >= perf.seconds || runs >= kMaxRuns);
  };
  std::vector<double> times;
  auto shown = start;
  while (!enough(times.size())) {
    const auto t = Clock::now();
    run();
    times.push_back(since(t));
    if (since(shown) < 0.1) continue;  // drawing takes time from the machine, if not from the measurement
    shown = Clock::now();
    if (perf.runs > 0)
      line.show("measuring", times.size(), static_cast<std::size_t>(perf.runs));
    else
      line.show("measuring", static_cast<std::size_t>(std::min(since(start), perf.seconds) * 10),
                static_cast<std::size_t>(std::max(1.0, perf.seconds * 10)));
  }
  return times;
}

Measurements measure(const Arguments& arguments, Model& model, const Inputs& inputs) {
  Measurements m;
  const auto start = Clock::now();
  const std::shared_ptr<Executor> executor = program_for(model, inputs, arguments.quiet);
  std::optional<ResidentRuns> resident;
  if (arguments.perf.resident) resident.emplace(model, inputs);
  const auto run = [&] {
    if (!resident) {
      model.run(inputs.tensors);
      return;
    }
    resident->start();
    resident->wait();
  };
  run();
  m.first_run = since(start);
  m.peak_after_first_run = peak_memory();
  model.wait();  // what compiles in the background takes time from runs
  m.runs = measure_runs(arguments.perf, arguments.quiet, run);
  m.peak = peak_memory();
  if (resident) m.back_to_back = back_to_back(*resident, latency_of(m.runs).p50, arguments.perf.seconds / 2);
  m.kernels = profile(model, inputs);
  for (const KernelTime& k : m.kernels) m.kernel_seconds += k.seconds;
  if (getloadavg(&m.load_average, 1) != 1) m.load_average = -1;

  const Program& program = executor->program();
  std::vector<std::vector<std::int64_t>> dims;
  for (const std::string& n : program.input_names) dims.push_back(inputs.tensors.at(n).dims);
  m.traffic = traffic_of(program, executor->bind(dims));
  m.target = program.target;
  m.kernels_per_run = kernels_per_run(program);
  m.weights = executor->constant_bytes();
  m.arena = executor->arena_bytes();
  m.cache = model.cache().stats();
  return m;
}

// The keys are listed in docs/command-line.md.
nlohmann::ordered_json to_json(const Arguments& arguments, const Loaded& loaded, const Inputs& inputs,
                               const Measurements& m) {
  const Model& model = *loaded.model;
  const Latency latency = latency_of(m.runs);
  const double throughput = seconds_per_run(m, latency);
  nlohmann::ordered_json j;
  j["model"] = arguments.model.file.filename().string();
  j["device"] = model.device_name();
  j["target"] = m.target;
  j["threads"] = model.threads();
  j["load_average"] = m.load_average;
  for (const TensorInfo& t : model.inputs()) {
    const Tensor& x = inputs.tensors.at(t.name);
    j["inputs"].push_back({{"name", t.name}, {"dtype", name(x.dtype)}, {"shape", x.dims}});
  }
  j["load_seconds"] = loaded.seconds;
  for (const auto& s : loaded.stages) j["load_stages"][s.name] = s.seconds;
  j["cache"] = {{"hits", m.cache.hits}, {"misses", m.cache.misses}};
  j["first_run_seconds"] = m.first_run;
  j["runs"] = m.runs.size();
  j["warmup"] = arguments.perf.warmup;
  j["latency_seconds"] = {{"mean", latency.mean}, {"std", latency.deviation}, {"min", latency.min},
                          {"p50", latency.p50},   {"p90", latency.p90},       {"p95", latency.p95},
                          {"p99", latency.p99},   {"max", latency.max}};
  j["resident"] = m.back_to_back.has_value();
  if (const auto& b = m.back_to_back)
    j["back_to_back_seconds"] = {{"p50", throughput},
                                 {"min", b->groups.front()},
                                 {"max", b->groups.back()},
                                 {"runs", b->runs},
                                 {"groups", b->groups.size()}};
  j["runs_per_second"] = 1 / throughput;
  j["bytes_per_run"] = m.traffic.bytes;
  j["bytes_per_second"] = m.traffic.bytes / throughput;
  j["tensors_of_unknown_size"] = m.traffic.unknown;
  j["kernels_per_run"] = m.kernels_per_run;
  j["memory_bytes"] = {
      {"peak", m.peak}, {"peak_after_first_run", m.peak_after_first_run}, {"weights", m.weights}, {"arena", m.arena}};
  j["kernel_seconds"] = m.kernel_seconds;
  for (const KernelTime& k : m.kernels)
    j["kernels"].push_back({{"name", k.name}, {"nodes", k.nodes}, {"seconds", k.seconds}, {"calls", k.calls}});
  j["times"] = m.runs;
  return j;
}

void print_kernels(const Measurements& m, std::size_t rows) {
  if (rows == 0) return;
  fmt::print("\n");
  Table table({"kernel", ">time", ">share", ">calls", "nodes of the model"});
  for (std::size_t k = 0; k < m.kernels.size() && k < rows; ++k) {
    const KernelTime& t = m.kernels[k];
    table.add({cut(t.name, 24), human_seconds(t.seconds),
               fmt::format("{:.1f} %", 100 * t.seconds / std::max(m.kernel_seconds, 1e-12)),
               fmt::format("{:.4g}", t.calls), cut(t.nodes, 90)});
  }
  table.print();
  if (m.kernels.size() > rows)
    fmt::print("  and {} more; --top N shows them, --json all of them\n", m.kernels.size() - rows);
}

void print(const Arguments& arguments, const Loaded& loaded, const Inputs& inputs, const Measurements& m) {
  const Model& model = *loaded.model;
  const Latency latency = latency_of(m.runs);
  const double throughput = seconds_per_run(m, latency);
  fmt::print("{} on {}, {} threads (load average {:.1f})\n", printable(arguments.model.file.filename().string()),
             model.device_name() == "host" ? "the host" : model.device_name(), model.threads(), m.load_average);
  for (const TensorInfo& t : model.inputs()) {
    const Tensor& x = inputs.tensors.at(t.name);
    fmt::print("  {} {}\n", printable(t.name), type_text(x.dtype, x.dims));
  }
  fmt::print("\nload       {}", human_seconds(loaded.seconds));
  std::string stages;
  for (const auto& s : loaded.stages) stages += (stages.empty() ? "" : ", ") + s.name + " " + human_seconds(s.seconds);
  fmt::print(" ({}; {} objects from the cache, {} compiled)\nfirst run  {}\n", stages, m.cache.hits, m.cache.misses,
             human_seconds(m.first_run));
  fmt::print("latency    p50 {}  p90 {}  p95 {}  p99 {}  min {}  max {}  mean {} ± {}  ({} runs after {} to warm up)\n",
             human_seconds(latency.p50), human_seconds(latency.p90), human_seconds(latency.p95),
             human_seconds(latency.p99), human_seconds(latency.min), human_seconds(latency.max),
             human_seconds(latency.mean), human_seconds(latency.deviation), m.runs.size(), arguments.perf.warmup);
  fmt::print("throughput {:.2f} runs/s, {} kernels each\n", 1 / throughput, m.kernels_per_run);
  if (const auto& b = m.back_to_back)
    fmt::print("           {} per run without waiting between runs (median of {} groups of {} runs; {} to {})\n",
               human_seconds(throughput), b->groups.size(), b->runs, human_seconds(b->groups.front()),
               human_seconds(b->groups.back()));
  fmt::print("traffic    {} per run, {}/s{}\n", human_bytes(m.traffic.bytes), human_bytes(m.traffic.bytes / throughput),
             m.traffic.unknown ? fmt::format(" ({} tensors of unknown size not counted)", m.traffic.unknown) : "");
  fmt::print("memory     {} at most (weights {}, arena {})\n", human_bytes(static_cast<double>(m.peak)),
             human_bytes(static_cast<double>(m.weights)), human_bytes(static_cast<double>(m.arena)));
  print_kernels(m, static_cast<std::size_t>(arguments.perf.top));
}

}  // namespace

void perf_command(const Arguments& arguments) {
  if (arguments.perf.timing) return perf_timing_command(arguments);
  const Loaded loaded = load_model(arguments);
  const Inputs inputs = inputs_for(*loaded.model, arguments);
  const Measurements m = measure(arguments, *loaded.model, inputs);
  const nlohmann::ordered_json j = to_json(arguments, loaded, inputs, m);
  const auto replace = nlohmann::ordered_json::error_handler_t::replace;
  if (!arguments.perf.html.empty()) write_text(arguments.perf.html, page("perf.html", j.dump(-1, ' ', false, replace)));
  if (!arguments.perf.json.empty()) write_text(arguments.perf.json, j.dump(2, ' ', false, replace) + "\n");
  if (arguments.perf.json != "-" && arguments.perf.html != "-") print(arguments, loaded, inputs, m);
}

}  // namespace sardonyx::cli
