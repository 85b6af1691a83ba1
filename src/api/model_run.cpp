// Runs a model: checks inputs, and finds the program for them.
#include <algorithm>
#include <cstring>

#include "api/model.h"
#include "api/option_checks.h"

namespace sardonyx {
namespace {

std::string join(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }

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

ImportOptions Model::import_options(const std::vector<TensorView>& inputs, const std::vector<NeedInput>& needs,
                                    std::string& key) const {
  ImportOptions import;
  import.custom = custom_;
  import.dims = options_.dims;
  import.all_outputs = options_.all_outputs;
  for (const NeedInput& n : needs) {
    const TensorView& t = inputs[input_index_.at(n.input)];
    if (n.kind == NeedInput::kRank) {
      import.ranks[n.input] = static_cast<int>(t.dims.size());
      key += fmt::format("{}:rank {};", n.input, t.dims.size());
      continue;
    }
    Tensor value = host_copy(t);
    key += fmt::format("{}:{},", n.input, fmt::join(t.dims, ","));
    key.append(static_cast<const char*>(value.data), value.bytes());
    key += ";";
    import.values[n.input] = std::move(value);
  }
  return import;
}

// Compiles; asks for one more input's value each time the model turns out to need it.
std::shared_ptr<Executor> Model::variant(const std::vector<TensorView>& inputs, bool exact) {
  for (;;) {
    std::vector<NeedInput> needs;
    {
      const std::lock_guard lock(mutex_);
      needs = needs_;
    }
    std::string key = exact ? shape_key(inputs) : "";
    ImportOptions import = import_options(inputs, needs, key);
    if (exact)
      for (std::size_t k = 0; k < inputs.size(); ++k) import.shapes[inputs_[k].name] = inputs[k].dims;
    try {
      return variants_.get(key, [&] { return compile(import); });
    } catch (const NeedInput& need) {
      const auto same = [&](const NeedInput& n) { return n.input == need.input && n.kind == need.kind; };
      check(std::none_of(needs.begin(), needs.end(), same), "the value of input '{}' was requested twice", need.input);
      const std::lock_guard lock(mutex_);
      // Another thread may have found the same.
      if (std::none_of(needs_.begin(), needs_.end(), same)) needs_.push_back(need);
    }
  }
}

Tensor Model::host_copy(const TensorView& input) const {
  Tensor copy = Tensor::allocate(input.dtype, input.dims);
  if (copy.bytes() == 0) return copy;
  if (gpu_ && input.on_device) {
    const std::shared_ptr<void> stream = gpu_->create_stream();
    GpuTransfers(gpu_).download(static_cast<std::byte*>(copy.data), input.data, copy.bytes(), stream.get());
  } else {
    std::memcpy(copy.data, input.data, copy.bytes());
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
      fail(ErrorKind::kInvalidArgument, "input '{}' has dtype {}; the model expects {}", w.name, name(t.dtype),
           name(w.dtype));
    if (w.known_rank && t.dims.size() != w.shape.size())
      fail(ErrorKind::kInvalidArgument, "input '{}' has rank {}; the model expects {}: [{}]", w.name, t.dims.size(),
           w.shape.size(), join(w.shape));
    if (general_ || !w.known_rank) continue;
    for (std::size_t k = 0; k < t.dims.size(); ++k) {
      const bool number = w.shape[k].find_first_not_of("0123456789") == std::string::npos;
      const std::int64_t wanted =
          number ? std::stoll(w.shape[k]) : symbols.emplace(w.shape[k], t.dims[k]).first->second;
      if (t.dims[k] != wanted)
        fail(ErrorKind::kInvalidArgument, "input '{}': dim {} is {}, but must be {}{}", w.name, k, t.dims[k],
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
  // Values of inputs in device memory are read to find the program, so they must have been written.
  if (gpu_ && !general_ && options.stream) gpu_->synchronize(options.stream);
  std::shared_ptr<Executor> e = general_;
  if (!e)
    e = variant(inputs);
  else if (broadcasts_)
    e = exact_or_general(inputs);
  try {
    return e->run(ordered(*e, inputs), sink, checked);
  } catch (const AssumptionFailed& assumption) {
    // Dims that the program assumes to be equal are not (one is 1 and broadcast): these sizes get a program of their
    // own.
    if (!source_)
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
  for (const auto& e : executors()) {
    m.constants += e->constant_bytes();
    m.arena = std::max<std::uint64_t>(m.arena, e->arena_bytes());
  }
  if (memory_) {
    m.now = memory_->used();
    m.peak = memory_->peak();
  }
  return m;
}

// Avoids a run that would only find out that the program's assumptions do not hold.
std::shared_ptr<Executor> Model::exact_or_general(const std::vector<TensorView>& inputs) {
  std::shared_ptr<Executor> exact = variants_.find(shape_key(inputs));
  return exact ? exact : general_;
}

}  // namespace sardonyx
