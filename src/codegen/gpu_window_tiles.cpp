// GPU kernels of windows (gpu_windows.cpp): how many neighbouring packs a thread computes.
#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "codegen/gpu_generator.h"
#include "codegen/window_costs.h"

namespace sardonyx::codegen {

using namespace window;

namespace {

constexpr std::int64_t kLeastWholeRow = 5, kMostWholeRow = 14;  // results of a row
constexpr std::int64_t kMostWholeSums = 32;                     // of a thread
constexpr std::int64_t kMostWholeTerms = 100;                   // that are written out
constexpr unsigned kLongestStored = 8, kWidestStored = 16;      // elements and bytes of a pack of results
constexpr std::int64_t kLargeWindow = 36;                       // taps
constexpr std::int64_t kWholeThreads = 3,
                       kManyWholeThreads = 6;  // for each lane of a SIMD: with packs of two, with longer ones

}  // namespace

// The tile of packs that loads the least, if `packs` packs make at least `enough` tiles of it.
void GpuGenerator::choose_tile(const Exprs& vars, const Exprs& bodies, std::int64_t packs, std::int64_t enough,
                               double least, WindowTile& w) const {
  for (std::size_t k = vars.size(); k-- > 0;) {
    const Expr& v = vars[k];
    std::int64_t n = 0;
    // GCN's L1 serves single elements fast where neighbouring lanes read neighbouring ones (gpu_gathers.cpp).
    if (same(v, w.inner) && (w.length > 1 || quad_gathers_)) continue;
    if (v->args[0]->has_var || v->args[0]->has_load) continue;
    const bool known = is_const_int(v->args[0], n);
    for (std::int64_t count = kLargestTile; count > 1; count /= 2) {
      if ((known && n < count) || packs / count < enough) continue;
      const std::int64_t rounded = (n + count - 1) / count * count;
      const double waste = known ? static_cast<double>(rounded) / static_cast<double>(n) : 1.1;
      const double c = waste * tile_cost(bodies, v, count, w.lane, w.rows ? w.length : 0);
      if (c >= least) continue;
      least = c;
      w.count = static_cast<int>(count);
      w.along = v;
    }
  }
}

// Small images: a thread has a whole row of results, with channels last of a short pack, so that there are enough
// threads. All positions along the row are known, so that taps outside of the image cost nothing.
std::optional<GpuGenerator::WindowTile> GpuGenerator::whole_rows(const OutputLoop& p, const Exprs& reductions,
                                                                 const Expr& items, const WindowTile& w) const {
  if (!loads_first_ || w.team > 1) return {};
  // Windows that slide along packs load less than whole rows whose packs begin anywhere, but for large ones along packs
  // of two.
  const auto is_small = [](const Expr& r) { return known_product(r->vars) < kLargeWindow; };
  if (w.rows && (w.length > 2 || !row_options_.any_address || std::ranges::any_of(reductions, is_small))) return {};
  for (std::size_t k = p.vars.size(); k-- > 0;)
    for (const int length : {8, 4, 2, 1}) {
      // Of unknown sizes, the shortest packs pay soonest, and both tiles have the conditions of the longer ones.
      if (!is_const(items) && length != (w.length == 1 || w.rows ? 1 : 2)) continue;
      const std::optional<WindowTile> t = whole_row(p, reductions, w.inner, p.vars[k], length);
      if (t && (!is_const(items) || items->i >= least_items(*t))) return t;
    }
  return {};
}

// With so many results, there are enough threads for tiles of whole rows.
std::int64_t GpuGenerator::least_items(const WindowTile& t) const {
  const std::int64_t each = t.length == 1 ? 1 : t.length == 2 ? kWholeThreads : kManyWholeThreads;
  return each * least_threads_ * t.length * t.count;
}

std::optional<GpuGenerator::WindowTile> GpuGenerator::whole_row(const OutputLoop& p, const Exprs& reductions,
                                                                const Expr& inner, const Expr& along,
                                                                int length) const {
  std::int64_t n = 0, extent = 0;
  if (same(inner, along) != (length == 1) || !is_const_int(along->args[0], n) || n < kLeastWholeRow ||
      n > kMostWholeRow || !is_const_int(inner->args[0], extent) || extent % length != 0 || n * length > kMostWholeSums)
    return {};
  WindowTile t;
  t.inner = inner, t.along = along, t.length = length, t.count = static_cast<int>(n), t.whole = true;
  if (length > 1) {
    t.group = loop_var(idx::floordiv(inner->args[0], length)), t.lane = loop_var(length);
    Exprs conditions;
    bool rows = false;
    if (pack_cost(p, inner, t.lane, t.group * Expr(length) + t.lane, length, conditions, rows) < 0 ||
        !conditions.empty())
      return {};
  }
  for (const Expr& r : reductions) {
    // Extremes of packs are computed in 16 bits, two in an instruction.
    if (length > 1 && static_cast<ReduceKind>(r->i) != ReduceKind::kSum) return {};
    const Exprs out = written_out(in_packs(r, t), along, t.lane, 0, kMostWholeTaps);
    if (out.empty() || known_product(out) * n > kMostWholeTerms) return {};
  }
  return t;
}

// Declares arrays for the results of a whole row that lie next to one another in memory, one for each output; none
// where they are stored one by one.
std::vector<std::string> GpuGenerator::open_stored_rows(const OutputLoop& p, const WindowTile& w) {
  Expr step, rest;
  if (!w.whole || w.lane || !row_options_.any_address) return {};
  for (const OutputLoop::Output& o : p.outputs)
    if (!idx::split_affine(o.offset, w.along, step, rest) || !is_const(step, 1)) return {};
  std::vector<std::string> rows;
  for (const OutputLoop::Output& o : p.outputs) {
    rows.push_back(emit_.fresh("y"));
    emit_.line(fmt::format("unsigned_of<{}> {}[{}];", storage_name(o.out->dtype), rows.back(), w.count));
  }
  return rows;
}

// Stores these rows, in packs of which the last one overlaps with the one before it.
void GpuGenerator::store_rows(const OutputLoop& p, const WindowTile& w, const std::vector<std::string>& rows) {
  for (std::size_t k = 0; k < rows.size(); ++k) {
    const OutputLoop::Output& o = p.outputs[k];
    const auto most = std::min<unsigned>(kLongestStored, static_cast<unsigned>(kWidestStored / size_of(o.out->dtype)));
    const int length = static_cast<int>(std::min(most, std::bit_floor(static_cast<unsigned>(w.count))));
    const std::string to = emit_.buffer(o.out) + " + " + emit_.value(substitute(o.offset, {{w.along, w.base}}));
    for (int first = 0; first < w.count; first += length) {
      const int at = std::min(first, w.count - length);
      const std::string pack = emit_.fresh("y");
      emit_.line(fmt::format("Pack<{}, {}> {};", storage_name(o.out->dtype), length, pack));
      emit_.line(fmt::format("for (int l = 0; l < {}; ++l) {}[l] = {}[{} + l];", length, pack, rows[k], at));
      emit_.line(fmt::format("store_pack<{}>({} + {}, {});", length, to, at, pack));
    }
  }
}

// Computes the outputs of a tile, whose packs are `at`, from their sums.
void GpuGenerator::tile_outputs(const OutputLoop& p, const std::vector<Assignments>& at, const WindowTile& w,
                                const std::vector<Sums>& sums) {
  const std::vector<std::string> rows = open_stored_rows(p, w);
  for (std::size_t u = 0; u < at.size(); ++u) {
    std::vector<std::string> to;
    for (const std::string& row : rows) to.push_back(fmt::format("{}[{}]", row, u));
    window_outputs(p, at[u], w, sums[u], {}, to);
  }
  store_rows(p, w, rows);
}

// The loop with the large tile where `many` holds, if it differs.
void GpuGenerator::window_loops(const OutputLoop& p, const Exprs& reductions, const WindowTile& w,
                                const WindowTile& large, Expr many) {
  if (large.count == w.count) return window_loop(p, reductions, w);
  const Expr& extent = large.along->args[0];
  if (!is_const(extent)) many = logical_and(many, compare(Op::kGe, extent, large.count));
  const Expr work = work_;
  emit_.open(fmt::format("if ({})", emit_.value(many)));
  window_loop(p, reductions, large);
  emit_.close();
  const Expr tiles = threads_, of_tile = std::exchange(work_, work);
  emit_.open("else");
  window_loop(p, reductions, w);
  emit_.close();
  threads_ = select(many, tiles, threads_);
  work_ = select(many, of_tile, work_);
}

}  // namespace sardonyx::codegen
