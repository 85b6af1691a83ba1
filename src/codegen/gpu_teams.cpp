// GPU kernels with stages, and with reductions over several variables, of any form: a team of threads per outer
// iteration. Scalars (reductions) are computed by all threads together, rows by neighbouring threads, with a barrier
// where a later stage reads what an earlier one wrote.
#include <algorithm>

#include "codegen/gpu_generator.h"

namespace sardonyx::codegen {

// Whether all variables of r except its own (and those of nested reductions) are in scope.
bool GpuGenerator::closed(const Expr& r) const {
  std::unordered_set<std::int64_t> own, used;
  visit(r, [&](const Expr& x) {
    if (x->op == Op::kVar) used.insert(x->i);
    for (const Expr& v : x->vars) own.insert(v->i);
  });
  return std::all_of(used.begin(), used.end(), [&](std::int64_t v) { return own.count(v) || known_.count(v); });
}

// The position of an extreme along one variable, which every thread of the team needs: each searches a part.
void GpuGenerator::search_together(const Expr& r) {
  if (r->vars.size() != 1 || !range_.narrow(r->vars[0]) || !closed(r->vars[0]->args[0])) return;
  const auto kind = static_cast<ReduceKind>(r->i);
  const Expr& var = r->vars[0];
  const std::string order = fmt::format("{}, {}", kind == ReduceKind::kArgMax || kind == ReduceKind::kArgMaxLast,
                                        kind == ReduceKind::kArgMinLast || kind == ReduceKind::kArgMaxLast);
  const char* type = computed_name(r->args[0]->dtype);
  const std::string acc = emit_.fresh("r"), f = emit_.fresh("f"), all = emit_.fresh("r");
  const std::string count = emit_.value(var->args[0]);
  emit_.line(fmt::format("Best<{0}> {1} = {{{0}(0), -1}};", type, acc));
  emit_.line("#pragma unroll 8");
  emit_.open(fmt::format("for (i32 {0} = t; {0} < i32({1}); {0} += i32(team))", f, count));
  emit_.bind(var, f);
  const std::string x = emit_.value(r->args[0]);
  emit_.line(fmt::format("{0} = better_next<{1}>({0}, Best<{2}>{{cast<{2}>({3}), {4}}});", acc, order, type, x, f));
  emit_.close();
  emit_.line(fmt::format(
      "const i64 {0} = reduce_team({1}, team, [](Best<{2}> a, Best<{2}> b) {{ return better<{3}>(a, b); }}).at;", all,
      acc, type, order));
  emit_.bind_value(r, all);
}

// Reductions that every thread of the team needs: each thread computes a part, and all get the result.
void GpuGenerator::cooperate(const Expr& body) {
  Exprs reductions;
  top_reductions(body, reductions);
  for (const Expr& r : reductions) {
    const auto kind = static_cast<ReduceKind>(r->i);
    if (!closed(r)) continue;  // each thread computes it completely
    if (is_search(r)) {
      search_together(r);
      continue;
    }
    bool dependent = false;
    for (const Expr& v : r->vars) dependent |= v->args[0]->has_var && !closed(v->args[0]);
    if (dependent) continue;
    const char* t = type_name(r->dtype);
    const std::string acc = emit_.fresh("r"), f = emit_.fresh("f"), n = emit_.fresh("n"), q = emit_.fresh("q");
    bool contiguous;
    const Exprs vars = order_reduce_vars(r, contiguous);
    emit_.line(fmt::format("{} {} = {};", t, acc, Emitter::neutral(kind, r->dtype)));
    Expr count = 1;
    for (const Expr& v : vars) count = count * v->args[0];
    const bool narrow = range_.narrow(count);
    const char* type = narrow ? "i32" : "i64";
    emit_.line(fmt::format("const {0} {1} = {0}({2});", type, n, emit_.value(count)));
    emit_.open(fmt::format("for ({3} {0} = t; {0} < {1}; {0} += {3}({2}))", f, n, "team", type));
    emit_.line(fmt::format("{} {} = {};", type, q, f));
    decode(vars, q, narrow);
    const std::string value = emit_.value(r->args[0]);
    const std::string x = r->dtype == DType::kInt64 ? "i64(" + value + ")" : value;
    emit_.line(fmt::format("{} = {};", acc, Emitter::combine(kind, r->dtype, acc, x)));
    emit_.close();
    clear(vars);
    const std::string all = emit_.fresh("r");
    emit_.line(fmt::format("const {0} {1} = reduce_team({2}, team, []({0} a, {0} b) -> {0} {{ return {3}; }});", t, all,
                           acc, Emitter::combine(kind, r->dtype, "a", "b")));
    emit_.bind_value(r, all);
  }
}

void GpuGenerator::general(const std::vector<RowStage>& stages, const Exprs& outer, const Expr& team) {
  work_ = 0;
  open_teams(outer, team);
  for (std::size_t k = 0; k < stages.size(); ++k) {
    const Stage& stage = *stages[k].stage;
    Expr body = stages[k].body, offset = stages[k].offset;
    if (!stages[k].row) {
      work_ = work_ + cost_of(body);
      cooperate(body);
      const std::string x = emit_.value(body), local = emit_.fresh("x");
      emit_.line(fmt::format("const {} {} = {};", type_name(stage.out->dtype), local, x));
      emit_.bind_local(stage.out, local);
      if (!stage.stored) continue;
      emit_.open("if (mine && t == 0)");
      store(stage.out, offset, local);
      emit_.close();
      continue;
    }
    Expr n = 1;
    for (const Expr& v : stage.inner) n = n * v->args[0];
    work_ = work_ + n * cost_of(body);
    const Exprs vars = merge_vars(stage.inner, body, offset);
    const bool narrow = range_.narrow(n);
    const char* type = narrow ? "i32" : "i64";
    const std::string f = emit_.fresh("f"), q = emit_.fresh("q"), count = emit_.value(n);
    emit_.open(fmt::format("for ({2} {0} = t; {0} < {1}; {0} += {2}(team))", f, count, type));
    emit_.line(fmt::format("{} {} = {};", type, q, f));
    decode(vars, q, narrow);
    const std::string x = emit_.value(body);
    emit_.open("if (mine)");
    store(stage.out, offset, x);
    emit_.close();
    emit_.close();
    clear(vars);
    if (k + 1 < stages.size()) emit_.line("barrier();");
  }
  emit_.close();
}

}  // namespace sardonyx::codegen
