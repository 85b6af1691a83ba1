// What a step of a program becomes for given sizes: everything that can be worked out before the tensors are there.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "host/attention.h"
#include "host/gemm.h"
#include "host/tile_kernel.h"
#include "runtime/gpu_call.h"

namespace sardonyx {

struct PreparedLaunch {
  std::vector<std::int64_t> values;  ///< what the code takes after the buffers
  std::int64_t points = 0, grain = 1;
  std::vector<std::shared_ptr<GpuCall>> calls;  ///< on a GPU, if there is something to compute
};

struct PreparedTileLaunch {
  std::vector<std::shared_ptr<GpuCall>> calls;  ///< none if there is nothing to compute
  std::string library;                          ///< not empty: `calls` is this candidate of a vendor's library
  std::vector<std::shared_ptr<GpuCall>> own;    ///< then: what to do should that fail
  mutable bool failed = false;                  ///< it did

  const std::vector<std::shared_ptr<GpuCall>>& current() const { return failed ? own : calls; }
};

/// A gemm or a convolution. Numbers of buffers; -1: none.
struct PreparedTile {
  bool empty = false;  ///< there is nothing to compute
  std::shared_ptr<const host::TileKernel> kernel;
  std::optional<host::GemmDesc> definition;  ///< a product over no elements, which no kernel does
  int src = -1, weights = -1, bias = -1, out = -1;
  std::vector<int> operands;
  std::shared_ptr<host::PackedWeights> packed;
  int place = -1;           ///< in the plan's WeightPrefetch; -1: none
  std::size_t scratch = 0;  ///< bytes
};

struct PreparedAttention {
  bool empty = false;
  host::AttentionDesc desc;
  std::int64_t q = 0, k = 0, v = 0, mask = 0, out = 0;  ///< bytes from the start of each buffer
  std::int64_t begin = 0, end = 0, sink = 0;
};

struct PreparedRoutine {
  std::vector<std::vector<std::int64_t>> inputs, outputs;  ///< dims
  std::vector<std::int64_t> params;
  std::shared_ptr<GpuCall> call;  ///< what several cards do together in one launch
};

using PreparedStep =
    std::variant<std::monostate, PreparedLaunch, PreparedTileLaunch, PreparedTile, PreparedAttention, PreparedRoutine>;

}  // namespace sardonyx
