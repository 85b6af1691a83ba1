#include "api/replicas.h"

#include <cctype>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "support/error.h"

namespace sardonyx {
namespace {

constexpr std::size_t kAlignment = 64;  // alignment of memory that models write outputs to

bool is_symbol(const std::string& dim) {
  return !dim.empty() && dim.find_first_not_of("0123456789") != std::string::npos;
}

// Whether an expression of symbols ("2*batch + 1") has this one.
bool has_symbol(const std::string& dim, const std::string& symbol) {
  const auto part_of_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; };
  for (std::size_t at = dim.find(symbol); at != std::string::npos; at = dim.find(symbol, at + 1)) {
    const std::size_t end = at + symbol.size();
    if ((at == 0 || !part_of_name(dim[at - 1])) && (end == dim.size() || !part_of_name(dim[end]))) return true;
  }
  return false;
}

std::size_t row_bytes(DType dtype, const std::vector<std::int64_t>& dims) {
  std::size_t bytes = size_of(dtype);
  for (std::size_t k = 1; k < dims.size(); ++k) bytes *= static_cast<std::size_t>(dims[k]);
  return bytes;
}

/// The outputs of a run; each device writes some of their rows.
class Gathered {
 public:
  Gathered(std::int64_t batch, std::vector<std::string> names)
      : batch_(batch), names_(std::move(names)), whole_(names_.size()) {}

  /// Memory for the rows from `begin` on of output k: in the output itself or, if that is not aligned, in `beside`,
  /// from which finish() copies them.
  OutputMemory place(std::size_t k, DType dtype, const std::vector<std::int64_t>& dims, std::int64_t begin,
                     std::int64_t rows, HostTensor& beside) {
    if (dims.empty() || dims[0] != rows)
      fail(ErrorKind::kUnsupported,
           "output '{}' has {} rows for a part of the batch of {}: parts can't be put together", names_[k],
           dims.empty() ? 1 : dims[0], rows);
    std::vector<std::int64_t> all = dims;
    all[0] = batch_;
    const std::lock_guard lock(mutex_);
    if (!whole_[k].data)
      whole_[k] = allocate_tensor(dtype, all);
    else if (whole_[k].dims != all)
      fail(ErrorKind::kUnsupported, "output '{}' has other dims in one part of the batch than in another", names_[k]);
    const std::size_t offset = static_cast<std::size_t>(begin) * row_bytes(dtype, dims);
    if (offset % kAlignment == 0) return {static_cast<char*>(whole_[k].data) + offset, false};
    beside = allocate_tensor(dtype, dims);
    return {beside.data, false};
  }
  void finish(std::size_t k, const HostTensor& beside, std::int64_t begin) {
    if (!beside.data) return;
    const std::size_t row = row_bytes(beside.dtype, beside.dims);
    std::memcpy(static_cast<char*>(whole_[k].data) + static_cast<std::size_t>(begin) * row, beside.data,
                static_cast<std::size_t>(beside.dims[0]) * row);
  }
  std::vector<HostTensor> take() { return std::move(whole_); }

 private:
  std::int64_t batch_;
  std::vector<std::string> names_;
  std::mutex mutex_;
  std::vector<HostTensor> whole_;
};

}  // namespace

Replicas::Replicas(std::vector<std::shared_ptr<Model>> models) : models_(std::move(models)) {
  if (models_.empty()) fail(ErrorKind::kInvalidArgument, "no devices are given");
  const std::vector<TensorInfo> inputs = front().inputs();
  for (const TensorInfo& t : inputs)
    if (batch_.empty() && t.known_rank && !t.shape.empty() && is_symbol(t.shape[0])) batch_ = t.shape[0];
  if (batch_.empty())
    fail(ErrorKind::kUnsupported,
         "no input has an open first dim that could be divided among devices; export the model with an open batch, or "
         "leave out what fixes it");
  const auto check_rest = [&](const TensorInfo& t, const char* what) {
    for (std::size_t k = 0; k < t.shape.size(); ++k)
      if (!(k == 0 && t.shape[0] == batch_) && has_symbol(t.shape[k], batch_))
        fail(ErrorKind::kUnsupported,
             "{} '{}' has '{}' in its dim {} ({}), so the batch can't be divided among devices", what, t.name, batch_,
             k, t.shape[k]);
  };
  for (const TensorInfo& t : inputs) {
    divided_.push_back(t.known_rank && !t.shape.empty() && t.shape[0] == batch_);
    check_rest(t, "input");
  }
  for (const TensorInfo& t : front().outputs()) {
    check_rest(t, "output");
    // A model that is compiled for each value of an input may not know its outputs' dims yet.
    const bool known = t.known_rank && front().executor();
    if (known && (t.shape.empty() || t.shape[0] != batch_))
      fail(ErrorKind::kUnsupported,
           "output '{}' does not have '{}' as its first dim, so parts of it that several devices compute can't be "
           "joined",
           t.name, batch_);
  }
}

