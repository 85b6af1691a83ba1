// How many elements a thread computes where it loads single ones (a resized image). GCN's L1 serves 16 lanes in a cycle
// only if they read neighbouring dwords, and otherwise four or fewer: the further apart lanes are, the longer each
// instruction takes. With shorter packs lanes are closer, but share less of what packs compute once.
#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "codegen/gpu_generator.h"

namespace sardonyx::codegen {
namespace {

constexpr int kWave = 64;
constexpr double kInstructions = 0.7;      // for each operation: some are one (FMA, median)
constexpr int kInstructionsOfThread = 30;  // its position and addresses
constexpr double kGain = 1.15;             // shorter packs must be so many times as fast
// Cycles in which memory moves a wave's bytes for each byte of an element: its share of 8 bytes a cycle for each
// compute unit (gfx90a 9, gfx942 and gfx950 8 to 13).
constexpr double kMemoryCycles = kWave / 8.0;

// Cycles in which L1 serves a load of elements of `size` bytes that are `apart` bytes from lane to lane: four dwords in
// a cycle from different banks, a quad that spans 64 bytes in two, and 16 lanes if they are adjacent or in one dword.
int cycles_of_lanes(double apart, std::size_t size) {
  if (size > 4) return kWave / 4;
  if (apart < 0.5 || std::abs(apart - static_cast<double>(size)) < 0.05 * static_cast<double>(size)) return kWave / 16;
  int on_bank[4] = {}, most = 1;
  std::int64_t before = -1;
  for (int lane = 0; lane < 4; ++lane) {
    const auto dword = static_cast<std::int64_t>(lane * apart) / 4;
    if (dword != before) most = std::max(most, ++on_bank[dword % 4]);
    before = dword;
  }
  return kWave / 4 * std::max(most, 3 * apart < 60 ? 1 : 2);
}

// Elements by which a load moves along `var` on average; empty if that is not known.
std::optional<double> step_along(const Expr& offset, const Expr& var) {
  std::int64_t n = 0, first = 0, last = 0;
  const Expr along = part_along(offset, var);
  if (!only_of(along, var) || !is_const_int(var->args[0], n) || n < 2 ||
      !is_const_int(substitute(along, {{var, Expr(0)}}), first) ||
      !is_const_int(substitute(along, {{var, Expr(n - 1)}}), last))
    return {};
  return std::abs(static_cast<double>(last - first)) / static_cast<double>(n - 1);
}

// Instructions of an element, of equal parts once: those that depend on `var`, and the others, which are computed once
// for a pack.
struct Work {
  int along = 0, shared = 0;
};
Work work_of(const Expr& body, const Expr& var) {
  Work w;
  std::unordered_set<Expr, ExprHash, ExprSame> seen;
  visit(body, [&](const Expr& x) {
    if (x->op == Op::kConst || x->op == Op::kVar || x->op == Op::kSym || !seen.insert(x).second) return;
    (uses_var(x, var) ? w.along : w.shared) += instruction_count(x);
  });
  return w;
}

}  // namespace

int GpuGenerator::gather_length(const FlatLoop& f, const Packing& p) const {
  if (!quad_gathers_ || p.length < 2) return p.length;
  const Expr& inner = f.vars.back();
  struct Gather {
    std::size_t size = 0;
    double step = 0;
  };
  std::vector<Gather> gathers;
  const double bytes = static_cast<double>(size_of(kernel_.stages[0].out->dtype));
  for (const GuardedLoad& g : guarded_loads(f.body)) {
    const auto is_load = [&](const Expr& l) { return same(l, g.load); };
    if (!uses_var(g.load, inner) || std::ranges::any_of(p.loads, is_load) ||
        std::ranges::any_of(p.pieces, [&](const Piece& x) { return is_load(x.load); }))
      continue;
    const std::optional<double> step = step_along(g.load->args[0], inner);
    if (!step) return p.length;  // as far apart as the data say, with packs of any length
    gathers.push_back({size_of(g.load->dtype), *step});
  }
  if (gathers.empty()) return p.length;
  const Work work = work_of(f.body, inner);
  const auto cycles = [&](int length) {  // of a compute unit, for as many elements as a wave has lanes
    double l1 = 0;
    for (const Gather& g : gathers) l1 += cycles_of_lanes(g.step * static_cast<double>(g.size) * length, g.size);
    const double vector = kInstructions * work.along + (kInstructions * work.shared + kInstructionsOfThread) / length;
    return std::max({l1, vector, bytes * kMemoryCycles});
  };
  int best = p.length;
  for (int n = p.length / 2; n >= 1; n /= 2)
    if (cycles(p.length) >= kGain * cycles(n) && cycles(n) < 0.99 * cycles(best)) best = n;
  return best;
}

}  // namespace sardonyx::codegen
