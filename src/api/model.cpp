// A compiled model, and its variants for inputs whose value shapes the program.
#include "api/model.h"

#include <cstring>
#include <thread>

#include "program/build.h"

namespace sardonyx {
namespace {

constexpr std::size_t kMaxVariants = 256;  // of compiled programs kept for different values of such inputs

// An unnamed dim has the name that the importer gives its symbol.
std::string dim_text(const onnx::Dim& d, const std::string& tensor, std::size_t k) {
  if (d.value) return std::to_string(*d.value);
  return d.param.empty() ? tensor + "." + std::to_string(k) : d.param;
}

TensorInfo info_of(const onnx::ValueInfo& v) {
  TensorInfo t;
  t.name = v.name;
  if (v.dtype) t.dtype = *v.dtype;
  t.known_rank = v.shape.has_value();
  if (v.shape)
    for (std::size_t k = 0; k < v.shape->size(); ++k) t.shape.push_back(dim_text((*v.shape)[k], v.name, k));
  return t;
}

}  // namespace

std::unique_ptr<Model> Model::load(const std::filesystem::path& path, const ModelOptions& options) {
  if (options.progress) options.progress({"reading"});
  return std::make_unique<Model>(onnx::load(path), options);
}

std::unique_ptr<Model> Model::parse(std::span<const std::byte> bytes, const ModelOptions& options) {
  return std::make_unique<Model>(onnx::parse(bytes), options);
}

Model::Model(onnx::Model model, const ModelOptions& options) : model_(std::move(model)), options_(options) {
  threads_ = options.threads > 0 ? options.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  CacheOptions c;
  c.directory = options.cache_dir;
  cache_ = std::make_unique<CodeCache>(c);
  try {
    ImportOptions import;
    import.dims = options_.dims;
    import.all_outputs = options_.all_outputs;
    general_ = compile(import);
  } catch (const NeedInput& need) {
    needs_.push_back(need);
  }
}

void Model::report(std::string_view stage, std::size_t done, std::size_t total) const {
  if (options_.progress) options_.progress({stage, done, total});
}

std::shared_ptr<Executor> Model::compile(const ImportOptions& import) {
  report("importing");
  auto graph = import_model(model_, import);
  report("compiling");
  BuildOptions build;
  build.threads = threads_;
  build.cache = cache_.get();
  build.fuse = options_.fuse;
  if (options_.progress) build.progress = [this](std::size_t done, std::size_t total) { report("compiling", done, total); };
  auto executor = std::make_shared<Executor>(build_program(*graph, build), threads_);
  report("ready");
  return executor;
}

std::vector<TensorInfo> Model::inputs() const {
  std::vector<TensorInfo> out;
  for (const onnx::ValueInfo& v : model_.graph.inputs)
    if (!v.has_default) out.push_back(info_of(v));
  return out;
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
    for (const onnx::ValueInfo& v : model_.graph.outputs) out.push_back(info_of(v));
    return out;
  }
  const Program& p = general_->program();
  for (std::size_t k = 0; k < p.main.outputs.size(); ++k) {
    TensorInfo t;
    t.name = p.output_names[k];
    t.dtype = p.buffers[static_cast<std::size_t>(p.main.outputs[k].buffer)].dtype;
    for (const Expr& d : p.main.outputs[k].shape) t.shape.push_back(to_string(d));
    out.push_back(std::move(t));
  }
  return out;
}

// Compiles, asking for one more input each time the model turns out to need it.
std::shared_ptr<Executor> Model::variant(const std::map<std::string, HostTensor>& inputs) {
  std::lock_guard lock(mutex_);
  for (;;) {
    ImportOptions import;
    import.dims = options_.dims;
    import.all_outputs = options_.all_outputs;
    std::string key;
    for (const NeedInput& n : needs_) {
      const HostTensor& t = inputs.at(n.input);
      if (n.kind == NeedInput::kRank) {
        import.ranks[n.input] = static_cast<int>(t.dims.size());
        key += fmt::format("{}:rank {};", n.input, t.dims.size());
        continue;
      }
      onnx::Tensor value;
      value.name = n.input;
      value.dtype = t.dtype;
      value.dims = t.dims;
      std::byte* p;
      Data copy = make_data(t.bytes(), &p);
      std::memcpy(p, t.data, t.bytes());
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
      for (const NeedInput& n : needs_) check(n.input != need.input || n.kind != need.kind, "input '{}' asked for twice", need.input);
      needs_.push_back(need);
    }
  }
}

std::shared_ptr<Executor> Model::executor_for(const std::map<std::string, HostTensor>& inputs) {
  std::vector<TensorInfo> wanted = this->inputs();
  for (const auto& [name, t] : inputs) {
    bool known = false;
    for (const TensorInfo& w : wanted) known |= w.name == name;
    if (!known) {
      std::string names;
      for (const TensorInfo& w : wanted) names += (names.empty() ? "" : ", ") + w.name;
      fail(ErrorKind::kInvalidArgument, "the model has no input '{}'; its inputs are: {}", name, names);
    }
  }
  for (const TensorInfo& w : wanted)
    if (!inputs.count(w.name)) fail(ErrorKind::kInvalidArgument, "input '{}' is missing", w.name);
  return general_ ? general_ : variant(inputs);
}

std::vector<HostTensor> Model::run(const std::map<std::string, HostTensor>& inputs, const RunOptions& options) {
  std::shared_ptr<Executor> e = executor_for(inputs);
  std::vector<HostTensor> ordered;
  for (const std::string& name : e->program().input_names) ordered.push_back(inputs.at(name));
  return e->run(ordered, options);
}

}  // namespace sardonyx
