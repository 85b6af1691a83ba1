// Options of sessions; see options.h.
#include "ep/options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <set>

#include "sardonyx/sardonyx.h"

namespace sardonyx::ep {
namespace {

constexpr std::string_view kPrefix = "ep.amdgpuexecutionprovider.";
constexpr std::string_view kPadding =
    "tensors are never padded: a program serves all sizes, so there is nothing to pad or to recompile";

bool boolean(std::string_view name, std::string v) {
  std::transform(v.begin(), v.end(), v.begin(), [](unsigned char c) { return std::tolower(c); });
  if (v == "1" || v == "true" || v == "on" || v == "yes") return true;
  if (v == "0" || v == "false" || v == "off" || v == "no" || v.empty()) return false;
  fail(ErrorKind::kInvalidArgument, "option {}: '{}' is neither true nor false; use 1 or 0", name, v);
}

template <typename T>
T number(std::string_view name, const std::string& v) {
  T n{};
  const bool hex = v.starts_with("0x");
  const char* begin = v.data() + (hex ? 2 : 0);
  const auto [end, error] = std::from_chars(begin, v.data() + v.size(), n, hex ? 16 : 10);
  if (error != std::errc() || end != v.data() + v.size())
    fail(ErrorKind::kInvalidArgument, "option {}: '{}' is not a number that fits", name, v);
  return n;
}

std::vector<std::string> words(const std::string& list) {
  std::vector<std::string> out;
  std::string word;
  for (const char c : list + ",") {
    if (c != ',' && c != ';' && c != ' ') {
      word += c;
    } else if (!word.empty()) {
      out.push_back(std::move(word));
      word.clear();
    }
  }
  return out;
}

std::size_t distance(std::string_view a, std::string_view b) {  // Levenshtein's
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1] ? 1 : 0);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

const OptionInfo& find(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  const OptionInfo* nearest = nullptr;
  std::size_t best = SIZE_MAX;
  for (const OptionInfo& o : known_options()) {
    if (o.name == name) return o;
    if (const std::size_t d = distance(o.name, name); d < best) {
      best = d;
      nearest = &o;
    }
  }
  fail(ErrorKind::kInvalidArgument, "there is no option '{}'; did you mean '{}'? docs/provider.md lists all", name,
       nearest->name);
}

using Setter = std::function<void(ProviderOptions&, const std::string&)>;

// By canonical name.
const std::map<std::string, Setter, std::less<>>& setters() {
  using P = ProviderOptions;
  static const std::map<std::string, Setter, std::less<>> table = {
      {"device", [](P& p, const std::string& v) { p.device = v; }},
      {"device_id", [](P& p, const std::string& v) { p.device_id = number<int>("device_id", v); }},
      {"precision",
       [](P& p, const std::string& v) {
         constexpr std::array kAll = {"fp32", "fp16", "bf16", "int8", "fp8"};
         if (std::find(kAll.begin(), kAll.end(), v) == kAll.end())
           fail(ErrorKind::kInvalidArgument, "option precision: '{}' is none of fp32, fp16, bf16, int8, fp8", v);
         p.precision = v;
       }},
      {"calibration_table", [](P& p, const std::string& v) { p.calibration_table = v; }},
      {"threads", [](P& p, const std::string& v) { p.threads = number<int>("threads", v); }},
      {"fuse", [](P& p, const std::string& v) { p.fuse = boolean("fuse", v); }},
      {"gpu_mem_limit",
       [](P& p, const std::string& v) {
         const auto n = number<std::size_t>("gpu_mem_limit", v);
         p.arena.limit = n == SIZE_MAX ? 0 : n;  // other providers' value for no limit
       }},
      {"arena_extend_strategy",
       [](P& p, const std::string& v) {
         if (v == "kSameAsRequested" || v == "1")
           p.arena.same_as_requested = true;
         else if (v == "kNextPowerOfTwo" || v == "0")
           p.arena.same_as_requested = false;
         else
           fail(ErrorKind::kInvalidArgument,
                "option arena_extend_strategy: '{}' is neither kNextPowerOfTwo nor kSameAsRequested", v);
       }},
      {"gpu_external_alloc",
       [](P& p, const std::string& v) { p.external.allocate = number<std::uintptr_t>("gpu_external_alloc", v); }},
      {"gpu_external_free",
       [](P& p, const std::string& v) { p.external.free = number<std::uintptr_t>("gpu_external_free", v); }},
      {"gpu_external_empty_cache",
       [](P& p, const std::string& v) {
         p.external.empty_cache = number<std::uintptr_t>("gpu_external_empty_cache", v);
       }},
      {"user_compute_stream",
       [](P& p, const std::string& v) { p.user_compute_stream = number<std::uintptr_t>("user_compute_stream", v); }},
      {"exhaustive_tune",
       [](P& p, const std::string& v) { p.exhaustive_tune = p.exhaustive_tune || boolean("exhaustive_tune", v); }},
      {"hip_graph_enable", [](P& p, const std::string& v) { p.hip_graphs = boolean("hip_graph_enable", v); }},
      {"cache_dir", [](P& p, const std::string& v) { p.cache_dir = v; }},
      {"disable_caching",
       [](P& p, const std::string& v) {
         if (boolean("disable_caching", v)) p.cache_dir.clear();
       }},
      {"force_recompile", [](P& p, const std::string& v) { p.force_recompile = boolean("force_recompile", v); }},
      {"max_dynamic_batch",
       [](P& p, const std::string& v) {
         if (const auto n = number<std::int64_t>("max_dynamic_batch", v); n > 0) p.warm_batches.push_back(n);
       }},
      {"compile_batches",
       [](P& p, const std::string& v) {
         for (const std::string& w : words(v))
           if (const auto n = number<std::int64_t>("compile_batches", w); n > 0) p.warm_batches.push_back(n);
       }},
      {"dump_dir", [](P& p, const std::string& v) { p.dump_dir = v; }},
      {"dump_model_ops",
       [](P& p, const std::string& v) {
         if (boolean("dump_model_ops", v) && p.dump_dir.empty()) p.dump_dir = ".";
       }},
      {"profile",
       [](P& p, const std::string& v) {
         if (v == "1" || v == "true" || v == "True")
           p.profile_file = "amdgpu_profile.json";
         else if (v != "0" && v != "false" && v != "False")
           p.profile_file = v;
       }},
      {"context_rebuild", [](P& p, const std::string& v) { p.context_rebuild = v == "0" ? "" : v; }},
      {"context_targets", [](P& p, const std::string& v) { p.context_targets = words(v); }},
  };
  return table;
}

}  // namespace

