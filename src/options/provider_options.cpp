#include "options/provider_options.h"

#include <algorithm>
#include <limits>
#include <set>

#include "options/compile_options.h"
#include "options/parse.h"
#include "options/provider_variables.h"

namespace sardonyx {
namespace {

using P = ProviderOptions;
using Name = std::string_view;
using Text = const std::string&;

constexpr std::string_view kPrefix = "ep.amdgpuexecutionprovider.";
constexpr std::string_view kPadding =
    "tensors are never padded: a program serves all sizes, so there is nothing to pad or to recompile";
constexpr std::string_view kMiopen = "MIOpen is not used";
constexpr std::string_view kTableForm = "the format of a calibration table is recognised from its content";

void add_batch(P& p, Name who, Text v) {
  if (const auto n = parse_number<std::int64_t>(who, v); n > 0) p.warm_batches.push_back(n);
}

// clang-format off
constexpr ProviderOption kProviderOptions[] = {
    {.name = "device", .default_text = "the session's", .help = "another device for this session: `host`, `hip:1`, `sim:gfx1100`",
     .set = [](P& p, Name, Text v) { p.device = v; }},
    {.name = "device_id", .default_text = "the first", .help = "number of the device",
     .set = [](P& p, Name who, Text v) { p.device_id = parse_number<int>(who, v); }},
    {.name = "fp16", .default_text = "0", .help = "1: `precision` `fp16`", .migraphx = {"migraphx_fp16_enable"}},
    {.name = "bf16", .default_text = "0", .help = "1: `precision` `bf16`", .migraphx = {"migraphx_bf16_enable"}},
    {.name = "fp8", .default_text = "0", .help = "1: `precision` `fp8`", .migraphx = {"migraphx_fp8_enable"}},
    {.name = "int8", .default_text = "0", .help = "1: `precision` `int8`", .migraphx = {"migraphx_int8_enable"}},
    {.name = "gpu_mem_limit", .default_text = "none",
     .help = "bytes of device memory for tensors, weights and temporaries together (docs/provider.md, Memory)",
     .set = [](P& p, Name who, Text v) {
       const auto n = parse_number<std::uint64_t>(who, v);
       p.gpu_mem_limit = n == std::numeric_limits<std::uint64_t>::max() ? 0 : n;  // other providers' value for no limit
     },
     .migraphx = {"migraphx_mem_limit"}},
    {.name = "arena_extend_strategy", .default_text = "kNextPowerOfTwo", .help = "or `kSameAsRequested`: how device memory grows",
     .set = [](P& p, Name who, Text v) {
       p.same_as_requested = v == "kSameAsRequested" || v == "1";
       if (!p.same_as_requested && v != "kNextPowerOfTwo" && v != "0")
         fail(ErrorKind::kInvalidArgument, "{}: '{}' is neither kNextPowerOfTwo nor kSameAsRequested", who, v);
     },
     .migraphx = {"migraphx_arena_extend_strategy"}},
    {.name = "gpu_external_alloc", .default_text = "",
     .help = "address of a function `void*(size_t)` of the application that allocates all device memory of the session: weights, temporaries and tensors",
     .set = [](P& p, Name who, Text v) { p.external.allocate = parse_number<std::uintptr_t>(who, v); },
     .migraphx = {"migraphx_external_alloc"}},
    {.name = "gpu_external_free", .default_text = "", .help = "address of the matching function `void(void*)` that frees memory",
     .set = [](P& p, Name who, Text v) { p.external.free = parse_number<std::uintptr_t>(who, v); },
     .migraphx = {"migraphx_external_free"}},
    {.name = "gpu_external_empty_cache", .default_text = "", .help = "address of a function `void()` that is called when allocation fails",
     .set = [](P& p, Name who, Text v) { p.external.empty_cache = parse_number<std::uintptr_t>(who, v); },
     .migraphx = {"migraphx_external_empty_cache"}},
    {.name = "user_compute_stream", .default_text = "one of its own", .help = "address of the stream on which the session runs",
     .set = [](P& p, Name who, Text v) { p.user_compute_stream = parse_number<std::uintptr_t>(who, v); }},
    {.name = "exhaustive_tune", .default_text = "0",
     .help = "with `cache_dir`: on a GPU, every candidate for GEMM, convolution and attention is timed when sizes are first seen, and the "
             "times are stored there (`tuning-2.sqlite`, see docs/devices.md); the first runs are slower",
     .set = [](P& p, Name who, Text v) { p.exhaustive_tune = parse_bool(who, v); },
     .migraphx = {"migraphx_exhaustive_tune"}},
    {.name = "tunable_op_enable", .default_text = "0",
     .help = "1: the times in `tuning-2.sqlite` decide between candidates; together with `tunable_op_tuning_enable`, the same as `exhaustive_tune`",
     .set = [](P& p, Name who, Text v) { p.use_tuned = parse_bool(who, v); }},
    {.name = "tunable_op_tuning_enable", .default_text = "0",
     .help = "1: with `tunable_op_enable`, the same as `exhaustive_tune`; 0: nothing is timed, whatever `exhaustive_tune` says",
     .set = [](P& p, Name who, Text v) { p.exhaustive_tune = parse_bool(who, v) && (p.use_tuned || p.exhaustive_tune); }},
    {.name = "calibration_dir", .default_text = "none",
     .help = "directory in which a relative `calibration_table` is looked for before `cache_dir`",
     .set = [](P& p, Name, Text v) { p.calibration_dir = v; }},
    {.name = "save_compiled_path", .default_text = "none",
     .help = "with `save_compiled_model`: file to which the session's compiled groups are saved; the second and further groups get `.1`, "
             "`.2` and so on after its name. In a directory, each group has a file named after its content",
     .set = [](P& p, Name, Text v) { p.save_path = v; },
     .migraphx = {"migraphx_save_compiled_path", "migraphx_save_model_name", "migraphx_save_model_path"}},
    {.name = "save_compiled_model", .default_text = "0", .help = "1: save to `save_compiled_path`",
     .set = [](P& p, Name who, Text v) {
       if (!parse_bool(who, v)) p.save_path.clear();
       else if (p.save_path.empty()) p.save_path = ".";
     },
     .migraphx = {"migraphx_save_compiled_model"}},
    {.name = "load_compiled_path", .default_text = "none", .help = "with `load_compiled_model`: the path that was given as `save_compiled_path`",
     .set = [](P& p, Name, Text v) { p.load_path = v; },
     .migraphx = {"migraphx_load_compiled_path", "migraphx_load_model_name", "migraphx_load_model_path"}},
    {.name = "load_compiled_model", .default_text = "0",
     .help = "1: load from `load_compiled_path`. A file for another model, device or version is an error; a missing one too, unless "
             "`save_compiled_model` is 1",
     .set = [](P& p, Name who, Text v) {
       if (!parse_bool(who, v)) p.load_path.clear();
       else if (p.load_path.empty()) p.load_path = p.save_path.empty() ? "." : p.save_path;
     },
     .migraphx = {"migraphx_load_compiled_model"}},
    {.name = "disable_caching", .default_text = "0", .help = "1: no cache, whatever `cache_dir` says",
     .set = [](P& p, Name who, Text v) { if (parse_bool(who, v)) p.compile.cache_dir.clear(); }},
    {.name = "force_recompile", .default_text = "0", .help = "1: neither the cache nor another session's program is used",
     .set = [](P& p, Name who, Text v) { p.force_recompile = parse_bool(who, v); }},
    {.name = "compile_batches", .default_text = "",
     .help = "batch sizes that run once when the session is created, so that the application's first run with them is fast: 1,4,8",
     .set = [](P& p, Name who, Text v) { for (const std::string& w : parse_words(v)) add_batch(p, who, w); },
     .migraphx = {"migraphx_compile_batches"}},
    {.name = "max_dynamic_batch", .default_text = "", .help = "one more such batch size", .set = add_batch,
     .migraphx = {"migraphx_max_dynamic_batch"}},
    {.name = "dump_dir", .default_text = "nowhere",
     .help = "directory for one text file per group, with its inputs, outputs, kernels and the nodes that each kernel computes",
     .set = [](P& p, Name, Text v) { p.dump_dir = v; }},
    {.name = "dump_model_ops", .default_text = "0", .help = "1: dumps to the working directory if `dump_dir` is not given",
     .set = [](P& p, Name who, Text v) { if (parse_bool(who, v) && p.dump_dir.empty()) p.dump_dir = "."; }},
    {.name = "profile", .default_text = "none",
     .help = "file for the times of all kernels, which Perfetto opens; 1: `amdgpu_profile.json`. With ONNX Runtime 1.25 and later they are "
             "also in its own profile",
     .set = [](P& p, Name, Text v) {
       if (v == "1" || v == "true" || v == "True")
         p.profile_file = "amdgpu_profile.json";
       else if (v != "0" && v != "false" && v != "False")
         p.profile_file = v;
     }},
    {.name = "context_rebuild", .default_text = "0",
     .help = "1, or the original model's path: an EPContext model that cannot be used is recompiled",
     .set = [](P& p, Name, Text v) { p.context_rebuild = v == "0" ? "" : v; }},
    {.name = "context_targets", .default_text = "the session's device",
     .help = "architectures of EPContext models: `gfx942,gfx1100,host` (this machine's processor)",
     .set = [](P& p, Name, Text v) { p.context_targets = parse_words(v); }},
};

constexpr IgnoredOption kIgnored[] = {
    {"MIGraphX", "native_calibration_table", kTableForm},
    {"MIGraphX", "migraphx_int8_use_native_calibration_table", kTableForm},
    {"MIGraphX", "migraphx_use_native_calibration_table", kTableForm},
    {"MIGraphX", "migraphx_max_compiled_models", "one program serves all shapes, so there are no others to keep"},
    {"MIGraphX", "migraphx_compute_mode", "programs are always compiled ahead of the first run"},
    {"MIGraphX", "migraphx_fast_math_enable", "there are no less accurate functions to choose"},
    {"MIGraphX", "migraphx_coalesce_io", "inputs and outputs are used in place, so there are no copies to coalesce"},
    {"ROCm", "has_user_compute_stream", "user_compute_stream is used if it is given"},
    {"ROCm", "do_copy_in_default_stream", "copies are enqueued on the run's own stream, in order with its kernels"},
    {"ROCm", "tunable_op_max_tuning_duration_ms", "choices are timed once for each problem and kept in the cache"},
    {"ROCm", "miopen_conv_exhaustive_search", "MIOpen is not used; exhaustive_tune is the search of this provider"},
    {"ROCm", "miopen_conv_use_max_workspace", kMiopen},
    {"ROCm", "cudnn_conv_algo_search", "convolutions are compiled here; exhaustive_tune chooses among them by time"},
    {"ROCm", "cudnn_conv_use_max_workspace", kMiopen},
    {"ROCm", "default_memory_arena_cfg", "gpu_mem_limit and arena_extend_strategy set the same properties"},
    {"AMDGPU", "mlss_use_specific_ops", "one compiler generates all operators, so there is no library to choose for some"},
    {"AMDGPU", "cpu_control_flow", "If, Loop and Scan are part of the program, whose control flow runs on the CPU anyway"},
    {"AMDGPU", "model_arch", "nothing depends on what kind of network a model is"},
    {"AMDGPU", "model_fw", "nothing depends on the framework that a model comes from"},
    {"AMDGPU", "static_pad_seq", kPadding},
    {"AMDGPU", "static_pad_seq_len", kPadding},
    {"AMDGPU", "static_pad_inputs", kPadding},
    {"AMDGPU", "static_pad_outputs", kPadding},
};
// clang-format on

// Versions 1.15 to 1.21 of the MIGraphX provider had other prefixes.
std::string modern_name(const std::string& name) {
  if (name == "trt_fp16_enable") return "migraphx_fp16_enable";
  return name.starts_with("migx_") ? "migraphx_" + name.substr(5) : name;
}

// A name that may be given, and the option that it means: one of the three pointers.
struct Known {
  std::string_view canonical;
  const OptionInfo* compile = nullptr;
  const ProviderOption* own = nullptr;
  const IgnoredOption* ignored = nullptr;
};

const std::map<std::string_view, Known>& known_names() {
  static const std::map<std::string_view, Known> all = [] {
    std::map<std::string_view, Known> out;
    const auto add = [&](const Known& k, const auto&... lists) {
      out[k.canonical] = k;
      [[maybe_unused]] const auto add_all = [&](const auto& names) {
        for (const std::string_view n : names)
          if (!n.empty()) out[n] = k;
      };
      (add_all(lists), ...);
    };
    for (const OptionInfo& o : kOptions)
      if (!o.provider.empty()) add({o.provider, &o}, o.migraphx, o.rocm);
    for (const ProviderOption& o : kProviderOptions) add({o.name, nullptr, &o}, o.migraphx, o.rocm);
    for (const IgnoredOption& o : kIgnored) add({o.name, nullptr, nullptr, &o});
    return out;
  }();
  return all;
}

const Known& find_known(const std::string& name) {
  const auto found = known_names().find(name);
  if (found != known_names().end()) return found->second;
  std::vector<std::string_view> names;
  for (const auto& [n, known] : known_names()) names.push_back(n);
  fail(ErrorKind::kInvalidArgument, "there is no option '{}'; did you mean '{}'? docs/options.md lists all", name,
       nearest_name(name, names));
}

// An option with its value, and what gave it, for messages: "option fp16".
struct Given {
  Known known;
  std::string value, who;
};

void set(ProviderOptions& p, const Given& g) {
  if (g.known.compile)
    set_option(p.compile, *g.known.compile, g.who, g.value);
  else
    g.known.own->set(p, g.who, g.value);
}

bool is_16_bit(std::string_view name) { return name == "fp16" || name == "bf16"; }

// What the session's options and the environment's variables ask for, by our names of the options.
class Request {
 public:
  Request(const std::map<std::string, std::string>& config, const std::map<std::string, std::string>& variables,
          ProviderRemarks& remarks)
      : remarks_(remarks) {
    for (const auto& [key, value] : config)
      if (key.starts_with(kPrefix)) option(lower_case(key.substr(kPrefix.size())), value);
    const std::set<std::string_view> given = mentioned_;
    for (const VariableOption& v : options_of_variables(variables, remarks_.notes, remarks_.warnings))
      variable(v, given);
  }
  const std::map<std::string_view, Given>& given() const { return given_; }
  const std::set<std::string_view>& precisions() const { return precisions_; }

