// GPU kernels of windows (gpu_windows.cpp) that slide along the packs of a row: pooling and depthwise convolutions
// whose images have their channels first. The packs of the row are loaded where they are aligned, each once, and lanes
// select their elements in registers. A pack is completely inside the image or outside.
#include <algorithm>
#include <cstdlib>

#include "codegen/window_costs.h"

namespace sardonyx::codegen {
namespace window {
namespace {

constexpr std::int64_t kLargestStep = 4;  // between lanes; with larger ones, most of what is loaded is not used

// `e` where all variables and symbols are 0.
std::optional<std::int64_t> constant_part(const Expr& e) {
  Assignments zero;
  visit(e, [&](const Expr& x) {
    if (x->op == Op::kVar || x->op == Op::kSym) zero.emplace_back(x, Expr(0));
  });
  std::int64_t n = 0;
  if (e->has_load || !is_const_int(substitute(e, zero), n)) return {};
  return n;
}

}  // namespace

Expr not_negative(const Expr& condition) {
  if (condition->args.size() != 2 || condition->args[0]->dtype != DType::kInt64) return {};
  const Expr &a = condition->args[0], &b = condition->args[1];
  switch (condition->op) {
    case Op::kLe:
      return b - a;
    case Op::kLt:
      return b - a - Expr(1);
    case Op::kGe:
      return a - b;
    case Op::kGt:
      return a - b - Expr(1);
    default:
      return {};
  }
}

void split_conditions(const Expr& e, Exprs& out) {
  if (e->op != Op::kAnd) return out.push_back(e);
  split_conditions(e->args[0], out);
  split_conditions(e->args[1], out);
}

std::optional<RowLoad> row_load(const Expr& load, const Exprs& bounds, const Expr& lane, int length,
                                Exprs& conditions) {
  RowLoad row;
  Expr c, rest;
  if (length * static_cast<int>(size_of(load->dtype)) > 16 || !idx::split_affine(load->args[0], lane, c, rest) ||
      !is_const_int(c, row.step) || row.step < 1 || row.step > kLargestStep)
    return {};
  const std::optional<std::int64_t> k = constant_part(rest);
  if (!k) return {};
  row.shift = ((*k % length) + length) % length;
  row.first = rest - Expr(row.shift);
  if (!multiple_of(row.first, length, conditions) || !multiple_of(idx::product(load->value->shape), length, conditions))
    return {};
  row.packs = (row.shift + row.step * (length - 1)) / length + 1;
  row.inside.resize(static_cast<std::size_t>(row.packs));
  for (const Expr& b : bounds) {
    if (is_const(b, 1)) continue;
    const Expr e = not_negative(b);
    std::int64_t step = 0;
    if (!e || !idx::split_affine(e, lane, c, rest) || !is_const_int(c, step) || std::abs(step) != row.step) return {};
    for (std::int64_t m = 0; m < row.packs; ++m) {
      // The condition on the pack's first element, or on its last one.
      const std::int64_t from = m * length - row.shift;
      const Expr x = step > 0 ? rest + Expr(from) : rest - Expr(from + length - 1);
      if (!multiple_of(x, length, conditions)) return {};
      const Expr holds = compare(Op::kGe, x, 0);
      Expr& all = row.inside[static_cast<std::size_t>(m)];
      all = all ? logical_and(all, holds) : holds;
    }
  }
  return row;
}

}  // namespace window

using window::RowLoad;

std::optional<RowLoad> GpuGenerator::row_of(const Expr& l, const Exprs& bounds, const WindowTile& w) const {
  if (!w.rows || !w.lane || !uses_var(l, w.lane)) return {};
  Exprs conditions;
  std::optional<RowLoad> row = window::row_load(l, bounds, w.lane, w.length, conditions);
  if (row && !std::all_of(conditions.begin(), conditions.end(), [&](const Expr& e) {
        return std::any_of(w.multiples.begin(), w.multiples.end(), [&](const Expr& m) { return same(m, e); });
      }))
    return {};
  return row;
}

// Makes a term of a window's elements whose bounds depend on the lane. False if it is none.
bool GpuGenerator::row_term(const Expr& e, ReduceKind kind, const WindowTile& w, WindowTerm& t) {
  if (!w.rows || e->op != Op::kSelect || e->args[0]->has_load || !e->args[1]->has_load || e->args[1]->has_reduce ||
      e->args[2]->has_load)
    return false;
  const Expr &value = e->args[1], &outside = e->args[2];
  Expr element = bare_load(value);
  if (!element && kind == ReduceKind::kSum && value->op == Op::kMul && is_const(outside) && outside->f == 0 &&
      outside->i == 0)
    for (const std::size_t k : {0U, 1U}) {
      const Exprs others = all_loads(value->args[1 - k]);
      const Expr l = bare_load(value->args[k]);
      if (l && uses_var(l, w.lane) && std::all_of(others.begin(), others.end(), in_bounds)) element = l;
    }
  if (!element) return false;
  const std::string fill = filling(outside, element->dtype);
  Exprs all, bounds;
  Expr inside;
  window::split_conditions(e->args[0], all);
  for (const Expr& c : all)
    if (uses_var(c, w.lane))
      bounds.push_back(c);
    else
      inside = inside ? logical_and(inside, c) : c;
  if (fill.empty() || bounds.empty() || !row_of(element, bounds, w)) return false;
  t.value = value;
  t.outside = outside;
  t.inside = inside;
  t.bounds = std::move(bounds);
  t.filled = element;
  t.fill = fill;
  certain_loads(value, [&](const Expr& l) { t.loads.push_back(l); });
  if (inside) t.condition = emit_.value(inside);
  return true;
}

// Loads the packs of a row that are not loaded yet, and selects the lanes' elements.
std::string GpuGenerator::fetch_row(const Expr& l, const RowLoad& row, const WindowTerm* term, const WindowTile& w,
                                    std::vector<Fetched>& done) {
  const bool filled = term && term->filled && same(term->filled, l);
  std::vector<std::string> packs;
  for (std::int64_t m = 0; m < row.packs; ++m) {
    const Expr offset = row.first + Expr(m * w.length);
    const Expr pack = load(l->value, l->dtype, {offset});
    Expr inside = row.inside[static_cast<std::size_t>(m)];
    if (term && term->inside) inside = inside ? logical_and(term->inside, inside) : term->inside;
    if (inside && is_const(inside, 1)) inside = Expr();
    const auto known = std::find_if(done.begin(), done.end(), [&](const Fetched& f) {
      return f.part_of_row && same(f.load, pack) && (inside ? f.inside && same(f.inside, inside) : !f.inside);
    });
    if (known != done.end()) {
      packs.push_back(known->pack);
      continue;
    }
    const std::string name = emit_.fresh("v"), b = emit_.buffer(l->value), type = emit_.type_of(offset);
    std::string at = emit_.value(offset), condition;
    if (inside) {
      condition = emit_.value(inside);
      at = fmt::format("({0} ? {1}({2}) : {1}(0))", condition, type, at);
    }
    emit_.line(has_small_offsets(*l->value)
                   ? fmt::format("auto {} = load_pack<{}>(element_at({}, {}));", name, w.length, b, at)
                   : fmt::format("auto {} = load_pack<{}>({} + {});", name, w.length, b, at));
    if (inside && filled)
      fills_.push_back(fmt::format("{0} = {1} ? {0} : (decltype({0}))({2});", name, condition, term->fill));
    done.push_back({pack, inside, "", name, true});
    packs.push_back(name);
  }
  const std::string name = emit_.fresh("v");
  const std::string select =
      fmt::format("auto {} = select_elements<{}, {}>({});", name, row.shift, row.step, fmt::join(packs, ", "));
  if (loads_first_)
    fills_.push_back(select);
  else
    emit_.line(select);
  return name;
}

}  // namespace sardonyx::codegen
