// The functions of sardonyx_sim.h.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "sim/api/runtime.h"
#include "support/error.h"

using namespace sardonyx::sim;
using nlohmann::json;

namespace {

constexpr const char* kCategories[] = {"scalar", "vector", "matrix", "scalar_memory", "memory",
                                       "lds",    "wait",   "branch", "other"};
static_assert(sizeof kCategories / sizeof *kCategories == static_cast<std::size_t>(Category::kCount));

Timing timingOf(const json& value) {
  if (value.is_boolean()) return value.get<bool>() ? Timing::kAll : Timing::kOff;
  const auto word = value.get<std::string>();
  if (word == "all") return Timing::kAll;
  if (word == "sample") return Timing::kSample;
  if (word == "off") return Timing::kOff;
  sardonyx::fail(sardonyx::ErrorKind::kInvalidArgument, R"("timing" is "off", "all" or "sample", not "{}")", word);
}

double mhzOf(const json& value) {
  const auto mhz = value.get<double>();
  if (mhz == 0 || (mhz >= 100 && mhz <= 10'000)) return mhz;
  sardonyx::fail(sardonyx::ErrorKind::kInvalidArgument, R"("mhz" is 100 to 10000, or 0 for the product's, not {})",
                 mhz);
}

void applyJson(const json& j, Config& c) {
  for (const auto& [key, value] : j.items()) {
    if (key == "chips")
      c.chips = value.get<std::vector<std::string>>();
    else if (key == "threads")
      c.threads = value.get<int>();
    else if (key == "max_instructions_per_wave")
      c.maxInstructionsPerWave = value.get<std::uint64_t>();
    else if (key == "check_waits")
      c.checkWaits = value.get<bool>();
    else if (key == "check_races")
      c.checkRaces = value.get<bool>();
    else if (key == "check_global_races")
      c.checkGlobalRaces = value.get<bool>();
    else if (key == "check_uninitialized")
      c.checkUninitialized = value.get<bool>();
    else if (key == "preload_arguments")
      c.preloadArguments = value.get<bool>();
    else if (key == "summary")
      c.summary = value.get<bool>();
    else if (key == "print_summary")
      c.printSummary = value.get<bool>();
    else if (key == "timing")
      c.timing = timingOf(value);
    else if (key == "timing_repeats")
      c.timingRepeats = value.get<std::size_t>();
    else if (key == "mhz")
      c.mhz = mhzOf(value);
    else if (key == "timeline_segments")
      c.timelineSegments = value.get<std::size_t>();
    else if (key == "print_timing")
      c.printTiming = value.get<bool>();
    else if (key == "timing_file")
      c.timingFile = value.get<std::string>();
    else if (key == "timeline_file")
      c.timelineFile = value.get<std::string>();
    else if (key == "print_failures")
      c.printFailures = value.get<bool>();
    else if (key == "trace" && value.is_null())
      c.traceKernel.clear();
    else if (key == "trace") {
      c.traceKernel = value.at("kernel").get<std::string>();
      c.traceWorkgroup = value.value("workgroup", std::uint64_t{0});
      c.traceWave = value.value("wave", 0);
      c.traceFile = value.value("file", std::string());
    } else {
      sardonyx::fail(sardonyx::ErrorKind::kInvalidArgument, "the simulator has no option \"{}\"", key);
    }
  }
}

/// At the end of the process, when the configuration asked for it.
void printSummary() {
  std::string text;
  {
    std::lock_guard lock(Runtime::get().mutex);
    for (const auto& [name, k] : Runtime::get().summary) {
      text += fmt::format("kernel {}: {} launches; wave-instructions:", k.shown, k.launches);
      for (std::size_t i = 0; i < static_cast<std::size_t>(Category::kCount); ++i)
        if (k.byCategory[i]) text += fmt::format(" {} {}", kCategories[i], k.byCategory[i]);
      const Traffic& t = k.traffic;
      text += fmt::format("; bytes: global {} read {} written, LDS {} read {} written, scratch {} read {} written\n",
                          t.globalRead, t.globalWritten, t.ldsRead, t.ldsWritten, t.scratchRead, t.scratchWritten);
    }
  }
  std::fflush(stdout);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

constexpr int kInstructionsShown = 8;
constexpr std::size_t kTimelineSegments = 50'000;  // of each kernel: what Perfetto shows without effort

std::string timingJson() {
  std::lock_guard lock(Runtime::get().mutex);
  json out = {{"launches", json::array()}};
  double total = 0;
  for (const auto& l : Runtime::get().timed) {
    out["launches"].push_back(timing::toJson(l));
    total += l.estimate->microseconds;
  }
  out["us"] = total;
  return out.dump();
}

void writeFile(const std::string& path, const std::string& text) {
  std::FILE* f = std::fopen(path.c_str(), "w");
  const bool ok = f && std::fwrite(text.data(), 1, text.size(), f) == text.size();
  if ((f && std::fclose(f) != 0) || !ok) std::fprintf(stderr, "simulated GPU: cannot write %s\n", path.c_str());
}

/// At the end of the process, when the configuration asked for it.
void printTiming() {
  const Config c = Runtime::get().config();
  if (c.printTiming) {
    std::string text;
    for (const auto& l : Runtime::get().timed)
      text += timing::toText(l, l.estimate->instructions.empty() ? 0 : kInstructionsShown);
    std::fflush(stdout);
    std::fwrite(text.data(), 1, text.size(), stderr);
  }
  if (!c.timingFile.empty()) writeFile(c.timingFile, timingJson());
  if (!c.timelineFile.empty()) writeFile(c.timelineFile, timing::toTimeline(Runtime::get().timed));
}

}  // namespace

namespace sardonyx::sim {

Config parseConfig(std::string_view text, const Config& base) {
  json j = json::parse(text);
  if (!j.is_object()) sardonyx::fail(sardonyx::ErrorKind::kInvalidArgument, "the configuration is not a JSON object");
  Config c = base;
  applyJson(j, c);
  if (c.timing == Timing::kSample && c.checkUninitialized)
    sardonyx::fail(
        sardonyx::ErrorKind::kInvalidArgument,
        R"("timing": "sample" leaves memory unwritten, which "check_uninitialized" would report: turn that off, or use "timing": "all")");
  if (c.printSummary && !base.printSummary) {
    static bool registered = std::atexit(printSummary) == 0;
    (void)registered;
  }
  if (c.printTiming || !c.timingFile.empty() || !c.timelineFile.empty()) {
    static bool registered = std::atexit(printTiming) == 0;
    (void)registered;
  }
  if (!c.timelineFile.empty() && c.timelineSegments == 0) c.timelineSegments = kTimelineSegments;
  return c;
}

}  // namespace sardonyx::sim

extern "C" {

int sardonyxSimConfigure(const char* text) {
  Runtime& rt = Runtime::get();
  std::lock_guard lock(rt.execution);
  try {
    rt.configure(parseConfig(text ? text : "", rt.config()));
    return 0;
  } catch (const std::exception& e) {
    rt.lastFailure = std::string("configuration: ") + e.what();
    return -1;
  }
}

const char* sardonyxSimLastFailure() {
  thread_local std::string copy;
  std::lock_guard lock(Runtime::get().mutex);
  copy = Runtime::get().lastFailure;
  return copy.c_str();
}

const char* sardonyxSimSummary() {
  thread_local std::string copy;
  json out = json::object();
  std::lock_guard lock(Runtime::get().mutex);
  for (const auto& [name, k] : Runtime::get().summary) {
    json& one = out[name];
    one["launches"] = k.launches;
    for (std::size_t i = 0; i < static_cast<std::size_t>(Category::kCount); ++i)
      one["instructions"][kCategories[i]] = k.byCategory[i];
    one["bytes"] = {{"global_read", k.traffic.globalRead},   {"global_written", k.traffic.globalWritten},
                    {"lds_read", k.traffic.ldsRead},         {"lds_written", k.traffic.ldsWritten},
                    {"scratch_read", k.traffic.scratchRead}, {"scratch_written", k.traffic.scratchWritten}};
  }
  copy = out.dump();
  return copy.c_str();
}

const char* sardonyxSimTiming() {
  thread_local std::string copy;
  copy = timingJson();
  return copy.c_str();
}

const char* sardonyxSimTimeline() {
  thread_local std::string copy;
  std::lock_guard lock(Runtime::get().mutex);
  copy = timing::toTimeline(Runtime::get().timed);
  return copy.c_str();
}

double sardonyxSimMicroseconds() {
  std::lock_guard lock(Runtime::get().mutex);
  return Runtime::get().config().timing == Timing::kOff ? -1 : Runtime::get().microseconds;
}

long long sardonyxSimCount(const char* what) {
  const std::string word = what ? what : "";
  const Runtime& rt = Runtime::get();
  if (word == "allocations") return rt.allocations;
  if (word == "graphs") return rt.graphs;
  if (word == "graph_launches") return rt.graphLaunches;
  if (word == "waiting") return rt.waiting;
  return word == "kernel_launches" ? rt.kernelLaunches.load() : -1;
}

void sardonyxSimResetSummary() {
  std::lock_guard lock(Runtime::get().mutex);
  Runtime::get().summary.clear();
  Runtime::get().timed.clear();
  Runtime::get().repeated.clear();
}

}  // extern "C"