 private:
  // Where several names of one option are given, the first in the alphabet counts; exhaustive_tune is on if one of them
  // says so.
  void option(const std::string& name, const std::string& value) {
    if (name.starts_with("arena.")) return;  // ONNX Runtime's own options, for arenas of its environment
    const Known& k = find_known(modern_name(name));
    if (k.ignored) {
      remarks_.notes.push_back(fmt::format("option {} is accepted, and not needed: {}", name, k.ignored->why));
      return;
    }
    add(k, value, "option " + name);
  }

  void variable(const VariableOption& v, const std::set<std::string_view>& given) {
    const Known& k = known_names().at(v.option);
    const bool precision = k.own && !k.own->set;
    std::string_view winner = given.count(k.canonical) ? k.canonical : std::string_view();
    if (precision)
      for (const std::string_view other :
           {"precision", is_16_bit(k.canonical) ? "fp16" : "", is_16_bit(k.canonical) ? "bf16" : ""})
        if (given.count(other) && (other == "precision" || precisions_.count(other))) winner = other;
    if (!winner.empty()) {
      remarks_.notes.push_back(
          fmt::format("environment variable {} has no effect: option {} is given", v.variable, winner));
      return;
    }
    add(k, v.value, "environment variable " + v.variable);
  }

  void add(const Known& k, const std::string& value, const std::string& who) {
    mentioned_.insert(k.canonical);
    if (k.own && !k.own->set) {
      if (parse_bool(who, value)) precisions_.insert(k.canonical);
      return;
    }
    const auto [at, fresh] = given_.emplace(k.canonical, Given{k, value, who});
    if (!fresh && k.canonical == "exhaustive_tune" && parse_bool(who, value)) at->second = Given{k, value, who};
  }

