// GPU code of loop kernels, for AMD and NVIDIA (kernels/gpu.h contains the differences): chooses the kind of kernel.
//
// A kernel of one stage has one thread per element or per 16 bytes (gpu_map.cpp), or 32 threads per line whose length
// is no multiple of these (gpu_lines.cpp). A kernel that reduces along contiguous memory, or has several stages, has a
// team of threads per row (gpu_rows.cpp): up to a workgroup, depending on the row's length.
#include <algorithm>
#include <numeric>

#include "codegen/gpu_generator.h"
#include "codegen/window_costs.h"
#include "fuse/windows.h"

namespace sardonyx::codegen {

GpuGenerator::GpuGenerator(const LoopKernel& kernel, const GpuLoopOptions& options)
    : kernel_(kernel),
      in_blocks_(options.in_blocks),
      loads_first_(options.loads_first),
      half_extremes_(options.half_extremes),
      matrix_windows_(options.matrix_windows),
      least_threads_(options.least_threads),
      row_options_{options.row_bytes, options.any_address, options.packs_float8},
      guarded_loads_(options.guarded_loads),
      quad_gathers_(options.quad_gathers),
      range_(options.from_inputs),
      emit_(text_) {
  emit_.plain_reductions = true;
  emit_.quantizes = true;
  emit_.guards_addresses = options.any_address;
  for (const Stage& s : kernel.stages)
    emit_.scales_are_arguments |= of_eight_bits(s.out->dtype) || loads_eight_bits(s.body);
  emit_.for_halves = std::all_of(kernel.stages.begin(), kernel.stages.end(), [&](const Stage& s) {
    return !s.stored || (is_float(s.out->dtype) && size_of(s.out->dtype) <= 2) ||
           (options.is_for_halves && options.is_for_halves(s.out));
  });
  emit_.of_halves = options.of_halves;
  emit_.range = &range_;
}

void emit_digits(Emitter& e, const Exprs& vars, const std::string& q, bool narrow) {
  for (std::size_t k = vars.size(); k-- > 0;) {
    const std::string i = e.fresh("o");
    const Expr& n = vars[k]->args[0];
    const char* type = e.type_of(vars[k]);
    if (k == 0)
      e.line(fmt::format("const {0} {1} = {0}({2});", type, i, q));
    else if (narrow && !is_const(n))
      e.line(fmt::format("const i32 {} = take_digit({}, {}, {});", i, q, e.value(n), e.divisor(n)));
    else
      e.line(fmt::format("const {0} {1} = {0}(take_digit({2}, {3}));", type, i, q,
                         narrow ? e.value(n) : "i64(" + e.value(n) + ")"));
    e.bind(vars[k], i);
  }
}

void GpuGenerator::decode(const Exprs& vars, const std::string& q, bool narrow) {
  emit_digits(emit_, vars, q, narrow);
  for (const Expr& v : vars) known_.insert(v->i);
}

void GpuGenerator::clear(const Exprs& vars) {
  for (const Expr& v : vars) known_.erase(v->i);
}

void GpuGenerator::store(const Value* out, const Expr& offset, const std::string& x) {
  const std::string at = emit_.value(offset);
  emit_.line(fmt::format("{}[{}] = {};", emit_.buffer(out), at, x));
}

bool GpuGenerator::open_items(const Expr& count, const std::string& from, const std::string& q, bool each) {
  const bool narrow = range_.narrow(count);
  const std::string n = emit_.value(count), p = emit_.fresh("p");
  const char* type = narrow ? "u32" : "i64";
  std::int64_t known = 0;
  if (from != "0") emit_.line(fmt::format("if (some_left({0}({1}), {0}({2})))", type, from, n));
  emit_.open(
      fmt::format("for ({0} {1} = {0}({2}) + first_thread(); {1} < {0}({3}); {1} += {4})", type, p, from, n,
                  each && is_const_int(count, known) ? fmt::format("thread_step<{}>()", known) : "all_threads()"));
  emit_.line(fmt::format("{0} {1} = {0}({2});", narrow ? "i32" : "i64", q, p));
  return narrow;
}

std::string GpuGenerator::pack_condition(const Packing& p, const std::vector<const Value*>& stored) {
  std::vector<std::string> all;
  for (const Expr& m : p.multiples) all.push_back(fmt::format("({} & {}) == 0", emit_.value(m), p.length - 1));
  std::vector<const Value*> values = stored;
  for (const Expr& l : p.loads) values.push_back(l->value);
  for (const Interleaved& i : p.interleaved) values.push_back(i.value);
  std::vector<std::string> seen;
  for (const Value* v : values) {
    const std::string b = emit_.buffer(v);
    if (std::find(seen.begin(), seen.end(), b) != seen.end()) continue;
    seen.push_back(b);
    all.push_back("aligned(" + b + ")");
  }
  return fmt::format("{}", fmt::join(all, " && "));
}

namespace {

constexpr std::int64_t kFewTerms = 64;        // of a reduction that one thread computes if there are many outputs
constexpr std::int64_t kVeryFewTerms = 8;     // of a reduction that one thread always computes
constexpr std::int64_t kAllInFlight = 48;     // of a reduction whose loads are all in flight in one thread
constexpr std::int64_t kManyOutputs = 8192;   // outputs that keep a card busy with one thread each
constexpr std::int64_t kUnknownOutputs = 64;  // assumed along a dim of unknown size, to decide whether windows overlap
constexpr std::int64_t kUnknown = std::int64_t{1} << 20;  // assumed length of a reduction of unknown length

// Terms of the longest reduction.
std::int64_t longest(const Exprs& reductions) {
  std::int64_t most = 0;
  for (const Expr& r : reductions) {
    std::int64_t all = 1, n = 0;
    for (const Expr& v : r->vars) {
      if (!is_const_int(v->args[0], n)) n = kUnknown;
      all = std::min(all * n, kUnknown);
    }
    most = std::max(most, all);
  }
  return most;
}

// Elements of the longest row or reduction of a kernel of several stages.
std::int64_t longest_row(const LoopKernel& kernel) {
  std::int64_t most = 1;
  for (const Stage& s : kernel.stages) {
    std::int64_t all = 1, n = 0;
    for (const Expr& v : s.inner) all = std::min(all * (is_const_int(v->args[0], n) ? n : kUnknown), kUnknown);
    Exprs reductions;
    top_reductions(s.body, reductions);
    most = std::max({most, all, longest(reductions)});
  }
  return most;
}

// How many of `outputs` along a variable that moves by `step` elements read along one dim of `value`: all of them,
// unless they select from several tensors (a concatenation) that are shorter than the result.
std::int64_t within_dim(const Value& value, std::int64_t step, std::int64_t outputs) {
  std::vector<int> order = value.storage_order;
  if (order.empty())
    for (int d = 0; d < value.rank(); ++d) order.push_back(d);
  std::int64_t stride = 1, one_dim = 0, all = 0, n = 0;
  for (auto d = order.rbegin(); d != order.rend(); ++d, stride *= n) {
    if (!is_const_int(value.shape[static_cast<std::size_t>(*d)], n) || n <= 0)
      return one_dim == 0 || outputs % all == 0 ? outputs : one_dim;
    if (one_dim > 0)
      all *= n;
    else if (step % stride == 0 && step / stride < n)
      all = one_dim = (n * stride + step - 1) / step;
    // The variable may stand for several dims whose elements follow one another.
    if (one_dim > 0 && all >= outputs) return all == outputs || one_dim >= outputs ? outputs : one_dim;
  }
  return one_dim > 0 ? one_dim : outputs;
}

// Whether outputs along `v` read elements that other outputs read at another tap: some steps along v equal steps along
// the reduced variable q in memory.
bool meets(const Expr& load, const Expr& v, const Expr& q) {
  Expr rest, of_v, of_q;
  std::int64_t step = 0, tap = 0, taps = 0, outputs = kUnknownOutputs;
  const Expr& offset = load->args[0];
  if (!idx::split_affine(offset, v, of_v, rest) || !idx::split_affine(offset, q, of_q, rest) ||
      !is_const_int(of_v, step) || !is_const_int(of_q, tap) || !is_const_int(q->args[0], taps) || step <= 0 || tap <= 0)
    return false;
  if (is_const_int(v->args[0], outputs)) outputs = within_dim(*load->value, step, outputs);
  const std::int64_t common = std::gcd(step, tap);
  return tap / common < outputs && step / common < taps;
}

// Whether neighbouring outputs read the same elements. Then one thread per output (or pack), which may compute several,
// is better than several threads per output.
bool are_windows(const OutputLoop& p, const Exprs& reductions) {
  if (p.vars.empty() || reductions.empty() || longest(reductions) > kMostTaps) return false;
  bool overlap = false;
  for (const Expr& r : reductions)
    visit(r->args[0], [&](const Expr& x) {
      if (x->op != Op::kLoad) return;
      for (const Expr& v : p.vars)
        for (const Expr& q : r->vars) overlap |= meets(x, v, q);
    });
  return overlap;
}

// Whether all of them search for an extreme. A team does not divide such a search among its threads.
bool only_searches(const Exprs& reductions) { return std::all_of(reductions.begin(), reductions.end(), is_search); }

// Whether neighbouring rows are next to each other in what a kernel stores along its rows.
bool stores_across_rows(const std::vector<RowStage>& stages, const Exprs& outer) {
  int across = 0, rows = 0;
  Expr step, rest;
  for (const RowStage& s : stages)
    if (s.row && !outer.empty()) {
      ++rows;
      across += idx::split_affine(s.offset, outer.back(), step, rest) && is_const(step, 1);
    }
  return rows > 0 && across == rows;
}

// Threads for a row of at most n elements: in rows whose stages differ in length, up to four elements each of a short
// one. Threads side by side have neighbouring rows if these are next to each other, each with a whole row.
std::int64_t general_team(const std::vector<RowStage>& stages, const Exprs& outer, std::int64_t n) {
  Expr all = 1;
  for (const Expr& v : outer) all = all * v->args[0];
  std::int64_t rows = 0;
  const bool few = is_const_int(all, rows) && rows < kManyOutputs;
  if (n <= kVeryFewTerms || (n <= kFewTerms && !few && stores_across_rows(stages, outer))) return 1;
  std::int64_t team = stages.size() > 1 ? 4 : 32;
  while (team < 32 && team * 4 < n) team *= 2;
  while (team < kGpuThreads && team >= 32 && team * 8 < n) team *= 2;
  return team;
}

// Whether one thread per output keeps the card busy. `unknown`: what to return where sizes are not known.
bool many_outputs(const OutputLoop& p, bool unknown) {
  Expr items = 1;
  for (const Expr& v : p.vars) items = items * v->args[0];
  std::int64_t n = 0;
  return is_const_int(items, n) ? n >= kManyOutputs : unknown;
}

}  // namespace

GpuLoopSource GpuGenerator::run() {
  const std::optional<OutputLoop> p = output_loop(kernel_);
  Exprs reductions, all;  // those that are always computed; those on one side of a select too
  if (p)
    for (const OutputLoop::Output& o : p->outputs) {
      top_reductions(o.body, reductions);
      visit(o.body, [&](const Expr& x) {
        if (x->op == Op::kReduce) all.push_back(x);
      });
    }
  const std::int64_t terms = longest(all);
  const bool one_thread = p && terms <= kFewTerms && many_outputs(*p, true);  // is enough for an output
  if (p && are_windows(*p, reductions)) {
    if (const std::optional<ChannelWindows> c = channel_windows_of(*p, reductions))
      channel_windows(*p, *c);
    else
      windows(window::with_blocks_of_taps(*p), 0);
  } else if (const std::optional<Columns> c = columns_of(p)) {
    columns(*c);
  } else if (p && !p->vars.empty() && side_by_side(reductions, p->vars.back(), !one_thread)) {
    // Threads that have all loads of few terms in flight are faster than teams, which exchange sums.
    windows(*p, loads_first_ && terms <= kAllInFlight && many_outputs(*p, false) ? 0 : terms);
  } else if (const std::optional<LongRows> l = long_rows_of()) {
    long_rows(*l);
  } else if (const std::optional<RowPlan> r = plan_rows(kernel_, range_, row_options_)) {
    rows(*r);
  } else if (p && all.empty() && kernel_.stages.size() == 1) {
    map(flat_loop(kernel_.stages[0]));
  } else if (p && (only_searches(all) || terms <= kVeryFewTerms || one_thread)) {
    windows(*p, 0);
  } else {
    std::vector<RowStage> stages;
    Exprs outer = kernel_.outer;
    if (kernel_.stages.size() == 1 && kernel_.outer.empty()) {
      const FlatLoop f = flat_loop(kernel_.stages[0]);
      stages.push_back({&kernel_.stages[0], f.body, f.offset, false});
      outer = f.vars;
    } else {
      for (const Stage& s : kernel_.stages)
        stages.push_back(
            {&s, merge_reduce_vars(flatten_loads(s.body)), storage_offset(*s.out, s.index), !s.inner.empty()});
    }
    general(stages, outer, general_team(stages, outer, p ? terms : longest_row(kernel_)));
  }
  GpuLoopSource g;
  std::string head;
  for (std::size_t k = 0; k < emit_.buffers.size(); ++k) {
    const Value* v = emit_.buffers[k];
    bool written = false;
    for (const Stage& st : kernel_.stages) written |= st.out == v;
    head += fmt::format("{}{}{}* __restrict b{}", head.empty() ? "" : ", ", written ? "" : "const ",
                        storage_name(v->dtype), k);
  }
  for (std::size_t k = 0; k < emit_.symbols.size(); ++k) head += fmt::format(", i64 s{}", k);
  for (std::size_t k = 0; k < emit_.divisors.size(); ++k) head += fmt::format(", u64 d{}", k);
  g.kernel.body = "(" + head + ") {\n  start_next_launch_if_small();\n" + text_ + "}\n";
  g.kernel.bounds = bounds_;
  g.buffers = emit_.buffers;
  g.values = emit_.symbols;
  g.divisors = emit_.divisors;
  g.threads = threads_;
  g.work = work_;
  g.limit = range_.limit();
  return g;
}

GpuLoopSource generate_gpu_loop(const LoopKernel& kernel, const GpuLoopOptions& options) {
  return GpuGenerator(kernel, options).run();
}

// ---- packs

void certain_loads(const Expr& e, const std::function<void(const Expr&)>& f) {
  std::unordered_set<Expr, ExprHash, ExprSame> seen;
  certain_parts(e, [&](const Expr& x) {
    if (!seen.insert(x).second) return false;
    if (x->op == Op::kLoad) f(x);
    return true;
  });
}

bool uses_var(const Expr& e, const Expr& var) {
  if (!e->has_var) return false;
  bool used = false;
  visit(e, [&](const Expr& x) { used |= x->op == Op::kVar && x->i == var->i; });
  return used;
}

std::string element_text(DType t, const std::string& bits) {
  return fmt::format("from_bits<{}>({})", type_name(t), bits);
}
std::string bits_text(DType t, const std::string& x) {
  return t == DType::kBool ? fmt::format("u8({})", x) : fmt::format("to_bits({})", x);
}

bool multiple_of(const Expr& e, int n, Exprs& conditions) {
  if (is_const(e)) return e->i % n == 0;
  if (!e->has_var && !e->has_load) {
    bool ok = e->has_sym;
    visit(e, [&](const Expr& x) {
      ok &= x->dtype == DType::kInt64 &&
            (x->op <= Op::kSym || x->op == Op::kAdd || x->op == Op::kSub || x->op == Op::kMul || x->op == Op::kMin ||
             x->op == Op::kMax || (x->op == Op::kFloorDiv && is_const(x->args[1])));
    });
    if (ok) conditions.push_back(e);
    return ok;
  }
  switch (e->op) {
    case Op::kAdd:
    case Op::kSub:
    case Op::kMin:
    case Op::kMax:
      return multiple_of(e->args[0], n, conditions) && multiple_of(e->args[1], n, conditions);
    case Op::kMul: {
      Exprs factors = e->args;
      for (std::size_t k = 0; k < factors.size();)
        if (factors[k]->op == Op::kMul) {
          const Expr f = factors[k];
          factors[k] = f->args[0];
          factors.push_back(f->args[1]);
        } else
          ++k;
      Expr uniform = 1;
      for (const Expr& f : factors) {
        if (is_const(f) && f->i % n == 0) return true;
        Exprs more = conditions;
        if (f->has_var && f->op != Op::kVar && multiple_of(f, n, more)) {
          conditions = std::move(more);
          return true;
        }
      }
      for (const Expr& f : factors)
        if (!f->has_var && !f->has_load) uniform = uniform * f;
      return multiple_of(uniform, n, conditions);
    }
    default:
      return false;
  }
}

int instruction_count(const Expr& x) {
  const bool hard = (x->op >= Op::kSin && x->op <= Op::kErf) || x->op == Op::kPow || x->op == Op::kRandom;
  const bool function = (x->op >= Op::kExp && x->op <= Op::kRsqrt) || x->op == Op::kSigmoid || x->op == Op::kDiv ||
                        x->op == Op::kReciprocal;
  return (hard ? 40 : function ? 12 : 1) * (x->dtype == DType::kFloat64 ? 4 : 1);
}

int instructions(const Expr& e) {
  int n = 0;
  visit(e, [&](const Expr& x) { n += instruction_count(x); });
  return n;
}

namespace {

// Instructions that depend on `var`. The others (rows and weights of a resized image) are computed once per pack.
int instructions_along(const Expr& e, const Expr& var) {
  std::unordered_map<const ExprNode*, bool> depends;
  const std::function<bool(const Expr&)> find = [&](const Expr& x) {
    if (!x->has_var) return false;
    const auto [at, fresh] = depends.emplace(x.get(), x->op == Op::kVar && x->i == var->i);
    if (!fresh) return at->second;
    bool found = at->second;
    for (const Expr& a : x->args) found |= find(a);
    return depends[x.get()] = found;
  };
  find(e);
  int n = 0;
  visit(e, [&](const Expr& x) {
    const auto at = depends.find(x.get());
    if (at != depends.end() && at->second) n += instruction_count(x);
  });
  return n;
}

}  // namespace

void add_multiple(Packing& p, const Expr& e) {
  if (p.length > 1 && !multiple_of(e, p.length, p.multiples)) p = {};
}

Packing find_packing(const Exprs& bodies, const std::vector<std::pair<const Value*, Expr>>& stores, const Expr& var,
                     bool any_address) {
  constexpr int kMostInstructions = 1200;  // of one unrolled pack: longer code compiles slowly and spills
  Exprs unit;
  std::size_t widest = 1;
  int cost = 1;
  for (const Expr& b : bodies) {
    cost += instructions_along(b, var);
    certain_loads(b, [&](const Expr& l) {
      Expr c, rest;
      for (const Expr& known : unit)
        if (same(known, l)) return;
      if (!idx::split_affine(l->args[0], var, c, rest) || !is_const(c, 1)) return;
      unit.push_back(l);
      widest = std::max(widest, size_of(l->dtype));
    });
  }
  for (const auto& [value, offset] : stores) widest = std::max(widest, size_of(value->dtype));
  if (unit.empty() && stores.empty()) return {};
  int longest = std::min(16 / static_cast<int>(widest), 8);
  while (longest > 1 && longest * cost > kMostInstructions) longest /= 2;
  for (int n = longest; n > 1; n /= 2) {
    Packing p;
    p.length = n;
    Exprs conditions;
    bool ok = true;
    Expr c, rest;
    for (const auto& [value, offset] : stores)
      ok = ok && idx::split_affine(offset, var, c, rest) && is_const(c, 1) &&
           (any_address || multiple_of(rest, n, conditions));
    if (!ok) continue;
    for (const Expr& l : unit) {
      idx::split_affine(l->args[0], var, c, rest);
      Exprs more = conditions;
      if (!any_address && !multiple_of(rest, n, more)) continue;
      conditions = std::move(more);
      p.loads.push_back(l);
    }
    if (2 * p.loads.size() < unit.size()) continue;
    for (const Expr& e : conditions)
      if (std::none_of(p.multiples.begin(), p.multiples.end(), [&](const Expr& m) { return same(m, e); }))
        p.multiples.push_back(e);
    return p;
  }
  return {};
}

}  // namespace sardonyx::codegen
