// Memory of the devices that models run on, and tensors in it.
//
//   sardonyx::Device device = sardonyx::Device::open("hip");
//   std::shared_ptr<void> stream = device.create_stream();
//   std::shared_ptr<void> x = device.allocate(4 * 256), y;
//   device.copy(x.get(), values, 4 * 256, sardonyx::CopyKind::kToDevice, stream.get());
//   sardonyx::RunOptions options;
//   options.stream = stream.get();
//   options.synchronize = false;
//   model.run({{sardonyx::DType::kFloat32, {256}, x.get(), true}},
//             [&](std::size_t, sardonyx::DType, const std::vector<std::int64_t>& dims) {
//               y = device.allocate(bytes_of(dims));
//               return sardonyx::OutputMemory{y.get(), true};
//             },
//             options);
//   device.synchronize(stream.get());
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sardonyx/dtype.h"
#include "sardonyx/options.h"

namespace sardonyx {

/// A row-major tensor in somebody's memory, which must stay valid and unchanged until the run that reads it is done.
struct TensorView {
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> dims;
  const void* data = nullptr;  ///< may be null if there are no elements
  bool on_device = false;      ///< in memory of the model's device rather than the host's; "host" has one memory
};

/// Where an output goes, row-major. It may be the very memory of an input, which is gone then (a cache that is appended
/// to); it must not overlap with another output. Inputs that are outputs themselves can't swap places: the run throws
/// kInvalidArgument. Of the model's device it must be at a multiple of 64 bytes.
struct OutputMemory {
  void* data = nullptr;  ///< may be null if there are no elements
  bool on_device = false;
};

/// Gives memory for an output (by its index in CompiledModel::outputs()) of this dtype and these dims. Called once for
/// each output of a run, from the thread that runs, as soon as the dims are known. What it throws ends the run and
/// reaches its caller.
using OutputAllocator =
    std::function<OutputMemory(std::size_t index, DType dtype, const std::vector<std::int64_t>& dims)>;

enum class CopyKind { kToDevice, kToHost, kOnDevice };

/// A device by its name: memory, copies, streams. A stream is the driver's own (CUstream, hipStream_t): work given to
/// one is done in order. On "host" streams are null, and everything is done when a call returns. All functions throw
/// Error(kDevice) with the driver's reason; all may be called from many threads. Copies of a Device are the same
/// device.
class Device {
 public:
  /// "host", "hip", "cuda:1", ...; see devices(). Throws kDevice for a card that can't be used, kInvalidArgument for
  /// other names.
  static Device open(const std::string& name);
  DeviceInfo info() const;

  /// Memory of the device, at a multiple of 64 bytes (GPUs: 256). It goes back with its last owner.
  std::shared_ptr<void> allocate(std::size_t bytes) const;
  /// Memory of the host that the device reads and writes by itself: copies from and to it need no staging.
  std::shared_ptr<void> allocate_pinned(std::size_t bytes) const;
  /// A stream, destroyed with its last owner; null on the host.
  std::shared_ptr<void> create_stream() const;

  /// Copies bytes. Without a stream they have arrived when it returns; with one, they arrive in its order, the host's
  /// memory should be pinned, and must stay as it is until then.
  void copy(void* to, const void* from, std::size_t bytes, CopyKind kind, void* stream = nullptr) const;
  /// Waits for a stream's work.
  void synchronize(void* stream) const;
  /// Free bytes now.
  std::uint64_t free_memory() const;

 private:
  struct Impl;
  explicit Device(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

}  // namespace sardonyx