const std::vector<OptionInfo>& known_options() {
  static const std::vector<OptionInfo> all = [] {
    std::vector<OptionInfo> o;
    for (const auto& [name, setter] : setters()) o.push_back({name, name, ""});
    const auto alias = [&](std::string_view name, std::string_view canonical) { o.push_back({name, canonical, ""}); };
    const auto accepted = [&](std::string_view name, std::string_view why) { o.push_back({name, name, why}); };
    // Of the MIGraphX provider
    alias("migraphx_fp16_enable", "fp16");
    alias("migraphx_bf16_enable", "bf16");
    alias("migraphx_fp8_enable", "fp8");
    alias("migraphx_int8_enable", "int8");
    alias("migraphx_int8_calibration_table_name", "calibration_table");
    alias("migraphx_exhaustive_tune", "exhaustive_tune");
    alias("migraphx_mem_limit", "gpu_mem_limit");
    alias("migraphx_arena_extend_strategy", "arena_extend_strategy");
    alias("migraphx_external_alloc", "gpu_external_alloc");
    alias("migraphx_external_free", "gpu_external_free");
    alias("migraphx_external_empty_cache", "gpu_external_empty_cache");
    alias("migraphx_model_cache_dir", "cache_dir");
    alias("migraphx_cache_dir", "cache_dir");
    alias("migraphx_max_dynamic_batch", "max_dynamic_batch");
    alias("migraphx_compile_batches", "compile_batches");
    alias("migraphx_hip_graph_enable", "hip_graph_enable");
    for (const std::string_view name : {"native_calibration_table", "migraphx_int8_use_native_calibration_table",
                                        "migraphx_use_native_calibration_table"})
      accepted(name, "the form of a calibration table is seen from its content");
    constexpr std::string_view kSave =
        "compiled code is kept by itself (cache_dir), and a whole compiled model is an EPContext model "
        "(ep.context_enable)";
    for (const std::string_view name : {"migraphx_save_compiled_model", "migraphx_save_compiled_path",
                                        "migraphx_load_compiled_model", "migraphx_load_compiled_path"})
      accepted(name, kSave);
    accepted("migraphx_coalesce_io", "inputs and outputs are used where they lie, so there are no copies to join");
    // Of the ROCm provider
    alias("enable_hip_graph", "hip_graph_enable");
    accepted("has_user_compute_stream", "user_compute_stream is taken where it is given");
    alias("tunable_op_enable", "exhaustive_tune");
    alias("tunable_op_tuning_enable", "exhaustive_tune");
    accepted("do_copy_in_default_stream",
             "copies are given to the run's own stream, in order with its kernels: there is no other stream to choose");
    accepted("tunable_op_max_tuning_duration_ms", "choices are timed once for each problem and kept in the cache");
    accepted("miopen_conv_exhaustive_search", "MIOpen is not used; exhaustive_tune is this provider's own search");
    accepted("miopen_conv_use_max_workspace", "MIOpen is not used");
    // Of the AMDGPU umbrella
    accepted("mlss_use_specific_ops",
             "all operators come from one compiler, so there is no library to choose for some");
    accepted("cpu_control_flow", "If, Loop and Scan run in the program itself, whose control runs on the CPU");
    accepted("model_arch", "nothing depends on what kind of network a model is");
    accepted("model_fw", "nothing depends on the framework that a model comes from");
    for (const std::string_view name :
         {"static_pad_seq", "static_pad_seq_len", "static_pad_inputs", "static_pad_outputs"})
      accepted(name, kPadding);
    for (const std::string_view name : {"fp16", "bf16", "fp8", "int8"}) o.push_back({name, name, ""});
    return o;
  }();
  return all;
}

