// The C++ interface's CompiledModel: a thin wrapper of Model.
#include "api/compiled_model.h"

#include <cstdlib>

#include "compile/cache.h"
#include "support/error.h"

namespace sardonyx {

CompiledModel::CompiledModel(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

CompiledModel CompiledModel::from_file(const std::filesystem::path& path, const Options& options) {
  return CompiledModel(std::make_shared<Impl>(Impl{Model::load(path, options)}));
}

CompiledModel CompiledModel::from_bytes(std::span<const std::byte> onnx, const Options& options) {
  return CompiledModel(std::make_shared<Impl>(Impl{Model::parse(onnx, options)}));
}

CompiledModel CompiledModel::load(const std::filesystem::path& path, int threads, const std::string& device,
                                  const std::filesystem::path& cache_dir) {
  Options options;
  options.threads = threads;
  options.device = device;
  options.cache_dir = cache_dir;
  return load(path, options);
}

CompiledModel CompiledModel::load(const std::filesystem::path& path, const Options& options) {
  return CompiledModel(std::make_shared<Impl>(Impl{Model::load_program(path, options)}));
}

void CompiledModel::save(const std::filesystem::path& path) const { impl_->model->save(path); }

void CompiledModel::wait() const { impl_->model->wait(); }

std::vector<TensorInfo> CompiledModel::inputs() const { return impl_->model->inputs(); }
std::vector<TensorInfo> CompiledModel::outputs() const { return impl_->model->outputs(); }

std::vector<std::string> CompiledModel::symbols() const { return impl_->model->symbols(); }
std::map<std::string, std::string> CompiledModel::metadata() const { return impl_->model->metadata(); }

std::map<std::string, std::vector<std::int64_t>> CompiledModel::output_dims(
    const std::map<std::string, std::vector<std::int64_t>>& input_dims) const {
  std::map<std::string, std::vector<std::int64_t>> out;
  auto dims = impl_->model->output_dims(input_dims);
  const std::vector<std::string> names = impl_->model->output_names();
  for (std::size_t k = 0; k < dims.size(); ++k) out[names[k]] = std::move(dims[k]);
  return out;
}

std::map<std::string, Tensor> CompiledModel::run(const std::map<std::string, Tensor>& inputs,
                                                 const RunOptions& options) const {
  std::vector<Tensor> results = impl_->model->run(inputs, options);
  const std::vector<std::string> names = impl_->model->output_names();
  std::map<std::string, Tensor> out;
  for (std::size_t k = 0; k < results.size(); ++k) out[names[k]] = std::move(results[k]);
  return out;
}

void CompiledModel::run(const std::vector<TensorView>& inputs, const OutputAllocator& outputs,
                        const RunOptions& options) const {
  if (!outputs) fail(ErrorKind::kInvalidArgument, "there is no allocator for the outputs");
  impl_->model->run(inputs, OutputSink{outputs, nullptr}, options);
}

QuantizationReport CompiledModel::quantization() const { return impl_->model->quantization(); }

MemoryUse CompiledModel::memory() const { return impl_->model->memory(); }

std::filesystem::path user_cache_directory() {
  const char* base = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  return default_cache_directory(base ? base : "", home ? home : "");
}

}  // namespace sardonyx
