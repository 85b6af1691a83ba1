// Host code of loop kernels.
//
// A kernel of one stage is split here: adjacent dims that all accesses run through together become one, the innermost
// (contiguous) one becomes the vectorised loop, cut into blocks so that there is parallelism, the others the work
// items. A kernel of several stages is parallel over its outer variables only.
#include "codegen/loop_codegen.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <tuple>

#include "codegen/emit.h"
#include "codegen/loop_analysis.h"
#include "codegen/loop_tiles.h"
#include "codegen/softmax_rows.h"

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kBlock = 8192;       // elements of the vectorised loop per work item
constexpr std::int64_t kReduceBlock = 256;  // the same when each element is a reduction
constexpr std::int64_t kLeastChannels = 8;  // of samples that are computed side by side
constexpr int kTile = 64;                   // elements reduced side by side
constexpr std::int64_t kAngles = 256;       // elements whose angles are tested together
constexpr int kComputedSides = 4;           // loops of one choice: each takes milliseconds to compile
constexpr std::int64_t kTileRun = 512;      // elements of the vectorised loop per work item of transposed tiles

class Generator {
 public:
  explicit Generator(LoopKernel kernel = {}) : kernel_(std::move(kernel)), emit_(text_) { emit_.vector_casts = true; }

  LoopSource run() {
    if (kernel_.stages.size() == 1 && kernel_.outer.empty()) {
      single(kernel_.stages[0].out, flat_loop(kernel_.stages[0]));
    } else if (const auto loop = across_rows()) {
      single(kernel_.stages.back().out, *loop);
    } else {
      kernel_ = with_channels_inside(std::move(kernel_), kLeastChannels);
      several();
    }
    return source();
  }

  // The epilogue of a product: a work item is a block of a row of its sums.
  LoopSource run_epilogue(const TileKernel& kernel) {
    const Value& sums = *kernel.node->outputs[0];
    Expr body = flatten_loads(kernel.epilogue);
    Expr offset =
        storage_offset(*kernel.out, idx::delinearize(idx::linearize(kernel.vars, sums.shape), kernel.out->shape));
    Exprs rows;
    std::vector<std::pair<Expr, Expr>> ones;
    for (int k = 0; k + 1 < sums.rank(); ++k) {
      const Expr& v = kernel.vars[sum_dim(sums, k)];
      if (v->op != Op::kVar) continue;
      if (is_const(v->args[0], 1))
        ones.emplace_back(v, Expr(0));
      else
        rows.push_back(v);
    }
    const std::size_t last = sum_dim(sums, sums.rank() - 1);
    const Expr columns = sums.shape[last];
    const Expr column = kernel.vars[last]->op == Op::kVar ? kernel.vars[last] : loop_var(columns);
    body = substitute(body, ones);
    offset = substitute(offset, ones);
    rows = merge_vars(rows, body, offset);
    Expr count = 1;
    for (const Expr& v : rows) count = count * v->args[0];
    const Expr blocks = idx::ceildiv(columns, kAccumulatorBlock);
    work_items_ = count * blocks;
    work_ = cost_of(body) * idx::min(columns, kAccumulatorBlock);
    open_items();
    std::string lo = "0", hi = emit_.value(columns);
    if (!is_const(blocks, 1)) {
      const std::string n = emit_.value(blocks);
      emit_.line(fmt::format("const i64 lo = i64(u64(q) % u64({0})) * {1}; q = i64(u64(q) / u64({0}));", n,
                             kAccumulatorBlock));
      emit_.line(fmt::format("const i64 hi = min(lo + {}, {});", kAccumulatorBlock, hi));
      lo = "lo";
      hi = "hi";
    }
    decode(rows, "q");
    innermost(kernel.out, column, body, offset, lo, hi);
    emit_.close();
    return source();
  }

 private:
  // The dim that is the k-th in memory.
  static std::size_t sum_dim(const Value& sums, int k) {
    return static_cast<std::size_t>(sums.storage_order.empty() ? k : sums.storage_order[static_cast<std::size_t>(k)]);
  }