ProviderOptions read_options(const std::map<std::string, std::string>& config, std::vector<std::string>& notes) {
  ProviderOptions p;
  p.cache_dir = user_cache_directory();
  std::map<std::string, std::string> given;  // canonical name to value; disable_caching must follow cache_dir
  std::set<std::string> precisions;
  for (const auto& [key, value] : config) {
    if (!key.starts_with(kPrefix)) continue;
    const std::string name = key.substr(kPrefix.size());
    if (name.starts_with("arena.")) continue;  // ONNX Runtime's own options, for arenas of its environment
    const OptionInfo& o = find(name);
    if (!o.accepted.empty()) {
      notes.push_back(fmt::format("option {} is accepted, and not needed: {}", o.name, o.accepted));
      continue;
    }
    if (o.canonical == "fp16" || o.canonical == "bf16" || o.canonical == "fp8" || o.canonical == "int8") {
      if (boolean(o.name, value)) precisions.insert(std::string(o.canonical));
      continue;
    }
    auto [at, fresh] = given.emplace(o.canonical, value);
    if (!fresh && o.canonical == "exhaustive_tune" && boolean(o.name, value)) at->second = value;
  }
  for (const auto& [name, value] : given)
    if (name != "disable_caching" && name != "dump_model_ops") setters().at(name)(p, value);
  for (const char* name : {"disable_caching", "dump_model_ops"})
    if (const auto it = given.find(name); it != given.end()) setters().at(name)(p, it->second);
  // If a 16-bit and an 8-bit type are requested, the 16-bit type is for the other nodes.
  if (precisions.count("fp16") && precisions.count("bf16"))
    fail(ErrorKind::kInvalidArgument, "both fp16 and bf16 are requested; choose one");
  for (const char* name : {"fp16", "bf16", "fp8", "int8"})
    if (precisions.count(name)) p.precision = name;
  const bool bytes = p.precision == "int8" || p.precision == "fp8";
  if (bytes && (precisions.count("fp16") || precisions.count("bf16")))
    notes.push_back(fmt::format("what does not run in {} runs in the model's own types, not in 16 bits", p.precision));
  if (!bytes && !p.calibration_table.empty()) {
    notes.push_back("calibration_table is not needed: it is for precision int8 and fp8");
    p.calibration_table.clear();
  }
  // AMD's providers look in the cache directory.
  if (std::error_code none; p.calibration_table.is_relative() && !p.calibration_table.empty() &&
                            !std::filesystem::exists(p.calibration_table, none) && !p.cache_dir.empty())
    p.calibration_table = p.cache_dir / p.calibration_table;
  if (p.exhaustive_tune && p.cache_dir.empty())
    notes.push_back("exhaustive_tune does nothing without cache_dir: what it measures is kept there");
  if ((p.external.allocate == 0) != (p.external.free == 0))
    fail(ErrorKind::kInvalidArgument, "gpu_external_alloc and gpu_external_free must be given together");

  const auto text = [&](const char* key) {
    const auto it = config.find(key);
    return it == config.end() ? std::string() : it->second;
  };
  p.context_enable = text("ep.context_enable") == "1";
  p.context_embed = text("ep.context_embed_mode") == "1";
  p.context_file = text("ep.context_file_path");
  p.context_prefix = text("ep.context_node_name_prefix");
  for (const auto& [key, value] : config)
    if (key.starts_with("ep.migraphx.static_pad") || key == "ep.amdgpuexecutionprovider.model_arch")
      notes.push_back(fmt::format("{} is accepted, and not needed: {}", key, kPadding));
  return p;
}

}  // namespace sardonyx::ep
