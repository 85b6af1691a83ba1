// Internal to codegen/: host loops that read across memory.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "codegen/emit.h"
#include "codegen/loop_analysis.h"

namespace sardonyx::codegen {

constexpr int kSide = 16;  ///< of the square tiles that are transposed: 64 bytes of 32-bit elements

/// Columns of tiles side by side, which are read before the next rows. Whole lines need no neighbours, and the fewer
/// rows of the result are written at a time, the fewer of them compete for the cache: with a power of two between rows
/// it takes a third to half of the time of 64 columns.
std::int64_t strip_columns(const FlatLoop& loop, const Across& across);

/// Emits a loop in square tiles: each is read along memory and transposed in the L1 cache. Tiles that are neighbours in
/// memory follow one another, so that its lines and pages are read once.
class TransposedTiles {
 public:
  /// `store` emits the store of an element's value.
  TransposedTiles(Emitter& emit, const FlatLoop& loop, const Across& across,
                  std::function<void(const std::string&)> store)
      : emit_(emit),
        across_(across),
        body_(loop.body),
        inner_(loop.vars.back()),
        along_(loop.vars[across.along]),
        columns_(strip_columns(loop, across)),
        store_(std::move(store)) {}

  /// Elements [lo, hi) of the innermost variable and [columns * number, columns * (number + 1)) of the other one.
  void strip(const std::string& number, const std::string& lo, const std::string& hi);

 private:
  /// Where a tile begins along both variables, and which of its elements are stored.
  struct Part {
    std::string u0, t0, first_column = "0", end_column = std::to_string(kSide), first_row = "0",
                        end_row = std::to_string(kSide);
  };

  void tile(const Part& p);
  void transpose_rows(const std::string& rows, const std::string& to);
  void elements(const Part& p, const std::function<void()>& bind);
  void index(const Expr& var, const std::string& first, const char* k);

  Emitter& emit_;
  const Across& across_;
  const Expr body_, inner_, along_;
  const std::int64_t columns_;
  const std::function<void(const std::string&)> store_;
};

}  // namespace sardonyx::codegen
