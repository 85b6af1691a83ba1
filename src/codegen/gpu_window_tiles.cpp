// GPU kernels of windows (gpu_windows.cpp): how many neighbouring packs a thread computes.
#include <utility>

#include "codegen/gpu_generator.h"
#include "codegen/window_costs.h"

namespace sardonyx::codegen {

using namespace window;

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
