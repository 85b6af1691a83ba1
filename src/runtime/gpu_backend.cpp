#include "runtime/gpu_backend.h"

#include <algorithm>

#include "program/routine_names.h"
#include "runtime/needed_kernels.h"
#include "support/tasks.h"
#include "support/warning.h"

namespace sardonyx {
namespace {
constexpr std::uint32_t kSharedWithoutReserving = 48 << 10;  // CUDA's limit without an attribute of the function
}  // namespace

GpuBackend::GpuBackend(BackendOptions options)
    : Backend(options.communicator), options_(std::move(options)), memory_(options_.memory), gpu_(memory_->gpu()) {}

// Of a complete program all code is checked and loaded here; machine code that may still be compiling, and PTX, when it
// is needed.
void GpuBackend::load(const Program& program, int threads) {
  program_ = &program;
  threads_ = threads;
  modules_ = std::vector<Module>(program.objects.size());
  kernels_ = std::vector<std::atomic<void*>>(program.kernels.size());
  if (!program.objects.done()) return;
  for (std::size_t k = 0; k < program.kernels.size(); ++k)
    if (!module(program.kernels[k].object).lazy()) kernel(static_cast<int>(k));
}

const GpuModule& GpuBackend::module(int object) const {
  const auto at = static_cast<std::size_t>(object);
  Module& m = modules_[at];
  std::call_once(m.once, [&] {
    auto code = load_object(program_->objects[at]);
    for (const KernelInfo& k : program_->kernels)
      check(k.object != object || code->has(k.symbol.c_str()), "kernel {} is not in the compiled code", k.symbol);
    m.code = std::move(code);
  });
  return *m.code;
}

void* GpuBackend::kernel(int number) const {
  const auto at = static_cast<std::size_t>(number);
  if (void* known = kernels_[at]) return known;
  const KernelInfo& info = program_->kernels[at];
  void* made = module(info.object).function(info.symbol.c_str());
  if (info.spec.shared_bytes > 0) gpu_.reserve_shared(made, info.spec.shared_bytes);
  if (info.spec.bounds.cluster > kPortableCluster) gpu_.allow_large_cluster(made);
  kernels_[at] = made;
  return made;
}

std::vector<std::size_t> GpuBackend::taken(const Choice& c, const SymbolValues& symbols) const {
  const int units = gpu_.info().units;
  if (tuner() && c.candidates.size() > 1)
    return tuner()->wanted(c.problem, sizes_of(c, symbols), names_of(c), by_cost(c, symbols, units));
  return {chosen_candidate(c, symbols, units)};
}

void GpuBackend::make_kernels(const Block& b, const RunState& run) {
  std::vector<int> missing;
  for (const int k : needed_kernels(b, run, [this](const auto&... sizes) { return taken(sizes...); }))
    if (!has_kernel(k)) missing.push_back(k);
  if (missing.empty()) return;
  // First one kernel of each object, so that no thread waits for an object that another one is compiling.
  std::map<int, int> seen;
  std::vector<std::pair<int, int>> order;
  for (const int k : missing) order.emplace_back(seen[program_->kernels[static_cast<std::size_t>(k)].object]++, k);
  std::sort(order.begin(), order.end());
  const BackgroundTexts::Pause pause;
  run_tasks(order.size(), threads_, [&](std::size_t k) { kernel(order[k].second); });
}

std::shared_ptr<GpuCall> GpuBackend::call(int number, std::uint32_t blocks, std::uint32_t threads,
                                          std::vector<int> buffers, std::vector<std::int64_t> values) const {
  const auto at = static_cast<std::size_t>(number);
  auto made = std::make_shared<GpuCall>(kernel(number), blocks, threads, program_->kernels[at].spec.shared_bytes,
                                        std::move(buffers), std::move(values));
  made->launch.starts_early = module(program_->kernels[at].object).starts_early();
  return made;
}

std::shared_ptr<GpuCall> GpuBackend::grid_call(int number, const GridSizes& s, std::vector<int> buffers,
                                               std::vector<std::int64_t> values) const {
  auto made = call(number, 1, 1, std::move(buffers), std::move(values));
  const auto dim = [](const std::array<std::int64_t, 3>& n) {
    return Dim3{static_cast<std::uint32_t>(n[0]), static_cast<std::uint32_t>(n[1]), static_cast<std::uint32_t>(n[2])};
  };
  made->launch.grid = dim(s.grid);
  made->launch.block = dim(s.block);
  made->launch.shared_bytes = static_cast<std::uint32_t>(s.shared);
  const std::lock_guard lock(reserve_mutex_);
  std::uint32_t& reserved = reserved_[number];
  if (made->launch.shared_bytes > reserved && made->launch.shared_bytes > kSharedWithoutReserving) {
    gpu_.reserve_shared(made->launch.function, made->launch.shared_bytes);
    reserved = made->launch.shared_bytes;
  }
  return made;
}

std::shared_ptr<const GemmLibrary> GpuBackend::gemm_library() const {
  std::string why;
  auto library = open_gemm_library(memory_->shared_gpu(), options_.library_path, why);
  if (!library && (!options_.library_path.empty() || !options_.tuner) && !library_warned_.exchange(true))
    warn(fmt::format("the vendor's GEMM library is not used, our own kernels are: {}", why));
  return library;
}

std::unique_ptr<Queue> GpuBackend::create_queue() { return std::make_unique<GpuQueue>(*this); }

GpuQueue::GpuQueue(GpuBackend& backend)
    : backend_(backend),
      gpu_(backend.gpu()),
      own_stream_(gpu_.create_stream()),
      stream_(own_stream_.get()),
      pool_(std::make_shared<MemoryPool>(backend.memory())),
      transfers_(std::make_unique<GpuTransfers>(backend.memory()->shared_gpu())),
      done_(gpu_.create_event()) {}

void GpuQueue::begin(const RunOptions& options) {
  scope_.emplace(gpu_);
  stream_ = options.stream ? options.stream : own_stream_.get();
  if (!pending_) return;
  done_->wait_in(stream_);
  pending_ = false;
}

// The caller's code may have changed the thread's current device.
void GpuQueue::resume() {
  if (scope_) scope_->again();
}

// Waits for the work of a failed run here, unless it is on a stream of the caller's.
void GpuQueue::end(bool finished) noexcept {
  try {
    if (!finished) {
      done_->record(stream_);
      pending_ = true;
      if (stream_ == own_stream_.get()) finish();
    }
  } catch (const Error&) {
    pending_ = false;  // the device is lost; the next call reports it
  }
  stream_ = own_stream_.get();
  scope_.reset();
}

void GpuQueue::finish() noexcept {
  if (!pending_) return;
  pending_ = false;
  try {
    done_->synchronize();
  } catch (const Error&) {
    return;  // the device is lost; the next call reports it
  }
}

void* GpuQueue::arrived() {
  if (!arrived_) {
    const std::vector<std::uint32_t> zeros(kMostTreeGroups);
    std::shared_ptr<void> made = backend_.memory()->allocate(zeros.size() * sizeof(std::uint32_t));
    upload(made.get(), zeros.data(), zeros.size() * sizeof(std::uint32_t));
    arrived_ = std::move(made);
  }
  return arrived_.get();
}

void GpuQueue::start(GpuCall& call, const RunState& run) {
  call.place(run.address);
  for (std::size_t k = 0; k < call.addresses.size(); ++k)
    check(call.addresses[k] != nullptr || run.bytes(call.buffers[k]) == 0, "buffer {} is not in memory",
          call.buffers[k]);
  gpu_.launch(call.launch, stream_);
}

double GpuQueue::time(const GpuCalls& calls, const RunState& run) {
  double seconds = 0;
  for (const auto& call : calls) {
    call->place(run.address);
    seconds += backend_.tuner()->timer(gpu_, call->launch, stream_);
  }
  return seconds;
}

}  // namespace sardonyx
