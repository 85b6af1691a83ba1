// Which candidate was measured to be the fastest for a problem: see tune/database.h.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "program/choice.h"

namespace sardonyx {
class Value;
}

namespace sardonyx::codegen {

class TileChoices {
 public:
  virtual ~TileChoices() = default;
  /// All measurements of this kind of problem (Choice::problem) on this architecture ("gfx942"); for each size the
  /// fastest candidates first, because the first one may not be available. Thread-safe.
  virtual std::vector<TunedSize> find(std::string_view arch, std::string_view problem) const = 0;
};

/// Which candidates are compiled; see select_candidates() in gpu_choice.h.
struct TileSelection {
  const TileChoices* choices = nullptr;  ///< measurements; null: none
  bool all = false;                      ///< every candidate
  /// Whether a tensor is in memory before any launch of a run, and does not change; null: none is. Kernels that read
  /// such tensors before they wait for the previous launch (kernels/stream.h) are candidates only if it is set.
  std::function<bool(const Value*)> loaded;
  bool unpacked = false;       ///< weights of few bits that are loaded may be unpacked then; see GpuUnpackedTile::kept
  bool narrow_floats = false;  ///< floats are stored in 16 bits: what is computed of them may be as inexact
};

}  // namespace sardonyx::codegen
