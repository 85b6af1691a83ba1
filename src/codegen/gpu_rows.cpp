// GPU kernels for rows: reductions along contiguous memory, softmax, normalisation. A team of threads processes a row.
// If the row is short enough it stays in registers, so that all stages read memory once; longer rows are read again by
// each stage (mostly from the caches).
#include <algorithm>
#include <map>

#include "codegen/gpu_generator.h"

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kMostElements = 32;       // of a thread, in registers, if the row's length is known
constexpr std::int64_t kUsualElements = 16;      // if it is unknown
constexpr std::int64_t kEnoughThreads = 131072;  // threads that keep a card busy
constexpr std::int64_t kShortRow = 4;            // elements that one thread processes
constexpr std::size_t kMostAhead = 64;           // that a thread prefetches into registers for later stages

bool is_arg(const Expr& r) { return static_cast<ReduceKind>(r->i) >= ReduceKind::kArgMin; }

// Loads that are contiguous along `a` and do not depend on `b`: needed once per row (the token of an embedding), so
// they do not count.
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
  for (const Expr& x : bodies) n += unit_stride_loads(x, a) - once_a_row(x, a, b) - unit_stride_loads(x, b);
  return n;
}

}  // namespace

// Plans a kernel of rows. All stages must run along one variable: reductions over one variable, of equal extents. They
// get the same variable, so that equal loads of different stages become equal expressions.
bool GpuGenerator::plan_rows(RowPlan& r) {
  struct Draft {
    const Stage* stage;
    Expr body, offset;
    Exprs inner;
  };
  std::vector<Draft> drafts;
  if (kernel_.stages.size() == 1 && kernel_.outer.empty()) {
    const FlatLoop f = flat_loop(kernel_.stages[0]);
    Exprs reductions;
    top_reductions(f.body, reductions);
    if (reductions.empty() || (!f.vars.empty() && side_by_side(reductions, f.vars.back()))) return false;
    r.outer = f.vars;
    drafts.push_back({&kernel_.stages[0], f.body, f.offset, {}});
  } else {
    r.outer = kernel_.outer;
    for (const Stage& s : kernel_.stages) {
      Draft d{&s, merge_reduce_vars(flatten_loads(s.body)), storage_offset(*s.out, s.index), {}};
      if (!s.inner.empty()) d.inner = merge_vars(s.inner, d.body, d.offset);
      drafts.push_back(std::move(d));
    }
  }
  Expr extent;
  const auto fits = [&](const Expr& v) {
    if (v->args[0]->has_load) return false;
    bool known = true;  // false if the length may differ between rows
    visit(v->args[0], [&](const Expr& x) {
      known &=
          x->op != Op::kVar || std::any_of(r.outer.begin(), r.outer.end(), [&](const Expr& o) { return same(o, x); });
    });
    if (!known) return false;
    if (!extent) extent = v->args[0];
    return idx::provably_equal(extent, v->args[0]);
  };
  for (const Draft& d : drafts) {
    Exprs reductions;
    top_reductions(d.body, reductions);
    if (!d.inner.empty() && (d.inner.size() != 1 || !fits(d.inner[0]) || d.body->has_reduce)) return false;
    for (const Expr& x : reductions)
      if (x->vars.size() != 1 || !fits(x->vars[0]) || x->args[0]->has_reduce) return false;
  }
  std::int64_t n = 0;
  if (!extent || (is_const_int(extent, n) && n <= kShortRow)) return false;

  r.var = loop_var(extent);
  r.uneven = extent->has_var;
  std::map<const Value*, Expr> rows;  // results of earlier stages, and their indices
  Exprs bodies;
  std::vector<std::pair<const Value*, Expr>> stores;
  for (const Draft& d : drafts) {
    RowStage s{d.stage, d.body, d.offset, !d.inner.empty()};
    if (s.row) {
      s.body = substitute(s.body, {{d.inner[0], r.var}});
      s.offset = substitute(s.offset, {{d.inner[0], r.var}});
    } else {
      Exprs reductions;
      top_reductions(s.body, reductions);
      s.body = rewrite(s.body, [&](const Expr& x) -> Expr {
        if (!x->has_reduce) return x;
        if (std::none_of(reductions.begin(), reductions.end(), [&](const Expr& y) { return same(x, y); }))
          return Expr();
        return reduce(static_cast<ReduceKind>(x->i), {r.var}, substitute(x->args[0], {{x->vars[0], r.var}}));
      });
    }
    bool own = true;  // a thread reads only its own results of other stages
    visit(s.body, [&](const Expr& x) {
      if (x->op != Op::kLoad) return;
      const auto made = rows.find(x->value);
      own &= made == rows.end() || same(made->second, x->args[0]);
    });
    if (!own) return false;
    if (s.row) {
      rows[s.stage->out] = s.offset;
      stores.emplace_back(s.stage->out, s.offset);
      bodies.push_back(s.body);
    }
    Exprs reductions;
    top_reductions(s.body, reductions);
    for (const Expr& x : reductions) {
      if (is_arg(x) && !range_.narrow(r.var)) return false;
      bodies.push_back(x->args[0]);
    }
    r.stages.push_back(std::move(s));
  }
  // Rows that are not contiguous run faster side by side, with one thread each if there are stages; otherwise this is
  // not a kernel of rows. If long rows are few, they get teams nevertheless.
  if (!r.outer.empty() && preference(bodies, r.outer.back(), r.var) > 0) {
    if (kernel_.stages.size() == 1) return false;
    r.team = 1;
    r.chunks = is_const_int(extent, n) ? static_cast<int>(std::min<std::int64_t>(n, 1024)) : 1;
    r.always_fits = r.exact = n > 0 && n <= kMostElements;
    r.never_fits = !r.always_fits;
    if (!r.never_fits) return true;
    r.chunks = 1;
    Expr items = 1;
    for (const Expr& v : r.outer) items = items * v->args[0];
    for (std::int64_t team = 2; team <= 32; team *= 2)
      r.team = select(compare(Op::kLt, items, kEnoughThreads * 2 / team), Expr(team), r.team);
    return true;
  }
  r.packing = find_packing(bodies, stores, r.var);
  Packing& p = r.packing;
  while (p.length > 1 && is_const_int(extent, n) && n % p.length != 0) p.length /= 2;
  if (p.length == 1) p = {};
  if (!is_const(extent)) add_multiple(p, extent);
  choose_team(r);
  return true;
}

