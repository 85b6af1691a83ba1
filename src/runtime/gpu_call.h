// A launch with all arguments except the buffers' addresses: what a GPU step becomes for given sizes.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"
#include "device/tensor_map.h"
#include "vendor/gemm_library.h"

namespace sardonyx {

struct GpuCall {
  GpuLaunch launch;  ///< its arguments point into this object
  std::vector<int> buffers;
  std::vector<void*> addresses;      ///< of the buffers: the first arguments after maps
  std::vector<std::int64_t> values;  ///< the other arguments
  /// A tensor that the copy engine (TMA) reads; maps come before all other arguments.
  struct Map {
    TensorMapInfo info;
    std::size_t buffer = 0, offset = 0;  ///< index into `buffers`; bytes from its start
    TensorMap map;                       ///< for the buffer's current address
  };
  std::vector<Map> maps;
  Gpu* gpu = nullptr;  ///< creates the maps
  std::vector<void*> arguments;

  /// A GEMM of a vendor's library on the buffers a, b, bias, residual, out, workspace (-1: none).
  GpuCall(std::shared_ptr<const GemmPlan> plan, const std::vector<int>& buffers);
  GpuCall(void* function, std::uint32_t blocks, std::uint32_t threads, std::uint32_t shared_bytes,
          std::vector<int> buffers, std::vector<std::int64_t> values);
  GpuCall(const GpuCall&) = delete;
  GpuCall& operator=(const GpuCall&) = delete;
  /// Must be called at most once, before place().
  void add_maps(Gpu& gpu, std::vector<Map> maps);
  /// Sets the buffers' addresses; true if any of them changed.
  bool place(const std::vector<void*>& address);

 private:
  struct LibraryWork;
  std::shared_ptr<LibraryWork> work_;
  std::vector<std::size_t> slots_;  ///< by buffer: its argument of the library call
};

}  // namespace sardonyx
