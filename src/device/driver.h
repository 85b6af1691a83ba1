// The few functions of a GPU driver that we use, in the form that HIP and CUDA share (device pointers are 64-bit
// numbers in both).
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/shared_memory.h"

namespace sardonyx {

struct Driver;

/// What differs between HIP and CUDA in more than names: hip_gpu.cpp, cuda_gpu.cpp.
class DriverForm {
 public:
  virtual ~DriverForm() = default;
  virtual std::shared_ptr<Gpu> make_gpu(const Driver& driver, int ordinal, std::string name) const = 0;
  /// Why there may be no cards: "; ..." to append to a message, or "".
  virtual std::string advice() const = 0;
  /// Calls `use` with the address of a graph node's parameters for this launch.
  virtual int with_node(const GpuLaunch& launch, const std::function<int(const void*)>& use) const = 0;
};
const DriverForm& hip_form();
const DriverForm& cuda_form();

struct Driver {
  std::string name;  ///< "hip", "cuda", "sim"
  const DriverForm* form = &hip_form();

  int (*init)(unsigned) = nullptr;
  int (*device_count)(int*) = nullptr;
  int (*device_name)(char*, int, int) = nullptr;
  int (*total_memory)(std::size_t*, int) = nullptr;
  int (*attribute)(int*, int, int) = nullptr;
  int (*malloc)(void**, std::size_t) = nullptr;
  int (*free)(void*) = nullptr;
  int (*malloc_pinned)(void**, std::size_t, unsigned) = nullptr;
  int (*free_pinned)(void*) = nullptr;
  int (*upload)(void*, const void*, std::size_t, void* stream) = nullptr;
  int (*download)(void*, const void*, std::size_t, void* stream) = nullptr;
  int (*copy)(void*, const void*, std::size_t, void* stream) = nullptr;
  int (*memory_info)(std::size_t*, std::size_t*) = nullptr;
  int (*module_load)(void**, const void*) = nullptr;
  int (*module_unload)(void*) = nullptr;
  int (*module_function)(void**, void*, const char*) = nullptr;
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                void**) = nullptr;
  int (*stream_create)(void**, unsigned) = nullptr;
  int (*stream_destroy)(void*) = nullptr;
  int (*stream_synchronize)(void*) = nullptr;
  int (*device_synchronize)() = nullptr;
  int (*stream_wait)(void* stream, void* event, unsigned) = nullptr;
  int (*event_create)(void**, unsigned) = nullptr;
  int (*event_destroy)(void*) = nullptr;
  int (*event_record)(void* event, void* stream) = nullptr;
  int (*event_synchronize)(void*) = nullptr;
  // Graphs; null if the driver lacks them. The parameters of a node differ: see graph.cpp.
  int (*graph_create)(void**, unsigned) = nullptr;
  int (*graph_destroy)(void*) = nullptr;
  int (*graph_add_kernel)(void** node, void* graph, void* const* after, std::size_t, const void* params) = nullptr;
  /// CUDA 12.3 and later: adds dependencies, each with its kind of order (graph.cpp).
  int (*graph_add_order)(void* graph, void* const* from, void* const* to, const void* kinds, std::size_t) = nullptr;
  int (*graph_instantiate)(void** executable, void* graph, unsigned long long) = nullptr;
  int (*graph_set_kernel)(void* executable, void* node, const void* params) = nullptr;
  int (*graph_launch)(void* executable, void* stream) = nullptr;
  int (*graph_release)(void* executable) = nullptr;
  // Captures what others enqueue on a stream, as a child graph; null likewise.
  int (*capture_begin)(void* stream, int mode) = nullptr;
  int (*capture_end)(void* stream, void** graph) = nullptr;
  int (*graph_add_graph)(void** node, void* graph, void* const* after, std::size_t, void* inner) = nullptr;
  int (*graph_set_graph)(void* executable, void* node, void* inner) = nullptr;
  // HIP only.
  int (*set_device)(int) = nullptr;
  int (*get_device)(int*) = nullptr;
  int (*properties)(void*, int) = nullptr;
  const char* (*hip_error)(int) = nullptr;
  const char* (*last_failure)() = nullptr;  ///< the simulator's
  // The simulator's alone: simulated_clock.h.
  int (*configure_simulator)(const char*) = nullptr;
  void (*forget_simulated)() = nullptr;
  const char* (*simulated_launches)() = nullptr;
  const char* (*simulated_timeline)() = nullptr;
  double (*simulated_microseconds)() = nullptr;  ///< the simulator's; see Gpu::estimated_seconds()
  // CUDA only.
  int (*version)(int*) = nullptr;  ///< 12040: CUDA 12.4
  int (*retain_context)(void**, int) = nullptr;
  int (*set_context)(void*) = nullptr;
  int (*get_context)(void**) = nullptr;
  int (*set_function_attribute)(void*, int, int) = nullptr;
  int (*cuda_error)(int, const char**) = nullptr;
  /// CUDA 12.0 and later: map, type of elements, rank, address, dims, strides, box, element strides, then interleave,
  /// swizzle, L2 promotion, and fill of elements outside the tensor.
  int (*encode_tensor_map)(void*, int, unsigned, void*, const std::uint64_t*, const std::uint64_t*,
                           const std::uint32_t*, const std::uint32_t*, int, int, int, int) = nullptr;
  /// Likewise for im2col mode: map, type of elements, rank, address, dims, strides, lower and upper corner, channels,
  /// pixels, element strides, then as above.
  int (*encode_windows_map)(void*, int, unsigned, void*, const std::uint64_t*, const std::uint64_t*,
                            const std::int32_t*, const std::int32_t*, std::uint32_t, std::uint32_t,
                            const std::uint32_t*, int, int, int, int) = nullptr;
  int (*ipc_handle)(MemoryHandle*, void*) = nullptr;
  int (*ipc_open)(void**, MemoryHandle, unsigned) = nullptr;
  int (*ipc_close)(void*) = nullptr;

  std::string error(int code) const;
  /// Throws Error(kDevice) unless `code` is 0.
  void require(int code, const char* what) const;
};

/// The driver of AMD or NVIDIA cards, opened once. Throws Error(kDevice) if it is missing or unusable.
const Driver& hip_driver();
const Driver& cuda_driver();
/// The simulator, with one card of each of AMD's chips, in the order of sim_chips().
const Driver& sim_driver();
const std::vector<std::string>& sim_chips();

/// See Gpu::make_graph; `gpu` must be current.
std::unique_ptr<GpuGraph> make_graph(const Driver& driver, std::shared_ptr<Gpu> gpu,
                                     std::span<const GpuLaunch> launches);

/// Card `ordinal` of a driver, called `name`. Throws Error(kDevice) if it does not exist, or is too old.
std::shared_ptr<Gpu> make_gpu(const Driver& driver, int ordinal, std::string name);

}  // namespace sardonyx
