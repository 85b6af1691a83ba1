// A GPU: its memory, its code, its launches. One implementation for HIP and CUDA, whose driver interfaces are alike
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

struct GpuInfo {
  std::string name;          ///< "hip:0", "cuda:1", "sim:gfx942"
  std::string description;   ///< the card's own name
  std::string target;        ///< what code is compiled for: "gfx942", "sm_90"
  std::uint64_t memory = 0;  ///< bytes
  int units = 0;             ///< compute units, multiprocessors
};

/// Which driver a GPU is reached through. A simulated GPU is one of HIP's.
enum class GpuApi { kHip, kCuda };

/// The driver's own handle (CUstream, hipStream_t): work of one stream is done in the order in which it was given.
using GpuStream = void*;

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
};

/// Work that someone else's code gives to a stream: a vendor's library.
class GpuWork {
 public:
  virtual ~GpuWork() = default;
  /// The stream may be one that is captured: only launches, copies and settings of memory. Throws Error(kDevice).
  virtual void give(GpuStream stream) const = 0;
};

/// A kernel's launch.
struct GpuLaunch {
  void* function = nullptr;        ///< GpuModule::function
  Dim3 grid, block;                ///< workgroups; threads of each
  std::uint32_t shared_bytes = 0;  ///< of LDS (shared memory) beyond what the kernel declares; see reserve_shared()
  void** arguments = nullptr;      ///< the address of each parameter
  bool starts_early = false;       ///< GpuModule::starts_early() of its code
  const GpuWork* work = nullptr;   ///< instead of a kernel, which all of the above is for
};

/// Makes machine code for a chip ("sm_90a") with a driver for a version of CUDA (12040: 12.4) from PTX, on any thread.
/// Nothing: the driver shall compile it.
using PtxAssembler =
    std::function<std::optional<std::string>(const std::string& ptx, const std::string& chip, int cuda)>;

/// Code on a GPU. It stays there for as long as this object lives.
class GpuModule {
 public:
  virtual ~GpuModule() = default;
  /// A kernel's handle for launch(). Throws Error(kDevice) when there is none of this name. Safe from many threads.
  virtual void* function(const char* name) const = 0;
  virtual bool has(const char* name) const = 0;
  /// Whether the first call of function() for a kernel takes long: the driver compiles it then.
  virtual bool lazy() const = 0;
  /// Whether its kernels wait by themselves for the launch before them, so that a graph may start them while that one
  /// still runs.
  virtual bool starts_early() const = 0;
};

/// Launches, one after the other, that are started with one call.
class GpuGraph {
 public:
  virtual ~GpuGraph() = default;
  /// Replaces launch `k` in later starts.
  virtual void set(std::size_t k, const GpuLaunch& launch) = 0;
  virtual void launch(GpuStream stream) = 0;
};

/// A mark in a stream's work.
class GpuEvent {
 public:
  virtual ~GpuEvent() = default;
  /// Marks the end of the work that `stream` has now.
  virtual void record(GpuStream stream) = 0;
  /// Waits, on the CPU, until the mark is reached; at once if nothing was recorded.
  virtual void synchronize() = 0;
  /// Makes later work of `stream` wait for it.
  virtual void wait_in(GpuStream stream) = 0;
};

/// All functions throw Error(kDevice) with the driver's reason, and may be called from several threads. The calling
/// thread's current device (context) is the same afterwards.
class Gpu : public std::enable_shared_from_this<Gpu> {
 public:
  virtual ~Gpu() = default;
  const GpuInfo& info() const { return info_; }
  virtual GpuApi api() const = 0;

  /// Device memory, at a multiple of 256 bytes; it goes back when the last owner goes, for which the driver may wait
  /// for all work of the device. At least one byte.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  /// Memory of the host that the device reaches by itself ("pinned").
  virtual std::shared_ptr<void> allocate_pinned(std::size_t bytes) = 0;
  /// A stream that does not wait for the driver's default one, destroyed with its last owner.
  virtual std::shared_ptr<void> create_stream() = 0;
  virtual std::unique_ptr<GpuEvent> create_event() = 0;

  /// Copies in a stream's order. They are done by the time that synchronize(stream) returns; host memory must be pinned
  /// for them to be asynchronous, and must stay as it is until then.
  virtual void upload(void* to, const void* from, std::size_t bytes, GpuStream stream) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes, GpuStream stream) = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes, GpuStream stream) = 0;

  /// A code object (AMD) or PTX text with a terminating zero behind its end (NVIDIA), whose kernels `assembler`, if
  /// given, makes machine code of when they are first asked for.
  virtual std::shared_ptr<GpuModule> load(const std::string& code, PtxAssembler assembler = {}) = 0;
  /// Must be called once for a kernel before launches with more than 48 KiB of GpuLaunch::shared_bytes.
  virtual void reserve_shared(void* function, std::uint32_t bytes) = 0;
  /// What lets kernels copy parts of a tensor at `address` (device memory, a multiple of 16 bytes). On CUDA only.
  virtual TensorMap tensor_map(const TensorMapInfo& info, void* address) = 0;
  /// Starts a kernel. The arguments are copied before it returns.
  virtual void launch(const GpuLaunch& launch, GpuStream stream) = 0;
  /// Null if the driver is too old for it. At least one launch; the arguments are copied, and work is recorded.
  virtual std::unique_ptr<GpuGraph> make_graph(std::span<const GpuLaunch> launches) = 0;
  /// Waits until all work of the stream is done.
  virtual void synchronize(GpuStream stream) = 0;
  /// Free bytes now.
  virtual std::uint64_t free_memory() = 0;

  /// A thread's current device (HIP) or context (CUDA).
  struct Current {
    int device = 0;
    void* context = nullptr;
  };
  /// While one lives, this GPU is the calling thread's current one, and each call is cheaper. Scopes may be nested.
  class Scope {
   public:
    explicit Scope(Gpu& gpu);
    ~Scope();
    /// After calls of code that may have chosen another device.
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
  /// Makes this GPU the thread's current one; returns what was, for restore().
  virtual Current make_current() = 0;
  virtual void restore(const Current& before) noexcept = 0;
  GpuInfo info_;
};

/// Whether this is a GPU's name (see open_gpu) rather than "host".
bool is_gpu_name(std::string_view name);

/// "hip", "cuda" (the first card), "hip:1", or "sim:gfx1100": a simulated AMD card, if the library of the simulator is
/// beside ours. The same name gives the same object. Throws Error(kDevice) with what is missing: driver, card,
/// permission; Error(kInvalidArgument) for other names.
std::shared_ptr<Gpu> open_gpu(const std::string& name);

/// Every card that can be used. `problems`: for each driver that is there but can't be used, why.
std::vector<GpuInfo> list_gpus(std::vector<std::string>* problems = nullptr);

}  // namespace sardonyx
