// Creates the backend for a device.
#pragma once
#include <memory>
#include <string>

#include "compile/ptxas.h"
#include "runtime/backend.h"

namespace sardonyx {

class CodeCache;     // compile/cache.h
class DeviceMemory;  // device/memory.h
class TileTuner;     // runtime/tile_tuner.h

struct BackendOptions {
  std::shared_ptr<DeviceMemory> memory;        ///< of the GPU that runs the program; null: the host
  std::shared_ptr<Communicator> communicator;  ///< for programs with collectives
  bool graphs = true;                          ///< on a GPU: capture runs of known sizes as graphs
  std::shared_ptr<CodeCache> cache;            ///< of machine code from NVIDIA's assembler; null: none
  std::shared_ptr<TileTuner> tuner;            ///< times candidates when sizes are first seen; null: none
  /// The vendor's GEMM library (vendor/gemm_library.h): a path, empty for the usual places, or "off".
  std::string library_path{};
  PtxasSearch ptxas{};  ///< where to look for NVIDIA's assembler
};
std::unique_ptr<Backend> make_backend(BackendOptions options);

}  // namespace sardonyx