namespace {

// Maximum elements of a row whose length differs between rows (parts of a long one); 0: unknown.
std::int64_t bound_of(const Expr& extent) {
  std::int64_t n = 0;
  if (extent->op == Op::kMin)
    for (const Expr& e : extent->args)
      if (is_const_int(e, n)) return n;
  return 0;
}

}  // namespace

void GpuGenerator::choose_team(RowPlan& r) const {
  const Expr& extent = r.var->args[0];
  const std::int64_t v = r.packing.length;
  const std::int64_t few = v > 1 ? 8 : 2, many = kUsualElements;
  std::int64_t n = r.uneven ? bound_of(extent) : 0, items = 0;
  if (r.uneven && n == 0) {
    r.team = kGpuThreads;
    r.never_fits = true;
    return;
  }
  if (n > 0 || is_const_int(extent, n)) {
    std::int64_t team = 1;
    while (team < 32 && team * few < n) team *= 2;
    while (team < kGpuThreads && team * many < n) team *= 2;
    if (is_const_int(idx::product([&] {
                       Exprs e;
                       for (const Expr& o : r.outer) e.push_back(o->args[0]);
                       return e;
                     }()),
                     items))
      while (team < kGpuThreads && items * team < kEnoughThreads && team * v < n) team *= 2;
    const std::int64_t packs = (n + v - 1) / v;
    r.chunks = static_cast<int>((packs + team - 1) / team);
    r.team = team;
    r.exact = !r.uneven && r.chunks * team * v == n;
    r.always_fits = r.chunks * v <= kMostElements;
    r.never_fits = !r.always_fits;
    return;
  }
  r.chunks = static_cast<int>(std::max<std::int64_t>(1, kUsualElements / v));
  Expr team = kGpuThreads;
  for (std::int64_t t = kGpuThreads / 2; t >= 1; t /= 2)
    team = select(compare(Op::kLe, extent, t * (t >= 32 ? many : few)), Expr(t), team);
  r.team = team;
}

// Opens the loop over rows, of which each team processes one at a time. It defines `team`, `t` (this thread's number in
// the team) and `mine` (whether this team has a row). All threads execute it equally often, because of barriers.
void GpuGenerator::open_teams(const Exprs& outer, const Expr& team) {
  emit_.line(fmt::format("const u32 team = {};",
                         is_const(team) ? std::to_string(team->i) : "u32(" + emit_.argument(team) + ")"));
  emit_.line("const i32 t = i32(thread_id() & (team - 1));");
  emit_.line("const u32 per_block = kThreads / team;");
  loop_over_teams(outer, team, "thread_id() / team");
}

