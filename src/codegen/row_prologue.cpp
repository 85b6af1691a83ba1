// See row_prologue.h.
#include "codegen/row_prologue.h"

#include "codegen/emit.h"

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kRun = 8;  // elements of 16 bits in 16 bytes

// The loop's stage at row and k: its outer variables are what the row is made of.
Expr at_row(const Expr& e, const std::vector<std::pair<Expr, Expr>>& outer, const Expr& inner, const Expr& k) {
  std::vector<std::pair<Expr, Expr>> r = outer;
  r.emplace_back(inner, k);
  return flatten_loads(widen_halves_of(substitute(e, r)));
}

}  // namespace

std::optional<RowPrologue> row_prologue(const Contraction& c, const LoopKernel& rows) {
  if (size_of(c.type) != 2 || c.inside || c.reduced.size() != 1 || rows.stages.size() != 2) return {};
  const Stage &sum = rows.stages[0], &store = rows.stages[1];
  std::int64_t depth = 0, extent = 0;
  const Expr& k = c.reduced[0];
  if (!is_const_int(k->args[0], depth) || depth % 64 != 0 || sum.stored || !sum.inner.empty() || !store.stored ||
      store.inner.size() != 1 || !is_const_int(store.inner[0]->args[0], extent) || extent != depth)
    return {};
  const Expr& total = sum.body;
  if (total->op != Op::kReduce || static_cast<ReduceKind>(total->i) != ReduceKind::kSum ||
      total->dtype != DType::kFloat32 || total->vars.size() != 1 || !is_const_int(total->vars[0]->args[0], extent) ||
      extent != depth || total->args[0]->has_reduce || store.body->has_reduce)
    return {};
  // a is the stored value, row by row.
  if (c.a->op != Op::kLoad || storage_of(const_cast<Value*>(c.a->value)) != store.out || c.a->dtype != c.type ||
      !store.out->storage_order.empty() || store.out->dtype != c.type ||
      !idx::provably_equal(idx::linearize(c.a->args, c.a->value->shape), c.row * Expr(depth) + k))
    return {};
  Exprs extents;
  for (const Expr& v : rows.outer) extents.push_back(v->args[0]);
  if (!idx::provably_equal(idx::product(extents), c.m())) return {};
  // The stored value's dims are the outer variables in order, then the row.
  std::size_t next = 0;
  for (const Expr& i : store.index) {
    if (is_const(i, 0)) continue;
    const bool last = next == rows.outer.size();
    if (!same(i, last ? store.inner[0] : rows.outer[next])) return {};
    ++next;
  }
  if (next != rows.outer.size() + 1) return {};
  const Exprs parts = idx::delinearize(c.row, extents);
  std::vector<std::pair<Expr, Expr>> outer;
  for (std::size_t d = 0; d < parts.size(); ++d) outer.emplace_back(rows.outer[d], parts[d]);
  RowPrologue p;
  p.run = loop_var(Expr(depth / kRun));
  p.k = loop_var(Expr(depth));
  p.term = at_row(total->args[0], outer, total->vars[0], p.k);
  p.element = at_row(store.body, outer, store.inner[0], p.k);
  p.total = sum.out;
  if (p.term->dtype != DType::kFloat32) return {};
  return p;
}

void emit_row_prologue(Emitter& e, const Contraction& c, const RowPrologue& p) {
  const auto begin = [&](std::string_view head) {
    e.open(fmt::format("SDX_FN {} const", head));
    for (const auto& [var, name] : {std::pair(c.z, "z"), std::pair(c.row, "line"), std::pair(p.run, "at / 8")}) {
      if (is_const(var)) continue;
      const std::string i = e.fresh("i");
      e.line(fmt::format("const i64 {} = {};", i, name));
      e.bind(var, i);
    }
  };
  const auto at = [&](const Expr& x, std::int64_t j) { return substitute(x, {{p.k, p.run * Expr(kRun) + Expr(j)}}); };
  begin("f32 row_part(u32 z, u32 line, u32 at)");
  e.line("f32 part = 0;");
  for (std::int64_t j = 0; j < kRun; ++j) e.line(fmt::format("part += {};", e.value(at(p.term, j))));
  e.line("return part;");
  e.close();
  begin("void row_elements(u32 z, u32 line, u32 at, f32 total, T* x)");
  e.bind_local(p.total, "total");
  for (std::int64_t j = 0; j < kRun; ++j)
    e.line(fmt::format("x[{}] = {};", j, e.value(cast(at(p.element, j), c.type))));
  e.close();
}

}  // namespace sardonyx::codegen
