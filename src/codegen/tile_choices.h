// Which tiling was found to be the fastest for a problem, by whoever measured it: see tune/database.h.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace sardonyx {
class Value;
}

namespace sardonyx::codegen {

/// Of a problem at these sizes, a candidate by name.
struct TunedSize {
  std::int64_t batches = 0, m = 0, n = 0, k = 0;
  std::string candidate;
};

class TileChoices {
 public:
  virtual ~TileChoices() = default;
  /// Everything known of this kind of problem on this architecture ("gfx942"), for each size the fastest candidate
  /// first: one that is faster may be of no use here. `problem` is what decides about the
  /// speed of a candidate besides sizes; see problem_of in tile_codegen.cpp. Safe from many threads.
  virtual std::vector<TunedSize> find(std::string_view arch, std::string_view problem) const = 0;
};

/// Which candidates are compiled: by default those that some size would choose by rule (of tilings, the model of cost).
struct TileSelection {
  const TileChoices* choices = nullptr;  ///< what was measured; null: nothing
  bool all = false;                      ///< every candidate
  /// Whether a tensor is in memory before any launch of a run, and stays as it is; null: none is. Kernels that read
  /// such tensors before they wait for the launch before them (kernels/stream.h) are candidates only with it.
  std::function<bool(const Value*)> loaded;
};

}  // namespace sardonyx::codegen