  // The text as a function, once it is complete.
  LoopSource source() {
    LoopSource s;
    std::string head = "(char* const* b, const i64* s, i64 begin, i64 end) {\n";
    for (std::size_t k = 0; k < emit_.buffers.size(); ++k) {
      const Value* v = emit_.buffers[k];
      const bool written = std::find(written_.begin(), written_.end(), v) != written_.end();
      head += fmt::format("  {0}{1}* __restrict b{2} = ({0}{1}*)b[{2}];\n", written ? "" : "const ",
                          storage_name(v->dtype), k);
    }
    for (std::size_t k = 0; k < emit_.symbols.size(); ++k) head += fmt::format("  const i64 s{0} = s[{0}];\n", k);
    s.kernel.body = head + text_ + "}\n";
    s.buffers = emit_.buffers;
    s.symbols = emit_.symbols;
    s.work_items = work_items_;
    s.work = work_;
    return s;
  }

  // Stages with one element for each row as a single loop, if they reduce along a distance (a mean over an image whose
  // channels are last): then rows next to each other are better reduced side by side than each on its own. Earlier
  // stages that are stored (a pooling that several nodes read) become beside_.
  std::optional<FlatLoop> across_rows() {
    std::optional<OutputLoop> loop = output_loop(kernel_);
    if (!loop || loop->vars.empty() || loop->outputs.back().out != kernel_.stages.back().out) return std::nullopt;
    Exprs reductions;
    for (const OutputLoop::Output& o : loop->outputs) top_reductions(o.body, reductions);
    if (!side_by_side(reductions, loop->vars.back())) return std::nullopt;
    const OutputLoop::Output last = loop->outputs.back();
    loop->outputs.pop_back();
    beside_ = std::move(loop->outputs);
    return FlatLoop{std::move(loop->vars), last.body, last.offset};
  }

  // Names outer variables from the number of a work item, in `q`.
  void decode(const Exprs& outer, const std::string& q) {
    for (std::size_t k = outer.size(); k-- > 0;) {
      const std::string i = emit_.fresh("o");
      if (k == 0)
        emit_.line(fmt::format("const i64 {} = {};", i, q));
      else {
        const std::string n = emit_.value(outer[k]->args[0]);
        emit_.line(fmt::format("const i64 {0} = i64(u64({1}) % u64({2})); {1} = i64(u64({1}) / u64({2}));", i, q, n));
      }
      emit_.bind(outer[k], i);
    }
  }

  void store(const Value* out, const Expr& offset, const std::string& x) {
    const std::string at = emit_.value(offset);
    written_.push_back(out);
    emit_.line(fmt::format("{}[{}] = {};", emit_.buffer(out), at, x));
  }

