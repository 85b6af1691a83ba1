// GPU kernels of windows (gpu_windows.cpp): how many neighbouring packs a thread computes.
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
constexpr std::int64_t kWholeThreads = 3,
                       kManyWholeThreads = 6;  // for each lane of a SIMD: with packs of two, with longer ones

}  // namespace

// The tile of packs that loads the least, if `packs` packs make at least `enough` tiles of it.
void GpuGenerator::choose_tile(const Exprs& vars, const Exprs& bodies, std::int64_t packs, std::int64_t enough,
                               double least, WindowTile& w) const {
  for (std::size_t k = vars.size(); k-- > 0;) {
    const Expr& v = vars[k];
    std::int64_t n = 0;
    if ((w.length > 1 && same(v, w.inner)) || v->args[0]->has_var || v->args[0]->has_load) continue;
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
  if (!loads_first_ || w.rows || w.team > 1) return {};
  for (std::size_t k = p.vars.size(); k-- > 0;)
    for (const int length : {8, 4, 2, 1}) {
      // Of unknown sizes, the shortest packs pay soonest, and both tiles have the conditions of the longer ones.
      if (!is_const(items) && length != (w.length == 1 ? 1 : 2)) continue;
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
