// Kernel launches: by module function, by host symbol, and by the triple-chevron protocol of clang's host code.
#include <cstring>

#include "sim/api/graph.h"

using namespace sardonyx::sim;

namespace {

constexpr std::size_t kMaxArgumentBytes = 1 << 20;

struct CallConfiguration {
  dim3 grid, block;
  std::size_t shared;
  hipStream_t stream;
};
thread_local std::vector<CallConfiguration> configurations;

hipError_t launch(hipFunction_t f, dim3 grid, dim3 block, std::size_t shared, hipStream_t stream, void** params,
                  void** extra, const std::uint32_t* total = nullptr) {
  return guarded([&] {
    if (!f) return hipErrorInvalidDeviceFunction;
    KernelOp op;
    op.function = f;
    const std::uint32_t g[3] = {grid.x, grid.y, grid.z}, b[3] = {block.x, block.y, block.z};
    for (int d = 0; d < 3; ++d) {
      op.grid[d] = g[d], op.block[d] = b[d];
      if (total) op.total[d] = total[d];
      if (!g[d] || !b[d] || b[d] > 1024) return hipErrorInvalidConfiguration;
    }
    if (static_cast<std::uint64_t>(g[0]) * b[0] > 0xffffffffull ||
        static_cast<std::uint64_t>(g[1]) * b[1] > 0xffffffffull ||
        static_cast<std::uint64_t>(g[2]) * b[2] > 0xffffffffull)
      return hipErrorInvalidConfiguration;
    if (shared > 0xffffffff) return hipErrorInvalidValue;
    op.shared = static_cast<std::uint32_t>(shared);
    if (!packArguments(*f->kernel, params, extra, op.arguments)) return hipErrorInvalidValue;
    ++Runtime::get().kernelLaunches;
    return submit(stream, std::move(op));
  });
}

}  // namespace

namespace sardonyx::sim {

bool packArguments(const Kernel& k, void** params, void** extra, std::vector<std::uint8_t>& out) {
  if (params && extra) return false;
  out.assign(k.explicitBytes(), 0);
  if (extra) {
    const void* buffer = nullptr;
    std::size_t size = 0;
    for (void** e = extra; *e != HIP_LAUNCH_PARAM_END; e += 2) {
      if (e[0] == HIP_LAUNCH_PARAM_BUFFER_POINTER)
        buffer = e[1];
      else if (e[0] == HIP_LAUNCH_PARAM_BUFFER_SIZE)
        size = *static_cast<std::size_t*>(e[1]);
      else
        return false;
    }
    if (!buffer || size > kMaxArgumentBytes) return false;
    std::memcpy(out.data(), buffer, std::min(size, out.size()));
    return size >= out.size();
  }
  std::size_t i = 0;
  for (const KernelArg& a : k.args) {
    if (a.hidden()) continue;
    if (!params || !params[i]) return false;
    std::memcpy(out.data() + a.offset, params[i], a.size);
    ++i;
  }
  return true;
}

}  // namespace sardonyx::sim

