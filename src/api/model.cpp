// A compiled model, and its variants for inputs whose value shapes the program.
#include "api/model.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <thread>

#include "api/pass_report.h"
#include "api/report.h"
#include "compile/compiler.h"
#include "import/quantize.h"
#include "lower/build.h"
#include "program/program_file.h"
#include "runtime/backends.h"
#include "target/chip.h"

namespace sardonyx {
namespace {

constexpr std::size_t kMaxVariants = 256;  // of compiled programs kept for different values of such inputs
constexpr int kMaxThreads = 4096;
constexpr std::size_t kFewTilings = 3;  // that are timed on first use: the model of cost is rarely further off

int thread_count(int wanted) {
  if (wanted < 0 || wanted > kMaxThreads)
    fail(ErrorKind::kInvalidArgument, "threads is {}; it must be 0 (all cores) or at most {}", wanted, kMaxThreads);
  return wanted > 0 ? wanted : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

constexpr std::string_view kMakeATable =
    "run the float model on examples with ONNX Runtime's calibrator (onnxruntime.quantization.create_calibrator, "
    "collect_data, then write_calibration_table(calibrator.compute_data())), and give calibration.json; "
    "docs/precision.md has a program";

bool in_8_bits(const ModelOptions& o) { return o.precision == "int8" || o.precision == "fp8"; }

// In which values are kept between kernels.
DType storage_of(const ModelOptions& o) {
  if (o.precision == "fp16") return DType::kFloat16;
  if (o.precision == "bf16") return DType::kBFloat16;
  if (o.precision == "fp32" || in_8_bits(o)) return DType::kFloat32;
  fail(ErrorKind::kInvalidArgument,
       "there is no precision '{}'; use 'fp32' (the model's own types), 'fp16' or 'bf16', or with a calibration table "
       "'int8' or 'fp8'",
       o.precision);
}

// What products multiply on a target ("host", "gfx942").
DType product_type(const ModelOptions& o, const std::string& target) {
  if (o.precision == "int8") return DType::kInt8;
  std::vector<std::string_view> able;
  for (const Chip& c : all_chips())
    for (const DType t : {DType::kFloat8E4M3FNUZ, DType::kFloat8E4M3FN}) {
      if (!c.matrix(t)) continue;
      if (c.name == target) return t;
      able.push_back(c.name);
    }
  fail(ErrorKind::kUnsupported,
       "precision 'fp8' needs a GPU that multiplies 8-bit floats ({}), and this is {}; use 'int8', 'fp16' or 'bf16'",
       fmt::join(able, ", "), target);
}

QuantizationReport quantize(onnx::Model& model, const ModelOptions& o, const std::string& target) {
  if (!in_8_bits(o)) return {};
  return quantize_products(model, read_calibration(o.calibration_table), product_type(o, target));
}

void check_options(const ModelOptions& o) {
  if (o.device != "host" && !is_gpu_name(o.device))
    fail(ErrorKind::kInvalidArgument, "there is no device '{}'; use 'host', this machine's CPU, or 'hip', 'cuda'",
         o.device);
  storage_of(o);
  if (o.tuning != "off" && o.tuning != "first-use" && o.tuning != "exhaustive")
    fail(ErrorKind::kInvalidArgument, "there is no tuning '{}'; use 'off', 'first-use' or 'exhaustive'", o.tuning);
  if (in_8_bits(o) && o.calibration_table.empty())
    fail(ErrorKind::kInvalidArgument,
         "precision '{}' needs a calibration table, which says how large the activations get: {}", o.precision,
         kMakeATable);
  if (!in_8_bits(o) && !o.calibration_table.empty())
    fail(ErrorKind::kInvalidArgument, "a calibration table is only of use with precision 'int8' or 'fp8', not '{}'",
         o.precision);
}

std::string join(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }

// An unnamed dim has the name that the importer gives its symbol.
std::string dim_text(const onnx::Dim& d, const std::string& tensor, std::size_t k, const ModelOptions& options) {
  if (d.value) return std::to_string(*d.value);
  if (d.param.empty()) return tensor + "." + std::to_string(k);
  const auto fixed = options.dims.find(d.param);
  return fixed == options.dims.end() ? d.param : std::to_string(fixed->second);
}

TensorInfo info_of(const onnx::ValueInfo& v, const ModelOptions& options) {
  TensorInfo t;
  t.name = v.name;
  if (v.dtype) t.dtype = *v.dtype;
  t.known_rank = v.shape.has_value();
  if (v.shape)
    for (std::size_t k = 0; k < v.shape->size(); ++k) t.shape.push_back(dim_text((*v.shape)[k], v.name, k, options));
  return t;
}

TensorInfo info_of(const Program& p, const TensorRef& t, const std::string& name) {
  TensorInfo info;
  info.name = name;
  info.dtype = p.buffers[static_cast<std::size_t>(t.buffer)].dtype;
  for (const Expr& d : t.shape) info.shape.push_back(to_string(d));
  return info;
}

bool has_assumptions(const Block& b) {
  for (const ProgramStep& s : b.steps) {
    if (const auto* c = std::get_if<CheckStep>(&s.op); c && c->assumption) return true;
    if (const auto* i = std::get_if<IfStep>(&s.op))
      if (has_assumptions(*i->then_block) || has_assumptions(*i->else_block)) return true;
    if (const auto* w = std::get_if<WhileStep>(&s.op); w && has_assumptions(*w->body)) return true;
  }
  return false;
}

std::string shape_key(const std::vector<TensorView>& inputs) {
  std::string key;
  for (const TensorView& t : inputs) key += fmt::format("{};", fmt::join(t.dims, " "));
  return key;
}

[[noreturn]] void unknown_input(const std::string& name, const std::vector<TensorInfo>& inputs) {
  std::vector<std::string> names;
  for (const TensorInfo& w : inputs) names.push_back(w.name);
  if (names.empty()) fail(ErrorKind::kInvalidArgument, "the model has no input '{}': it takes none", name);
  fail(ErrorKind::kInvalidArgument, "the model has no input '{}'; its inputs are: {}", name, join(names));
}

/// Fails unless the keys of `given` are exactly the inputs' names.
template <typename Map>
void check_names(const Map& given, const std::vector<TensorInfo>& inputs) {
  for (const TensorInfo& w : inputs)
    if (!given.count(w.name)) fail(ErrorKind::kInvalidArgument, "input '{}' is missing", w.name);
  if (given.size() == inputs.size()) return;
  for (const auto& [name, value] : given)
    if (std::none_of(inputs.begin(), inputs.end(), [&](const TensorInfo& w) { return w.name == name; }))
      unknown_input(name, inputs);
}

}  // namespace

void check_options(const ModelOptions& options, const std::string& target) {
  check_options(options);
  if (!in_8_bits(options)) return;
  product_type(options, target);
  read_calibration(options.calibration_table);
}

std::unique_ptr<Model> Model::load(const std::filesystem::path& path, const ModelOptions& options) {
  if (options.progress) options.progress({"reading"});
  return std::make_unique<Model>(onnx::load(path), options);
}

std::unique_ptr<Model> Model::parse(std::span<const std::byte> bytes, const ModelOptions& options) {
  return std::make_unique<Model>(onnx::parse(bytes), options);
}

Model::Model(onnx::Model model, const ModelOptions& options)
    : model_(std::move(model)), options_(options), threads_(thread_count(options.threads)) {
  check_options(options_);
  check_dim_names();
  if (is_gpu_name(options_.device)) use_gpu(open_gpu(options_.device));
  quantization_ = quantize(model_, options_, gpu_ ? gpu_->info().target : "host");
  for (const onnx::ValueInfo& v : model_.graph.inputs)
    if (!v.has_default) inputs_.push_back(info_of(v, options_));
  for (std::size_t k = 0; k < inputs_.size(); ++k) input_index_[inputs_[k].name] = k;
  CacheOptions c;
  c.directory = options.cache_dir;
  cache_ = std::make_shared<CodeCache>(c);
  open_tuning();
  try {
    ImportOptions import;
    import.dims = options_.dims;
    import.all_outputs = options_.all_outputs;
    general_ = compile(import);
  } catch (const NeedInput& need) {
    needs_.push_back(need);
    return;
  }
  if (has_assumptions(general_->program().main)) return;  // other programs may be needed
  // The program has what it needs of the weights.
  for (onnx::Tensor& t : model_.graph.initializers) {
    t.owner.reset();
    t.data = nullptr;
    t.bytes = 0;
    t.unsupported = "its data was released after compiling";
  }
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

// Databases are opened before anything is compiled: they decide what is.
void Model::open_tuning() {
  const bool times = options_.tuning != "off";
  if (times && !gpu_)
    fail(ErrorKind::kInvalidArgument, "tuning is for GPUs; the host's library chooses its kernels itself");
  std::filesystem::path path = options_.tuning_database;
  if (times && path.empty()) {
    if (options_.cache_dir.empty())
      fail(ErrorKind::kInvalidArgument, "tuning needs a place for what it finds: a tuning database, or a cache");
    path = options_.cache_dir / "tuning.sqlite";
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

std::unique_ptr<Model> Model::load_program(const std::filesystem::path& path, int threads, const std::string& device,
                                           const std::string& product_library, const std::filesystem::path& cache_dir) {
  ModelOptions options;
  options.cache_dir = cache_dir;
  options.product_library = product_library;
  options.device = device;
  options.threads = threads;
  // A program for the host if there is one, else for the first card of the kind that the first program is for.
  std::string gpu;
  if (device != "host" && is_gpu_name(device)) gpu = open_gpu(device)->info().target;
  if (device == "host") {
    const std::vector<std::string> targets = program_targets(path);
    const bool cards =
        std::all_of(targets.begin(), targets.end(), [](const std::string& t) { return find_chip(t) != nullptr; });
    if (cards) {
      options.device = chip_of(targets[0]).is_nvidia() ? "cuda" : "hip";
      gpu = open_gpu(options.device)->info().target;
    }
  }
  auto program = sardonyx::load_program(path, thread_count(threads), gpu);
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
    gpu = open_gpu(options.device != "host" ? options.device : kind == TargetKind::kAmdgpu ? "hip" : "cuda");
    if (!runs_on(program->target, gpu->info().target))
      fail(ErrorKind::kUnsupported, "the program is for {}, and {} is a {}; compile the model for it", program->target,
           gpu->info().name, gpu->info().target);
  } else if (options.device != "host") {
    fail(ErrorKind::kUnsupported, "the program is for the host; compile the model for {}", options.device);
  }
  return std::unique_ptr<Model>(new Model(std::move(program), options, std::move(gpu)));
}

std::shared_ptr<Program> Model::compile_for(const std::string& target, onnx::Model model, const ModelOptions& options) {
  check_options(options);
  const Target t = parse_target(target);
  if (t.kind == TargetKind::kHost)
    fail(ErrorKind::kUnsupported, "'{}' is a CPU; programs for the host are compiled on the machine that runs them",
         target);
  CacheOptions c;
  c.directory = options.cache_dir;
  CodeCache cache(c);
  quantize(model, options, t.arch);
  BuildOptions build;
  build.target = t.arch;
  build.threads = thread_count(options.threads);
  build.cache = &cache;
  build.fuse = options.fuse;
  std::optional<TuningDatabase> tuning;
  if (!options.tuning_database.empty())
    build.choices = &tuning.emplace(options.tuning_database, options.tuning != "off");
  build.libraries = options.product_library != "off";
  build.precision = storage_of(options);
  if (options.progress)
    build.progress = [&](std::size_t done, std::size_t total) { options.progress({"compiling", done, total}); };
  ImportOptions import;
  import.dims = options.dims;
  try {
    return build_program(*import_model(model, import), build);
  } catch (const NeedInput& n) {
    fail(ErrorKind::kUnsupported,
         "the program depends on the {} of input '{}' ({}), so it can't be compiled beforehand",
         n.kind == NeedInput::kRank ? "rank" : "value", n.input, n.why);
  }
}

PassReport passes_for(const std::string& target, onnx::Model model, const Options& options) {
  check_options(options);
  const Target t = parse_target(target);
  BuildOptions build;
  if (t.kind != TargetKind::kHost) build.target = t.arch;
  quantize(model, options, build.target);
  build.fuse = options.fuse;
  build.precision = storage_of(options);
  ImportOptions import;
  import.dims = options.dims;
  try {
    return report_passes(*import_model(model, import), fuse_options_of(build));
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
  save_program(general_->program(), path);
}

std::size_t Model::program_count() const {
  const std::lock_guard lock(mutex_);
  return variants_.size() + (general_ ? 1 : 0);
}

void Model::report(std::string_view stage, std::size_t done, std::size_t total) const {
  if (options_.progress) options_.progress({stage, done, total});
}

void Model::check_dim_names() const {
  std::set<std::string> names;
  for (const onnx::ValueInfo& v : model_.graph.inputs)
    if (v.shape)
      for (const onnx::Dim& d : *v.shape)
        if (!d.param.empty()) names.insert(d.param);
  for (const auto& [name, size] : options_.dims) {
    if (size < 0) fail(ErrorKind::kInvalidArgument, "dim '{}' can't be fixed to {}", name, size);
    if (names.count(name)) continue;
    if (names.empty())
      fail(ErrorKind::kInvalidArgument, "the model has no dim '{}': all its inputs' dims are numbers or nameless",
           name);
    fail(ErrorKind::kInvalidArgument, "the model has no dim '{}'; its dims are: {}", name,
         join({names.begin(), names.end()}));
  }
}

std::unique_ptr<Backend> Model::backend() const {
  return make_backend({memory_, options_.communicator, options_.graphs, cache_, tuner_, options_.product_library});
}

std::shared_ptr<Executor> Model::compile(const ImportOptions& import) {
  report("importing");
  auto graph = import_model(model_, import);
  report("compiling");
  BuildOptions build;
  build.threads = threads_;
  build.cache = cache_.get();
  build.fuse = options_.fuse;
  build.precision = storage_of(options_);
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
  for (const onnx::ValueInfo& v : model_.graph.outputs) out.push_back(v.name);
  return out;
}

std::vector<TensorInfo> Model::outputs() const {
  std::vector<TensorInfo> out;
  if (!general_) {
    for (const onnx::ValueInfo& v : model_.graph.outputs) out.push_back(info_of(v, options_));
    return out;
  }
  const Program& p = general_->program();
  for (std::size_t k = 0; k < p.main.outputs.size(); ++k)
    out.push_back(info_of(p, p.main.outputs[k], p.output_names[k]));
  return out;
}

std::vector<std::string> Model::symbols() const {
  if (general_) return input_symbols(general_->program());
  std::set<std::string> names;
  for (const TensorInfo& t : inputs_)
    for (const std::string& d : t.shape)
      if (d.find_first_not_of("0123456789") != std::string::npos) names.insert(d);
  return {names.begin(), names.end()};
}

std::vector<std::vector<std::int64_t>> Model::output_dims(
    const std::map<std::string, std::vector<std::int64_t>>& input_dims) const {
  check_names(input_dims, inputs_);
  if (!general_) {
    const std::lock_guard lock(mutex_);
    fail(ErrorKind::kUnsupported, "the outputs' dims depend on the value of input '{}'; run the model to know them",
         needs_.front().input);
  }
  std::vector<std::vector<std::int64_t>> ordered;
  for (const std::string& name : general_->program().input_names) ordered.push_back(input_dims.at(name));
  return general_->output_dims(general_->bind(ordered));
}

// Compiles, asking for one more input each time the model turns out to need it.
std::shared_ptr<Executor> Model::variant(const std::vector<TensorView>& inputs, bool exact) {
  std::lock_guard lock(mutex_);
  for (;;) {
    ImportOptions import;
    import.dims = options_.dims;
    import.all_outputs = options_.all_outputs;
    std::string key;
    if (exact) {
      key = shape_key(inputs);
      for (std::size_t k = 0; k < inputs.size(); ++k) import.shapes[inputs_[k].name] = inputs[k].dims;
    }
    for (const NeedInput& n : needs_) {
      const TensorView& t = inputs[input_index_.at(n.input)];
      if (n.kind == NeedInput::kRank) {
        import.ranks[n.input] = static_cast<int>(t.dims.size());
        key += fmt::format("{}:rank {};", n.input, t.dims.size());
        continue;
      }
      onnx::Tensor value;
      value.name = n.input;
      value.dtype = t.dtype;
      value.dims = t.dims;
      const Data copy = bytes_of(t);
      value.owner = copy.owner;
      value.data = copy.bytes;
      value.bytes = copy.size;
      key += n.input + ":";
      for (std::int64_t d : t.dims) key += std::to_string(d) + ",";
      key.append(reinterpret_cast<const char*>(copy.bytes), copy.size);
      key += ";";
      import.values[n.input] = std::move(value);
    }
    auto it = variants_.find(key);
    if (it != variants_.end()) return it->second;
    try {
      auto e = compile(import);
      if (variants_.size() >= kMaxVariants) variants_.clear();
      return variants_[key] = e;
    } catch (const NeedInput& need) {
      for (const NeedInput& n : needs_)
        check(n.input != need.input || n.kind != need.kind, "input '{}' asked for twice", need.input);
      needs_.push_back(need);
    }
  }
}

// What every input must satisfy, whether the program or the compiler sees it. Inputs of a program have their dims
// checked by it.
Data Model::bytes_of(const TensorView& input) const {
  std::size_t size = size_of(input.dtype);
  for (std::int64_t d : input.dims) size *= static_cast<std::size_t>(d);
  std::byte* p;
  Data copy = make_data(size, &p);
  if (size == 0) return copy;
  if (gpu_ && input.on_device) {
    const std::shared_ptr<void> stream = gpu_->create_stream();
    GpuTransfers(gpu_).download(p, input.data, size, stream.get());
  } else {
    std::memcpy(p, input.data, size);
  }
  return copy;
}

std::vector<TensorView> Model::ordered(const Executor& e, const std::vector<TensorView>& inputs) const {
  std::vector<TensorView> out;
  for (const std::string& name : e.program().input_names) out.push_back(inputs[input_index_.at(name)]);
  return out;
}

std::vector<TensorView> Model::views(const std::map<std::string, HostTensor>& inputs) const {
  std::map<std::string, TensorView> all;
  for (const auto& [name, t] : inputs) all[name] = {t.dtype, t.dims, t.data, false};
  return in_order(all);
}

std::vector<TensorView> Model::in_order(const std::map<std::string, TensorView>& inputs) const {
  check_names(inputs, inputs_);
  std::vector<TensorView> out;
  for (const TensorInfo& w : inputs_) out.push_back(inputs.at(w.name));
  return out;
}

void Model::check_inputs(const std::vector<TensorView>& inputs) const {
  if (inputs.size() != inputs_.size())
    fail(ErrorKind::kInvalidArgument, "{} inputs given; the model has {}", inputs.size(), inputs_.size());
  std::map<std::string, std::int64_t> symbols;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const TensorInfo& w = inputs_[i];
    const TensorView& t = inputs[i];
    std::int64_t n = 1;
    bool empty = false;
    for (std::size_t k = 0; k < t.dims.size(); ++k) {
      if (t.dims[k] < 0) fail(ErrorKind::kInvalidArgument, "input '{}': dim {} is negative ({})", w.name, k, t.dims[k]);
      empty |= t.dims[k] == 0;
      if (t.dims[k] > 0 && __builtin_mul_overflow(n, t.dims[k], &n))
        fail(ErrorKind::kInvalidArgument, "input '{}' has too many elements", w.name);
    }
    if (t.data == nullptr && !empty) fail(ErrorKind::kInvalidArgument, "input '{}' has no data", w.name);
    if (t.dtype != w.dtype)
      fail(ErrorKind::kInvalidArgument, "input '{}' has dtype {}; the model wants {}", w.name, name(t.dtype),
           name(w.dtype));
    if (w.known_rank && t.dims.size() != w.shape.size())
      fail(ErrorKind::kInvalidArgument, "input '{}' has rank {}; the model wants {}: [{}]", w.name, t.dims.size(),
           w.shape.size(), join(w.shape));
    if (general_ || !w.known_rank) continue;
    for (std::size_t k = 0; k < t.dims.size(); ++k) {
      const bool number = w.shape[k].find_first_not_of("0123456789") == std::string::npos;
      const std::int64_t wanted =
          number ? std::stoll(w.shape[k]) : symbols.emplace(w.shape[k], t.dims[k]).first->second;
      if (t.dims[k] != wanted)
        fail(ErrorKind::kInvalidArgument, "input '{}': dim {} is {}, but {}{} is wanted", w.name, k, t.dims[k],
             number ? "" : w.shape[k] + " = ", wanted);
    }
  }
}

std::shared_ptr<Executor> Model::executor_for(const std::map<std::string, HostTensor>& inputs) {
  const std::vector<TensorView> list = views(inputs);
  check_inputs(list);
  return general_ ? general_ : variant(list);
}

void Model::run(const std::vector<TensorView>& inputs, const OutputSink& sink, const RunOptions& options) {
  RunOptions checked = options;
  checked.threads = options.threads == 0 ? 0 : thread_count(options.threads);
  check_inputs(inputs);
  // The values of inputs on a device are read while the program is looked for: they must be there.
  if (gpu_ && !general_ && options.stream) gpu_->synchronize(options.stream);
  std::shared_ptr<Executor> e = general_;
  if (!e)
    e = variant(inputs);
  else if (broadcasts_)
    e = exact_or_general(inputs);
  try {
    return e->run(ordered(*e, inputs), sink, checked);
  } catch (const AssumptionFailed& assumption) {
    // Dims that the program takes to be equal are not (one is 1 and broadcast): these sizes get a program of their own.
    if (model_.graph.outputs.empty())
      fail(ErrorKind::kUnsupported, "the saved program is not for these sizes ({}); compile the model itself",
           assumption.what());
  }
  e = variant(inputs, true);
  broadcasts_ = true;
  e->run(ordered(*e, inputs), sink, checked);
}

std::vector<HostTensor> Model::run(const std::map<std::string, HostTensor>& inputs, const RunOptions& options) {
  std::vector<HostTensor> out(output_names().size());
  OutputSink sink;
  sink.allocate = [&](std::size_t k, DType dtype, const std::vector<std::int64_t>& dims) {
    out[k] = Tensor::allocate_result(dtype, dims);
    return OutputMemory{out[k].data, false};
  };
  sink.take = [&](std::size_t k, Tensor&& t) {
    out[k] = std::move(t);
    return true;
  };
  run(views(inputs), sink, options);
  return out;
}

MemoryUse Model::memory() const {
  MemoryUse m;
  std::vector<std::shared_ptr<Executor>> all;
  if (general_) all.push_back(general_);
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, e] : variants_) all.push_back(e);
  }
  for (const auto& e : all) {
    m.constants += e->constant_bytes();
    m.arena = std::max<std::uint64_t>(m.arena, e->arena_bytes());
  }
  if (memory_) {
    m.now = memory_->used();
    m.peak = memory_->peak();
  }
  return m;
}

// Saves a run that would only find out that it is the wrong program.
std::shared_ptr<Executor> Model::exact_or_general(const std::vector<TensorView>& inputs) {
  const std::lock_guard lock(mutex_);
  const auto it = variants_.find(shape_key(inputs));
  return it == variants_.end() ? general_ : it->second;
}

}  // namespace sardonyx
