// A GPU: its memory, its code, its launches. One implementation for HIP and CUDA, whose driver interfaces are alike
// (driver.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sardonyx {

struct GpuInfo {
  std::string name;          ///< "hip:0", "cuda:1", "sim:gfx942"
  std::string description;   ///< the card's own name
  std::string target;        ///< what code is compiled for: "gfx942", "sm_90"
  std::uint64_t memory = 0;  ///< bytes
  int units = 0;             ///< compute units, multiprocessors
};

/// Code on a GPU. It stays there for as long as this object lives.
class GpuModule {
 public:
  virtual ~GpuModule() = default;
  /// A kernel's handle for launch(). Throws Error(kDevice) when there is none of this name.
  virtual void* function(const char* name) const = 0;
};

/// All functions throw Error(kDevice) with the driver's reason. Work is done in the order in which it was given;
/// everything may be called from several threads.
class Gpu : public std::enable_shared_from_this<Gpu> {
 public:
  virtual ~Gpu() = default;
  const GpuInfo& info() const { return info_; }

  /// Device memory, at a multiple of 256 bytes; it goes back when the last owner goes. At least one byte.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  /// Copies; `upload` and `download` return when the bytes have arrived.
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  /// A code object (AMD) or PTX text with a terminating zero behind its end (NVIDIA).
  virtual std::shared_ptr<GpuModule> load(const std::string& code) = 0;
  /// Starts `blocks` workgroups of `threads` threads, both along x. `arguments`: the address of each parameter.
  virtual void launch(void* function, std::uint32_t blocks, std::uint32_t threads, void** arguments) = 0;
  /// Waits until all work is done.
  virtual void synchronize() = 0;
  /// Free bytes now.
  virtual std::uint64_t free_memory() = 0;

 protected:
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