  ProviderRemarks& remarks_;
  std::map<std::string_view, Given> given_;
  std::set<std::string_view> precisions_;  // that are switched on
  std::set<std::string_view> mentioned_;
};

// Options that change what other options set come after them.
int order_of(std::string_view name) {
  if (name == "tunable_op_tuning_enable" || name == "disable_caching" || name == "dump_model_ops" ||
      name == "save_compiled_model")
    return 1;
  return name == "load_compiled_model" ? 2 : 0;
}

// The precision, and the calibration table that belongs to it.
void choose_precision(ProviderOptions& p, const std::set<std::string_view>& precisions,
                      std::vector<std::string>& notes) {
  // If a 16-bit and an 8-bit type are requested, the 16-bit type is for the other nodes.
  Options& o = p.compile;
  if (precisions.count("fp16") && precisions.count("bf16"))
    fail(ErrorKind::kInvalidArgument, "both fp16 and bf16 are requested; choose one");
  for (const char* name : {"fp16", "bf16", "fp8", "int8"})
    if (precisions.count(name)) o.precision = name;
  const bool bytes = o.precision == "int8" || o.precision == "fp8";
  if (bytes && (precisions.count("fp16") || precisions.count("bf16")))
    notes.push_back(
        fmt::format("nodes that do not run in {} run in the model's own types, not in 16 bits", o.precision));
  if (!bytes && o.precision != "fp16" && !o.calibration_table.empty()) {
    notes.push_back("calibration_table is not needed: it is for precision int8, fp8 and fp16");
    o.calibration_table.clear();
  }
  // AMD's providers look in these directories.
  const std::filesystem::path table = o.calibration_table;
  for (const std::filesystem::path& folder : {p.calibration_dir, o.cache_dir})
    if (std::error_code none;
        table.is_relative() && !table.empty() && !folder.empty() && !std::filesystem::exists(o.calibration_table, none))
      o.calibration_table = folder / table;
}

}  // namespace

std::span<const ProviderOption> provider_options() { return kProviderOptions; }
std::span<const IgnoredOption> ignored_provider_options() { return kIgnored; }

ProviderOptions read_provider_options(const std::map<std::string, std::string>& config,
                                      const std::map<std::string, std::string>& variables,
                                      const std::filesystem::path& cache_dir, ProviderRemarks& remarks) {
  ProviderOptions p;
  p.compile.cache_dir = cache_dir;
  const Request request(config, variables, remarks);
  std::vector<std::string>& notes = remarks.notes;
  for (const int order : {0, 1, 2})
    for (const auto& [name, given] : request.given())
      if (order_of(name) == order) set(p, given);
  // A path alone asks neither to save nor to load.
  if (!request.given().count("save_compiled_model")) p.save_path.clear();
  if (!request.given().count("load_compiled_model")) p.load_path.clear();
  choose_precision(p, request.precisions(), notes);
  if (p.exhaustive_tune && p.compile.cache_dir.empty())
    notes.push_back("exhaustive_tune does nothing without cache_dir, where the measured times are stored");
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
    if (key.starts_with("ep.migraphx.static_pad"))
      notes.push_back(fmt::format("{} is accepted, and not needed: {}", key, kPadding));
  return p;
}

}  // namespace sardonyx
