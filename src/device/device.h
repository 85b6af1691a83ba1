// A GPU: memory, code, launches. HIP and CUDA share one implementation, because their driver interfaces are alike
// (driver.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/tensor_map.h"

namespace sardonyx {

/// The driver interface of a GPU. A simulated GPU uses HIP.
enum class GpuApi { kHip, kCuda };

struct GpuInfo {
  std::string name;          ///< "hip:0", "cuda:1", "sim:gfx942"
  std::string description;   ///< the card's own name
  std::string target;        ///< what code is compiled for: "gfx942", "sm_90"
  std::uint64_t memory = 0;  ///< bytes
  int units = 0;             ///< compute units, multiprocessors
  GpuApi api = GpuApi::kHip;
  bool simulated = false;  ///< by src/sim
};

/// The driver's own handle (CUstream, hipStream_t). Work of one stream runs in order.
using GpuStream = void*;

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
};

/// Work that other code, a vendor's library, enqueues on a stream.
class GpuWork {
 public:
  virtual ~GpuWork() = default;
  /// Enqueues the work. The stream may be capturing: only launches, copies and memsets are allowed. Throws
  /// Error(kDevice).
  virtual void give(GpuStream stream) const = 0;
};

/// A kernel's launch.
struct GpuLaunch {
  void* function = nullptr;        ///< GpuModule::function
  Dim3 grid, block;                ///< workgroups; threads of each
  std::uint32_t shared_bytes = 0;  ///< dynamic LDS (shared memory); see reserve_shared()
  void** arguments = nullptr;      ///< the address of each parameter
  bool starts_early = false;       ///< GpuModule::starts_early() of its code
  const GpuWork* work = nullptr;   ///< if not null, this runs instead of a kernel, and all of the above is unused
};

/// Assembles PTX to machine code for a chip ("sm_90a") and a driver that supports a version of CUDA (12040: 12.4). May
/// be called on any thread. Empty result: the driver has to compile the PTX.
using PtxAssembler =
    std::function<std::optional<std::string>(const std::string& ptx, const std::string& chip, int cuda)>;

/// Code on a GPU, loaded for as long as this object lives.
class GpuModule {
 public:
  virtual ~GpuModule() = default;
  /// A kernel's handle for launch(). Throws Error(kDevice) if there is no kernel of this name. Thread-safe.
  virtual void* function(const char* name) const = 0;
  virtual bool has(const char* name) const = 0;
  /// Whether the first call of function() for a kernel is slow, because the driver then compiles it.
  virtual bool lazy() const = 0;
  /// Whether its kernels wait for the previous launch by themselves, so that a graph may start them while that one
  /// still runs (programmatic dependent launch).
  virtual bool starts_early() const = 0;
};

/// A sequence of launches that is started with one call.
class GpuGraph {
 public:
  virtual ~GpuGraph() = default;
  /// Replaces launch `k` from the next start on.
  virtual void set(std::size_t k, const GpuLaunch& launch) = 0;
  virtual void launch(GpuStream stream) = 0;
};

/// An event: a mark in a stream's work.
class GpuEvent {
 public:
  virtual ~GpuEvent() = default;
  /// Marks the end of the work that `stream` has so far.
  virtual void record(GpuStream stream) = 0;
  /// Blocks the calling thread until the mark is reached; returns at once if nothing was recorded.
  virtual void synchronize() = 0;
  /// Makes later work of `stream` wait for it.
  virtual void wait_in(GpuStream stream) = 0;
};

/// All functions throw Error(kDevice) with the driver's reason, and are thread-safe. They restore the calling thread's
/// current device (context).
class Gpu : public std::enable_shared_from_this<Gpu> {
 public:
  virtual ~Gpu() = default;
  const GpuInfo& info() const { return info_; }
  /// Device memory, aligned to 256 bytes, at least one byte. It is freed with its last owner, at which point the driver
  /// may wait for all work of the device.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  /// Pinned host memory, which the device can access.
  virtual std::shared_ptr<void> allocate_pinned(std::size_t bytes) = 0;
  /// A stream that does not synchronise with the driver's default stream, destroyed with its last owner.
  virtual std::shared_ptr<void> create_stream() = 0;
  virtual std::unique_ptr<GpuEvent> create_event() = 0;