// The same with neighbouring threads on neighbouring rows, whose elements are contiguous: threads of a team are 256 /
// team threads apart.
void GpuGenerator::open_columns(const Exprs& outer, std::int64_t team) {
  emit_.line(fmt::format("constexpr u32 team = {}, per_block = kThreads / team;", team));
  emit_.line("const i32 t = i32(thread_id() / per_block);");
  loop_over_teams(outer, Expr(team), "thread_id() % per_block");
}

void GpuGenerator::loop_over_teams(const Exprs& outer, const Expr& team, const std::string& place) {
  Expr items = 1;
  for (const Expr& v : outer) items = items * v->args[0];
  threads_ = items * team;
  const bool narrow = range_.narrow(items);
  const std::string n = emit_.value(items);
  const char* type = narrow ? "u32" : "i64";
  emit_.open(fmt::format("for ({0} p = {0}(block_id()) * per_block; p < {0}({1}); p += {0}(block_count()) * per_block)",
                         type, n));
  emit_.line(fmt::format("const {0} row = p + {1};", type, place));
  emit_.line(fmt::format("const bool mine = row < {}({});", type, n));
  emit_.line(fmt::format("{0} q = {0}(mine ? row : {1}({2}) - 1);", narrow ? "i32" : "i64", type, n));
  decode(outer, "q", narrow);
}

void GpuGenerator::rows(const RowPlan& r) {
  work_ = 0;
  for (const RowStage& s : r.stages) work_ = work_ + cost_of(s.body) * (s.row ? r.var->args[0] : Expr(1));
  const int v = r.packing.length;
  if (v > 1) {
    std::vector<const Value*> stored;
    for (const RowStage& s : r.stages)
      if (s.row) stored.push_back(s.stage->out);
    emit_.line(fmt::format("const bool packed = {};", pack_condition(r.packing, stored)));
  } else {
    emit_.line("constexpr bool packed = false;");
  }
  const char* type = emit_.type_of(r.var);
  if (!r.uneven) emit_.line(fmt::format("const {0} n = {1};", type, emit_.value(r.var->args[0])));
  open_teams(r.outer, r.team);
  if (r.uneven) emit_.line(fmt::format("const {0} n = {1};", type, emit_.value(r.var->args[0])));
  emit_.line(fmt::format("const {0} step = packed ? 1 : {0}(team), begin = packed ? t * {1} : t;", type, v));
  if (!r.never_fits && !r.always_fits) emit_.open(fmt::format("if (n <= {}(team) * {})", type, v * r.chunks));
  if (!r.never_fits) row_stages(r, true);
  if (!r.never_fits && !r.always_fits) {
    emit_.close();
    emit_.open("else");
  }
  if (!r.always_fits) row_stages(r, false);
  if (!r.never_fits && !r.always_fits) emit_.close();
  emit_.close();
}

