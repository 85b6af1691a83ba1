// Plans GPU kernels for rows (gpu_rows.cpp): which kernels of loops are kernels of rows, along which variable, how many
// threads process a row, and how much of a row stays in registers.
#include <algorithm>
#include <map>
#include <optional>

#include "codegen/gpu_generator.h"

namespace sardonyx::codegen {
namespace {

// Elements of an operand that a thread keeps in registers. If the row's length is known: three operands (the row,
// weight and bias of a norm) of 32 floats are 96 of the 255 registers that a thread can have. If it is unknown, half as
// many, because the kernel then has code for longer rows too.
constexpr std::int64_t kMostRowElements = 32;
constexpr std::int64_t kUsualRowElements = 16;
// The same of a row in its storage type: the compiler may keep them as float32, in as many registers.
constexpr std::int64_t kMostConverted = 160;
// Bytes of all loads that a thread may keep in registers; beyond, those that one stage uses are loaded there.
constexpr std::int64_t kAllKept = 256;
// Threads that keep a card busy: about half of what an H200 can hold (132 x 2048).
constexpr std::int64_t kEnoughThreads = 131072;
constexpr double kMostOverlap =
    1.25;  // elements that packs load, for each of a row whose last pack overlaps with another
constexpr std::int64_t kShortRow = 4;  // elements: one thread processes them, as a team would mostly wait

/// A stage of which it is not yet known whether it runs along the row.
struct Draft {
  const Stage* stage;
  Expr body, offset;
  Exprs inner;  // the stage's own variables
};

Exprs reductions_of(const Expr& body) {
  Exprs reductions;
  top_reductions(body, reductions);
  return reductions;
}

// Loads that are contiguous along `a` and do not depend on `b`: needed once for all of `b` (the token of an embedding),
// or the same in all lanes if these run along `b`, so they do not count.
int once_a_row(const Expr& body, const Expr& a, const Expr& b) {
  int n = 0;
  visit(body, [&](const Expr& x) {
    if (x->op != Op::kLoad) return;
    bool along = false;
    visit(x, [&](const Expr& y) { along |= y->op == Op::kVar && y->i == b->i; });
    if (!along) n += unit_stride_loads(load(x->value, x->dtype, x->args), a);
  });
  return n;
}

// How many more loads are contiguous along `a` than along `b`.
int preference(const Exprs& bodies, const Expr& a, const Expr& b) {
  int n = 0;
  for (const Expr& x : bodies)
    n += unit_stride_loads(x, a) - once_a_row(x, a, b) - unit_stride_loads(x, b) + once_a_row(x, b, a);
  return n;
}

// One variable in place of several whose results are contiguous, in stages that load something along one of them only:
// the scale of an image's channels, say. Its indices become quotients and remainders. Unchanged if results have gaps.
void join_variables(Draft& d) {
  Expr all = 1;
  for (const Expr& v : d.inner) all = all * v->args[0];
  std::int64_t n = 0;
  if (d.inner.size() < 2 || !is_const_int(all, n)) return;
  const Expr joined = loop_var(all);
  std::vector<std::pair<Expr, Expr>> digits;
  Expr left = joined;
  for (std::size_t k = d.inner.size(); k-- > 0; left = idx::floordiv(left, d.inner[k]->args[0]))
    digits.emplace_back(d.inner[k], k == 0 ? left : idx::mod(left, d.inner[k]->args[0]));
  const Expr offset = substitute(d.offset, digits);
  Expr step, rest;
  if (!idx::split_affine(offset, joined, step, rest) || !is_const(step, 1)) return;
  d.offset = offset;
  d.body = substitute(d.body, digits);
  d.inner = {joined};
}

// The stages with their adjacent variables merged, and the variables around all of them. Empty for a single loop
// without reductions, or whose reductions run side by side.
std::optional<std::vector<Draft>> draft_stages(const LoopKernel& kernel, Exprs& outer) {
  std::vector<Draft> drafts;
  if (kernel.stages.size() == 1 && kernel.outer.empty()) {
    const FlatLoop f = flat_loop(kernel.stages[0]);
    const Exprs reductions = reductions_of(f.body);
    if (reductions.empty() || (!f.vars.empty() && side_by_side(reductions, f.vars.back()))) return std::nullopt;
    outer = f.vars;
    drafts.push_back({&kernel.stages[0], f.body, f.offset, {}});
    return drafts;
  }
  outer = kernel.outer;
  for (const Stage& s : kernel.stages) {
    Draft d{&s, merge_reduce_vars(flatten_loads(s.body)), storage_offset(*s.out, s.index), {}};
    if (!s.inner.empty()) d.inner = merge_vars(s.inner, d.body, d.offset);
    join_variables(d);
    drafts.push_back(std::move(d));
  }
  return drafts;
}

// The length of the rows: the extent that all variables of stages and reductions share. Empty if there is none, if it
// depends on loaded values or on more than the variables `outer`, or if reductions are nested.
Expr common_extent(const std::vector<Draft>& drafts, const Exprs& outer) {
  Expr extent;
  const auto fits = [&](const Expr& v) {
    if (v->args[0]->has_load) return false;
    bool known = true;  // the variables that the length depends on are those of the rows
    visit(v->args[0], [&](const Expr& x) {
      known &= x->op != Op::kVar || std::any_of(outer.begin(), outer.end(), [&](const Expr& o) { return same(o, x); });
    });
    if (!known) return false;
    if (!extent) extent = v->args[0];
    return idx::provably_equal(extent, v->args[0]);
  };
  for (const Draft& d : drafts) {
    if (!d.inner.empty() && (d.inner.size() != 1 || !fits(d.inner[0]) || d.body->has_reduce)) return Expr();
    for (const Expr& x : reductions_of(d.body))
      if (x->vars.size() != 1 || !fits(x->vars[0]) || x->args[0]->has_reduce) return Expr();
  }
  return extent;
}

// The stage with `var` in place of its own variable and of those of its reductions.
RowStage along_row(const Draft& d, const Expr& var) {
  RowStage s{d.stage, d.body, d.offset, !d.inner.empty()};
  if (s.row) {
    s.body = substitute(s.body, {{d.inner[0], var}});
    s.offset = substitute(s.offset, {{d.inner[0], var}});
    return s;
  }
  const Exprs reductions = reductions_of(s.body);
  s.body = rewrite(s.body, [&](const Expr& x) -> Expr {
    if (!x->has_reduce) return x;
    if (std::none_of(reductions.begin(), reductions.end(), [&](const Expr& y) { return same(x, y); })) return Expr();
    return reduce(static_cast<ReduceKind>(x->i), {var}, substitute(x->args[0], {{x->vars[0], var}}));
  });
  return s;
}

// Whether each thread reads only its own results of earlier stages (`rows`, with their indices).
bool reads_own_results(const Expr& body, const std::map<const Value*, Expr>& rows) {
  bool own = true;
  visit(body, [&](const Expr& x) {
    if (x->op != Op::kLoad) return;
    const auto made = rows.find(x->value);
    own &= made == rows.end() || same(made->second, x->args[0]);
  });
  return own;
}

/// What runs along the row: bodies, and the results that are stored, with their offsets.
struct RowAccesses {
  Exprs bodies;
  std::vector<std::pair<const Value*, Expr>> stores;
};

// Fills in the plan's stages; false if threads would need each other's results.
bool place_stages(const std::vector<Draft>& drafts, IndexRange& range, RowPlan& r, RowAccesses& accesses) {
  std::map<const Value*, Expr> rows;
  for (const Draft& d : drafts) {
    RowStage s = along_row(d, r.var);
    if (!reads_own_results(s.body, rows)) return false;
    if (s.row) {
      rows[s.stage->out] = s.offset;
      accesses.stores.emplace_back(s.stage->out, s.offset);
      accesses.bodies.push_back(s.body);
    }
    for (const Expr& x : reductions_of(s.body)) {
      if (is_search(x) && !range.narrow(r.var)) return false;
      accesses.bodies.push_back(x->args[0]);
    }
    r.stages.push_back(std::move(s));
  }
  return true;
}

// Rows whose neighbours are contiguous, rather than their elements: one thread per row, and teams for long rows if
// there are few of them.
void plan_columns(RowPlan& r) {
  const Expr& extent = r.var->args[0];
  std::int64_t n = 0;
  r.team = 1;
  r.chunks = is_const_int(extent, n) ? static_cast<int>(std::min<std::int64_t>(n, 1024)) : 1;
  r.always_fits = r.exact = n > 0 && n <= kMostRowElements;
  r.never_fits = !r.always_fits;
  if (!r.never_fits) return;
  r.chunks = 1;
  Expr items = 1;
  for (const Expr& v : r.outer) items = items * v->args[0];
  for (std::int64_t team = 2; team <= 32; team *= 2)
    r.team = select(compare(Op::kLt, items, kEnoughThreads * 2 / team), Expr(team), r.team);
}

// Maximum elements of a row whose length differs between rows (parts of a long one); 0: unknown.
std::int64_t bound_of(const Expr& extent) {
  std::int64_t n = 0;
  if (extent->op == Op::kMin)
    for (const Expr& e : extent->args)
      if (is_const_int(e, n)) return n;
  return 0;
}

// Rows that there are at least: symbolic sizes count as 1.
std::int64_t least_rows(const RowPlan& r) {
  std::int64_t rows = 1, n = 0;
  for (const Expr& o : r.outer)
    if (is_const_int(o->args[0], n)) rows *= n;
  return rows;
}

// The team for rows of at most `n` elements, of which there are a known number or many.
std::int64_t team_for(std::int64_t n, const RowPlan& r, std::int64_t few, std::int64_t many) {
  std::int64_t team = 1, items = 0;
  while (team < 32 && team * few < n) team *= 2;
  while (team < kGpuThreads && team * many < n) team *= 2;
  Exprs extents;
  for (const Expr& o : r.outer) extents.push_back(o->args[0]);
  if (is_const_int(idx::product(extents), items))
    while (team < kGpuThreads && items * team < kEnoughThreads && team * r.packing.length < n) team *= 2;
  return team;
}

// Narrows the range of `var` to where `condition` is `holds`, as far as it is known.
void narrow(const Expr& condition, bool holds, const Expr& var, std::int64_t& low, std::int64_t& high) {
  if (condition->op == Op::kNot) return narrow(condition->args[0], !holds, var, low, high);
  if (condition->op == (holds ? Op::kAnd : Op::kOr)) {
    for (const Expr& x : condition->args) narrow(x, holds, var, low, high);
    return;
  }
  const Op op = condition->op;
  if (op < Op::kLt || op > Op::kGe || condition->args[0]->dtype != DType::kInt64) return;
  Expr step, rest;
  std::int64_t by = 0, sign = 0;
  if (!idx::split_affine(condition->args[0] - condition->args[1], var, step, rest) || !is_const_int(rest, by) ||
      !is_const_int(step, sign) || (sign != 1 && sign != -1))
    return;
  by *= sign;
  // The condition compares var + by with 0, the other way round if the sign is negative.
  const bool below = ((op == Op::kLt || op == Op::kLe) == (sign > 0)) == holds;
  const bool with_equal = (op == Op::kLe || op == Op::kGe) == holds;
  if (below)
    high = std::min(high, -by + (with_equal ? 1 : 0));
  else
    low = std::max(low, -by + (with_equal ? 0 : 1));
}

// The loads of `e` along `var`, with the range of `var` in which each is evaluated.
void find_parts(const Expr& e, const Expr& var, std::int64_t low, std::int64_t high, std::vector<RowPart>& found) {
  if (!e->has_load) return;
  if (e->op == Op::kSelect) {
    find_parts(e->args[0], var, low, high, found);
    for (const bool holds : {true, false}) {
      std::int64_t from = low, to = high;
      narrow(e->args[0], holds, var, from, to);
      find_parts(e->args[holds ? 1 : 2], var, from, to, found);
    }
    return;
  }
  if (e->op == Op::kLoad && uses_var(e, var)) {
    const auto known = std::ranges::find_if(found, [&](const RowPart& p) { return same(p.load, e); });
    if (known == found.end())
      found.push_back({e, low, high});
    else if (known->low != low || known->high != high)
      known->high = known->low;  // several parts: it is none
  }
  for (const Expr& a : e->args) find_parts(a, var, low, high, found);
}

// Adds the loads of parts of the row to its packs: whole packs lie in a part, so one condition is enough for a pack.
// Otherwise each element would wait for its own condition and then for its own load.
void plan_parts(const RowAccesses& accesses, RowPlan& r) {
  std::int64_t n = 0;
  if (r.packing.length == 1 || r.overlaps || r.uneven || !is_const_int(r.var->args[0], n)) return;
  std::vector<RowPart> found;
  for (const Expr& b : accesses.bodies) find_parts(b, r.var, 0, n, found);
  for (const RowPart& p : found) {
    const std::int64_t v = r.packing.length;
    Expr step, rest;
    Exprs multiples;
    if ((p.low == 0 && p.high == n) || p.low >= p.high || p.low % v != 0 || p.high % v != 0 ||
        std::ranges::any_of(p.load->args, [](const Expr& a) { return a->has_load; }) ||
        std::ranges::any_of(r.stages, [&](const RowStage& s) { return s.stage->out == p.load->value; }) ||
        !idx::split_affine(p.load->args[0], r.var, step, rest) || !is_const(step, 1) ||
        !multiple_of(rest, r.packing.length, multiples) || !multiples.empty())
      continue;
    r.packing.loads.push_back(p.load);
    r.parts.push_back(p);
  }
}

// Whether an index grows by one from element to element of each pack: packs of `length` elements begin at multiples of
// it, so those of a period that they divide (an image's channels, in a row of pixels) lie in one period.
bool is_contiguous_in_packs(const Expr& index, const Expr& var, int length) {
  bool periodic = false;
  const Expr within = rewrite(index, [&](const Expr& x) -> Expr {
    std::int64_t period = 0;
    if ((x->op != Op::kMod && x->op != Op::kFloorDiv) || !same(x->args[0], var) || !is_const_int(x->args[1], period) ||
        period % length != 0)
      return {};
    periodic = true;
    return x->op == Op::kMod ? var : Expr(0);
  });
  Expr step, rest;
  Exprs multiples;
  return periodic && idx::split_affine(within, var, step, rest) && is_const(step, 1) &&
         multiple_of(rest, length, multiples) && multiples.empty();
}

// Adds the loads along a period of the row to its packs.
void plan_periods(const RowAccesses& accesses, RowPlan& r) {
  if (r.packing.length == 1 || r.overlaps || r.uneven) return;
  Exprs& packed = r.packing.loads;
  for (const Expr& b : accesses.bodies)
    for (const Expr& l : all_loads(b))
      if (!l->args[0]->has_load && is_contiguous_in_packs(l->args[0], r.var, r.packing.length) &&
          std::ranges::none_of(packed, [&](const Expr& x) { return same(x, l); }) &&
          std::ranges::none_of(r.stages, [&](const RowStage& s) { return s.stage->out == l->value; }))
        packed.push_back(l);
}

// Whether an index is the same for all elements of each pack: it depends on quotients of the position only, by what
// packs divide (the channel of a pixel, where channels come first).
bool is_constant_in_packs(const Expr& index, const Expr& var, int length) {
  const Expr within = rewrite(index, [&](const Expr& x) -> Expr {
    std::int64_t period = 0;
    const bool quotient =
        x->op == Op::kFloorDiv && same(x->args[0], var) && is_const_int(x->args[1], period) && period % length == 0;
    return quotient ? Expr(0) : Expr();
  });
  return !uses_var(within, var);
}

void plan_constants_of_packs(const RowAccesses& accesses, RowPlan& r) {
  if (r.packing.length == 1 || r.overlaps || r.uneven) return;
  for (const Expr& b : accesses.bodies)
    for (const Expr& l : all_loads(b))
      if (!l->args[0]->has_load && uses_var(l, r.var) && is_constant_in_packs(l->args[0], r.var, r.packing.length) &&
          std::ranges::none_of(r.of_packs, [&](const Expr& x) { return same(x, l); }) &&
          std::ranges::none_of(r.stages, [&](const RowStage& s) { return s.stage->out == l->value; }))
        r.of_packs.push_back(l);
}

// Whether a pack may end at the end of each row. The rest of a long row may be shorter than a pack, or empty: what is
// before it must be inside of each tensor, too.
bool may_end_there(const RowAccesses& accesses, const Expr& var, int length) {
  const Expr& extent = var->args[0];
  if (is_const(extent)) return true;
  bool ok = extent->op == Op::kMin && accesses.stores.empty();
  for (const Expr& b : accesses.bodies)
    for (const Expr& l : all_loads(b))
      for (const Expr& end : extent->args)
        ok = ok && (!uses_var(l, var) ||
                    (!l->args[0]->has_load &&
                     idx::provably_nonnegative(substitute(l->args[0], {{var, end - Expr(length)}}), true)));
  return ok;
}

// Packs that begin at any element, where those at multiples of a pack would be shorter than half. Empty if rows are too
// short, of unknown length, or have none.
std::optional<Packing> overlapping_packs(const RowAccesses& accesses, const Expr& var, const Packing& aligned) {
  const Expr& extent = var->args[0];
  std::int64_t n = bound_of(extent);
  if (n == 0 && !is_const_int(extent, n)) return std::nullopt;
  Packing p = find_packing(accesses.bodies, accesses.stores, var, true);
  const auto loaded = [&] { return (n + p.length - 1) / p.length * p.length; };
  while (p.length > 1 && (n < p.length || static_cast<double>(loaded()) > kMostOverlap * static_cast<double>(n)))
    p.length /= 2;
  if (p.length <= 2 * aligned.length || !p.multiples.empty() || !may_end_there(accesses, var, p.length))
    return std::nullopt;
  return p;
}

/// Bytes that a thread keeps of each pack of a row.
struct KeptBytes {
  std::int64_t all = 0;    ///< of distinct loads along it, and of results that later stages may read
  std::int64_t again = 0;  ///< without loads that a single stage uses
};
KeptBytes kept_bytes(const RowAccesses& accesses, const RowPlan& r) {
  std::vector<std::pair<Expr, int>> uses;
  for (const Expr& b : accesses.bodies)
    for (const Expr& l : all_loads(b)) {
      const auto is_load = [&](const Expr& x) { return same(x, l); };
      if (!uses_var(l, r.var) || std::ranges::any_of(r.of_packs, is_load)) continue;
      const auto known = std::ranges::find_if(uses, [&](const auto& u) { return same(u.first, l); });
      if (known == uses.end())
        uses.emplace_back(l, 1);
      else
        ++known->second;
    }
  KeptBytes kept;
  const auto add = [&](const DType t, bool again) {
    const auto bytes = static_cast<std::int64_t>(size_of(t)) * r.packing.length;
    kept.all += bytes;
    if (again) kept.again += bytes;
  };
  for (const auto& [l, count] : uses) add(l->dtype, count > 1);
  for (std::size_t k = 0; k + 1 < accesses.stores.size(); ++k) add(accesses.stores[k].first->dtype, true);
  return kept;
}

// How many threads process a row, and whether it stays in their registers: `kept` of a pack, at most `most_kept` bytes
// of all.
void choose_team(RowPlan& r, const KeptBytes& kept, std::int64_t most_kept) {
  const Expr& extent = r.var->args[0];
  const std::int64_t v = r.packing.length;
  // Elements that are loaded one by one are divided among many threads only where there are few rows: each reduction of
  // a team costs as much as several elements.
  const std::int64_t few = v > 1 || least_rows(r) >= kEnoughThreads ? 8 : 2, many = kUsualRowElements;
  std::int64_t n = r.uneven ? bound_of(extent) : 0;
  if (r.uneven && n == 0) {
    r.team = kGpuThreads;
    r.never_fits = true;
    return;
  }
  if (n > 0 || is_const_int(extent, n)) {
    const std::int64_t team = team_for(n, r, few, many);
    const std::int64_t packs = (n + v - 1) / v;
    r.chunks = static_cast<int>((packs + team - 1) / team);
    r.team = team;
    r.exact = !r.uneven && !r.overlaps && r.chunks * team * v == n;
    const bool all = r.chunks * kept.all <= std::min(most_kept, kAllKept);
    const bool again = kept.again > 0 && r.chunks * kept.again <= most_kept;
    r.always_fits = r.chunks * v <= kMostRowElements || (v > 1 && r.chunks * v <= kMostConverted && (all || again));
    r.loads_late = r.always_fits && r.chunks * v > kMostRowElements && r.chunks * kept.all > kAllKept;
    r.never_fits = !r.always_fits;
    return;
  }
  r.chunks = static_cast<int>(std::max<std::int64_t>(1, kUsualRowElements / v));
  Expr team = kGpuThreads;
  for (std::int64_t t = kGpuThreads / 2; t >= 1; t /= 2)
    team = select(compare(Op::kLe, extent, t * (t >= 32 ? many : few)), Expr(t), team);
  r.team = team;
}

}  // namespace

std::optional<RowPlan> plan_rows(const LoopKernel& kernel, IndexRange& range, const RowOptions& options) {
  RowPlan r;
  const std::optional<std::vector<Draft>> drafts = draft_stages(kernel, r.outer);
  if (!drafts) return std::nullopt;
  const Expr extent = common_extent(*drafts, r.outer);
  std::int64_t n = 0;
  if (!extent || (is_const_int(extent, n) && n <= kShortRow)) return std::nullopt;
  r.var = loop_var(extent);
  r.uneven = extent->has_var;
  RowAccesses accesses;
  if (!place_stages(*drafts, range, r, accesses)) return std::nullopt;
  // Rows that are not contiguous run faster side by side, with one thread each if there are stages; otherwise this is
  // not a kernel of rows.
  if (!r.outer.empty() && preference(accesses.bodies, r.outer.back(), r.var) > 0) {
    if (kernel.stages.size() == 1) return std::nullopt;
    plan_columns(r);
    return r;
  }
  r.packing = find_packing(accesses.bodies, accesses.stores, r.var);
  Packing& p = r.packing;
  while (p.length > 1 && is_const_int(extent, n) && n % p.length != 0) p.length /= 2;
  if (p.length == 1) p = {};
  if (!is_const(extent)) add_multiple(p, extent);
  if (options.any_address && (is_const(extent) || r.uneven))
    if (std::optional<Packing> o = overlapping_packs(accesses, r.var, p)) {
      p = std::move(*o);
      r.overlaps = true;
    }
  plan_parts(accesses, r);
  plan_periods(accesses, r);
  if (options.any_address) plan_constants_of_packs(accesses, r);
  choose_team(r, kept_bytes(accesses, r), options.row_bytes);
  return r;
}

}  // namespace sardonyx::codegen