  // for (var in [lo, hi)) out[offset] = body, with reductions side by side if that is better.
  void innermost(const Value* out, const Expr& var, const Expr& body, const Expr& offset, const std::string& lo,
                 const std::string& hi) {
    Exprs reductions;
    for (const OutputLoop::Output& b : beside_) top_reductions(b.body, reductions);
    top_reductions(body, reductions);
    if (side_by_side(reductions, var)) {
      const std::string t0 = emit_.fresh("v"), n = emit_.fresh("n");
      emit_.open(fmt::format("for (i64 {0} = {1}; {0} < {2}; {0} += {3})", t0, lo, hi, kTile));
      emit_.line(fmt::format("const i64 {} = min(i64({}), {} - {});", n, kTile, hi, t0));
      std::vector<std::string> arrays;
      for (const Expr& r : reductions) {
        const auto kind = static_cast<ReduceKind>(r->i);
        const std::string a = emit_.fresh("a");
        emit_.line(fmt::format("{} {}[{}];", type_name(r->dtype), a, kTile));
        emit_.line(fmt::format("for (int t = 0; t < {}; ++t) {}[t] = {};", kTile, a, Emitter::neutral(kind, r->dtype)));
        for (const Expr& v : r->vars) {
          const std::string i = emit_.fresh("i"), extent = emit_.value(v->args[0]);
          emit_.open(fmt::format("for (i64 {0} = 0; {0} < {1}; ++{0})", i, extent));
          emit_.bind(v, i);
        }
        compute_first(r->args[0], var);
        // Whole tiles have a constant trip count, which vectorises without a remainder.
        for (const bool whole : {true, false}) {
          emit_.open(whole ? fmt::format("if ({} == {})", n, kTile) : "else");
          emit_.line("#pragma clang loop vectorize(assume_safety)");
          emit_.open(fmt::format("for (int t = 0; t < {}; ++t)", whole ? std::to_string(kTile) : n));
          const std::string i = emit_.fresh("i");
          emit_.line(fmt::format("const i64 {} = {} + t;", i, t0));
          emit_.bind(var, i);
          for (std::size_t j = 0; j < arrays.size(); ++j) emit_.bind_value(reductions[j], arrays[j] + "[t]");
          const std::string x = emit_.value(r->args[0]);
          emit_.line(fmt::format("{0}[t] = {1};", a, Emitter::combine(kind, r->dtype, a + "[t]", x)));
          emit_.close();
          emit_.close();
        }
        for (std::size_t j = 0; j < r->vars.size(); ++j) emit_.close();
        arrays.push_back(a);
      }
      compute_first(body, var);
      emit_.line("#pragma clang loop vectorize(assume_safety)");
      emit_.open(fmt::format("for (int t = 0; t < {}; ++t)", n));
      const std::string i = emit_.fresh("i");
      emit_.line(fmt::format("const i64 {} = {} + t;", i, t0));
      emit_.bind(var, i);
      for (std::size_t j = 0; j < arrays.size(); ++j) emit_.bind_value(reductions[j], arrays[j] + "[t]");
      for (const OutputLoop::Output& b : beside_) {
        const std::string y = emit_.value(b.body);
        store(b.out, b.offset, y);
      }
      const std::string x = emit_.value(body);
      store(out, offset, x);
      emit_.close();
      emit_.close();
      return;
    }
    if (in_parts(body, var) && !body->has_reduce) return parts(out, var, body, offset, lo, hi);
    if (const Expr split = computed_parts(body, var); split && in_parts(split, var))
      return parts(out, var, split, offset, lo, hi);
    if (const Expr sides = as_choice(body, var);
        is_choice(sides, var) && computed_sides(out, var, sides, offset) <= kComputedSides)
      return choice(out, var, sides, offset, lo, hi);
    if (const Exprs angles = certain_angles(body); !angles.empty())
      return by_angles(out, var, body, offset, lo, hi, angles);
    elements(out, var, body, offset, lo, hi);
  }

  void elements(const Value* out, const Expr& var, const Expr& body, const Expr& offset, const std::string& lo,
                const std::string& hi) {
    const std::string i = emit_.fresh("i");
    emit_.open(fmt::format("if ({} < {})", lo, hi));  // what is computed first exists only where elements do
    compute_first(body, var);
    if (!body->has_reduce)
      emit_.line(fmt::format("#pragma clang loop vectorize(assume_safety){}",
                             is_short_run(body, offset, var) ? " unroll(disable)" : ""));
    emit_.open(fmt::format("for (i64 {0} = {1}; {0} < {2}; ++{0})", i, lo, hi));
    emit_.bind(var, i);
    const std::string x = emit_.value(body);
    store(out, offset, x);
    emit_.close();
    emit_.close();
  }

  // Computes what is the same for all values of `var`, before a loop over it that stores: for all the compiler knows,
  // stores change what is loaded. (The places of samples of an image, of which `var` is the channel.)
  void compute_first(const Expr& body, const Expr& var) {
    Exprs parts;
    certain_parts(body, [&](const Expr& x) {
      if (mentions(x, var)) return true;
      parts.push_back(x);
      return false;
    });
    for (const Expr& x : parts) emit_.value(x);
  }

