#include "migraphx/device_memory.h"

#include <cstring>

#include "device/device.h"
#include "device/memory.h"
#include "migraphx/argument.h"
#include "migraphx/program.h"
#include "migraphx/shape.h"
#include "sardonyx/sardonyx.h"
#include "support/error.h"

namespace sardonyx::mgx {
namespace {

/// Null: the host takes the place of the device.
std::shared_ptr<Gpu> gpu() {
  const std::string name = gpu_device();
  return is_gpu_name(name) ? open_gpu(name) : nullptr;
}

}  // namespace

migraphx_argument allocate_on_gpu(const migraphx_shape& shape, bool pinned) {
  if (shape.is_dynamic()) fail(ErrorKind::kInvalidArgument, "an argument needs a shape that is not dynamic");
  const std::shared_ptr<Gpu> device = gpu();
  if (!device) return zeros(shape);
  dtype_of(shape.type);
  migraphx_argument a;
  a.shape = shape;
  a.owner = pinned ? device->allocate_pinned(bytes_of(shape)) : device->allocate(bytes_of(shape));
  a.data = a.owner.get();
  a.on_device = !pinned;
  return a;
}

migraphx_argument to_gpu(const migraphx_argument& a, bool pinned) {
  if (a.on_device) fail(ErrorKind::kInvalidArgument, "the argument is in device memory already");
  migraphx_argument copy = allocate_on_gpu(a.shape, pinned);
  const std::size_t size = bytes_of(a.shape);
  if (size > 0 && a.data == nullptr) fail(ErrorKind::kInvalidArgument, "the argument has no data");
  if (size == 0) return copy;
  if (!copy.on_device) {
    std::memcpy(copy.data, a.data, size);
    return copy;
  }
  const std::shared_ptr<Gpu> device = gpu();
  const std::shared_ptr<void> stream = device->create_stream();
  GpuTransfers(device).upload(copy.data, a.data, size, stream.get());
  device->synchronize(stream.get());
  return copy;
}

migraphx_argument from_gpu(const migraphx_argument& a) {
  const std::shared_ptr<Gpu> device = gpu();
  if (device && !a.on_device) fail(ErrorKind::kInvalidArgument, "the argument is not in device memory");
  migraphx_argument copy = zeros(a.shape);
  const std::size_t size = bytes_of(a.shape);
  if (size == 0) return copy;
  if (!device) {
    std::memcpy(copy.data, a.data, size);
    return copy;
  }
  synchronize_gpu();  // what computes it may be enqueued in any stream
  const std::shared_ptr<void> stream = device->create_stream();
  GpuTransfers(device).download(copy.data, a.data, size, stream.get());
  return copy;
}

void synchronize_gpu() {
  if (const std::shared_ptr<Gpu> device = gpu()) device->synchronize_device();
}

}  // namespace sardonyx::mgx
