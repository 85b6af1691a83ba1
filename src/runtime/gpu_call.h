// A launch with all arguments but the buffers' addresses: what a step for a GPU becomes for given sizes.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"
#include "device/tensor_map.h"
#include "vendor/product_library.h"

namespace sardonyx {

struct GpuCall {
  GpuLaunch launch;  ///< its arguments are `arguments`
  std::vector<int> buffers;
  std::vector<void*> addresses;      ///< of them: the first arguments, but for maps
  std::vector<std::int64_t> values;  ///< the further arguments
  /// Of a tensor that the card's copy engine reads; before all other arguments.
  struct Map {
    TensorMapInfo info;
    std::size_t buffer = 0, offset = 0;  ///< index into `buffers`; bytes from its start
    TensorMap map;                       ///< for its address
  };
  std::vector<Map> maps;
  Gpu* gpu = nullptr;  ///< that makes them
  std::vector<void*> arguments;

  /// A product of a vendor's library on the buffers a, b, bias, residual, out, workspace (-1: none).
  GpuCall(std::shared_ptr<const ProductPlan> plan, const std::vector<int>& buffers);
  GpuCall(void* function, std::uint32_t blocks, std::uint32_t threads, std::uint32_t shared_bytes,
          std::vector<int> buffers, std::vector<std::int64_t> values);
  GpuCall(const GpuCall&) = delete;
  GpuCall& operator=(const GpuCall&) = delete;
  /// Once, before place().
  void add_maps(Gpu& gpu, std::vector<Map> maps);
  /// Puts the buffers' addresses in place; true if any is another than before.
  bool place(const std::vector<void*>& address);

 private:
  struct LibraryWork;
  std::shared_ptr<LibraryWork> work_;
  std::vector<std::size_t> slots_;  ///< by buffer: its place in the library's call
};

}  // namespace sardonyx