std::unique_ptr<Replicas> Replicas::load(const std::filesystem::path& path, ModelOptions options,
                                         const std::vector<std::string>& devices) {
  std::vector<std::shared_ptr<Model>> models;
  for (const std::string& device : devices) {
    options.device = device;
    models.push_back(Model::load(path, options));
  }
  return std::make_unique<Replicas>(std::move(models));
}

std::vector<std::string> Replicas::device_names() const {
  std::vector<std::string> names;
  for (const auto& m : models_) names.push_back(m->device_name());
  return names;
}

std::vector<std::int64_t> Replicas::parts(std::int64_t batch) const {
  const auto n = static_cast<std::int64_t>(models_.size());
  std::vector<std::int64_t> rows;
  for (std::int64_t r = 0; r < n; ++r) rows.push_back(batch / n + (r < batch % n ? 1 : 0));
  return rows;
}

std::vector<HostTensor> Replicas::run(const std::vector<TensorView>& inputs, const RunOptions& options) const {
  const std::vector<TensorInfo> infos = front().inputs();
  if (inputs.size() != infos.size())
    fail(ErrorKind::kInvalidArgument, "{} inputs given; the model has {}", inputs.size(), infos.size());
  std::int64_t batch = -1;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (inputs[k].on_device)
      fail(ErrorKind::kInvalidArgument,
           "input '{}' is in device memory; inputs that are divided among devices must be in host memory",
           infos[k].name);
    if (!divided_[k]) continue;
    if (inputs[k].dims.empty())
      fail(ErrorKind::kInvalidArgument, "input '{}' has rank 0; the model expects {}", infos[k].name,
           infos[k].shape.size());
    if (batch < 0) batch = inputs[k].dims[0];
    if (inputs[k].dims[0] != batch)
      fail(ErrorKind::kInvalidArgument, "input '{}': dim 0 is {}, but must be {} = {}", infos[k].name,
           inputs[k].dims[0], batch_, batch);
  }
  const std::vector<std::int64_t> rows = parts(batch);
  const std::vector<std::string> names = front().output_names();
  Gathered gathered(batch, names);
  std::vector<std::exception_ptr> failures(models_.size());
  const auto part = [&](std::size_t r, std::int64_t begin) {
    try {
      std::vector<TensorView> own = inputs;
      for (std::size_t k = 0; k < own.size(); ++k) {
        if (!divided_[k]) continue;
        own[k].data = static_cast<const char*>(own[k].data) +
                      static_cast<std::size_t>(begin) * row_bytes(own[k].dtype, own[k].dims);
        own[k].dims[0] = rows[r];
      }
      std::vector<HostTensor> beside(names.size());
      OutputSink sink;
      sink.allocate = [&](std::size_t k, DType dtype, const std::vector<std::int64_t>& dims) {
        return gathered.place(k, dtype, dims, begin, rows[r], beside[k]);
      };
      RunOptions own_options = options;
      if (r > 0) own_options.profile = nullptr;  // profile the first device only
      models_[r]->run(own, sink, own_options);
      for (std::size_t k = 0; k < beside.size(); ++k) gathered.finish(k, beside[k], begin);
    } catch (const Error& error) {
      failures[r] =
          std::make_exception_ptr(Error(error.kind(), models_[r]->device_name() + ": " + std::string(error.what())));
    } catch (...) {
      failures[r] = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  std::int64_t begin = rows[0];
  for (std::size_t r = 1; r < models_.size(); ++r) {
    if (rows[r] > 0) others.emplace_back(part, r, begin);
    begin += rows[r];
  }
  part(0, 0);
  for (std::thread& t : others) t.join();
  for (const std::exception_ptr& f : failures)
    if (f) std::rethrow_exception(f);
  return gathered.take();
}

std::vector<HostTensor> Replicas::run(const std::map<std::string, HostTensor>& inputs,
                                      const RunOptions& options) const {
  std::map<std::string, TensorView> views;
  for (const auto& [name, t] : inputs) views[name] = {t.dtype, t.dims, t.data, false};
  return run(front().in_order(views), options);
}

}  // namespace sardonyx
