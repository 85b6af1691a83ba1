// GPU kernels of windows (gpu_windows.cpp): generates one term of a reduction, and the elements that it loads.
#include <algorithm>
#include <cmath>

#include "codegen/gpu_generator.h"
#include "codegen/window_costs.h"

namespace sardonyx::codegen {
namespace {

using Assignments = std::vector<std::pair<Expr, Expr>>;

// A select between elements and a known value, by a condition that is the same for the whole pack: windows at an edge.
bool guarded(const Expr& e, const Expr& lane) {
  return e->op == Op::kSelect && (!lane || !uses_var(e->args[0], lane)) && !e->args[0]->has_load &&
         e->args[1]->has_load && !e->args[2]->has_load && !e->args[1]->has_reduce;
}

}  // namespace

// Whether offsets of elements fit 32 bits without a sign: those of narrow indices, except where elements are wider than
// 16 bits and may be many.
bool has_small_offsets(const Value& v) {
  constexpr std::int64_t kMost = std::int64_t{1} << 32;
  const auto size = static_cast<std::int64_t>(size_of(v.dtype));
  std::int64_t n = 0;
  return size <= 2 || (is_const_int(v.elements(), n) && n <= kMost / size);
}

std::string filling(const Expr& outside, DType t) {
  if (!is_const(outside)) return "";
  if (is_float(outside->dtype)) {
    if (!is_float(t) || (outside->f != 0 && !std::isinf(outside->f))) return "";
    if (outside->f == 0) return "0";
    if (t != DType::kFloat16 && t != DType::kBFloat16 && t != DType::kFloat32 && t != DType::kFloat64) return "";
    return fmt::format("to_bits({})", literal(constant_float(outside->f, t)));
  }
  if (outside->i == 0) return "0";
  return outside->dtype == t ? fmt::format("to_bits({})", literal(outside)) : "";
}

Expr bare_load(const Expr& e) {
  Expr x = e;
  while (x->op == Op::kCast && is_float(x->dtype) == is_float(x->args[0]->dtype) &&
         size_of(x->dtype) >= size_of(x->args[0]->dtype))
    x = x->args[0];
  return x->op == Op::kLoad ? x : Expr();
}

bool in_bounds(const Expr& l) {
  Expr at = l->args[0], c, rest;
  Exprs vars;
  visit(at, [&](const Expr& x) {
    if (x->op == Op::kVar) vars.push_back(x);
  });
  for (const Expr& v : vars) {
    if (v->args[0]->has_var || !idx::split_affine(at, v, c, rest) || !idx::provably_nonnegative(c, true)) return false;
    at = substitute(at, {{v, v->args[0] - Expr(1)}});
  }
  for (const Expr& v : vars) {
    idx::split_affine(l->args[0], v, c, rest);
    if (c->has_var) return false;
  }
  Assignments zero;
  for (const Expr& v : vars) zero.emplace_back(v, Expr(0));
  return !at->has_load && idx::provably_nonnegative(substitute(l->args[0], zero), true) &&
         idx::provably_nonnegative(idx::product(l->value->shape) - Expr(1) - at, true);
}

GpuGenerator::WindowTerm GpuGenerator::window_term(const Expr& e, ReduceKind kind, const WindowTile& w) {
  WindowTerm t;
  t.value = e;
  if (row_term(e, kind, w, t) || !guarded(e, w.lane)) return t;
  // Indices of loads that may be out of bounds must be computed before the condition.
  Exprs certain;
  certain_loads(e->args[1], [&](const Expr& l) { certain.push_back(l); });
  for (const Expr& l : all_loads(e->args[1])) {
    if (l->args[0]->has_load || std::none_of(certain.begin(), certain.end(), [&](const Expr& x) { return same(x, l); }))
      return t;
  }
  t.value = e->args[1];
  t.inside = e->args[0];
  t.outside = e->args[2];
  t.loads = certain;
  t.condition = emit_.value(t.inside);
  // Filling the loaded pack is cheaper than a select per lane.
  if (const Expr l = bare_load(t.value)) {
    t.fill = filling(t.outside, l->dtype);
    if (!t.fill.empty()) t.filled = l;
  } else if (kind == ReduceKind::kSum && t.value->op == Op::kMul && is_const(t.outside) && t.outside->f == 0 &&
             t.outside->i == 0) {
    for (const int k : {0, 1}) {
      const Expr l = bare_load(t.value->args[static_cast<std::size_t>(k)]);
      const Expr other = t.value->args[static_cast<std::size_t>(1 - k)];
      const Exprs others = all_loads(other);
      if (!l || in_bounds(l) || !std::all_of(others.begin(), others.end(), in_bounds)) continue;
      t.filled = l;
      t.fill = "0";
      break;
    }
  }
  return t;
}

std::string GpuGenerator::address_of(const Expr& l, const Expr& offset, const WindowTerm* term) {
  const std::string b = emit_.buffer(l->value), text = emit_.value(offset), type = emit_.type_of(offset);
  if (!term || !term->inside || in_bounds(l)) return fmt::format("{} + {}", b, text);
  const std::string index = fmt::format("({} ? {}({}) : {}(0))", term->condition, type, text, type);
  return loads_first_ && has_small_offsets(*l->value) ? fmt::format("element_at({}, {})", b, index)
                                                      : fmt::format("{} + {}", b, index);
}

void GpuGenerator::fill_with_outside(const Expr& l, const WindowTerm* term, const std::string& name) {
  if (!term || !term->filled || !same(term->filled, l)) return;
  const std::string fill = fmt::format("{0} = {1} ? {0} : (decltype({0}))({2});", name, term->condition, term->fill);
  if (loads_first_)
    fills_.push_back(fill);
  else
    emit_.line(fill);
}

// The C++ text of an element of `l`; loads the pack for all lanes on first use.
std::string GpuGenerator::fetch(const Expr& l, const WindowTerm* term, const WindowTile& w,
                                std::vector<Fetched>& done) {
  const Exprs bounds = term && term->filled && same(term->filled, l) ? term->bounds : Exprs();
  const std::optional<window::RowLoad> row = row_of(l, bounds, w);
  const Expr inside = term && term->inside && (row || !in_bounds(l)) ? term->inside : Expr();
  for (const Fetched& f : done)
    if (!f.part_of_row && same(f.load, l) && (inside ? f.inside && same(f.inside, inside) : !f.inside))
      return f.element;
  const std::string name = emit_.fresh("v");
  std::string element = name, pack;
  if (!w.lane || !uses_var(l, w.lane)) {
    emit_.line(fmt::format("auto {} = to_bits(*({}));", name, address_of(l, l->args[0], term)));
    fill_with_outside(l, term, name);
  } else if (const std::optional<Expr> first = bounds.empty() ? pack_of_lanes(l, w) : std::nullopt) {
    emit_.line(fmt::format("auto {} = load_pack<{}>({});", name, w.length, address_of(l, *first, term)));
    fill_with_outside(l, term, name);
    element += "[l]";
    pack = name;
  } else if (row) {
    pack = fetch_row(l, *row, term, w, done);
    element = pack + "[l]";
  } else {
    emit_.line(fmt::format("unsigned_of<{}> {}[{}];", storage_name(l->dtype), name, w.length));
    emit_.line("#pragma unroll");
    emit_.open(fmt::format("for (int l = 0; l < {}; ++l)", w.length));
    emit_.bind(w.lane, "l");
    emit_.line(fmt::format("{}[l] = to_bits(*({}));", name, address_of(l, l->args[0], term)));
    if (term && term->filled && same(term->filled, l))
      emit_.line(fmt::format("{0}[l] = {1} ? {0}[l] : {2};", name, term->condition, term->fill));
    emit_.close();
    element += "[l]";
  }
  element = element_text(l->dtype, element);
  done.push_back({l, inside, element, pack});
  return element;
}

}  // namespace sardonyx::codegen