  /// Copies in a stream's order, complete when synchronize(stream) returns. Only copies from pinned host memory are
  /// asynchronous; it must not change until then.
  virtual void upload(void* to, const void* from, std::size_t bytes, GpuStream stream) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes, GpuStream stream) = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes, GpuStream stream) = 0;

  /// Loads a code object (AMD) or zero-terminated PTX (NVIDIA). If `assembler` is given, it makes machine code of each
  /// PTX kernel when that is first used.
  virtual std::shared_ptr<GpuModule> load(const std::string& code, PtxAssembler assembler = {}) = 0;
  /// Must be called once for a kernel before launches with more than 48 KiB of GpuLaunch::shared_bytes.
  virtual void reserve_shared(void* function, std::uint32_t bytes) = 0;
  /// Must be called once for a kernel whose cluster has more blocks than every GPU with clusters must support (8).
  virtual void allow_large_cluster(void* function) = 0;
  /// A descriptor with which kernels copy parts of a tensor at `address` (device memory, aligned to 16 bytes). CUDA
  /// only.
  virtual TensorMap tensor_map(const TensorMapInfo& info, void* address) = 0;
  /// Launches a kernel. The arguments are copied before it returns.
  virtual void launch(const GpuLaunch& launch, GpuStream stream) = 0;
  /// Makes a graph of at least one launch; arguments are copied, and work is recorded. Null if the driver is too old.
  virtual std::unique_ptr<GpuGraph> make_graph(std::span<const GpuLaunch> launches) = 0;
  /// Waits until all work of the stream is done.
  virtual void synchronize(GpuStream stream) = 0;
  /// Waits until all work of the device is done, that of other libraries too.
  virtual void synchronize_device() = 0;
  /// Seconds that all launches so far are estimated to take on a card, where a simulated GPU's clock runs
  /// (docs/amd-clock.md); nothing elsewhere.
  virtual std::optional<double> estimated_seconds() = 0;
  /// Free bytes now.
  virtual std::uint64_t free_memory() = 0;

  /// A thread's current device (HIP) or context (CUDA).
  struct Current {
    int device = 0;
    void* context = nullptr;
  };
  /// While one exists, this GPU is the calling thread's current one, and each call is cheaper. Scopes may be nested.
  class Scope {
   public:
    explicit Scope(Gpu& gpu);
    ~Scope();
    /// Call after code that may have changed the current device.
    void again() { gpu_->make_current(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Gpu* gpu_;
    Gpu* outer_;
    Current before_;
  };

 protected:
  friend class Scope;
  /// Makes this GPU the thread's current one; returns the previous one, for restore().
  virtual Current make_current() = 0;
  virtual void restore(const Current& before) noexcept = 0;
  GpuInfo info_;
};

/// Whether this names a GPU (see open_gpu) rather than "host".
bool is_gpu_name(std::string_view name);
/// Whether it names a simulated GPU.
bool is_simulated_name(std::string_view name);
/// The name of the first card whose driver runs code for a chip ("gfx942"). Throws Error(kUnsupported) if no row of the
/// table of chips has this name.
std::string first_card_for(std::string_view chip);

/// Opens a GPU: "hip" or "cuda" (the first card), "hip:1", or "sim:gfx1100": a simulated AMD card, if the simulator's
/// library is in the same directory as ours. The same name returns the same object. Throws Error(kDevice) with what is
/// missing (driver, card, permission), and Error(kInvalidArgument) for other names.
std::shared_ptr<Gpu> open_gpu(const std::string& name);

/// All usable cards. `problems`: for each driver that is installed but unusable, why.
std::vector<GpuInfo> list_gpus(std::vector<std::string>* problems = nullptr);

}  // namespace sardonyx
