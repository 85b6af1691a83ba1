// Sums and concatenations through NVIDIA's NCCL or AMD's RCCL, which have the same interface and are loaded at run
// time.
//
// Their kernels wait for the other cards indefinitely. A thread watches whether the other processes are alive, and
// aborts the library's work if one is not. Then waits for the stream return, and the next check() reports what
// happened.
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "collective/peer.h"
#include "collective/transports.h"
#include "support/error.h"

namespace sardonyx {
namespace {

constexpr auto kWatch = std::chrono::milliseconds(50);     // how often other processes are looked at
constexpr auto kFarewell = std::chrono::milliseconds(10);  // longer than a step's reads of this card's memory
constexpr int kSum = 0;                                    // ncclSum

struct UniqueId {
  Group::LibraryId bytes;
};

struct Library {
  std::string name;
  int (*get_id)(UniqueId*) = nullptr;
  int (*init)(void** comm, int size, UniqueId id, int rank) = nullptr;
  int (*all_reduce)(const void*, void*, std::size_t, int type, int op, void* comm, void* stream) = nullptr;
  int (*all_gather)(const void*, void*, std::size_t, int type, void* comm, void* stream) = nullptr;
  int (*destroy)(void* comm) = nullptr;
  int (*abort)(void* comm) = nullptr;
  int (*async_error)(void* comm, int* error) = nullptr;
  const char* (*text)(int) = nullptr;

  void require(int code, const char* what) const {
    if (code != 0) fail(ErrorKind::kDevice, "{}: {} failed: {}", name, what, text(code));
  }
};

Library open_library(bool nvidia, const std::filesystem::path& path) {
  Library l;
  l.name = nvidia ? "NCCL" : "RCCL";
  const std::string file = !path.empty() ? path.string() : nvidia ? "libnccl.so.2" : "librccl.so.1";
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* why = dlerror();
    fail(ErrorKind::kUnsupported,
         "several {} GPUs need {}, which can't be opened ({}): install {}, or give the library's path; the transport "
         "'host' works without it, but is slow",
         nvidia ? "NVIDIA" : "AMD", l.name, why ? why : file,
         nvidia ? "libnccl2 or PyPI's nvidia-nccl-cu12 (-cu13)" : "ROCm's rccl");
  }
  const auto find = [&](auto& to, const char* symbol) {
    void* f = dlsym(handle, symbol);
    if (!f) fail(ErrorKind::kUnsupported, "{} has no {}: it is too old; install 2.7 or newer", file, symbol);
    to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(f);
  };
  find(l.get_id, "ncclGetUniqueId");
  find(l.init, "ncclCommInitRank");
  find(l.all_reduce, "ncclAllReduce");
  find(l.all_gather, "ncclAllGather");
  find(l.destroy, "ncclCommDestroy");
  find(l.abort, "ncclCommAbort");
  find(l.async_error, "ncclCommGetAsyncError");
  find(l.text, "ncclGetErrorString");
  return l;
}

// ncclDataType_t
int type_of(DType t) {
  switch (t) {
    case DType::kInt8:
      return 0;
    case DType::kUInt8:
      return 1;
    case DType::kInt32:
      return 2;
    case DType::kUInt32:
      return 3;
    case DType::kInt64:
      return 4;
    case DType::kUInt64:
      return 5;
    case DType::kFloat16:
      return 6;
    case DType::kFloat32:
      return 7;
    case DType::kFloat64:
      return 8;
    case DType::kBFloat16:
      return 9;
    default:
      fail(ErrorKind::kUnsupported, "a sum over devices of {} elements", name(t));
  }
}

class LibraryCommunicator : public Communicator, public LaunchedCollectives {
 public:
  LibraryCommunicator(std::unique_ptr<Group> group, std::shared_ptr<Gpu> gpu, const GroupOptions& options)
      : Communicator(group->rank(), group->size()), group_(std::move(group)), gpu_(std::move(gpu)) {
    try {
      library_ = open_library(gpu_->info().api == GpuApi::kCuda, options.library);
      UniqueId id{};
      const Gpu::Scope scope(*gpu_);
      if (rank() == 0) library_.require(library_.get_id(&id), "making a group");
      group_->share_id(id.bytes);
      join(id, options.timeout_seconds);
      if (options.transport == "auto") peer_ = PeerExchange::make(*group_, gpu_);
    } catch (const Error& error) {
      group_->fail(error.what());  // so that the others do not wait for this process
      throw;
    }
    watcher_ = std::thread([this] { watch(); });
  }

