// Internal to codegen/: what tiles and packs of windows cost (gpu_windows.cpp), and which of their taps are written
// out.
#pragma once
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "codegen/gpu_generator.h"

namespace sardonyx::codegen::window {

constexpr std::int64_t kLargestTile = 4;  // packs of a thread: their sums take up to 32 registers
constexpr std::int64_t kLoadedAtATime =
    80;  // registers of loads of a part of a window; three blocks of 256 threads hold as many

constexpr std::int64_t kMostWholeTaps = 8;  // of a row of a window that a thread computes for whole rows of results

using Assignments = std::vector<std::pair<Expr, Expr>>;

/// Product of the extents of variables; unknown ones count as 1.
std::int64_t known_product(const Exprs& vars);

/// Variables of the reduction `r` that are unrolled for a tile along `along` (empty: no tile): those along which
/// windows overlap, and those along which elements are contiguous that all lanes of a pack read. `rows`: those along
/// which windows slide within a row of packs of so many elements (gpu_window_rows.cpp); 0: there are none.
/// `most`: terms of an output, if it is not 0.
Exprs written_out(const Expr& r, const Expr& along, const Expr& lane, int rows, std::int64_t most = 0);

/// Adds the innermost variable of a window that is too large to be unrolled as a whole to those that are written out:
/// text with all loads of a row first keeps them in flight together, while ptxas lets unrolled ones wait for each
/// other.
void write_out_row(const Expr& r, int length, Exprs& out);

/// The same outputs; sums and extremes of windows with many taps along a dim in which they overlap become those of
/// blocks of taps, and of the taps that are left. A tile of outputs then loads the elements of a block once.
OutputLoop with_blocks_of_taps(const OutputLoop& p);

/// All combinations of values of variables of known extents.
std::vector<Assignments> combinations(const Exprs& vars);

/// Whether all terms of a tile are written out, so that all of its loads are in flight together.
bool is_written_whole(const std::vector<Expr>& of_tile, int length);

/// 32-bit registers that one iteration of the loops around `combos` loads, for all packs (of `length`) of a tile.
std::int64_t loaded_registers(const std::vector<Expr>& of_tile, const std::vector<Assignments>& combos, int length);

/// How often each loop over the terms of a window is unrolled, outer loops first; 0: as often as the compiler likes.
std::vector<std::int64_t> unroll_factors(const Exprs& loops, std::int64_t terms, std::int64_t registers);

/// Cost per output of a term's multiply-adds and loads, for tiles of `count` along `along` (empty: no tiles).
double tile_cost(const Exprs& reductions, const Expr& along, std::int64_t count, const Expr& lane, int rows);

/// Loads per output with packs of `length` along `inner`, which are indexed `at`; negative if impossible. Adds what
/// must be a multiple of the length to `conditions`. `rows`: whether windows may slide within rows of packs; then
/// whether they do.
double pack_cost(const OutputLoop& p, const Expr& inner, const Expr& lane, const Expr& at, int length,
                 Exprs& conditions, bool& rows);

/// A load of a window that slides along a row of packs: lane k reads element `shift` + `step` * k of `packs`
/// neighbouring packs, the first of which is at `first`.
struct RowLoad {
  Expr first;
  std::int64_t shift = 0, step = 1;
  std::int64_t packs = 1;
  Exprs inside;  ///< for each pack, whether all of its elements are inside; empty: always
};

/// The load as part of a row whose packs are completely inside or outside. `bounds`: the conditions on an element that
/// depend on the lane. Adds what must be a multiple of the length to `conditions`.
std::optional<RowLoad> row_load(const Expr& load, const Exprs& bounds, const Expr& lane, int length, Exprs& conditions);

/// A condition as "the result is not negative"; empty if it is none of int64.
Expr not_negative(const Expr& condition);

/// The conditions that `e` consists of.
void split_conditions(const Expr& e, Exprs& out);

}  // namespace sardonyx::codegen::window
