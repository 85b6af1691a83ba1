// See loop_analysis.h.
#include "codegen/loop_analysis.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "codegen/emit.h"

namespace sardonyx::codegen {
namespace {

// An access runs through dims a and b (b inside a) as through one dim if a's stride is b's stride times b's extent.
bool collapsible(const Expr& offset, const Expr& a, const Expr& b) {
  Expr ca, cb, rest;
  if (!idx::split_affine(offset, a, ca, rest) || !idx::split_affine(offset, b, cb, rest)) return false;
  return idx::provably_equal(ca, cb * b->args[0]);
}

bool uses(const Expr& e, const Expr& var) {
  if (!e->has_var) return false;
  bool used = false;
  visit(e, [&](const Expr& x) { used |= x->op == Op::kVar && x->i == var->i; });
  return used;
}

// True if a and b occur only in indices of loads, all collapsible. The expression is not rewritten for this test:
// simplification could remove conditions on a and b.
bool only_in_loads(const Expr& e, const Expr& a, const Expr& b, std::unordered_set<const ExprNode*>& seen) {
  if (!e->has_var || !seen.insert(e.get()).second) return true;
  if (e->op == Op::kVar) return e->i != a->i && e->i != b->i;
  if (e->op == Op::kLoad) return collapsible(e->args[0], a, b);
  for (const Expr& x : e->args)
    if (!only_in_loads(x, a, b, seen)) return false;
  return true;
}

// True if a and b only occur in indices of loads, all collapsible, and in `store`.
bool can_merge(const Expr& body, const Expr& store, const Expr& a, const Expr& b) {
  std::unordered_set<const ExprNode*> seen;
  return (!store || collapsible(store, a, b)) && only_in_loads(body, a, b, seen);
}

// Whether products of floats are added up in it, which the compiler may contract.
bool adds_products(const Expr& e) {
  bool found = false;
  visit(e, [&](const Expr& x) {
    if ((x->op != Op::kAdd && x->op != Op::kSub) || !is_float(x->dtype)) return;
    found |= x->args[0]->op == Op::kMul || x->args[1]->op == Op::kMul;
  });
  return found;
}

}  // namespace

// Merges adjacent variables where possible; body and store are rewritten.
Exprs merge_vars(Exprs vars, Expr& body, Expr& store) {
  for (std::size_t k = vars.size(); k-- > 1;) {
    const Expr a = vars[k - 1], b = vars[k];
    if (!can_merge(body, store, a, b)) continue;
    const Expr u = loop_var(a->args[0] * b->args[0]);
    const std::vector<std::pair<Expr, Expr>> r = {{a, Expr(0)}, {b, u}};
    body = substitute(body, r);
    if (store) store = substitute(store, r);
    vars[k - 1] = u;
    vars.erase(vars.begin() + static_cast<std::ptrdiff_t>(k));
  }
  return vars;
}

// The same for the variables of reductions.
Expr merge_reduce_vars(const Expr& e) {
  if (!e->has_reduce) return e;
  return rewrite(e, [](const Expr& x) -> Expr {
    if (!x->has_reduce) return x;
    if (x->op != Op::kReduce) return Expr();
    Expr body = merge_reduce_vars(x->args[0]), none;
    const auto kind = static_cast<ReduceKind>(x->i);
    Exprs vars = merge_vars(x->vars, body, none);
    return reduce(kind, vars, body);
  });
}

// Reductions of `e` that are always evaluated (not inside another one, not on one side of a select), operands first.
void top_reductions(const Expr& e, Exprs& out) {
  if (!e->has_reduce) return;
  if (e->op == Op::kReduce) {
    for (const Expr& r : out)
      if (same(r, e)) return;
    if (e->args[0]->has_reduce) top_reductions(e->args[0], out);
    for (const Expr& r : out)
      if (same(r, e)) return;
    out.push_back(e);
    return;
  }
  if (e->op == Op::kSelect) return top_reductions(e->args[0], out);
  for (const Expr& a : e->args) top_reductions(a, out);
}

bool reduces_known(const Expr& r, const Exprs& reductions) {
  bool ok = true;
  if (r->args[0]->has_reduce)
    visit(r->args[0], [&](const Expr& x) {
      if (x->op != Op::kReduce) return;
      ok &= std::any_of(reductions.begin(), reductions.end(), [&](const Expr& k) { return same(k, x); });
      for (const Expr& v : r->vars) ok &= !uses(x, v);
    });
  return ok;
}

bool is_search(const Expr& r) { return static_cast<ReduceKind>(r->i) >= ReduceKind::kArgMin; }

// Whether reductions should run side by side over `inner` (contiguous in memory) rather than one after another.
bool side_by_side(const Exprs& reductions, const Expr& inner, bool searches) {
  if (reductions.empty()) return false;
  int with = 0, without = 0;
  for (const Expr& r : reductions) {
    if ((is_search(r) && !searches) || !reduces_known(r, reductions)) return false;
    for (const Expr& v : r->vars)
      if (uses(v->args[0], inner)) return false;
    with += unit_stride_loads(r->args[0], inner);
    for (const Expr& v : r->vars) without += unit_stride_loads(r->args[0], v);
  }
  return with > 0 && with >= without;
}

FlatLoop flat_loop(const Stage& stage) {
  FlatLoop f;
  f.body = merge_reduce_vars(flatten_loads(stage.body));
  f.offset = storage_offset(*stage.out, stage.index);
  // Dims in the order of memory, without those of extent 1.
  std::vector<int> order = stage.out->storage_order;
  if (order.empty())
    for (int k = 0; k < stage.out->rank(); ++k) order.push_back(k);
  std::vector<std::pair<Expr, Expr>> ones;
  for (int d : order) {
    const Expr& v = stage.index[static_cast<std::size_t>(d)];
    if (v->op != Op::kVar) continue;
    if (is_const(v->args[0], 1))
      ones.emplace_back(v, Expr(0));
    else
      f.vars.push_back(v);
  }
  f.body = substitute(f.body, ones);
  f.offset = substitute(f.offset, ones);
  f.vars = merge_vars(std::move(f.vars), f.body, f.offset);
  return f;
}

std::optional<Expr> columns_of(const FlatLoop& loop, std::int64_t least) {
  Exprs reductions;
  top_reductions(loop.body, reductions);
  if (reductions.empty() || side_by_side(reductions, loop.vars.back())) return {};
  for (std::size_t k = loop.vars.size() - 1; k-- > 0;) {
    std::int64_t n = 0;
    if (is_const_int(loop.vars[k]->args[0], n) && n < least) continue;
    if (side_by_side(reductions, loop.vars[k])) return loop.vars[k];
  }
  return {};
}

namespace {

bool is_computed_of_floats(const Expr& index) {
  bool found = false;
  if (index->has_load) visit(index, [&](const Expr& x) { found |= x->op == Op::kCast && is_float(x->args[0]->dtype); });
  return found;
}

// Whether `body` samples along v; `own`: tensors that are read at any distance.
bool samples_along(const Expr& body, const Expr& v, const std::vector<const Value*>& own) {
  bool samples = false, along = true;
  visit(body, [&](const Expr& x) {
    if (x->op != Op::kLoad || !mentions(x, v) || std::ranges::find(own, x->value) != own.end()) return;
    Expr step, rest;
    along = along && idx::split_affine(x->args[0], v, step, rest) && is_const(step, 1);
    samples |= is_computed_of_floats(x->args[0]);
  });
  return samples && along;
}

bool has_at_least(const Expr& var, std::int64_t least) {
  std::int64_t n = 0;
  return !is_const_int(var->args[0], n) || n >= least;
}

}  // namespace

std::optional<Expr> samples_along(const FlatLoop& loop, std::int64_t least) {
  if (loop.body->has_reduce) return {};
  for (std::size_t k = 0; k + 1 < loop.vars.size(); ++k)
    if (has_at_least(loop.vars[k], least) && samples_along(loop.body, loop.vars[k], {})) return loop.vars[k];
  return {};
}

LoopKernel with_channels_inside(LoopKernel kernel, std::int64_t least) {
  std::vector<const Value*> own;
  for (const Stage& stage : kernel.stages) {
    if (!stage.stored) return kernel;
    own.push_back(stage.out);
  }
  if (own.size() < 2) return kernel;
  for (std::size_t k = 0; k < kernel.outer.size(); ++k) {
    const Expr v = kernel.outer[k];
    const auto samples = [&](const Stage& s) {
      return !s.body->has_reduce && samples_along(flatten_loads(s.body), v, own);
    };
    if (!has_at_least(v, least) || std::ranges::none_of(kernel.stages, samples)) continue;
    kernel.outer.erase(kernel.outer.begin() + static_cast<std::ptrdiff_t>(k));
    for (Stage& stage : kernel.stages) stage.inner.push_back(v);
    return kernel;
  }
  return kernel;
}

Expr as_choice(const Expr& body, const Expr& var) {
  if (body->has_reduce || body->op == Op::kSelect || body->op == Op::kLoad) return body;
  Expr chosen;
  certain_parts(body, [&](const Expr& x) {
    if (!chosen && x->op == Op::kSelect && !mentions(x->args[0], var) && x->args[1]->has_load && x->args[2]->has_load)
      chosen = x;
    return x->op != Op::kSelect && x->op != Op::kLoad;
  });
  if (!chosen) return body;
  const auto with = [&](const Expr& side) {
    return rewrite(body, [&](const Expr& x) { return same(x, chosen) ? side : Expr(); });
  };
  return select(chosen->args[0], with(chosen->args[1]), with(chosen->args[2]));
}

Exprs certain_angles(const Expr& e) {
  const auto is_wave = [](const Expr& x) {
    return (x->op == Op::kSin || x->op == Op::kCos) && x->dtype == DType::kFloat32;
  };
  Exprs waves, angles;
  bool cheap = !e->has_reduce;
  visit(e, [&](const Expr& x) {
    if (is_wave(x)) waves.push_back(x);
  });
  for (const Expr& w : waves) {
    bool certain = false;
    certain_parts(e, [&](const Expr& x) {
      certain |= same(x, w);
      return true;
    });
    visit(w->args[0],
          [&](const Expr& x) { cheap &= !(x->op >= Op::kExp && x->op <= Op::kSigmoid) && x->op != Op::kPow; });
    cheap &= certain;
    if (std::ranges::none_of(angles, [&](const Expr& a) { return same(a, w->args[0]); })) angles.push_back(w->args[0]);
  }
  return cheap ? angles : Exprs();
}

bool in_parts(const Expr& body, const Expr& var) {
  return body->op == Op::kSelect && body->args[0]->op == Op::kLt && same(body->args[0]->args[0], var) &&
         is_const(body->args[0]->args[1]);
}

Expr computed_parts(const Expr& body, const Expr& var) {
  constexpr int kMost = 4;
  if (body->has_reduce) return {};
  int count = 0;
  Expr found;
  visit(body, [&](const Expr& x) {
    if (!in_parts(x, var)) return;
    ++count;
    found = x;  // the last one is the outermost
  });
  if (count == 0 || count > kMost) return {};
  // Integers show which products were contracted (a linear Resize of integers is often halfway between two of them),
  // and that differs from one form of a loop to another.
  if (is_integer(body->dtype) && adds_products(body)) return {};
  const auto with = [&](std::size_t side) {
    return rewrite(body, [&](const Expr& x) { return x.get() == found.get() ? found->args[side] : Expr(); });
  };
  return select(found->args[0], with(1), with(2));
}

bool advances(const Expr& e, const Expr& var) { return is_const(idx::sub(substitute(e, {{var, var + 1}}), e), 1); }

std::optional<Across> reads_across(const FlatLoop& loop, std::int64_t least) {
  const Expr& inner = loop.vars.back();
  const auto long_enough = [least](const Expr& v) {
    std::int64_t n = 0;
    return !is_const_int(v->args[0], n) || n >= least;
  };
  if (loop.body->has_reduce || in_parts(loop.body, inner) || !long_enough(inner)) return {};
  std::vector<Across> found(loop.vars.size());
  certain_parts(loop.body, [&](const Expr& x) {
    Expr c, rest;
    if (x->op != Op::kLoad || x->args[0]->has_load || !idx::split_affine(x->args[0], inner, c, rest) ||
        is_const(c, 0) || is_const(c, 1))
      return true;
    for (std::size_t k = 0; k + 1 < loop.vars.size(); ++k)
      if (long_enough(loop.vars[k]) && advances(x->args[0], loop.vars[k])) found[k].loads.push_back(x);
    return true;
  });
  for (std::size_t k = 0; k < found.size(); ++k) found[k].along = k;
  const auto most = std::max_element(found.begin(), found.end(),
                                     [](const auto& a, const auto& b) { return a.loads.size() < b.loads.size(); });
  return most->loads.empty() ? std::nullopt : std::optional(*most);
}

std::optional<Expr> long_side(const FlatLoop& loop, std::int64_t least) {
  constexpr int kOperations = 4;  // fewer take no longer one by one than the stores do
  const Expr& inner = loop.vars.back();
  std::int64_t n = 0;
  if (loop.body->has_reduce || !is_const_int(inner->args[0], n) || n >= least) return {};
  int operations = 0;
  Exprs loads;
  visit(loop.body, [&](const Expr& x) {
    if (x->op == Op::kLoad)
      loads.push_back(x);
    else if (x->op != Op::kConst && x->op != Op::kCast && is_float(x->dtype))
      ++operations;
  });
  if (operations < kOperations) return {};
  const auto reads_along = [&](const Expr& var) {
    return std::ranges::any_of(loads, [&](const Expr& x) { return advances(x->args[0], var); });
  };
  if (reads_along(inner) || std::ranges::any_of(loads, [](const Expr& x) { return x->args[0]->has_load; })) return {};
  for (std::size_t k = loop.vars.size() - 1; k-- > 0;) {
    const Expr& var = loop.vars[k];
    if ((!is_const_int(var->args[0], n) || n >= least) && reads_along(var)) return var;
  }
  return {};
}

bool is_short_run(const Expr& body, const Expr& offset, const Expr& var) {
  constexpr std::int64_t kFewest = 4, kMost = 15;
  std::int64_t n = 0;
  if (!is_const_int(var->args[0], n) || n < kFewest || n > kMost || !advances(offset, var)) return false;
  bool contiguous = true;
  visit(body, [&](const Expr& x) {
    if (x->op == Op::kLoad && mentions(x->args[0], var)) contiguous &= advances(x->args[0], var);
  });
  return contiguous;
}

std::optional<OutputLoop> output_loop(const LoopKernel& kernel) {
  OutputLoop p;
  const bool single = kernel.stages.size() == 1 && kernel.outer.empty();
  std::vector<std::pair<Expr, Expr>> computed;  // a flat load of each stage's output at its own index, and its value
  std::unordered_set<const Value*> made;
  for (const Stage& stage : kernel.stages) {
    if (!single && !stage.inner.empty()) return {};
    bool own = true;
    Expr body = rewrite(merge_reduce_vars(flatten_loads(stage.body)), [&](const Expr& x) -> Expr {
      if (!x->has_load) return x;
      if (x->op != Op::kLoad || !made.count(x->value)) return {};
      for (const auto& [load, value] : computed)
        if (same(load, x)) return value;
      own = false;
      return x;
    });
    if (!own) return {};
    const Expr offset = storage_offset(*stage.out, stage.index);
    made.insert(stage.out);
    computed.emplace_back(load(stage.out, stage.out->dtype, {offset}), body);
    if (stage.stored) p.outputs.push_back({stage.out, body, offset});
  }
  if (p.outputs.empty()) return {};

  // Dims in the order of memory, without those of extent 1.
  const Stage* last = &kernel.stages.back();
  for (const Stage& s : kernel.stages)
    if (s.stored) last = &s;
  std::vector<int> order = last->out->storage_order;
  if (order.empty())
    for (int k = 0; k < last->out->rank(); ++k) order.push_back(k);
  std::vector<std::pair<Expr, Expr>> ones;
  for (int d : order) {
    const Expr& v = last->index[static_cast<std::size_t>(d)];
    if (v->op != Op::kVar) continue;
    if (is_const(v->args[0], 1))
      ones.emplace_back(v, Expr(0));
    else
      p.vars.push_back(v);
  }
  for (const Expr& v : kernel.outer)
    if (!is_const(v->args[0], 1) &&
        std::none_of(p.vars.begin(), p.vars.end(), [&](const Expr& x) { return same(x, v); }))
      return {};
  for (OutputLoop::Output& o : p.outputs) {
    o.body = substitute(o.body, ones);
    o.offset = substitute(o.offset, ones);
  }
  for (std::size_t k = p.vars.size(); k-- > 1;) {
    const Expr a = p.vars[k - 1], b = p.vars[k];
    if (!std::all_of(p.outputs.begin(), p.outputs.end(),
                     [&](const OutputLoop::Output& o) { return can_merge(o.body, o.offset, a, b); }))
      continue;
    const Expr u = loop_var(a->args[0] * b->args[0]);
    for (OutputLoop::Output& o : p.outputs) {
      o.body = substitute(o.body, {{a, Expr(0)}, {b, u}});
      o.offset = substitute(o.offset, {{a, Expr(0)}, {b, u}});
    }
    p.vars[k - 1] = u;
    p.vars.erase(p.vars.begin() + static_cast<std::ptrdiff_t>(k));
  }
  return p;
}

std::int64_t divisor_of(const Expr& e) {
  if (is_const(e)) return e->i == 0 ? 0 : std::abs(e->i);
  if (e->op == Op::kAdd || e->op == Op::kSub) return std::gcd(divisor_of(e->args[0]), divisor_of(e->args[1]));
  if (e->op == Op::kMul) {
    const std::int64_t a = divisor_of(e->args[0]), b = divisor_of(e->args[1]);
    return a < (1 << 20) && b < (1 << 20) ? a * b : std::max(a, b);
  }
  if (e->op == Op::kSelect) return std::gcd(divisor_of(e->args[1]), divisor_of(e->args[2]));
  return 1;
}

Expr cost_of(const Expr& e) {
  // Operations per evaluation; a reduction multiplies by its extents.
  std::int64_t own = 0;
  Expr total = 0;
  std::vector<Expr> stack = {e};
  std::unordered_map<const ExprNode*, bool> seen;
  while (!stack.empty()) {
    const Expr x = stack.back();
    stack.pop_back();
    if (seen[x.get()]) continue;
    seen[x.get()] = true;
    if (x->op == Op::kConst || x->op == Op::kVar || x->op == Op::kSym) continue;
    own += (x->op >= Op::kExp && x->op <= Op::kSigmoid) || x->op == Op::kPow ? 8 : 1;
    if (x->op == Op::kReduce) {
      Expr n = 1;
      for (const Expr& v : x->vars) n = n * v->args[0];
      if (n->has_var) n = 64;
      total = total + n * cost_of(x->args[0]);
      continue;
    }
    for (const Expr& a : x->args) stack.push_back(a);
  }
  return total + Expr(own);
}

}  // namespace sardonyx::codegen
