// sardonyx tune: times the candidates of a model's GEMMs, convolutions and attention on the GPU, and manages databases
// of times.
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "api/tuner.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/model_loading.h"
#include "cli/terminal.h"
#include "device/simulated_clock.h"
#include "support/error.h"
#include "tensor_files/tensor_files.h"

namespace sardonyx::cli {
namespace {

std::string sizes_text(std::int64_t batches, std::int64_t m, std::int64_t n, std::int64_t k) {
  return fmt::format("{}{}x{}x{}", batches == 1 ? "" : fmt::format("{} times ", batches), m, n, k);
}

std::string microseconds(double seconds) { return fmt::format("{:.2f} us", seconds * 1e6); }

void list(const TuningDatabase& database, const std::string& json) {
  const std::vector<TuningRow> rows = database.rows();
  if (!json.empty()) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const TuningRow& r : rows)
      all.push_back({{"arch", r.arch},
                     {"units", r.units},
                     {"problem", r.problem},
                     {"batches", r.batches},
                     {"m", r.m},
                     {"n", r.n},
                     {"k", r.k},
                     {"candidate", r.candidate},
                     {"seconds", r.seconds}});
    write_text(json, all.dump(2) + "\n");
    if (json == "-") return;
  }
  Table table({"chip", "problem", ">sizes", ">time", "tiling"});
  for (const TuningRow& r : rows)
    table.add({fmt::format("{}, {} units", r.arch, r.units), r.problem, sizes_text(r.batches, r.m, r.n, r.k),
               microseconds(r.seconds), r.candidate});
  table.print();
}

void print(const std::vector<TuningDecision>& decisions, double seconds, const std::filesystem::path& file) {
  if (decisions.empty()) {
    fmt::print("nothing to tune: {} has all of this model at these sizes\n", file.string());
    return;
  }
  Table table({"problem", ">sizes", ">by rule", ">fastest", ">of", "tiling"});
  double rule = 0, best = 0;
  for (const TuningDecision& d : decisions) {
    rule += d.rule_seconds;
    best += d.seconds;
    table.add({d.problem, sizes_text(d.sizes.batches, d.sizes.m, d.sizes.n, d.sizes.k), microseconds(d.rule_seconds),
               microseconds(d.seconds), std::to_string(d.timed), d.best == d.by_rule ? "as by rule" : d.best});
  }
  table.print();
  fmt::print("\n{} problems in {}: {} by rule, {} tuned; kept in {}\n", decisions.size(), human_seconds(seconds),
             human_seconds(rule), human_seconds(best), file.string());
}

}  // namespace

void tune_command(const Arguments& arguments) {
  const TuneArguments& a = arguments.tune;
  if (arguments.model.compile.tuning_database.empty())
    fail(ErrorKind::kInvalidArgument, "name a database with --tuning-database");
  if (a.list && !a.merge.empty()) fail(ErrorKind::kInvalidArgument, "--list and --merge can't be combined");
  if (a.list) return list(TuningDatabase(arguments.model.compile.tuning_database, false), a.json);
  if (!a.merge.empty()) {
    TuningDatabase into(arguments.model.compile.tuning_database, true);
    for (const std::string& file : a.merge) {
      const TuningDatabase from(file, false);
      const std::size_t added = into.merge(from);
      fmt::print("{}: {} of {} measurements are new or faster\n", file, added, from.rows().size());
    }
    return;
  }
  if (arguments.model.file.empty()) fail(ErrorKind::kInvalidArgument, "name a model to tune, --list or --merge");
  if (!is_gpu_name(arguments.model.compile.device))
    fail(ErrorKind::kInvalidArgument, "tuning is for GPUs: choose one with --device");
  if (a.timing) require_simulated(arguments);
  Arguments with = arguments;
  with.model.compile.tuning = a.quick ? "first-use" : "exhaustive";
  const Loaded loaded = load_model(with);
  const Inputs inputs = inputs_for(*loaded.model, with);
  program_for(*loaded.model, inputs, with.quiet);
  std::optional<SimulatedClock> clock;
  if (a.timing) clock.emplace(SimulatedTiming::kSample);
  const auto start = std::chrono::steady_clock::now();
  loaded.model->run(inputs.tensors);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::vector<TuningDecision> decisions = loaded.model->tuning_decisions();
  if (!a.json.empty()) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const TuningDecision& d : decisions)
      all.push_back({{"problem", d.problem},
                     {"batches", d.sizes.batches},
                     {"m", d.sizes.m},
                     {"n", d.sizes.n},
                     {"k", d.sizes.k},
                     {"by_rule", d.by_rule},
                     {"rule_seconds", d.rule_seconds},
                     {"best", d.best},
                     {"seconds", d.seconds},
                     {"timed", d.timed}});
    write_text(a.json, all.dump(2) + "\n");
    if (a.json == "-") return;
  }
  print(decisions, seconds, arguments.model.compile.tuning_database);
}

}  // namespace sardonyx::cli
