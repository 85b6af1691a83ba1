// Creates models: loading, options, compiling, saving. model_run.cpp runs them.
#include "api/model.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>

#include "api/environment.h"
#include "api/option_checks.h"
#include "api/pass_report.h"
#include "api/report.h"
#include "compile/compiler.h"
#include "custom/operators.h"
#include "formats/open.h"
#include "lower/build.h"
#include "options/compile_options.h"
#include "program/program_file.h"
#include "program/visit.h"
#include "runtime/backends.h"
#include "target/chip.h"

namespace sardonyx {
namespace {

constexpr std::size_t kFewTilings = 3;  // timed on first use: the cost model's best choice is rarely further down

TensorInfo info_of(const Program& p, const TensorRef& t, const std::string& name) {
  TensorInfo info;
  info.name = name;
  info.dtype = p.buffers[static_cast<std::size_t>(t.buffer)].dtype;
  for (const Expr& d : t.shape) info.shape.push_back(to_string(d));
  return info;
}

bool has_assumptions(const Block& b) {
  bool any = false;
  for_steps(b, [&](const ProgramStep& s) {
    const auto* c = std::get_if<CheckStep>(&s.op);
    any = any || (c && c->assumption);
  });
  return any;
}

}  // namespace

std::unique_ptr<Model> Model::load(const std::filesystem::path& path, const ModelOptions& options) {
  if (options.progress) options.progress({"reading"});
  auto model = std::make_unique<Model>(open_model(path), options);
  model->file_ = path;
  return model;
}

std::unique_ptr<Model> Model::parse(std::span<const std::byte> bytes, const ModelOptions& options,
                                    const std::filesystem::path& folder) {
  return std::make_unique<Model>(parse_model(bytes, folder), options);
}

Model::Model(std::unique_ptr<ModelSource> source, const ModelOptions& options)
    : source_(std::move(source)), options_(options), threads_(thread_count(options.threads)) {
  check_options(options_);
  custom_ = known_custom_operators(options_.custom_operators);
  Signature signature = source_->signature(options_.dims);
  check_dim_names(signature.dims);
  if (is_gpu_name(options_.device)) use_gpu(open_gpu(options_.device));
  quantization_ = quantize(*source_, options_, gpu_ ? gpu_->info().target : "host");
  ranges_ = half_ranges(options_);
  inputs_ = std::move(signature.inputs);
  declared_outputs_ = std::move(signature.outputs);
  for (std::size_t k = 0; k < inputs_.size(); ++k) input_index_[inputs_[k].name] = k;
  CacheOptions c;
  c.directory = options.cache_dir;
  cache_ = std::make_shared<CodeCache>(c);
  open_tuning();
  try {
    ImportOptions import;
    import.dims = options_.dims;
    import.all_outputs = options_.all_outputs;
    import.custom = custom_;
    general_ = compile(import);
  } catch (const NeedInput& need) {
    needs_.push_back(need);
    return;
  }
  if (has_assumptions(general_->program().main)) return;  // other programs may be needed
  source_->release_weights();                             // the program has its own constants
  released_ = true;
}

Model::Model(std::shared_ptr<const Program> program, const ModelOptions& options, std::shared_ptr<Gpu> gpu)
    : options_(options), threads_(options.threads) {
  CacheOptions c;
  c.directory = options.cache_dir;
  cache_ = std::make_shared<CodeCache>(c);
  if (gpu) use_gpu(std::move(gpu));
  general_ = std::make_shared<Executor>(std::move(program), threads_, backend());
  const Program& p = general_->program();
  for (std::size_t k = 0; k < p.main.inputs.size(); ++k) {
    inputs_.push_back(info_of(p, p.main.inputs[k], p.input_names[k]));
    input_index_[p.input_names[k]] = k;
  }
}

// Opens the tuning databases before anything is compiled, because they decide what is compiled.
void Model::open_tuning() {
  const bool times = options_.tuning != "off";
  if (times && !gpu_)
    fail(ErrorKind::kInvalidArgument, "tuning is for GPUs; the host's library chooses its kernels itself");
  std::filesystem::path path = options_.tuning_database;
  if (times && path.empty()) {
    if (options_.cache_dir.empty())
      fail(ErrorKind::kInvalidArgument,
           "tuning stores its measurements in a tuning database or the cache, and there is neither");
    path = options_.cache_dir / kCachedTimes;
  }
  if (path.empty()) return;
  tuning_ = std::make_shared<TuningDatabase>(path, times);
  if (times)
    tuner_ = std::make_shared<DatabaseTuner>(tuning_, gpu_->info(), options_.tuning == "exhaustive" ? 0 : kFewTilings);
}

std::vector<TuningDecision> Model::tuning_decisions() const {
  return tuner_ ? tuner_->decisions() : std::vector<TuningDecision>();
}

void Model::use_gpu(std::shared_ptr<Gpu> gpu) {
  gpu_ = std::move(gpu);
  memory_ = std::make_shared<DeviceMemory>(gpu_, options_.device_memory_limit, options_.device_memory_budget);
}

std::unique_ptr<Model> Model::load_program(const std::filesystem::path& path, ModelOptions options) {
  if (const OptionInfo* o = option_for_compiling(options))
    fail(ErrorKind::kInvalidArgument, "{}: {} is compiled already; give this option when the model is compiled",
         o->name, path.string());
  // The program for the host if there is one, otherwise for the first GPU that can run the first program.
  std::string gpu;
  if (options.device != "host" && is_gpu_name(options.device)) gpu = open_gpu(options.device)->info().target;
  if (options.device == "host") {
    const std::vector<std::string> targets = program_targets(path);
    const bool only_gpus =
        std::all_of(targets.begin(), targets.end(), [](const std::string& t) { return find_chip(t) != nullptr; });
    if (only_gpus) {
      options.device = first_card_for(targets[0]);
      gpu = open_gpu(options.device)->info().target;
    }
  }
  auto program = sardonyx::load_program(path, thread_count(options.threads), gpu);
  try {
    return from_program(std::move(program), options);
  } catch (const Error& e) {
    throw Error(e.kind(), path.string() + ": " + e.what());
  }
}

std::unique_ptr<Model> Model::from_program(std::shared_ptr<const Program> program, ModelOptions options) {
  options.threads = thread_count(options.threads);
  std::shared_ptr<Gpu> gpu;
  const TargetKind kind = parse_target(program->target).kind;
  if (kind != TargetKind::kHost) {
    gpu = open_gpu(options.device != "host" ? options.device : first_card_for(program->target));
    if (!runs_on(program->target, gpu->info().target))
      fail(ErrorKind::kUnsupported, "the program is for {}, and {} is a {}; compile the model for it", program->target,
           gpu->info().name, gpu->info().target);
  } else if (options.device != "host") {
    fail(ErrorKind::kUnsupported, "the program is for the host; compile the model for {}", options.device);
  }
  return std::unique_ptr<Model>(new Model(std::move(program), options, std::move(gpu)));
}

std::shared_ptr<Program> Model::compile_for(const std::string& target, std::unique_ptr<ModelSource> source,
                                            const ModelOptions& options) {
  check_options(options);
  const Target t = parse_target(target);
  if (t.kind == TargetKind::kHost)
    fail(ErrorKind::kUnsupported, "'{}' is a CPU; programs for the host are compiled on the machine that runs them",
         target);
  CacheOptions c;
  c.directory = options.cache_dir;
  quantize(*source, options, t.arch);
  BuildOptions build;
  build.target = t.arch;
  build.threads = thread_count(options.threads);
  build.cache = std::make_shared<CodeCache>(c);
  build.fuse = options.fuse;
  build.unpacked_weights = options.unpacked_weights;
  std::optional<TuningDatabase> tuning;
  if (!options.tuning_database.empty())
    build.choices = &tuning.emplace(options.tuning_database, options.tuning != "off");
  build.libraries = options.product_library != "off";
  build.precision = storage_of(options);
  build.ranges = half_ranges(options);
  if (options.progress)
    build.progress = [&](std::size_t done, std::size_t total) { options.progress({"compiling", done, total}); };
  ImportOptions import;
  import.dims = options.dims;
  import.custom = known_custom_operators(options.custom_operators);
  try {
    return build_program(*source->import(import), build);
  } catch (const NeedInput& n) {
    fail(ErrorKind::kUnsupported,
         "the program depends on the {} of input '{}' ({}), so it can't be compiled beforehand",
         n.kind == NeedInput::kRank ? "rank" : "value", n.input, n.why);
  }
}

PassReport passes_for(const std::string& target, std::unique_ptr<ModelSource> source, const Options& options) {
  check_options(options);
  const Target t = parse_target(target);
  BuildOptions build;
  if (t.kind != TargetKind::kHost) build.target = t.arch;
  quantize(*source, options, build.target);
  build.fuse = options.fuse;
  build.precision = storage_of(options);
  build.ranges = half_ranges(options);
  ImportOptions import;
  import.dims = options.dims;
  import.custom = known_custom_operators(options.custom_operators);
  try {
    return report_passes(*source->import(import), fuse_options_of(build));
  } catch (const NeedInput& n) {
    fail(ErrorKind::kUnsupported, "the graph depends on the {} of input '{}' ({}), so its passes can't be shown",
         n.kind == NeedInput::kRank ? "rank" : "value", n.input, n.why);
  }
}

void Model::save(const std::filesystem::path& path) const {
  if (!general_) {
    const std::lock_guard lock(mutex_);
    fail(ErrorKind::kUnsupported, "the model can't be saved: its program depends on the {} of input '{}' ({})",
         needs_.front().kind == NeedInput::kRank ? "rank" : "value", needs_.front().input, needs_.front().why);
  }
  general_->program().objects.complete(threads_);  // on all threads
  save_program(general_->program(), path);
}

std::vector<std::shared_ptr<Executor>> Model::executors() const {
  std::vector<std::shared_ptr<Executor>> all = variants_.values();
  if (general_) all.push_back(general_);
  return all;
}

void Model::wait() const {
  for (const auto& e : executors()) e->program().objects.complete(threads_);
}

Model::Compiled Model::compiled() const {
  Compiled all;
  for (const auto& e : executors()) {
    const Objects& objects = e->program().objects;
    all.objects += objects.size();
    all.ready += objects.counts().ready;
    all.on_demand += objects.counts().on_demand;
  }
  return all;
}

std::size_t Model::program_count() const { return variants_.values().size() + (general_ ? 1 : 0); }

void Model::report(std::string_view stage, std::size_t done, std::size_t total) const {
  if (!options_.progress) return;
  const std::lock_guard lock(progress_mutex_);  // several variants may compile at the same time
  options_.progress({stage, done, total});
}

void Model::check_dim_names(const std::set<std::string>& names) const {
  for (const auto& [name, size] : options_.dims) {
    if (size < 0) fail(ErrorKind::kInvalidArgument, "dim '{}' can't be fixed to {}", name, size);
    if (names.count(name)) continue;
    if (names.empty())
      fail(ErrorKind::kInvalidArgument, "the model has no dim '{}': all its inputs' dims are numbers or nameless",
           name);
    fail(ErrorKind::kInvalidArgument, "the model has no dim '{}'; its dims are: {}", name, fmt::join(names, ", "));
  }
}

std::unique_ptr<Backend> Model::backend() const {
  listen_to_profilers_of_environment();
  return make_backend({memory_, options_.communicator, options_.graphs, cache_, tuner_, options_.product_library,
                       ptxas_search_of_environment()});
}

const ModelSource& Model::with_weights() {
  if (!released_) return *source_;
  if (file_.empty())
    fail(ErrorKind::kUnsupported,
         "these sizes need a program of their own, with 64-bit indices, and the weights of a model in memory are "
         "released once it is compiled; load the model from a file, or fix its dims to these sizes");
  const std::lock_guard lock(mutex_);
  if (!reloaded_) {
    auto source = open_model(file_);
    const std::vector<TensorInfo> inputs = source->signature(options_.dims).inputs;
    const auto alike = [](const TensorInfo& a, const TensorInfo& b) { return a.name == b.name && a.dtype == b.dtype; };
    if (!std::equal(inputs.begin(), inputs.end(), inputs_.begin(), inputs_.end(), alike))
      fail(ErrorKind::kIo, "{}: the file is another model than when it was loaded", file_.string());
    quantize(*source, options_, gpu_ ? gpu_->info().target : "host");
    reloaded_ = std::move(source);
  }
  return *reloaded_;
}

std::shared_ptr<Executor> Model::compile(const ImportOptions& import) {
  report("importing");
  auto graph = with_weights().import(import);
  report("compiling");
  BuildOptions build;
  build.threads = threads_;
  build.cache = cache_;
  build.background = !options_.compile_ahead;
  build.fuse = options_.fuse;
  build.unpacked_weights = options_.unpacked_weights;
  build.precision = storage_of(options_);
  build.ranges = ranges_;
  if (gpu_) build.target = gpu_->info().target;
  build.choices = tuning_.get();
  build.all_tilings = tuner_ != nullptr;
  build.libraries = options_.product_library != "off";
  if (options_.progress)
    build.progress = [this](std::size_t done, std::size_t total) { report("compiling", done, total); };
  auto executor = std::make_shared<Executor>(build_program(*graph, build), threads_, backend());
  report("ready");
  return executor;
}

std::vector<std::string> Model::output_names() const {
  if (general_) return general_->program().output_names;
  std::vector<std::string> out;
  for (const TensorInfo& t : declared_outputs_) out.push_back(t.name);
  return out;
}

std::vector<TensorInfo> Model::outputs() const {
  if (!general_) return declared_outputs_;
  std::vector<TensorInfo> out;
  const Program& p = general_->program();
  for (std::size_t k = 0; k < p.main.outputs.size(); ++k)
    out.push_back(info_of(p, p.main.outputs[k], p.output_names[k]));
  return out;
}

const model::Model& Model::nodes() const {
  if (const model::Model* nodes = source_ ? source_->nodes() : nullptr) return *nodes;
  fail(ErrorKind::kUnsupported, "this needs the model's nodes, and {} was given",
       source_ ? "a model of another format" : "a compiled program");
}

std::map<std::string, std::string> Model::metadata() const {
  return source_ ? source_->metadata() : std::map<std::string, std::string>();
}

std::vector<std::string> Model::symbols() const {
  if (general_) return input_symbols(general_->program());
  std::set<std::string> names;
  for (const TensorInfo& t : inputs_)
    for (const std::string& d : t.shape)
      if (d.find_first_not_of("0123456789") != std::string::npos) names.insert(d);
  return {names.begin(), names.end()};
}

}  // namespace sardonyx
