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

/// A row-major tensor in the caller's memory, which must stay valid and unchanged until the runs that read it are done.
struct TensorView {
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> dims;
  const void* data = nullptr;  ///< may be null if there are no elements
  bool on_device = false;      ///< in the memory of the model's device, not of the host; "host" has one memory
};

/// The memory of a row-major output. It may be that of an input, which is then overwritten (a KV cache that is appended
/// to), but must not overlap another output. If two inputs are also outputs, they cannot be exchanged in place: the run
/// throws kInvalidArgument. Device memory should be aligned to 16 bytes; otherwise the output is copied there.
struct OutputMemory {
  void* data = nullptr;  ///< may be null if there are no elements
  bool on_device = false;
};

/// Returns memory for an output (by its index in CompiledModel::outputs()) of this dtype and these dims. Called once
/// per output of a run, in the thread of the run, as soon as the dims are known. An exception ends the run and is
/// passed to its caller.
using OutputAllocator =
    std::function<OutputMemory(std::size_t index, DType dtype, const std::vector<std::int64_t>& dims)>;

enum class CopyKind { kToDevice, kToHost, kOnDevice };

/// A device by its name: memory, copies, streams. A stream is the driver's (CUstream, hipStream_t): its work
/// is executed in order. On "host" streams are null, and all calls are synchronous. All functions throw
/// Error(kDevice) with the driver's reason, and are thread-safe. Copies of a Device object denote the same
/// device.
class Device {
 public:
  /// "host", "hip", "cuda:1", ...; see devices(). Throws kDevice for a GPU that cannot be used, kInvalidArgument for
  /// other names.
  static Device open(const std::string& name);
  DeviceInfo info() const;

  /// Device memory, aligned to 64 bytes (GPUs: 256). It is freed with its last owner.
  std::shared_ptr<void> allocate(std::size_t bytes) const;
  /// Host memory that the device can access, so that copies from and to it need no staging.
  std::shared_ptr<void> allocate_pinned(std::size_t bytes) const;
  /// A stream, destroyed with its last owner; null on the host.
  std::shared_ptr<void> create_stream() const;

  /// Copies bytes. Without a stream, the copy is complete when the call returns. With one, it is enqueued on it; host
  /// memory should be pinned, and must not change until the copy is done.
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
