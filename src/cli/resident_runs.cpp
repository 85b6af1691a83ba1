#include "cli/resident_runs.h"

#include <algorithm>
#include <chrono>

#include "support/error.h"

namespace sardonyx::cli {
namespace {

constexpr double kGroupSeconds = 0.1;  // long compared with waiting for a stream
constexpr int kMinGroups = 5, kMaxRuns = 10000;

const Model& on_gpu(const Model& m) {
  if (!m.gpu())
    fail(ErrorKind::kUnsupported,
         "--resident: the model runs on the host, whose memory has the inputs and outputs anyway; choose a GPU with "
         "--device");
  return m;
}

}  // namespace

ResidentRuns::ResidentRuns(Model& model, const Inputs& inputs)
    : model_(model), device_(Device::open(on_gpu(model).device_name())), stream_(device_.create_stream()) {
  for (const TensorInfo& info : model.inputs()) {
    const Tensor& t = inputs.tensors.at(info.name);
    memory_.push_back(device_.allocate(std::max<std::size_t>(t.bytes(), 1)));
    device_.copy(memory_.back().get(), t.data, t.bytes(), CopyKind::kToDevice);
    inputs_.push_back({t.dtype, t.dims, memory_.back().get(), true});
  }
  outputs_.resize(model.output_names().size());
}

void ResidentRuns::start() {
  OutputSink sink;
  sink.allocate = [&](std::size_t k, DType dtype, const std::vector<std::int64_t>& dims) {
    std::size_t bytes = size_of(dtype);
    for (const std::int64_t d : dims) bytes *= static_cast<std::size_t>(d);
    Place& p = outputs_[k];
    if (!p.memory || p.bytes != bytes) p = {device_.allocate(std::max<std::size_t>(bytes, 1)), bytes};
    return OutputMemory{p.memory.get(), true};
  };
  RunOptions o;
  o.stream = stream_.get();
  o.synchronize = false;
  model_.run(inputs_, sink, o);
}

void ResidentRuns::wait() { device_.synchronize(stream_.get()); }

BackToBack back_to_back(ResidentRuns& runs, double one, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); };
  BackToBack b;
  b.runs = static_cast<int>(std::clamp(kGroupSeconds / std::max(one, 1e-9), 1.0, static_cast<double>(kMaxRuns)));
  const auto begin = Clock::now();
  while (static_cast<int>(b.groups.size()) < kMinGroups || since(begin) < seconds) {
    const auto t = Clock::now();
    for (int k = 0; k < b.runs; ++k) runs.start();
    runs.wait();
    b.groups.push_back(since(t) / b.runs);
  }
  std::sort(b.groups.begin(), b.groups.end());
  return b;
}

}  // namespace sardonyx::cli