  // innermost() with sines and cosines, in blocks: if none of a block's angles is large, which is tested first, they
  // need not be reduced as large ones are. Results are the same either way.
  void by_angles(const Value* out, const Expr& var, const Expr& body, const Expr& offset, const std::string& lo,
                 const std::string& hi, const Exprs& angles) {
    const std::string t0 = emit_.fresh("v"), end = emit_.fresh("n"), most = emit_.fresh("m"), i = emit_.fresh("i");
    emit_.open(fmt::format("for (i64 {0} = {1}; {0} < {2}; {0} += {3})", t0, lo, hi, kAngles));
    emit_.line(fmt::format("const i64 {} = min({} + {}, {});", end, t0, kAngles, hi));
    emit_.line(fmt::format("u32 {} = 0;", most));
    emit_.line("#pragma clang loop vectorize(assume_safety)");
    emit_.open(fmt::format("for (i64 {0} = {1}; {0} < {2}; ++{0})", i, t0, end));
    emit_.bind(var, i);
    for (const Expr& a : angles) {
      const std::string bits = emit_.fresh("x");
      emit_.line(fmt::format("const u32 {} = bit_cast<u32>({}) & 0x7fffffffu;", bits, emit_.value(a)));
      emit_.line(fmt::format("{0} = {1} > {0} ? {1} : {0};", most, bits));
    }
    emit_.close();
    for (const bool bounded : {true, false}) {
      emit_.open(bounded ? fmt::format("if ({} < kBoundedAngle)", most) : "else");
      emit_.bounded_angles = bounded;
      elements(out, var, body, offset, t0, end);
      emit_.close();
    }
    emit_.close();
  }

  // innermost() of a concatenation: part by part, as a vectorised loop would read all parts for each element. Parts
  // that are only copied are no loops, which take milliseconds each to compile.
  void parts(const Value* out, const Expr& var, const Expr& body, const Expr& offset, const std::string& lo,
             const std::string& hi) {
    const std::string end = emit_.fresh("n");
    emit_.line(fmt::format("const i64 {} = min(max(i64({}), {}), i64({}));", end, lo,
                           emit_.value(body->args[0]->args[1]), hi));
    for (const auto& [part, from, to] : {std::tuple(body->args[1], lo, end), std::tuple(body->args[2], end, hi)}) {
      if (copies(out, var, part, offset))
        copy(out, var, part, offset, from, to);
      else
        innermost(out, var, part, offset, from, to);
    }
  }

  // Whether out[offset] = body copies a run of memory.
  static bool copies(const Value* out, const Expr& var, const Expr& body, const Expr& offset) {
    return body->op == Op::kLoad && body->dtype == out->dtype && body->value->dtype == body->dtype &&
           body->args.size() == 1 && advances(body->args[0], var) && advances(offset, var);
  }

  void copy(const Value* out, const Expr& var, const Expr& body, const Expr& offset, const std::string& lo,
            const std::string& hi) {
    emit_.open(fmt::format("if ({} < {})", lo, hi));
    const std::string i = emit_.fresh("i");
    emit_.line(fmt::format("const i64 {} = {};", i, lo));
    emit_.bind(var, i);
    const std::string source = emit_.value(body->args[0]), target = emit_.value(offset);
    written_.push_back(out);
    emit_.line(fmt::format("__builtin_memcpy({} + {}, {} + {}, u64({} - {}) * {});", emit_.buffer(out), target,
                           emit_.buffer(body->value), source, hi, lo, size_of(body->dtype)));
    emit_.close();
  }

  // Whether the body selects by something that is the same along `var`: tensors that are stacked, rows outside of an
  // image.
  static bool is_choice(const Expr& body, const Expr& var) {
    return body->op == Op::kSelect && !body->has_reduce && !mentions(body->args[0], var);
  }

  // The loops that a choice needs; sides that are copies need none.
  static int computed_sides(const Value* out, const Expr& var, const Expr& body, const Expr& offset) {
    if (is_choice(body, var))
      return computed_sides(out, var, body->args[1], offset) + computed_sides(out, var, body->args[2], offset);
    return copies(out, var, body, offset) ? 0 : 1;
  }

