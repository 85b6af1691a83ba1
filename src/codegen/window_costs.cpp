// See window_costs.h.
#include "codegen/window_costs.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace sardonyx::codegen {

Exprs all_loads(const Expr& e) {
  Exprs out;
  visit(e, [&](const Expr& x) {
    if (x->op == Op::kLoad) out.push_back(x);
  });
  return out;
}

namespace window {
namespace {

constexpr std::int64_t kMostWritten = 48;    // terms of a tile that are written out in the text
constexpr std::int64_t kTapsOfBlock = 8;     // of long windows: with a tile's, loads of 19 packs for 32 terms
constexpr std::int64_t kMostRowTaps = 100;   // taps that are written out where windows slide along rows of packs
constexpr std::int64_t kMostRowTerms = 200;  // terms of a tile of such windows
constexpr std::int64_t kMostUnrolled = 64;   // terms after clang has unrolled the remaining loops
constexpr std::int64_t kLongestRow = 12;     // terms that are written out for their loads alone
constexpr std::int64_t kLoadCost = 3;        // cost of a load, in multiply-adds of a pack
constexpr std::int64_t kGatherCost = 2;      // cost of an element that is not contiguous, in loads
constexpr int kMostStored = 32;              // bytes of a pack of outputs: accumulators are wider than 16-bit outputs
// Registers of loads in flight. With all 98 loads of a 7x7 depthwise window unrolled, ptxas took 255 registers and
// spilled, or let one load wait for the other, and the kernel took ten times as long.
constexpr std::int64_t kMostLoaded = 128;  // of a window that is unrolled as a whole

// Whether windows of a tile along `along` overlap along v: some steps of one equal steps of the other in memory.
bool meet(const Expr& r, const Expr& along, const Expr& v) {
  std::int64_t extent = 0;
  Expr step, tap, rest;
  if (!is_const_int(v->args[0], extent)) return false;
  for (const Expr& l : all_loads(r->args[0])) {
    if (!uses_var(l, along) || !uses_var(l, v) || !idx::split_affine(l->args[0], along, step, rest) ||
        !idx::split_affine(l->args[0], v, tap, rest))
      continue;
    for (std::int64_t u = 1; u < kLargestTile; ++u)
      for (std::int64_t k = 1; k < extent; ++k)
        if (idx::provably_equal(step * Expr(u), tap * Expr(k))) return true;
  }
  return false;
}

// Whether taps of one output along v are those of another one along a dim of `outputs` but the last, in which packs
// are.
bool overlaps(const Expr& r, const Exprs& outputs, const Expr& v) {
  Expr tap, rest;
  for (const Expr& l : all_loads(r->args[0]))
    if (uses_var(l, outputs.back()) && idx::split_affine(l->args[0], outputs.back(), tap, rest) && !is_const(tap, 1))
      return false;
  return std::any_of(outputs.begin(), outputs.end() - 1, [&](const Expr& o) { return meet(r, o, v); });
}

// Whether windows slide along v within a row of packs of `length` elements.
bool slides(const Expr& r, const Expr& lane, const Expr& v, int length) {
  std::int64_t step = 0, tap = 0;
  Expr of_lane, of_tap, rest;
  for (const Expr& l : all_loads(r->args[0]))
    if (idx::split_affine(l->args[0], lane, of_lane, rest) && is_const_int(of_lane, step) && step != 0 &&
        idx::split_affine(l->args[0], v, of_tap, rest) && is_const_int(of_tap, tap) && tap % length != 0)
      return true;
  return false;
}

}  // namespace

std::int64_t known_product(const Exprs& vars) {
  std::int64_t all = 1, n = 0;
  for (const Expr& v : vars)
    if (is_const_int(v->args[0], n)) all *= std::max<std::int64_t>(n, 1);
  return all;
}

Exprs written_out(const Expr& r, const Expr& along, const Expr& lane, int rows, std::int64_t most) {
  Exprs out;
  std::int64_t all = 1, n = 0;
  for (const Expr& v : r->vars)
    if (rows > 0 && slides(r, lane, v, rows) && is_const_int(v->args[0], n) && all * n <= kMostRowTaps) {
      all *= n;
      out.push_back(v);
    }
  if (most == 0) most = out.empty() ? kMostWritten / 4 : kMostRowTaps;
  for (const Expr& v : r->vars) {
    if (std::any_of(out.begin(), out.end(), [&](const Expr& o) { return same(o, v); })) continue;
    bool wanted = along && meet(r, along, v);
    // Elements that are contiguous in memory and read by all lanes (the channels of a group) are loaded in packs.
    if (!wanted)
      for (const Expr& l : all_loads(r->args[0])) {
        Expr c, rest;
        wanted |= lane && !uses_var(l, lane) && idx::split_affine(l->args[0], v, c, rest) && is_const(c, 1);
      }
    if (!wanted || !is_const_int(v->args[0], n) || all * n > most) continue;
    all *= n;
    out.push_back(v);
  }
  // In the window's order, in which weights are contiguous.
  Exprs ordered;
  for (const Expr& v : r->vars)
    if (std::any_of(out.begin(), out.end(), [&](const Expr& o) { return same(o, v); })) ordered.push_back(v);
  return ordered;
}

OutputLoop with_blocks_of_taps(const OutputLoop& p) {
  OutputLoop out = p;
  if (p.vars.size() < 2) return out;
  const auto divided = [&](const Expr& r) -> Expr {
    const auto kind = static_cast<ReduceKind>(r->i);
    const Op op = kind == ReduceKind::kSum ? Op::kAdd : kind == ReduceKind::kMax ? Op::kMax : Op::kMin;
    if (kind != ReduceKind::kSum && kind != ReduceKind::kMax && kind != ReduceKind::kMin) return {};
    for (std::size_t k = 0; k < r->vars.size(); ++k) {
      const Expr& v = r->vars[k];
      std::int64_t n = 0;
      if (!is_const_int(v->args[0], n) || n <= kMostWritten / 4 || !overlaps(r, p.vars, v)) continue;
      const Expr block = loop_var(n / kTapsOfBlock), tap = loop_var(kTapsOfBlock);
      Exprs vars = r->vars;
      vars[k] = block;
      vars.insert(vars.begin() + static_cast<std::ptrdiff_t>(k) + 1, tap);
      const Expr blocks = reduce(kind, vars, substitute(r->args[0], {{v, block * Expr(kTapsOfBlock) + tap}}));
      if (n % kTapsOfBlock == 0) return blocks;
      vars = r->vars;
      vars[k] = loop_var(n % kTapsOfBlock);
      const Expr first = vars[k] + Expr(n / kTapsOfBlock * kTapsOfBlock);
      return binary(op, blocks, freshen_reduce_vars(reduce(kind, vars, substitute(r->args[0], {{v, first}}))));
    }
    return {};
  };
  for (OutputLoop::Output& o : out.outputs) {
    Exprs reductions;
    top_reductions(o.body, reductions);
    o.body = rewrite(o.body, [&](const Expr& e) {
      const bool top = e->op == Op::kReduce &&
                       std::any_of(reductions.begin(), reductions.end(), [&](const Expr& r) { return same(r, e); });
      return top ? divided(e) : Expr();
    });
  }
  return out;
}

std::vector<Assignments> combinations(const Exprs& vars) {
  std::vector<Assignments> all = {{}};
  for (const Expr& v : vars) {
    std::vector<Assignments> next;
    for (const Assignments& a : all)
      for (std::int64_t k = 0; k < v->args[0]->i; ++k) {
        next.push_back(a);
        next.back().emplace_back(v, Expr(k));
      }
    all = std::move(next);
  }
  return all;
}

bool is_written_whole(const std::vector<Expr>& of_tile, int length) {
  const Exprs& vars = of_tile[0]->vars;
  std::int64_t terms = static_cast<std::int64_t>(of_tile.size()), n = 0;
  for (const Expr& v : vars) {
    if (!is_const_int(v->args[0], n) || terms * n > kMostWritten) return false;
    terms *= n;
  }
  return loaded_registers(of_tile, combinations(vars), length) <= kMostLoaded;
}

std::int64_t loaded_registers(const std::vector<Expr>& of_tile, const std::vector<Assignments>& combos, int length) {
  std::unordered_set<Expr, ExprHash, ExprSame> distinct;
  for (const Expr& r : of_tile)
    for (const Assignments& a : combos)
      for (const Expr& l : all_loads(substitute(r->args[0], a))) distinct.insert(l);
  std::int64_t registers = 0;
  for (const Expr& l : distinct) registers += (length * static_cast<std::int64_t>(size_of(l->dtype)) + 3) / 4;
  return std::max<std::int64_t>(registers, 1);
}

void write_out_row(const Expr& r, int length, Exprs& out) {
  std::int64_t n = 0;
  if (!out.empty() || r->vars.size() < 2 || !is_const_int(r->vars.back()->args[0], n) || n > kLongestRow) return;
  const std::int64_t terms = known_product(r->vars);
  const std::int64_t registers = loaded_registers({r}, {{}}, length);
  if (terms > kMostUnrolled || terms * registers > kMostLoaded) out.push_back(r->vars.back());
}

std::vector<std::int64_t> unroll_factors(const Exprs& loops, std::int64_t terms, std::int64_t registers) {
  std::int64_t all = 1, n = 0;
  for (const Expr& v : loops) {
    if (!is_const_int(v->args[0], n)) return std::vector<std::int64_t>(loops.size());
    all *= n;
  }
  const bool whole = terms <= kMostUnrolled && all * registers <= kMostLoaded;
  std::vector<std::int64_t> factors(loops.size(), 1);
  for (std::size_t k = loops.size(); k-- > 0;) {
    is_const_int(loops[k]->args[0], n);
    factors[k] = whole ? n : std::clamp<std::int64_t>(kLoadedAtATime / registers, 1, n);
    if (factors[k] < n) break;
    registers *= n;
  }
  return factors;
}

double tile_cost(const Exprs& reductions, const Expr& along, std::int64_t count, const Expr& lane, int rows) {
  double cost = 0;
  const Expr base = along ? loop_var(along->args[0]) : Expr();
  for (const Expr& r : reductions) {
    const Exprs out = written_out(r, along, lane, rows);
    const std::vector<Assignments> combos = combinations(out);
    if (static_cast<std::int64_t>(combos.size()) * count > (rows > 0 ? kMostRowTerms : kMostWritten)) return 1e30;
    std::unordered_set<Expr, ExprHash, ExprSame> distinct;
    const Exprs loads = all_loads(r->args[0]);
    for (std::int64_t u = 0; u < count; ++u)
      for (Assignments a : combos) {
        if (along) a.emplace_back(along, base + Expr(u));
        for (const Expr& l : loads) distinct.insert(substitute(l, a));
      }
    double repeats = 1;
    for (const Expr& v : r->vars)
      if (std::none_of(out.begin(), out.end(), [&](const Expr& o) { return same(o, v); })) {
        std::int64_t n = 16;
        is_const_int(v->args[0], n);
        repeats *= static_cast<double>(n);
      }
    cost += repeats *
            (static_cast<double>(kLoadCost * static_cast<std::int64_t>(distinct.size())) / static_cast<double>(count) +
             static_cast<double>(combos.size()));
  }
  return cost;
}

namespace {

// Packs for each term of a window that slides along a row; 0 if there is none. Adds to `conditions`.
double row_packs(const Expr& load, const Expr& r, const Assignments& at, const Expr& lane, int length,
                 Exprs& conditions) {
  if (!r) return 0;
  Expr c, rest;
  Assignments first;
  double taps = 1;
  std::int64_t n = 0, step = 0, span = 0;
  for (const Expr& v : r->vars) {
    if (!idx::split_affine(load->args[0], v, c, rest)) return 0;
    first.emplace_back(v, Expr(0));
    if (!is_const_int(c, step) || step % length == 0) continue;
    if (!is_const_int(v->args[0], n) || n > kMostRowTaps || step < 0) return 0;
    taps *= static_cast<double>(n);
    span += step * (n - 1);
  }
  if (taps < 2) return 0;
  Exprs bounds, more = conditions;
  const Expr e = substitute(r->args[0], at);
  if (e->op == Op::kSelect) {
    Exprs all;
    split_conditions(e->args[0], all);
    for (const Expr& x : all)
      if (uses_var(x, lane)) bounds.push_back(substitute(x, first));
    bounds.erase(std::remove_if(bounds.begin(), bounds.end(), [](const Expr& b) { return b->op == Op::kConst; }),
                 bounds.end());
  }
  const std::optional<RowLoad> row = row_load(substitute(load, first), bounds, lane, length, more);
  if (!row) return 0;
  conditions = std::move(more);
  span += row->shift + row->step * (length - 1) + 1;
  return static_cast<double>((span + length - 1) / length) / taps;
}

}  // namespace

double pack_cost(const OutputLoop& p, const Expr& inner, const Expr& lane, const Expr& at, int length,
                 Exprs& conditions, bool& rows) {
  double cost = 0;
  Expr c, rest;
  const bool may_slide = std::exchange(rows, false) && length > 1;
  for (const OutputLoop::Output& o : p.outputs) {
    const Expr offset = substitute(o.offset, {{inner, at}});
    if (length > 1 &&
        (!idx::split_affine(offset, lane, c, rest) || !is_const(c, 1) || !multiple_of(rest, length, conditions) ||
         length * static_cast<int>(size_of(o.out->dtype)) > kMostStored))
      return -1;
    const auto count = [&](const Expr& e, double times, const Expr& reduction) {
      visit(e, [&](const Expr& x) {
        if (x->op != Op::kLoad) return;
        const Expr l = substitute(x, {{inner, at}});
        if (length == 1 || !uses_var(l, lane)) {
          cost += times;
          return;
        }
        Exprs more = conditions;
        if (idx::split_affine(l->args[0], lane, c, rest) && is_const(c, 1) && multiple_of(rest, length, more) &&
            length * static_cast<int>(size_of(l->dtype)) <= 16) {
          conditions = std::move(more);
          cost += times;
        } else if (const double packs =
                       may_slide ? row_packs(l, reduction, {{inner, at}}, lane, length, conditions) : 0;
                   packs > 0) {
          rows = true;
          cost += times * packs;
        } else {
          cost += times * length * kGatherCost;
        }
      });
    };
    Exprs reductions;
    top_reductions(o.body, reductions);
    for (const Expr& r : reductions) {
      std::int64_t terms = 1, n = 0;
      for (const Expr& v : r->vars) terms *= is_const_int(v->args[0], n) ? std::max<std::int64_t>(n, 1) : 16;
      count(r->args[0], static_cast<double>(terms), r);
    }
    certain_loads(o.body, [&](const Expr& l) { count(l, 1, Expr()); });
  }
  return cost / length;
}

}  // namespace window
}  // namespace sardonyx::codegen