void GpuGenerator::row_stages(const RowPlan& r, bool in_registers) {
  const int v = r.packing.length;
  const char* type = emit_.type_of(r.var);
  std::vector<std::pair<Expr, std::string>> kept;  // loads, and the registers that hold them
  std::vector<std::pair<const Value*, std::string>> local;

  const auto name_of = [](const std::vector<std::pair<Expr, std::string>>& list, const Expr& l) {
    for (const auto& [known, name] : list)
      if (same(known, l)) return name;
    return std::string();
  };
  const auto is_local = [&](const Value* value) {
    return std::any_of(local.begin(), local.end(), [&](const auto& x) { return x.first == value; });
  };
  // Loads of a body that depend on the position in the row and are always evaluated.
  const auto needs = [&](const Expr& body) {
    Exprs list;
    certain_loads(body, [&](const Expr& l) {
      if (is_local(l->value) || !uses_var(l, r.var)) return;
      bool nested = false;  // an index that contains a load
      for (const Expr& a : l->args) nested |= a->has_load;
      if (!nested && std::none_of(list.begin(), list.end(), [&](const Expr& x) { return same(x, l); }))
        list.push_back(l);
    });
    return list;
  };
  // Whether `body` can safely be evaluated past the row's end.
  const auto harmless = [&](const Expr& body, const Exprs& loaded) {
    bool ok = true;
    visit(body, [&](const Expr& x) {
      if (x->op != Op::kLoad || is_local(x->value)) return;
      ok &= std::any_of(loaded.begin(), loaded.end(), [&](const Expr& l) { return same(l, x); }) ||
            (!uses_var(x, r.var) && !x->args[0]->has_load);
    });
    return ok;
  };
  // Emits the loads of one pack, which begins at `first`.
  const auto read = [&](const Expr& l, const std::string& to, const std::string& first) {
    Expr c, rest;
    if (idx::split_affine(l->args[0], r.var, c, rest) && is_const(c, 1)) {
      const bool packs =
          std::any_of(r.packing.loads.begin(), r.packing.loads.end(), [&](const Expr& x) { return same(x, l); });
      emit_.line(fmt::format("{} = load_row<{}>({} + {}, {}, step, n, {});", to, v, emit_.buffer(l->value),
                             emit_.value(rest), first, packs ? "packed" : "false"));
      return;
    }
    emit_.line(fmt::format("{} = 0;", to));
    emit_.line("#pragma unroll");
    emit_.open(fmt::format("for (int l = 0; l < {}; ++l)", v));
    const std::string i = emit_.fresh("i");
    emit_.line(fmt::format("const {} {} = {} + l * step;", type, i, first));
    emit_.bind(r.var, i);
    if (!r.exact) emit_.open(fmt::format("if ({} < n)", i));
    const std::string at = emit_.value(l->args[0]);
    emit_.line(fmt::format("{}[l] = to_bits({}[{}]);", to, emit_.buffer(l->value), at));
    if (!r.exact) emit_.close();
    emit_.close();
  };
  // Emits loads of all of this thread's elements into registers.
  const auto keep = [&](const Expr& l) {
    if (!name_of(kept, l).empty()) return;
    const std::string name = emit_.fresh("r"), c = emit_.fresh("c"), first = emit_.fresh("f");
    emit_.line(fmt::format("Pack<{}, {}> {}[{}];", storage_name(l->dtype), v, name, r.chunks));
    emit_.line("#pragma unroll");
    emit_.open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", c, r.chunks));
    emit_.line(fmt::format("const {0} {1} = {2} * {0}(team) * {3} + begin;", type, first, c, v));
    read(l, name + "[" + c + "]", first);
    emit_.close();
    kept.emplace_back(l, name);
  };
  // Operands of later stages that this kernel does not write (the weights of a norm) are loaded together with the first
  // stage's: after its reduction, their latency would be exposed.
  Exprs ahead;
  if (in_registers) {
    std::size_t bytes = 0;
    for (std::size_t k = 1; k < r.stages.size(); ++k) {
      if (!r.stages[k].row) continue;
      for (const Expr& l : needs(r.stages[k].body)) {
        const bool made =
            std::any_of(r.stages.begin(), r.stages.end(), [&](const RowStage& s) { return s.stage->out == l->value; });
        bytes += made ? 0 : size_of(l->dtype) * static_cast<std::size_t>(r.chunks * v);
        if (!made && bytes <= kMostAhead) ahead.push_back(l);
      }
    }
  }
  // Emits the loop over this thread's elements. `element(guard)` emits the code of one element, with the text of its
  // condition, and `pack(first)` what follows the elements of a pack.
  const auto run = [&](const Expr& body, const auto& before, const auto& element, const auto& pack) {
    const Exprs loaded = needs(body);
    const bool safe = harmless(body, loaded);
    if (in_registers) {
      for (const Expr& l : loaded) keep(l);
      for (const Expr& l : ahead) keep(l);
      ahead.clear();
    }
    const std::string c = emit_.fresh("c"), first = emit_.fresh("f");
    std::vector<std::pair<Expr, std::string>> here;
    if (in_registers) {
      emit_.line("#pragma unroll");
      emit_.open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", c, r.chunks));
      emit_.line(fmt::format("const {0} {1} = {2} * {0}(team) * {3} + begin;", type, first, c, v));
      for (const auto& [l, name] : kept) here.emplace_back(l, name + "[" + c + "]");
    } else {
      emit_.open(fmt::format("for ({0} {1} = begin; {1} < n; {1} += {0}(team) * {2})", type, first, v));
      for (const Expr& l : loaded) {
        const std::string name = emit_.fresh("r");
        emit_.line(fmt::format("Pack<{}, {}> {};", storage_name(l->dtype), v, name));
        read(l, name, first);
        here.emplace_back(l, name);
      }
    }
    before(c);
    emit_.line("#pragma unroll");
    emit_.open(fmt::format("for (int l = 0; l < {}; ++l)", v));
    const std::string i = emit_.fresh("i");
    emit_.line(fmt::format("const {} {} = {} + l * step;", type, i, first));
    emit_.bind(r.var, i);
    for (const auto& [l, name] : here) emit_.bind_value(l, element_text(l->dtype, name + "[l]"));
    const bool whole = r.exact && in_registers;
    const std::string guard = whole ? "" : fmt::format("{} < n", i);
    if (!whole && !safe) emit_.open(fmt::format("if ({})", guard));
    element(safe ? guard : std::string(), i);
    if (!whole && !safe) emit_.close();
    emit_.close();
    pack(first, c);
    emit_.close();
  };
  const auto nothing = [](const std::string&) {};

  for (const RowStage& s : r.stages) {
    const Value* out = s.stage->out;
    if (s.row) {
      std::string y = emit_.fresh("r");
      const std::string declared = fmt::format("Pack<{}, {}> {}", storage_name(out->dtype), v, y);
      if (in_registers) emit_.line(fmt::format("{}[{}];", declared, r.chunks));
      Expr c1, rest;
      const bool unit = idx::split_affine(s.offset, r.var, c1, rest) && is_const(c1, 1);
      std::string slot;
      run(
          s.body,
          [&](const std::string& c) {
            slot = in_registers ? y + "[" + c + "]" : y;
            if (!in_registers) emit_.line(declared + " = 0;");
          },
          [&](const std::string&, const std::string& i) {
            const std::string x = emit_.value(s.body);
            emit_.line(fmt::format("{}[l] = {};", slot, bits_text(out->dtype, x)));
            if (unit || (in_registers && !s.stage->used_after)) return;
            emit_.open(r.exact && in_registers ? "if (mine)" : fmt::format("if (mine && {} < n)", i));
            emit_.line(fmt::format("{}[{}] = {};", emit_.buffer(out), emit_.value(s.offset), x));
            emit_.close();
          },
          [&](const std::string& first, const std::string&) {
            if (!unit || (in_registers && !s.stage->used_after)) return;
            emit_.line(fmt::format("if (mine) store_row<{}>({} + {}, {}, step, n, packed, {});", v, emit_.buffer(out),
                                   emit_.value(rest), first, slot));
          });
      if (in_registers) kept.emplace_back(load(out, out->dtype, {s.offset}), y);
      continue;
    }
    Exprs reductions;
    top_reductions(s.body, reductions);
    for (const Expr& x : reductions) {
      const auto kind = static_cast<ReduceKind>(x->i);
      const Expr& body = x->args[0];
      const std::string acc = emit_.fresh("a"), all = emit_.fresh("a");
      if (is_arg(x)) {
        const bool max = kind == ReduceKind::kArgMax || kind == ReduceKind::kArgMaxLast;
        const bool last = kind == ReduceKind::kArgMinLast || kind == ReduceKind::kArgMaxLast;
        const std::string type_text = computed_name(body->dtype), order = fmt::format("{}, {}", max, last),
                          best = "better<" + order + ">";
        emit_.line(fmt::format("Best<{0}> {1} = {{{0}(0), -1}};", type_text, acc));
        run(
            body, nothing,
            [&](const std::string& guard, const std::string& i) {
              const std::string y = emit_.value(body);
              emit_.line(fmt::format("{0} = better_next<{1}>({0}, Best<{2}>{{cast<{2}>({3}), {4}}});", acc, order,
                                     type_text, y, guard.empty() ? i : fmt::format("{} ? {} : -1", guard, i)));
            },
            [](const std::string&, const std::string&) {});
        emit_.line(fmt::format(
            "const i64 {0} = reduce_team({1}, team, [](Best<{2}> a, Best<{2}> b) {{ return {3}(a, b); }}).at;", all,
            acc, type_text, best));
      } else {
        const char* t = type_name(x->dtype);
        emit_.line(fmt::format("{} {} = {};", t, acc, Emitter::neutral(kind, x->dtype)));
        run(
            body, nothing,
            [&](const std::string& guard, const std::string&) {
              const std::string value = emit_.value(body);
              const std::string y = x->dtype == DType::kInt64 ? "i64(" + value + ")" : value;
              const std::string sum = Emitter::combine(kind, x->dtype, acc, y);
              emit_.line(guard.empty() ? fmt::format("{} = {};", acc, sum)
                                       : fmt::format("{0} = {1} ? {2}({3}) : {0};", acc, guard, t, sum));
            },
            [](const std::string&, const std::string&) {});
        emit_.line(fmt::format("const {0} {1} = reduce_team({2}, team, []({0} a, {0} b) -> {0} {{ return {3}; }});", t,
                               all, acc, Emitter::combine(kind, x->dtype, "a", "b")));
      }
      emit_.bind_value(x, all);
    }
    const std::string x = emit_.value(s.body), name = emit_.fresh("x");
    emit_.line(fmt::format("const {} {} = {};", type_name(out->dtype), name, x));
    emit_.bind_local(out, name);
    local.emplace_back(out, name);
    if (!s.stage->stored) continue;
    emit_.open("if (mine && t == 0)");
    store(out, s.offset, name);
    emit_.close();
  }
}

}  // namespace sardonyx::codegen