extern "C" {

hipError_t hipModuleLaunchKernel(hipFunction_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                 unsigned bz, unsigned shared, hipStream_t stream, void** params, void** extra) {
  return launch(f, {gx, gy, gz}, {bx, by, bz}, shared, stream, params, extra);
}
hipError_t hipModuleLaunchCooperativeKernel(hipFunction_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                            unsigned by, unsigned bz, unsigned shared, hipStream_t stream,
                                            void** params) {
  return launch(f, {gx, gy, gz}, {bx, by, bz}, shared, stream, params, nullptr);
}
hipError_t hipExtModuleLaunchKernel(hipFunction_t f, uint32_t ix, uint32_t iy, uint32_t iz, uint32_t bx, uint32_t by,
                                    uint32_t bz, size_t shared, hipStream_t stream, void** params, void** extra,
                                    hipEvent_t start, hipEvent_t stop, uint32_t) {
  if (!bx || !by || !bz) return lastError() = hipErrorInvalidConfiguration;
  auto groups = [](std::uint64_t items, std::uint32_t block) {
    return static_cast<std::uint32_t>((items + block - 1) / block);
  };
  const std::uint32_t total[3] = {ix, iy, iz};
  if (start)
    if (hipError_t e = hipEventRecord(start, stream); e != hipSuccess) return e;
  hipError_t e =
      launch(f, {groups(ix, bx), groups(iy, by), groups(iz, bz)}, {bx, by, bz}, shared, stream, params, extra, total);
  if (e == hipSuccess && stop) e = hipEventRecord(stop, stream);
  return e;
}
hipError_t hipLaunchKernel(const void* symbol, dim3 grid, dim3 block, void** arguments, size_t shared,
                           hipStream_t stream) {
  hipFunction_t f = nullptr;
  hipError_t e = guarded([&] {
    f = functionOfSymbol(symbol);
    return f ? hipSuccess : hipErrorInvalidDeviceFunction;
  });
  return e == hipSuccess ? launch(f, grid, block, shared, stream, arguments, nullptr) : e;
}
hipError_t hipLaunchCooperativeKernel(const void* symbol, dim3 grid, dim3 block, void** arguments, unsigned int shared,
                                      hipStream_t s) {
  return hipLaunchKernel(symbol, grid, block, arguments, shared, s);
}

hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, hipFunction_t f, int blockSize,
                                                              size_t dynamicLds) {
  return guarded([&] {
    if (!blocks || blockSize <= 0) return hipErrorInvalidValue;
    if (!f) return hipErrorInvalidDeviceFunction;
    const Chip& c = *device().chip;
    const Kernel& k = *f->kernel;
    int waves = (blockSize + k.waveSize - 1) / k.waveSize;
    int byWaves = c.maxWavesPerCu / waves;
    std::size_t lds = k.groupBytes + dynamicLds;
    int byLds = lds ? static_cast<int>(static_cast<std::size_t>(c.ldsBytes) / lds) : byWaves;
    int registers = std::max(1, k.vgprs + k.agprs);
    int perSimd = c.registersPerCu / 4 / k.waveSize / registers;
    *blocks = std::min({byWaves, byLds, std::max(perSimd, 1) * 4 / std::max(waves, 1)});
    return hipSuccess;
  });
}
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* symbol, int blockSize,
                                                        size_t dynamicLds) {
  hipFunction_t f = nullptr;
  hipError_t e = hipGetFuncBySymbol(&f, symbol);
  return e == hipSuccess ? hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(blocks, f, blockSize, dynamicLds) : e;
}
hipError_t hipModuleOccupancyMaxPotentialBlockSize(int* gridSize, int* blockSize, hipFunction_t f, size_t dynamicLds,
                                                   int limit) {
  if (!gridSize || !blockSize) return lastError() = hipErrorInvalidValue;
  if (!f) return lastError() = hipErrorInvalidDeviceFunction;
  *blockSize = static_cast<int>(f->kernel->maxWorkgroup);
  if (limit > 0) *blockSize = std::min(*blockSize, limit);
  int blocks = 0;
  hipError_t e = hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, *blockSize, dynamicLds);
  *gridSize = std::max(blocks, 1) * device().chip->computeUnits;
  return e;
}

// AMD's library exports these two with C++ linkage as well, and programs that include hip_ext.h link to those names.
// Both forms have the same parameters, which C++ cannot declare twice, so that the names are given as symbols.
#pragma GCC visibility push(default)
hipError_t
sardonyxSimExtModuleLaunchKernel(hipFunction_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, size_t, hipStream_t, void**, void**, hipEvent_t, hipEvent_t, uint32_t) __asm__(
    "_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j");
hipError_t
sardonyxSimHccModuleLaunchKernel(hipFunction_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, size_t, hipStream_t, void**, void**, hipEvent_t, hipEvent_t) __asm__(
    "_Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_");
hipError_t sardonyxSimExtModuleLaunchKernel(hipFunction_t f, uint32_t ix, uint32_t iy, uint32_t iz, uint32_t bx,
                                            uint32_t by, uint32_t bz, size_t shared, hipStream_t stream, void** params,
                                            void** extra, hipEvent_t start, hipEvent_t stop, uint32_t flags) {
  return hipExtModuleLaunchKernel(f, ix, iy, iz, bx, by, bz, shared, stream, params, extra, start, stop, flags);
}
hipError_t sardonyxSimHccModuleLaunchKernel(hipFunction_t f, uint32_t ix, uint32_t iy, uint32_t iz, uint32_t bx,
                                            uint32_t by, uint32_t bz, size_t shared, hipStream_t stream, void** params,
                                            void** extra, hipEvent_t start, hipEvent_t stop) {
  return hipExtModuleLaunchKernel(f, ix, iy, iz, bx, by, bz, shared, stream, params, extra, start, stop, 0);
}

hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared, hipStream_t stream) {
  configurations.push_back({grid, block, shared, stream});
  return hipSuccess;
}
hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, hipStream_t* stream) {
  if (configurations.empty()) return lastError() = hipErrorMissingConfiguration;
  *grid = configurations.back().grid;
  *block = configurations.back().block;
  *shared = configurations.back().shared;
  *stream = configurations.back().stream;
  configurations.pop_back();
  return hipSuccess;
}
#pragma GCC visibility pop

}  // extern "C"
