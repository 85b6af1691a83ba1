// GPU kernels of windows (pooling, depthwise and grouped convolution, local normalisation), and of other reductions
// with one thread per output. A thread computes a pack of outputs that are contiguous in memory. Where windows of
// neighbouring outputs overlap, it computes several neighbouring packs, so that shared elements are loaded once. Taps
// are unrolled with constant variables, which makes equal loads equal expressions.
#include <algorithm>
#include <cmath>

#include "codegen/gpu_generator.h"
#include "codegen/window_costs.h"

namespace sardonyx::codegen {

namespace {

using namespace window;

constexpr std::int64_t kLongWindow = 25;  // terms from which a thread has enough work to hide its own latency
constexpr std::int64_t kEnoughThreads =
    32768;  // threads that keep a card busy if each has a tile: an eighth of an H200's
constexpr std::int64_t kFewThreads =
    16384;  // half of these: with fewer, threads of one element each fill the card better than packs
constexpr std::int64_t kEnoughRowThreads = 65536;  // where windows slide along packs, so that memory is the limit
constexpr int kMostInstructions = 1200;            // of one pack: longer code compiles slowly and spills
constexpr std::int64_t kColumnThreads = 131072;    // threads with a few loads each that saturate memory
constexpr int kLoadsAtATime = 8;                   // loads in flight of a thread of a team
constexpr std::int64_t kLeastTerms = 4;            // terms of a thread: fewer do not pay for the team's reduction

// Threads that divide the terms of a pack of columns: as many as keep the card busy, with a minimum of terms each. At
// least two neighbouring packs are in a workgroup, so that whole sectors of memory are used.
std::int64_t column_team(std::int64_t packs, std::int64_t terms) {
  std::int64_t team = 1;
  while (team * 4 <= kGpuThreads && team * 2 * kLeastTerms <= terms && packs * team < kColumnThreads) team *= 2;
  return team;
}

// A reduction's accumulator in C++; that of a search is the best element with its position.
std::string accumulator_type(const Expr& r) {
  return is_search(r) ? fmt::format("Best<{}>", computed_name(r->args[0]->dtype)) : type_name(r->dtype);
}
std::string neutral_accumulator(const Expr& r) {
  if (is_search(r)) return fmt::format("{}{{{}(0), -1}}", accumulator_type(r), computed_name(r->args[0]->dtype));
  return Emitter::neutral(static_cast<ReduceKind>(r->i), r->dtype);
}
// Whether a term changes nothing.
bool is_neutral(const Expr& value, ReduceKind kind) {
  if (!is_const(value)) return false;
  if (kind == ReduceKind::kSum) return is_float(value->dtype) ? value->f == 0 : value->i == 0;
  return is_float(value->dtype) && value->f == (kind == ReduceKind::kMax ? -INFINITY : INFINITY) &&
         (kind == ReduceKind::kMax || kind == ReduceKind::kMin);
}
// Combines two accumulators. `next`: the positions of b come after those of a.
std::string combined(const Expr& r, const std::string& a, const std::string& b, bool next) {
  const auto kind = static_cast<ReduceKind>(r->i);
  if (!is_search(r)) return Emitter::combine(kind, r->dtype, a, b);
  const bool max = kind == ReduceKind::kArgMax || kind == ReduceKind::kArgMaxLast;
  const bool last = kind == ReduceKind::kArgMinLast || kind == ReduceKind::kArgMaxLast;
  return fmt::format("{}<{}, {}>({}, {})", next ? "better_next" : "better", max, last, a, b);
}

// Opens loops over the terms of one thread. `few`: of the innermost one, some are computed at a time.
template <class Factors>
void open_taps(Emitter& emit, const Exprs& loops, const Factors& factors, bool few) {
  for (std::size_t k = 0; k < loops.size(); ++k) {
    const Expr& v = loops[k];
    const std::string i = emit.fresh("i"), extent = emit.value(v->args[0]);
    if (factors[k] > 0)
      emit.line(fmt::format("#pragma unroll {}", factors[k]));
    else if (same(v, loops.back()) && few)
      emit.line("#pragma unroll 4");
    emit.open(fmt::format("for ({2} {0} = 0; {0} < {1}; ++{0})", i, extent, emit.type_of(v)));
    emit.bind(v, i);
  }
}

// A term of a search; one that does not exist has no position.
std::string candidate(const Expr& r, const std::string& x, const std::string& exists, const std::string& place) {
  const std::string at = exists.empty() ? place : exists + " ? " + place + " : -1";
  return fmt::format("{}{{cast<{}>({}), i32({})}}", accumulator_type(r), computed_name(r->args[0]->dtype), x, at);
}
std::string reduced_by_team(const Expr& r, const std::string& sums) {
  return fmt::format("reduce_columns({0}, team, []({1} a, {1} b) -> {1} {{ return {2}; }});", sums, accumulator_type(r),
                     combined(r, "a", "b", false));
}

}  // namespace

void GpuGenerator::windows(const OutputLoop& p, std::int64_t terms) {
  const bool shared = terms >= 2 * kLeastTerms;
  Exprs reductions;
  bool simple = !p.vars.empty();
  for (const OutputLoop::Output& o : p.outputs) top_reductions(o.body, reductions);
  for (const Expr& r : reductions)
    simple &= reduces_known(r, reductions) && (!is_search(r) || (r->vars.size() == 1 && range_.narrow(r->vars[0])));
  Expr items = 1;
  for (const Expr& v : p.vars) items = items * v->args[0];
  threads_ = items;
  work_ = 0;
  for (const OutputLoop::Output& o : p.outputs) work_ = work_ + cost_of(o.body);
  if (!simple) return single_outputs(p, "0");

  // The longest packs that save loads; shorter ones if there are few of them.
  WindowTile w;
  w.inner = p.vars.back();
  const Expr& extent = w.inner->args[0];
  int cost = 1;
  for (const OutputLoop::Output& o : p.outputs) cost += instructions(o.body);
  bool uniform = !extent->has_var && !extent->has_load;
  for (const Expr& r : reductions)
    for (const Expr& v : r->vars) uniform &= !uses_var(v->args[0], w.inner);
  const bool searches = std::any_of(reductions.begin(), reductions.end(), is_search);
  double best = 0;
  for (int length : {1, 2, 4, 8}) {
    std::int64_t n = 0;
    if (length > 1 && (!uniform || length * cost > kMostInstructions || (is_const_int(extent, n) && n % length != 0) ||
                       (!shared && is_const_int(items, n) && length > 2 && n / length < kFewThreads) ||
                       (!shared && searches && length > 16 / 8)))  // positions of 8 bytes: one store of 16
      continue;
    const Expr group = loop_var(idx::floordiv(extent, length)), lane = loop_var(length);
    const Expr at = length == 1 ? w.inner : group * Expr(length) + lane;
    Exprs conditions;
    if (length > 1 && !is_const(extent)) conditions.push_back(extent);
    bool rows = loads_first_;
    const double loads = pack_cost(p, w.inner, lane, at, length, conditions, rows);
    if (loads < 0 || (length > 1 && loads >= best)) continue;
    best = loads;
    w.length = length;
    w.group = group;
    w.lane = length > 1 ? lane : Expr();
    w.multiples = std::move(conditions);
    w.rows = rows;
  }

  // Tiles of packs.
  const std::int64_t packs = known_product(p.vars) / w.length;
  if (shared && packs < kEnoughThreads) w.team = column_team(packs, terms);
  Exprs bodies;
  for (const Expr& r : reductions) bodies.push_back(in_packs(r, w));
  double least = tile_cost(bodies, Expr(), 1, w.lane, w.rows ? w.length : 0) * 0.95;
  std::int64_t longest = 0;
  for (const Expr& r : reductions) longest = std::max(longest, known_product(r->vars));
  const std::int64_t enough = std::max<std::int64_t>(w.rows                   ? kEnoughRowThreads
                                                     : longest >= kLongWindow ? kEnoughThreads / 4
                                                                              : kEnoughThreads,
                                                     least_threads_);
  if (w.team == 1) choose_tile(p.vars, bodies, packs, enough, least, w);
  // Many sequences or images have enough for tiles, one may not: a long window is worth code for both.
  WindowTile large = w;
  if (w.team == 1 && w.count == 1 && longest >= kLongWindow && !is_const(items))
    choose_tile(p.vars, bodies, packs, 0, least, large);
  std::int64_t from = enough * w.length * large.count;
  if (longest >= kLongWindow)
    if (const std::optional<WindowTile> whole = whole_rows(p, reductions, items, w)) {
      large = *whole, from = least_items(large);
      large.multiples = w.multiples;
      if (is_const(items)) w = large;
    }
  const Expr many = compare(Op::kGe, items, from);

  std::vector<const Value*> stored;
  for (const OutputLoop::Output& o : p.outputs) stored.push_back(o.out);
  std::string condition;
  if (w.length > 1) {
    Packing packing{w.length, {}, w.multiples};
    for (const OutputLoop::Output& o : p.outputs)
      for (const Expr& l : all_loads(o.body)) packing.loads.push_back(l);
    condition = pack_condition(packing, stored);
  }
  if (w.count > 1 && !is_const(w.along->args[0]))
    condition += fmt::format("{}{} >= {}", condition.empty() ? "" : " && ", emit_.value(w.along->args[0]), w.count);
  if (condition.empty()) return window_loops(p, reductions, w, large, many);
  emit_.line(fmt::format("{} done = 0;", range_.narrow(items) ? "u32" : "i64"));
  emit_.open(fmt::format("if ({})", condition));
  window_loops(p, reductions, w, large, many);
  emit_.line(fmt::format("done = {};", emit_.value(items)));
  emit_.close();
  single_outputs(p, "done");
  // One thread per output if the loop below runs.
  for (const Expr& m : w.multiples) threads_ = select(compare(Op::kEq, idx::mod(m, w.length), 0), threads_, items);
  if (w.count > 1 && !is_const(w.along->args[0]))
    threads_ = select(compare(Op::kGe, w.along->args[0], w.count), threads_, items);
}

// One output after another, for what packs and tiles do not cover.
void GpuGenerator::single_outputs(const OutputLoop& p, const std::string& from) {
  Expr items = 1;
  for (const Expr& v : p.vars) items = items * v->args[0];
  const std::string q = emit_.fresh("q");
  const bool narrow = open_items(items, from, q, from == "0");
  decode(p.vars, q, narrow);
  std::vector<std::string> results;
  for (const OutputLoop::Output& o : p.outputs) results.push_back(emit_.value(o.body));
  for (std::size_t k = 0; k < p.outputs.size(); ++k) store(p.outputs[k].out, p.outputs[k].offset, results[k]);
  emit_.close();
  clear(p.vars);
}

void GpuGenerator::window_loop(const OutputLoop& p, const Exprs& reductions, const WindowTile& tile) {
  WindowTile w = tile;
  Exprs vars = p.vars;
  Expr items = 1, group;
  for (Expr& v : vars) {
    if (w.length > 1 && same(v, w.inner))
      v = w.group;
    else if (w.count > 1 && same(v, w.along))
      v = group = loop_var(idx::ceildiv(v->args[0], w.count));
    items = items * v->args[0];
  }
  threads_ = items;
  work_ = work_ * Expr(w.length * w.count);
  if (w.team > 1) {
    open_columns(vars, w.team);
  } else {
    const std::string q = emit_.fresh("q");
    const bool narrow = open_items(items, "0", q, true);
    decode(vars, q, narrow);
  }
  // The last tile overlaps with the previous one rather than exceed the end.
  if (w.whole) {
    w.base = Expr(0);
  } else if (w.count > 1) {
    const Expr& n = w.along->args[0];
    std::int64_t known = 0;
    const bool whole = is_const_int(n, known) && known % w.count == 0;
    w.base = loop_var(n);
    const std::string name = emit_.fresh("i"), first = emit_.value(group * Expr(w.count));
    const char* type = emit_.type_of(w.base);
    emit_.line(whole ? fmt::format("const {} {} = {};", type, name, first)
                     : fmt::format("const {0} {1} = min({0}({2}), {0}({3} - {4}));", type, name, first, emit_.value(n),
                                   w.count));
    emit_.bind(w.base, name);
  }
  std::vector<Assignments> at(static_cast<std::size_t>(w.count));
  for (std::size_t u = 0; u < at.size(); ++u) {
    if (w.length > 1) at[u].emplace_back(w.inner, w.group * Expr(w.length) + w.lane);
    if (w.count > 1) at[u].emplace_back(w.along, w.base + Expr(static_cast<std::int64_t>(u)));
  }
  std::vector<Sums> sums(at.size());
  for (const Expr& r : reductions) {
    std::vector<Expr> of_tile;
    bool by_lane = false;
    for (const Assignments& a : at) {
      of_tile.push_back(substitute(r, a));
      by_lane |= w.length == 1 || uses_var(of_tile.back(), w.lane);
    }
    if (!by_lane || of_tile[0]->op != Op::kReduce || !of_tile[0]->has_load) continue;  // its value is the same for all
    std::vector<std::string> names;
    window_sums(r, of_tile, w, sums, names);
    for (std::size_t u = 0; u < at.size(); ++u) {
      const std::string x = names[u] + "[l]";
      sums[u].emplace_back(of_tile[u], is_search(r) ? fmt::format("i64({}.at)", x) : x);
    }
  }
  tile_outputs(p, at, w, sums);
  emit_.close();
  clear(vars);
}

Exprs GpuGenerator::written_out_for(const Expr& r, const std::vector<Expr>& of_tile, const WindowTile& w) const {
  if (w.whole) return written_out(in_packs(r, w), w.along, w.lane, 0, kMostWholeTaps);
  Exprs out = written_out(of_tile[0], w.base, w.lane, w.rows ? w.length : 0);
  if (w.team > 1) return out;
  const Exprs& all = of_tile[0]->vars;
  if (loads_first_ && w.lane && is_written_whole(of_tile, w.length)) return all;
  if (w.lane) write_out_row(of_tile[0], w.length, out);
  return out;
}

bool GpuGenerator::has_half_extremes(const Expr& r, const WindowTile& w) const {
  const auto kind = static_cast<ReduceKind>(r->i);
  if (!half_extremes_ || !w.lane || w.team > 1 || (kind != ReduceKind::kMax && kind != ReduceKind::kMin) ||
      (r->dtype != DType::kFloat32 && r->dtype != DType::kFloat16))
    return false;
  Expr value = r->args[0];
  if (value->op == Op::kSelect && is_const(value->args[2]) && std::isinf(value->args[2]->f)) value = value->args[1];
  const Expr l = bare_load(value);
  return l && l->dtype == DType::kFloat16;
}

void GpuGenerator::add_half_extreme(const Expr& value, const std::vector<std::pair<Expr, std::string>>& elements,
                                    const std::vector<Fetched>& fetched, const WindowTile& w, const std::string& to) {
  const Expr load = bare_load(value);
  if (load && elements.size() == 1 && same(elements[0].first, load))
    for (const Fetched& f : fetched)
      if (!f.pack.empty() && same(f.load, load) && f.element == elements[0].second)
        return emit_.line(fmt::format("{}.add({});", to, f.pack));
  const std::string pack = emit_.fresh("p");
  emit_.line(fmt::format("Pack<f16, {}> {};", w.length, pack));
  emit_.line("#pragma unroll");
  emit_.open(fmt::format("for (int l = 0; l < {}; ++l)", w.length));
  emit_.bind(w.lane, "l");
  for (const auto& [l, element] : elements) emit_.bind_value(l, element);
  const std::string x = emit_.value(value);
  emit_.line(fmt::format("{}[l] = to_bits(cast<f16>({}));", pack, x));
  emit_.close();
  emit_.line(fmt::format("{}.add({});", to, pack));
}

// Declares the accumulators of a reduction for `count` packs; with `halves`, also those of values in 16 bits.
void GpuGenerator::open_sums(const Expr& r, std::size_t count, const WindowTile& w, bool halves,
                             std::vector<std::string>& sums) {
  const auto kind = static_cast<ReduceKind>(r->i);
  for (std::size_t u = 0; u < count; ++u) {
    sums.push_back(emit_.fresh("a"));
    emit_.line(fmt::format("{} {}[{}];", accumulator_type(r), sums[u], w.length));
    emit_.line("#pragma unroll");
    emit_.line(fmt::format("for (int l = 0; l < {}; ++l) {}[l] = {};", w.length, sums[u], neutral_accumulator(r)));
  }
  for (std::size_t u = 0; halves && u < count; ++u)
    emit_.line(fmt::format("HalfExtremes<{}, {}> {}_h;", kind == ReduceKind::kMax, w.length, sums[u]));
}

// Combines the extremes of values in 16 bits with the accumulators.
void GpuGenerator::close_half_extremes(const Expr& r, const WindowTile& w, const std::vector<std::string>& sums) {
  for (const std::string& sum : sums) {
    emit_.line("#pragma unroll");
    emit_.line(fmt::format("for (int l = 0; l < {0}; ++l) {1}[l] = {2};", w.length, sum,
                           Emitter::combine(static_cast<ReduceKind>(r->i), r->dtype, sum + "[l]",
                                            fmt::format("{}({}_h.at(l))", type_name(r->dtype), sum))));
  }
}

namespace {
// Of all sums of a kernel, the fewest workgroups of a multiprocessor. held: registers for elements and sums.
LaunchBounds bounds_for(const LaunchBounds& known, std::int64_t held) {
  const std::uint32_t blocks = held <= kLoadedAtATime ? 3 : 2;
  return {.threads = kGpuThreads, .min_blocks = known.min_blocks ? std::min(known.min_blocks, blocks) : blocks};
}
}  // namespace

// Accumulators of one reduction for all packs of the tile.
void GpuGenerator::window_sums(const Expr& r, const std::vector<Expr>& of_tile, const WindowTile& w,
                               const std::vector<Sums>& known, std::vector<std::string>& sums) {
  const auto kind = static_cast<ReduceKind>(r->i);
  const bool halves = has_half_extremes(r, w);
  open_sums(r, of_tile.size(), w, halves, sums);
  const Exprs out = written_out_for(r, of_tile, w);
  const std::vector<Assignments> combos = combinations(out);
  Exprs loops;
  std::int64_t terms = static_cast<std::int64_t>(combos.size()) * w.count, n = 0;
  for (const Expr& v : of_tile[0]->vars) {
    if (std::any_of(out.begin(), out.end(), [&](const Expr& o) { return same(o, v); })) continue;
    loops.push_back(v);
    is_const_int(v->args[0], n);
    terms = std::min<std::int64_t>(terms * std::max<std::int64_t>(n, 1), 1 << 20);
  }
  const bool shared = w.team > 1 && !loops.empty();
  std::string exists;  // whether this thread has a term
  std::vector<Fetched> fetched;
  if (shared) {
    const int at_a_time = std::max(1, kLoadsAtATime / static_cast<int>(combos.size() * sums.size()));
    Exprs ahead;
    if (combos.size() * sums.size() == 1) ahead = loads_ahead(substitute(of_tile[0]->args[0], combos[0]), w);
    exists = open_terms(loops, w, at_a_time, ahead, fetched);
  }
  const std::int64_t registers = loaded_registers(of_tile, combos, w.length);
  const auto factors = unroll_factors(loops, terms, registers);
  if (known_product(r->vars) >= kLongWindow && w.team == 1 && !out.empty())
    bounds_ = bounds_for(bounds_, registers + w.count * w.length);
  if (!shared) open_taps(emit_, loops, factors, combos.size() * static_cast<std::size_t>(w.count) <= 4);
  // All loads first, so that they are in flight together.
  struct Ready : LoadingTerm {
    std::size_t u;
    std::vector<std::pair<Expr, std::string>> elements;
    Expr place;  // of a search
  };
  std::vector<Ready> ready;
  for (std::size_t u = 0; u < of_tile.size(); ++u)
    for (const Assignments& a : combos) {
      const Expr value = substitute(of_tile[u]->args[0], a);
      if (w.whole && is_neutral(value, kind)) continue;  // outside of the image
      Ready x{{window_term(value, kind, w), {}}, u, {}, {}};
      if (is_search(r)) x.place = substitute(of_tile[u]->vars[0], a);
      x.loads = x.term.loads;
      if (!x.term.inside && x.term.bounds.empty())
        certain_loads(x.term.value, [&](const Expr& l) {
          if (!l->args[0]->has_load) x.loads.push_back(l);
        });
      ready.push_back(std::move(x));
    }
  std::vector<const LoadingTerm*> terms_of_all;
  for (const Ready& x : ready) terms_of_all.push_back(&x);
  fetch_runs(terms_of_all, w, fetched);
  for (Ready& x : ready)
    for (const Expr& l : x.loads) x.elements.emplace_back(l, fetch(l, &x.term, w, fetched));
  if (loads_first_ && !shared && (loops.empty() || factors.back() == 1)) emit_.line("loads_in_flight();");
  for (const std::string& fill : fills_) emit_.line(fill);
  fills_.clear();
  for (const Ready& x : ready)
    if (halves && (!x.term.inside || x.term.filled))
      add_half_extreme(x.term.value, x.elements, fetched, w, sums[x.u] + "_h");
  emit_.line("#pragma unroll");
  emit_.open(fmt::format("for (int l = 0; l < {}; ++l)", w.length));
  if (w.lane) emit_.bind(w.lane, "l");
  for (const Ready& x : ready) {
    if (halves && (!x.term.inside || x.term.filled)) continue;
    emit_.open("");
    for (const auto& [l, element] : x.elements) emit_.bind_value(l, element);
    for (const auto& [e, element] : known[x.u]) emit_.bind_value(e, element);
    const std::string a = sums[x.u] + "[l]";
    const Expr& value = x.term.value;
    const bool fused = loads_first_ && kind == ReduceKind::kSum && r->dtype == DType::kFloat32 &&
                       value->op == Op::kMul && value->dtype == DType::kFloat32 && (!x.term.inside || x.term.filled);
    if (fused && exists.empty()) {
      const std::string left = emit_.value(value->args[0]), right = emit_.value(value->args[1]);
      emit_.line(fmt::format("{0} = __builtin_fmaf({1}, {2}, {0});", a, left, right));
      emit_.close();
      continue;
    }
    std::string y = emit_.value(value);
    if (x.term.inside && !x.term.filled)
      y = fmt::format("({} ? {} : {})", x.term.condition, y, emit_.value(x.term.outside));
    if (x.place)
      y = candidate(r, y, exists, emit_.value(x.place));
    else if (r->dtype == DType::kInt64)
      y = fmt::format("i64({})", y);
    const std::string sum = combined(r, a, y, true);
    emit_.line(exists.empty() || x.place
                   ? fmt::format("{} = {};", a, sum)
                   : fmt::format("{0} = {1} ? {2}({3}) : {0};", a, exists, type_name(r->dtype), sum));
    emit_.close();
  }
  emit_.close();
  for (std::size_t k = 0; k < (shared ? 2 : loops.size()); ++k) emit_.close();
  if (halves) close_half_extremes(r, w, sums);
  if (!shared) return;
  clear(loops);
  for (const std::string& a : sums) emit_.line(reduced_by_team(r, a));
}

// Computes one pack of outputs from its sums.
void GpuGenerator::window_outputs(const OutputLoop& p, const Assignments& at, const WindowTile& w, const Sums& sums,
                                  std::vector<Fetched> fetched, const std::vector<std::string>& to) {
  std::vector<std::pair<Expr, std::string>> elements;
  Exprs bodies, offsets;
  std::vector<std::string> packs;
  Expr c, rest;
  emit_.open("");
  for (const OutputLoop::Output& o : p.outputs) {
    bodies.push_back(substitute(o.body, at));
    Expr offset = substitute(o.offset, at);
    if (w.lane && idx::split_affine(offset, w.lane, c, rest)) offset = rest;
    offsets.push_back(offset);
    certain_loads(bodies.back(), [&](const Expr& l) {
      if (!l->args[0]->has_load) elements.emplace_back(l, fetch(l, nullptr, w, fetched));
    });
    Exprs reductions;
    top_reductions(bodies.back(), reductions);
    for (const Expr& r : reductions)  // those that are the same for all lanes
      if (w.lane && !uses_var(r, w.lane)) emit_.value(r);
    packs.push_back(emit_.fresh("y"));
    if (w.lane)
      emit_.line(fmt::format("Pack<{}, {}> {};", storage_name(o.out->dtype), w.length, packs.back()));
    else if (to.empty())
      emit_.line(fmt::format("{} {};", type_name(o.out->dtype), packs.back()));
  }
  emit_.line("#pragma unroll");
  emit_.open(fmt::format("for (int l = 0; l < {}; ++l)", w.length));
  if (w.lane) emit_.bind(w.lane, "l");
  for (const auto& [l, element] : elements) emit_.bind_value(l, element);
  for (const auto& [r, element] : sums) emit_.bind_value(r, element);
  for (std::size_t k = 0; k < bodies.size(); ++k) {
    const std::string x = emit_.value(bodies[k]);
    const std::string bits = bits_text(p.outputs[k].out->dtype, x);
    emit_.line(w.lane       ? fmt::format("{}[l] = {};", packs[k], bits)
               : to.empty() ? fmt::format("{} = {};", packs[k], x)
                            : fmt::format("{} = {};", to[k], bits));
  }
  emit_.close();
  if (!to.empty()) return emit_.close();
  if (w.team > 1) emit_.open("if (mine && t == 0)");
  for (std::size_t k = 0; k < bodies.size(); ++k)
    if (w.lane)
      emit_.line(fmt::format("store_pack<{}>({} + {}, {});", w.length, emit_.buffer(p.outputs[k].out),
                             emit_.value(offsets[k]), packs[k]));
    else
      store(p.outputs[k].out, offsets[k], packs[k]);
  if (w.team > 1) emit_.close();
  emit_.close();
}

}  // namespace sardonyx::codegen
