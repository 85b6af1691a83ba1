// For tests of device code: the GPUs to test on, and kernels compiled from text.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "compile/compiler.h"
#include "device/device.h"
#include "kernel_sources.h"

namespace sardonyx {

/// Names for open_gpu(): SARDONYX_TEST_DEVICES ("cuda hip:0"), else every simulated chip.
inline std::vector<std::string> test_devices() {
  if (const char* named = std::getenv("SARDONYX_TEST_DEVICES")) {
    std::istringstream words(named);
    std::vector<std::string> out;
    for (std::string w; words >> w;) out.push_back(w);
    return out;
  }
  return {"sim:gfx90a", "sim:gfx942", "sim:gfx950", "sim:gfx1100", "sim:gfx1201"};
}

/// Compiles `source` (the kernels' headers are at hand) for the GPU and loads it.
inline std::shared_ptr<GpuModule> load_kernels(Gpu& gpu, const std::string& source) {
  std::vector<SourceFile> headers;
  for (const EmbeddedFile& f : kKernelSources) headers.push_back({f.name, std::string(f.text())});
  return gpu.load(compile(source, headers, parse_target(gpu.info().target)));
}

/// A copy of `data` on the GPU.
template <class T>
std::shared_ptr<void> on_gpu(Gpu& gpu, const std::vector<T>& data) {
  auto p = gpu.allocate(data.size() * sizeof(T));
  gpu.upload(p.get(), data.data(), data.size() * sizeof(T), nullptr);
  gpu.synchronize(nullptr);
  return p;
}

/// `data` from the GPU, after all that was started.
template <class T>
void from_gpu(Gpu& gpu, std::vector<T>& data, const void* p) {
  gpu.download(data.data(), p, data.size() * sizeof(T), nullptr);
  gpu.synchronize(nullptr);
}

/// Starts a kernel on the default stream.
inline void start(Gpu& gpu, void* function, Dim3 grid, Dim3 block, void** arguments, std::uint32_t shared_bytes = 0) {
  gpu.reserve_shared(function, shared_bytes);
  gpu.launch({function, grid, block, shared_bytes, arguments}, nullptr);
}

}  // namespace sardonyx