  // innermost() of a choice: chooses once. Within the loop the compiler does so only where there are few sides.
  void choice(const Value* out, const Expr& var, const Expr& body, const Expr& offset, const std::string& lo,
              const std::string& hi) {
    const std::string condition = emit_.value(body->args[0]);
    for (const std::size_t side : {1, 2}) {
      emit_.open(side == 1 ? fmt::format("if ({})", condition) : "else");
      if (copies(out, var, body->args[side], offset))
        copy(out, var, body->args[side], offset, lo, hi);
      else
        innermost(out, var, body->args[side], offset, lo, hi);
      emit_.close();
    }
  }

  void single(const Value* out, const FlatLoop& loop) {
    const auto& [vars, body, offset] = loop;
    if (vars.empty()) {  // one element
      work_items_ = 1;
      work_ = cost_of(body);
      emit_.open("if (begin < end)");
      const std::string x = emit_.value(body);
      store(out, offset, x);
      emit_.close();
      return;
    }
    if (const auto across = reads_across(loop, kSide)) return in_tiles(out, loop, *across);
    std::optional<Expr> other = columns_of(loop, kSide);
    if (!other) other = samples_along(loop, kLeastChannels);
    if (!other) other = long_side(loop, kSide);
    const Expr inner = other.value_or(vars.back());
    Exprs outer;
    for (const Expr& v : vars)
      if (!same(v, inner)) outer.push_back(v);
    const auto [lo, hi] = open_blocks(outer, inner, body->has_reduce ? kReduceBlock : kBlock, cost_of(body));
    innermost(out, inner, body, offset, lo, hi);
    emit_.close();
  }

  // Opens the loop over work items: for each value of `outer`, blocks of `inner`, whose begin and end it returns.
  std::pair<std::string, std::string> open_blocks(const Exprs& outer, const Expr& inner, std::int64_t block,
                                                  const Expr& cost) {
    std::int64_t n = 0;
    const bool blocked = !is_const_int(inner->args[0], n) || n > block;
    Expr outer_items = 1;
    for (const Expr& v : outer) outer_items = outer_items * v->args[0];
    const Expr blocks = blocked ? idx::ceildiv(inner->args[0], block) : Expr(1);
    work_items_ = outer_items * blocks;
    work_ = cost * idx::min(inner->args[0], block);
    open_items();
    std::string lo = "0", hi;
    const std::string extent = emit_.value(inner->args[0]);
    if (blocked) {
      const std::string nb = emit_.value(blocks);
      emit_.line(fmt::format("const i64 lo = i64(u64(q) % u64({0})) * {1}; q = i64(u64(q) / u64({0}));", nb, block));
      emit_.line(fmt::format("const i64 hi = min(lo + {}, {});", block, extent));
      lo = "lo";
      hi = "hi";
    } else
      hi = extent;
    decode(outer, "q");
    return {lo, hi};
  }

  // A loop that reads across memory, in strips of square tiles.
  void in_tiles(const Value* out, const FlatLoop& loop, const Across& across) {
    const std::int64_t columns = strip_columns(loop, across);
    const Expr along = loop.vars[across.along], strip = loop_var(idx::ceildiv(along->args[0], columns));
    Exprs outer(loop.vars.begin(), loop.vars.end() - 1);
    outer[across.along] = strip;
    const auto [lo, hi] = open_blocks(outer, loop.vars.back(), kTileRun, cost_of(loop.body) * Expr(columns));
    TransposedTiles(emit_, loop, across, [&](const std::string& x) {
      store(out, loop.offset, x);
    }).strip(emit_.value(strip), lo, hi);
    emit_.close();
  }

  // The loop over work items. The compiler must not vectorise it: where small constant inner loops have been unrolled
  // into it, LLVM 22 takes time exponential in the length of the body (VPlan's isSingleScalar).
  void open_items() {
    emit_.line("#pragma clang loop vectorize(disable)");
    emit_.open("for (i64 p = begin; p < end; ++p)");
    emit_.line("i64 q = p;");
  }

