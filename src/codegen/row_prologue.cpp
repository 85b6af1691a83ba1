// See row_prologue.h.
#include "codegen/row_prologue.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/emit.h"
#include "codegen/loop_analysis.h"

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kRun = 8;  // elements of 16 bits in 16 bytes

// Substitutes the contraction's row and k in the loop's stage.
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

namespace {

// Opens a function of the row, and binds its parameters z, line and at.
void begin(Emitter& e, const Contraction& c, const RowPrologue& p, std::string_view head) {
  e.open(fmt::format("SDX_FN {} const", head));
  for (const auto& [var, name] : {std::pair(c.z, "z"), std::pair(c.row, "line"), std::pair(p.run, "at / 8")}) {
    if (is_const(var)) continue;
    const std::string i = e.fresh("i");
    e.line(fmt::format("const i64 {} = {};", i, name));
    e.bind(var, i);
  }
}

// Element j of a run.
Expr in_run(const RowPrologue& p, const Expr& x, std::int64_t j) {
  return substitute(x, {{p.k, p.run * Expr(kRun) + Expr(j)}});
}

// The memory that the sum's terms and the elements need of a run.
struct RunOfLoads {
  Exprs loads;             ///< for each j
  bool contiguous = true;  ///< can be loaded 16 bytes at a time
};

void emit_elements(Emitter& e, const Contraction& c, const RowPrologue& p) {
  e.bind_local(p.total, "total");
  for (std::int64_t j = 0; j < kRun; ++j)
    e.line(fmt::format("x[{}] = {};", j, e.value(cast(in_run(p, p.element, j), c.type))));
}

void emit_sum(Emitter& e, const RowPrologue& p) {
  e.line("f32 part = 0;");
  for (std::int64_t j = 0; j < kRun; ++j) e.line(fmt::format("part += {};", e.value(in_run(p, p.term, j))));
  e.line("return part;");
}

// Empty unless all of them are floats at known positions.
std::vector<RunOfLoads> loads_of_run(const RowPrologue& p) {
  std::vector<RunOfLoads> found;
  for (std::int64_t j = 0; j < kRun; ++j) {
    Exprs here;
    bool plain = true;
    for (const Expr& body : {p.term, p.element})
      certain_parts(in_run(p, body, j), [&](const Expr& x) {
        if (x->op != Op::kLoad || x->value == p.total) return true;
        plain &= !x->args[0]->has_load && is_float(x->dtype) && size_of(x->dtype) <= 4 && size_of(x->dtype) >= 2;
        if (std::none_of(here.begin(), here.end(), [&](const Expr& y) { return same(x, y); })) here.push_back(x);
        return true;
      });
    if (j == 0) found.resize(here.size());
    if (!plain || here.size() != found.size()) return {};
    for (std::size_t k = 0; k < here.size(); ++k) {
      RunOfLoads& r = found[k];
      if (j > 0 && (here[k]->value != r.loads[0]->value || here[k]->dtype != r.loads[0]->dtype)) return {};
      r.loads.push_back(here[k]);
      const Expr &first = r.loads[0]->args[0], &at = here[k]->args[0];
      r.contiguous &= idx::provably_equal(at, first + Expr(j)) && divisor_of(first) % kRun == 0;
    }
  }
  return found;
}

}  // namespace

void emit_row_prologue(Emitter& e, const Contraction& c, const RowPrologue& p) {
  begin(e, c, p, "f32 row_part(u32 z, u32 line, u32 at)");
  emit_sum(e, p);
  e.close();
  begin(e, c, p, "void row_elements(u32 z, u32 line, u32 at, f32 total, T* x)");
  emit_elements(e, c, p);
  e.close();
}

std::string emit_streamed_row(Emitter& e, const Contraction& c, const RowPrologue& p,
                              const std::function<bool(const Value*)>& loaded) {
  const std::vector<RunOfLoads> runs = loads_of_run(p);
  if (runs.empty()) return {};
  for (const bool early : {true, false}) {
    begin(e, c, p, fmt::format("void {}(u32 z, u32 line, u32 at, Row& r)", early ? "row_constants" : "row_read"));
    for (std::size_t k = 0; k < runs.size(); ++k) {
      const RunOfLoads& r = runs[k];
      const Value* from = r.loads[0]->value;
      if (loaded(from) != early) continue;
      if (r.contiguous) {
        const std::string at = e.value(r.loads[0]->args[0]);
        e.line(fmt::format("stream_detail::read_run({} + {}, r.r{});", e.buffer(from), at, k));
      } else {
        for (std::size_t j = 0; j < r.loads.size(); ++j)
          e.line(fmt::format("r.r{}[{}] = {};", k, j, e.value(r.loads[j])));
      }
    }
    e.close();
  }
  const auto bind = [&] {
    for (std::size_t k = 0; k < runs.size(); ++k)
      for (std::size_t j = 0; j < runs[k].loads.size(); ++j)
        e.bind_value(runs[k].loads[j], fmt::format("r.r{}[{}]", k, j));
  };
  begin(e, c, p, "f32 row_part(u32 z, u32 line, u32 at, const Row& r)");
  bind();
  emit_sum(e, p);
  e.close();
  begin(e, c, p, "void row_elements(u32 z, u32 line, u32 at, f32 total, const Row& r, T* x)");
  bind();
  emit_elements(e, c, p);
  e.close();
  std::string members;
  for (std::size_t k = 0; k < runs.size(); ++k)
    members += fmt::format(" {} r{}[{}];", e.type_of(runs[k].loads[0]), k, kRun);
  return fmt::format("  struct Row {{{} }};\n", members);
}

}  // namespace sardonyx::codegen