  ~LibraryCommunicator() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    wake_.notify_all();
    watcher_.join();
    // Others may still be reading this card's part of the last step.
    if (peer_) std::this_thread::sleep_for(kFarewell);
    try {
      const Gpu::Scope scope(*gpu_);
      if (!comm_) return;
      if (group_->broken())
        library_.abort(comm_);
      else
        library_.destroy(comm_);
    } catch (const Error&) {
      return;  // the driver is already unloaded
    }
  }

  void all_reduce(const void* in, void* out, std::size_t elements, DType dtype, void* stream) override {
    const int type = type_of(dtype);
    if (const auto l = sum_launch(elements, dtype)) return start(*l, in, out, stream);
    give([&](void* comm) { return library_.all_reduce(in, out, elements, type, kSum, comm, stream); }, "a sum");
  }
  void all_gather(const void* in, void* out, std::size_t bytes, void* stream) override {
    if (const auto l = gather_launch(bytes)) return start(*l, in, out, stream);
    give([&](void* comm) { return library_.all_gather(in, out, bytes, type_of(DType::kUInt8), comm, stream); },
         "a gathering");
  }
  std::optional<PeerLaunch> sum_launch(std::size_t elements, DType dtype) const override {
    return peer_ ? peer_->sum(elements, dtype) : std::nullopt;
  }
  std::optional<PeerLaunch> gather_launch(std::size_t bytes) const override {
    return peer_ ? peer_->gather(bytes) : std::nullopt;
  }
  void begin_launches(std::size_t count) const override { group_->begin(count); }
  void check() override { group_->check(); }
  void fail(const std::string& why) noexcept override { group_->fail(why); }

 private:
  void start(const PeerLaunch& l, const void* in, void* out, void* stream) {
    group_->begin(1);
    std::vector<std::int64_t> values = l.values;
    std::vector<void*> arguments = {static_cast<void*>(&in), static_cast<void*>(&out)};
    for (std::int64_t& v : values) arguments.push_back(&v);
    gpu_->launch({l.function, {l.blocks}, {PeerExchange::kThreads}, 0, arguments.data()}, stream);
  }

  template <typename F>
  void give(const F& f, const char* what) {
    group_->begin(1);
    const Gpu::Scope scope(*gpu_);
    // Without a lock: the call may wait for other processes, and must be abortable meanwhile.
    void* comm = comm_;
    if (!comm) group_->check();
    library_.require(f(comm), what);
  }

  // The library's call may never return if a process ends meanwhile. It gets a thread, which is abandoned then.
  void join(const UniqueId& id, double timeout) {
    auto made = std::make_shared<std::promise<std::pair<int, void*>>>();
    auto result = made->get_future();
    std::thread([made, id, library = library_, gpu = gpu_, size = size(), rank = rank()] {
      try {
        const Gpu::Scope scope(*gpu);
        void* comm = nullptr;
        const int code = library.init(&comm, size, id, rank);
        made->set_value({code, comm});
      } catch (...) {
        made->set_exception(std::current_exception());
      }
    }).detach();
    const auto start = std::chrono::steady_clock::now();
    while (result.wait_for(kWatch) != std::future_status::ready) {
      if (group_->broken()) group_->check();
      if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > timeout)
        sardonyx::fail(ErrorKind::kDevice, "{} has not connected the GPUs within {:.0f} s", library_.name, timeout);
    }
    const auto [code, comm] = result.get();
    library_.require(code, "connecting the cards");
    comm_ = comm;
  }

  void watch() {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, kWatch, [&] { return ending_; })) {
      int error = 0;
      if (library_.async_error(comm_, &error) == 0 && error != 0 && error != kInProgress)
        group_->fail(library_.name + ": " + library_.text(error));
      if (!group_->broken()) continue;
      if (peer_) peer_->abort();
      try {
        const Gpu::Scope scope(*gpu_);
        library_.abort(comm_.exchange(nullptr));
      } catch (const Error&) {
        return;  // the driver is already unloaded
      }
      return;
    }
  }

  static constexpr int kInProgress = 7;  // ncclInProgress

  std::unique_ptr<Group> group_;
  std::shared_ptr<Gpu> gpu_;
  Library library_;
  std::unique_ptr<PeerExchange> peer_;  // null: everything goes through the library
  std::atomic<void*> comm_ = nullptr;
  std::mutex mutex_;  // of ending_
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread watcher_;
};

}  // namespace

std::shared_ptr<Communicator> library_communicator(std::unique_ptr<Group> group, std::shared_ptr<Gpu> gpu,
                                                   const GroupOptions& options) {
  return std::make_shared<LibraryCommunicator>(std::move(group), std::move(gpu), options);
}

}  // namespace sardonyx