  // The stage's own variables, innermost the dim that is contiguous in memory.
  static Exprs in_memory_order(const Stage& stage) {
    if (stage.out->storage_order.empty()) return stage.inner;
    Exprs vars;
    for (const int d : stage.out->storage_order) {
      const Expr& at = stage.index[static_cast<std::size_t>(d)];
      if (std::any_of(stage.inner.begin(), stage.inner.end(), [&](const Expr& v) { return same(v, at); }))
        vars.push_back(at);
    }
    return vars;
  }

  // Keeps the terms of a sum of bodies[k] in an array if a later stage needs them too.
  void keep_terms(std::vector<Expr>& bodies, std::size_t k) {
    const std::optional<KeptTerms> kept = find_kept_terms(kernel_.stages, bodies, k);
    if (!kept) return;
    Value& row = rows_.emplace_back();
    row.dtype = kept->sum->dtype;
    row.shape = {Expr(kept->count)};
    const std::string name = emit_.fresh("a");
    emit_.line(fmt::format("{} {}[{}];", type_name(row.dtype), name, kept->count));
    emit_.bind_array(&row, name);
    emit_.kept_terms = {{kept->sum, name}};
    bodies[kept->stage] = rewrite(bodies[kept->stage], [&](const Expr& e) {
      return same(e, kept->again) ? load(&row, row.dtype, {kept->var}) : Expr();
    });
  }

  void several() {
    work_items_ = 1;
    for (const Expr& v : kernel_.outer) work_items_ = work_items_ * v->args[0];
    work_ = 0;
    open_items();
    decode(kernel_.outer, "q");
    std::vector<Expr> bodies;
    for (const Stage& stage : kernel_.stages) bodies.push_back(merge_reduce_vars(flatten_loads(stage.body)));
    flush_small_exponentials(kernel_.stages, bodies);
    for (std::size_t k = 0; k < bodies.size(); ++k) {
      const Stage& stage = kernel_.stages[k];
      keep_terms(bodies, k);
      Expr body = bodies[k];
      Expr offset = storage_offset(*stage.out, stage.index);
      Expr n = 1;
      for (const Expr& v : stage.inner) n = n * v->args[0];
      work_ = work_ + n * cost_of(body);
      if (stage.inner.empty()) {
        const std::string x = emit_.value(body);
        emit_.kept_terms.clear();
        const std::string local = emit_.fresh("x");
        emit_.line(fmt::format("const {} {} = {};", type_name(stage.out->dtype), local, x));
        emit_.bind_local(stage.out, local);
        if (stage.stored) store(stage.out, offset, local);
        continue;
      }
      Exprs vars = merge_vars(in_memory_order(stage), body, offset);
      for (std::size_t k = 0; k + 1 < vars.size(); ++k) {
        const std::string i = emit_.fresh("i"), extent = emit_.value(vars[k]->args[0]);
        emit_.open(fmt::format("for (i64 {0} = 0; {0} < {1}; ++{0})", i, extent));
        emit_.bind(vars[k], i);
      }
      const std::string extent = emit_.value(vars.back()->args[0]);
      innermost(stage.out, vars.back(), body, offset, "0", extent);
      for (std::size_t k = 0; k + 1 < vars.size(); ++k) emit_.close();
    }
    emit_.close();
  }

  LoopKernel kernel_;
  std::vector<OutputLoop::Output> beside_;  // what else the loop of across_rows() stores for each of its elements
  std::string text_;
  Emitter emit_;
  std::vector<const Value*> written_;
  std::deque<Value> rows_;  // arrays of keep_terms()
  Expr work_items_, work_;
};

}  // namespace

LoopSource generate_host_loop(const LoopKernel& kernel) { return Generator(kernel).run(); }

LoopSource generate_accumulator_epilogue(const TileKernel& kernel) { return Generator().run_epilogue(kernel); }

}  // namespace sardonyx::codegen
