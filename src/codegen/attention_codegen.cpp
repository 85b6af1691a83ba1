// See attention_codegen.h.
#include "codegen/attention_codegen.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "codegen/attention_problem.h"
#include "codegen/attention_step.h"
#include "codegen/emit.h"
#include "codegen/loop_analysis.h"
#include "codegen/loop_codegen.h"
#include "support/error.h"

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kMaxHead = 256;  // elements of a head: more do not fit into registers
constexpr std::size_t kMaxBuffers = 24;
constexpr std::int64_t kDecodeRows = 32;    // rows of a group of heads that are worth the kernel for few rows
constexpr std::int64_t kDecodeTile = 16;    // rows that a workgroup of that kernel has at least
constexpr std::int64_t kFullBlocks = 64;    // workgroups that keep a card busy
constexpr std::int64_t kWgmmaUnits = 132;   // of Hopper: with as many workgroups of 128 rows, smaller ones don't pay
constexpr std::int64_t kSplitKeys = 128;    // a workgroup has at least so many keys
constexpr std::int64_t kSplitBlocks = 256;  // workgroups that fill a card
// Of candidates for tuning: keys in at most so many parts, each of so many at least, and so many workgroups.
constexpr int kMostParts = 32;
constexpr const char *kFewRows = "few rows", *kOneQuery = "one query";  // with as many parts as the rule says
constexpr std::int64_t kMostOneQuery = 1 << 17;                         // units: workgroups are counted in 32 bits
constexpr std::int64_t kFewestKeys = 32, kMostSplitBlocks = 2048;

bool matrix_type(DType t) { return t == DType::kFloat32 || t == DType::kFloat16 || t == DType::kBFloat16; }

// An operand: where its rows are, or its elements.
struct Operand {
  std::string name;
  Expr load;             // flat
  Expr row, element;     // variables
  Expr start, distance;  // of rows: offset at row 0, element 0; distance of rows
  bool direct = false;   // rows can be read 16 bytes at a time
};

class Generator : AttentionProblem {
 public:
  Generator(const TileKernel& kernel, std::string_view arch, const TileSelection& selection)
      : AttentionProblem(kernel, arch), selection_(selection) {}

  GpuAttentionForms run() {
    const Operand q = operand("query", a_.q, s_, d_), k = operand("key", a_.k, t_, d_),
                  v = operand("value", a_.v, t_, e_);
    const std::int64_t group = group_of(k, v);
    queries_rows(q);
    rows(k);
    rows(v);
    scores();
    limits();
    out();
    const std::string one_query = one_query_functions(k, v, group);

    std::string head = "(", members, values, after;
    for (std::size_t i = 0; i < emit_.buffers.size(); ++i) {
      const Value* x = emit_.buffers[i];
      const std::string t = fmt::format("{}{}*", x == kernel_.out ? "" : "const ", storage_name(x->dtype));
      head += fmt::format("{} __restrict b{}, ", t, i);
      members += fmt::format("  {} b{};\n", t, i);
      values += fmt::format("{}({})__builtin_assume_aligned(b{}, 16)", i ? ", " : "", t, i);
      after += fmt::format("b{0} = after_wait(b{0});\n", i);
    }
    std::string sizes;
    for (std::size_t i = 0; i < emit_.symbols.size(); ++i) {
      sizes += fmt::format("i64 s{}, ", i);
      members += fmt::format("  i64 s{};\n", i);
      values += fmt::format(", s{}", i);
    }
    const std::string problem = fmt::format(
        "struct P {{\n  using T = {};\n  using Out = {};\n  enum : int {{ kHeadDim = {}, kValueDim = {}, kQueryDirect "
        "= "
        "{}, kKeyDirect = {}, kValueDirect = {}, kOutDirect = {}, kPlain = {}, kColumn = {}, kBounds = {}, kSink = {}, "
        "kZeroEmpty = {} }};\n{}{}}};\nconst P p{{{}}};\n",
        storage_name(type_), storage_name(kernel_.out->dtype), extent(d_), extent(e_), int(q.direct), int(k.direct),
        int(v.direct), int(out_direct_), int(plain_), int(column_), int(a_.begin || a_.end), int(bool(a_.sink)),
        int(a_.zero_empty), members, text_, values);
    sizes += "i64 batch, i64 queries, i64 keys, i64 heads, i64 splits) {\n";

    // Sizes. Few rows for many keys: heads that share keys are taken together, and keys are split over workgroups.
    const Expr batch = b_->args[0], heads = h_->args[0], queries = s_->args[0], keys = t_->args[0];
    const Expr units = batch * idx::floordiv(heads, group), rows = batch * heads * queries;
    const Expr one = logical_and(one_query.empty() ? compare(Op::kLt, 1, 0) : compare(Op::kEq, queries, 1),
                                 compare(Op::kLe, units, kMostOneQuery));
    const Expr few = logical_and(compare(Op::kLe, queries * group, kDecodeRows), logical_not(one));
    const Expr blocks = batch * heads * idx::ceildiv(queries, rows_of_tile());
    // The kernel for few rows makes more and smaller workgroups, which a card that is not full otherwise wants.
    const Expr shared = logical_or(few, compare(Op::kLt, blocks, kFullBlocks));
    const Expr decode_blocks = units * idx::ceildiv(queries * group, kDecodeTile);
    GpuAttentionForms g;
    g.source.buffers = emit_.buffers;
    g.source.symbols = emit_.symbols;
    g.source.limit = idx::max(keys, rows);
    for (const Expr& x : {batch, queries, keys, heads}) g.source.symbols.push_back(x);
    g.batches = batch * heads;
    g.m = queries;
    g.n = keys;
    g.k = d_->args[0];
    const bool wgmma = takes_wgmma(q, k, v);
    g.problem = problem_of(group, q, k, v);
    find_tuned(g, wgmma);

    const std::string numbers = "u32(queries), u32(keys), u32(heads)";
    const auto kernel_of = [&](const std::string& p, bool partial, const std::string& rest, const LaunchBounds& bounds,
                               std::uint32_t lds) {
      const std::string text = head + (partial ? "f32* __restrict partial, " : "") + sizes + p + rest + "}\n";
      g.source.kernels.push_back({attention_spec(text, arch_, bounds, lds), {}, partial});
      return g.source.kernels.size() - 1;
    };
    const auto kernel = [&](bool partial, const std::string& rest, const LaunchBounds& bounds = {},
                            std::uint32_t lds = 0) { return kernel_of(problem, partial, rest, bounds, lds); };
    // Two blocks on a multiprocessor, where short heads leave the registers for it.
    const LaunchBounds two_blocks{.threads = kGpuThreads, .min_blocks = 2};
    const bool is_short = size_of(type_) == 2 && std::max(extent(d_), extent(e_)) <= 64;
    const LaunchBounds of_tiles = is_short ? two_blocks : LaunchBounds{};
    const auto wanted = [&](const std::string& name) {
      return selection_.all ||
             std::any_of(g.tuned.begin(), g.tuned.end(), [&](const TunedSize& x) { return x.candidate == name; });
    };
    // The rule: the forms in turn, the first that it takes for these sizes.
    std::vector<Expr> taken;
    const Expr never = compare(Op::kLt, 1, 0);
    const auto add = [&](const std::string& name, const Expr& by_rule, const Expr& applies, auto&& launches) {
      if ((is_const(by_rule, 0) && !wanted(name)) || is_const(applies, 0)) return;
      g.forms.push_back({name, applies, launches()});
      taken.push_back(by_rule);
    };
    const auto single = [&](std::size_t number, const Expr& points) {
      return std::vector<GpuAttentionForms::Launch>{{number, points, 1}};
    };
    std::optional<std::size_t> decode, merge;
    const auto merged = [&](std::vector<GpuAttentionForms::Launch> launches, const Expr& parts) {
      if (is_const(parts, 1)) return launches;
      if (!merge)
        merge =
            kernel(true, fmt::format("attention_merge(p, {{{}, {}, u32(splits), partial}}, batch * heads * queries);\n",
                                     numbers, group));
      launches.push_back({*merge, select(compare(Op::kGt, parts, 1), rows, 0), parts});
      return launches;
    };
    const auto in_parts = [&](const Expr& parts) {
      if (!decode)
        decode = kernel(
            true, fmt::format("attention<P, true>(p, {{{}, {}, u32(splits), partial}}, u32(batch));\n", numbers, group),
            of_tiles);
      return merged({{*decode, decode_blocks * parts, parts}}, parts);
    };
    const std::int64_t value = (extent(e_) + 15) / 16 * 16;
    const auto partial = [&](const Expr& when, const Expr& parts) {
      const Expr room = select(when, rows * parts * (value + 2), 1);
      g.source.partial = g.source.partial ? idx::max(g.source.partial, room) : room;
    };
    add(kOneQuery, one, one, [&] {
      const Expr parts = step_parts(units, keys), clustered = compare(Op::kLe, units, kMostClustered / kStepCluster);
      partial(logical_and(one, compare(Op::kGt, parts, 1)), parts);
      const std::string p = fmt::format(
          "struct P {{\n  using T = {0};\n  using Out = {1};\n  enum : int {{ kDim = {2}, kValueDim = {2}, kGroup = "
          "{3}, kPlain = {4}, kBounds = {5}, kSink = {6}, kZeroEmpty = {7}, kAppends = 0 }};\n{8}{9}  SDX_FN void "
          "wait() "
          "{{\nwait_for_launch();\n{10}}}\n}};\nP p{{{11}}};\n",
          storage_name(type_), storage_name(kernel_.out->dtype), extent(d_), group, int(plain_),
          int(a_.begin || a_.end), int(bool(a_.sink)), int(a_.zero_empty), members, one_query, after, values);
      std::vector<GpuAttentionForms::Launch> launches;
      for (const int cluster : {kStepCluster, kSmallStepCluster}) {
        const Expr points = cluster == kStepCluster ? select(clustered, units * parts * cluster, 0)
                                                    : select(clustered, 0, units * cluster);
        if (is_const(points, 0)) continue;
        const std::uint32_t lds = step_mma_bytes(extent(d_), group, cluster, false);
        launches.push_back(
            {kernel_of(p, true,
                       fmt::format("attention_step_mma<P, {}, {}>(p, {{u32(keys), u32(heads), u32(splits), "
                                   "keys, keys, partial}}, u32(batch));\n",
                                   cluster, lds),
                       {.cluster = static_cast<std::uint32_t>(cluster)}, lds),
             points, cluster == kStepCluster ? parts : Expr(1)});
      }
      return merged(std::move(launches), parts);
    });
    if (wgmma) {
      const bool narrow = extent(d_) == 64;  // so that two workgroups run on a unit
      const auto form = [&](int tile, int shares, const Expr& by_rule, const Expr& points) {
        add(tiles_name(128 / shares), by_rule, 1, [&] {
          return single(kernel(false,
                               fmt::format("attention_wgmma<P, {}, {}, {}>(p, {}, u32(batch));\n", tile, shares,
                                           narrow ? 2 : 1, numbers),
                               narrow ? two_blocks : LaunchBounds{}, wgmma_bytes(tile, shares)),
                        points);
        });
      };
      const Expr wide = batch * heads * idx::ceildiv(queries, 128), small = batch * heads * idx::ceildiv(queries, 64);
      const Expr full = compare(Op::kGe, wide, narrow ? kWgmmaUnits : kWgmmaUnits / 2), few_not = logical_not(few);
      form(narrow ? 64 : 128, 1, logical_and(few_not, full), wide);
      form(64, 2, logical_and(few_not, logical_not(full)), small);
    } else {
      add(tiles_name(rows_of_tile()), logical_not(shared), 1, [&] {
        return single(
            kernel(false, fmt::format("attention<P, false>(p, {{{}, 1, 1, nullptr}}, u32(batch));\n", numbers),
                   of_tiles),
            blocks);
      });
    }
    const Expr split =
        idx::max(1, idx::min(idx::ceildiv(kSplitBlocks, idx::max(units, 1)), idx::ceildiv(keys, kSplitKeys)));
    add(kFewRows, wgmma ? few : shared, 1, [&] {
      const Expr parts = select(few, split, 1);
      partial(compare(Op::kGt, parts, 1), parts);
      return in_parts(parts);
    });
    for (int parts = 1; parts <= kMostParts; parts *= 2) {
      const Expr fits = logical_and(compare(Op::kLe, decode_blocks * parts, kMostSplitBlocks),
                                    compare(Op::kGe, keys, parts * kFewestKeys));
      add(in_parts_name(parts), never, parts == 1 ? Expr(1) : select(fits, 1, 0), [&] {
        if (parts > 1) partial(fits, parts);
        return in_parts(parts);
      });
    }
    // Of known sizes that were measured, that form alone.
    const auto measured = std::find_if(g.forms.begin(), g.forms.end(), [&](const GpuAttentionForms::Form& f) {
      return !g.tuned.empty() && f.name == g.tuned[0].candidate && is_const(f.applies, 1);
    });
    if (!selection_.all && is_const(g.batches) && is_const(g.m) && is_const(g.n) && measured != g.forms.end()) {
      g.forms = {*measured};
      taken = {never};
    }
    g.rule = static_cast<std::int64_t>(taken.size()) - 1;
    for (std::size_t k = taken.size(); k-- > 0;) g.rule = select(taken[k], static_cast<std::int64_t>(k), g.rule);
    return g;
  }

 private:
  // What decides besides sizes which form is the fastest.
  std::string problem_of(std::int64_t group, const Operand& q, const Operand& k, const Operand& v) const {
    std::string text = fmt::format("attention {} to {}, heads of {} and {}", name(type_), name(kernel_.out->dtype),
                                   extent(d_), extent(e_));
    if (group > 1) text += fmt::format(", {} share keys", group);
    if (!plain_) text += column_ ? ", a bias of keys" : ", scores computed";
    if (a_.begin || a_.end) text += ", limits";
    if (!(q.direct && k.direct && v.direct)) text += ", operands computed";
    return text;
  }
  // Of what was measured, the fastest form for each size that a run can have.
  void find_tuned(GpuAttentionForms& g, bool wgmma) const {
    if (!selection_.choices) return;
    std::set<std::string> forms = {kFewRows, kOneQuery};
    for (int parts = 1; parts <= kMostParts; parts *= 2) forms.insert(in_parts_name(parts));
    for (const std::int64_t rows : {std::int64_t{64}, wgmma ? 128 : rows_of_tile()})
      if (wgmma || rows == rows_of_tile()) forms.insert(tiles_name(rows));
    const auto may_be = [](const Expr& e, std::int64_t size) {
      std::int64_t known = 0;
      return !is_const_int(e, known) || known == size;
    };
    std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>> done;
    for (TunedSize& x : selection_.choices->find(arch_, g.problem))
      if (may_be(g.batches, x.batches) && may_be(g.m, x.m) && may_be(g.n, x.n) && may_be(g.k, x.k) &&
          forms.count(x.candidate) && done.emplace(x.batches, x.m, x.n, x.k).second)
        g.tuned.push_back(std::move(x));
  }
  static std::string tiles_name(std::int64_t rows) { return fmt::format("tiles of {} rows", rows); }
  static std::string in_parts_name(int parts) { return fmt::format("few rows, keys in {} parts", parts); }

  // Of the kernel for many rows; only so many workgroups are started.
  std::int64_t rows_of_tile() const {
    const std::int64_t longest = std::max((extent(d_) + 31) / 32 * 32, (extent(e_) + 15) / 16 * 16);
    const bool wave64 = chip_.wave == 64;
    return wave64 && longest * static_cast<std::int64_t>(size_of(type_)) > 256 ? 64 : 128;
  }

  // See kernels/attention_wgmma.h.
  bool takes_wgmma(const Operand& q, const Operand& k, const Operand& v) const {
    const std::int64_t d = extent(d_);
    return chip_.has(Feature::kWgmma) && size_of(type_) == 2 && d == extent(e_) && (d == 64 || d == 128) && q.direct &&
           k.direct && v.direct && (plain_ || column_);
  }
  std::uint32_t wgmma_bytes(int keys, int shares) const {
    return static_cast<std::uint32_t>(
        sdx::layout::WgmmaAttentionLayout{static_cast<int>(extent(d_)), keys, shares, column_}.bytes());
  }

  // The struct of kernels/attention_step_mma.h, for one query a sequence and keys and values that lie as a cache does:
  // its functions, or nothing.
  std::string one_query_functions(const Operand& k, const Operand& v, std::int64_t group) {
    std::int64_t heads = 0;
    const std::int64_t d = extent(d_);
    if (!chip_.has(Feature::kClusters) || d != extent(e_) || !takes_step_mma(type_, d, group) || !k.direct ||
        !v.direct || !is_const_int(h_->args[0], heads) || heads % group != 0)
      return {};
    for (const Expr& x : {a_.begin, a_.end})
      if (x && (mentions(x, h_) || mentions(x, t_))) return {};
    const Expr shared = idx::floordiv(h_, Expr(group));
    const auto number = [](const Expr& v) { return is_const(v) || is_const(v->args[0], 1) ? Expr(0) : v; };
    for (const Operand* o : {&k, &v})
      if (!idx::provably_equal(o->load->args[0],
                               idx::linearize({number(b_), heads == group ? Expr(0) : shared, number(t_), o->element},
                                              {b_->args[0], Expr(heads / group), t_->args[0], Expr(d)})))
        return {};
    std::string others;
    std::swap(text_, others);
    const Expr query = is_const(s_) ? a_.q : substitute(a_.q, {{s_, Expr(0)}});
    function("T query(i64 b, i64 h, i64 d)", {{b_, "b"}, {h_, "h"}, {d_, "d"}}, [&] { returns(flatten_loads(query)); });
    function("const T* past_key()", {}, [&] { returns_address(k.load->value, 0); });
    function("const T* past_value()", {}, [&] { returns_address(v.load->value, 0); });
    scores();
    limits();
    out();
    std::swap(text_, others);
    return others;
  }

  Operand operand(const std::string& name, const Expr& load, const Expr& row, const Expr& element) {
    Operand o;
    o.name = name;
    o.load = flatten_loads(load);
    o.row = row;
    o.element = element;
    const Expr at = o.load->args[0];
    Expr factor, rest;
    const bool single = is_const(element) || is_const(element->args[0], 1);
    if (single || at->has_load || !idx::split_affine(at, element, factor, rest) || !is_const(factor, 1) ||
        mentions(rest, element) || extent(element) % vec_ != 0 || divisor_of(rest) % vec_ != 0)
      return o;
    o.start = rest;
    o.distance = 0;
    if (name != "query" && !is_const(row) && mentions(rest, row)) {
      if (!idx::split_affine(rest, row, o.distance, o.start) || mentions(o.start, row) || o.distance->has_var) return o;
    }
    if (name != "query" && (mentions(o.start, s_) || divisor_of(o.distance) % vec_ != 0)) return o;
    o.direct = true;
    return o;
  }

  // Heads that share keys and values: those of which h / group is the same.
  std::int64_t group_of(const Operand& k, const Operand& v) const {
    std::int64_t group = 0;
    for (const Operand* o : {&k, &v}) {
      std::int64_t own = 0;
      visit(o->load, [&](const Expr& x) {
        std::int64_t by = 0;
        if (x->op == Op::kFloorDiv && same(x->args[0], h_) && is_const_int(x->args[1], by)) own = by;
      });
      if (own <= 1) return 1;
      const Expr shared = loop_var(idx::floordiv(h_->args[0], own)), other = loop_var(own);
      if (mentions(substitute(o->load, {{h_, shared * own + other}}), other)) return 1;
      if (group && group != own) return 1;
      group = own;
    }
    return group;
  }

  void queries_rows(const Operand& q) {
    if (q.direct)
      function("const T* query(i64 b, i64 h, i64 s)", {{b_, "b"}, {h_, "h"}, {s_, "s"}},
               [&] { returns_address(q.load->value, q.start); });
    else
      elements(q, "s");
  }
  void rows(const Operand& o) {
    if (!o.direct) return elements(o, "t");
    function(fmt::format("const T* {}(i64 b, i64 h)", o.name), {{b_, "b"}, {h_, "h"}},
             [&] { returns_address(o.load->value, o.start); });
    function(fmt::format("i64 {}_row()", o.name), {}, [&] { returns(o.distance); });
  }
  void elements(const Operand& o, const std::string& row) {
    function(fmt::format("T {}_at(i64 b, i64 h, i64 {}, i64 d)", o.name, row),
             {{b_, "b"}, {h_, "h"}, {o.row, row}, {o.element, "d"}}, [&] { returns(o.load); });
  }

  const TileSelection& selection_;
};

}  // namespace

bool gpu_takes_attention(const TileKernel& kernel, std::string& why) {
  const auto* a = kernel.node->as<AttentionOp>();
  std::int64_t d = 0, e = 0;
  if (!a || kernel.epilogue) {
    why = "attention has no epilogue";
    return false;
  }
  for (const Expr& x : {a->q, a->k, a->v})
    if (x->op != Op::kLoad || !matrix_type(x->dtype) || x->dtype != a->q->dtype) {
      why = "attention takes tensors in memory, all float32, float16 or bfloat16";
      return false;
    }
  if (!matrix_type(kernel.out->dtype) || !is_const(a->scale)) {
    why = "attention's result or scale is of another kind";
    return false;
  }
  if (!is_const_int(a->vars[4]->args[0], d) || !is_const_int(a->vars[5]->args[0], e) || d < 1 || e < 1 ||
      d > kMaxHead || e > kMaxHead) {
    why = "attention takes heads of a known size up to 256";
    return false;
  }
  std::size_t buffers = 4;
  for (const Expr& x : {a->bias, a->begin, a->end, a->sink}) {
    if (!x) continue;
    buffers += loads_of(x).size();
    if (x->has_reduce) {
      why = "a reduction in a mask";
      return false;
    }
  }
  if (buffers > kMaxBuffers) {
    why = "a mask of too many tensors";
    return false;
  }
  return true;
}

GpuAttentionForms generate_gpu_attention(const TileKernel& kernel, std::string_view arch,
                                         const TileSelection& selection) {
  return Generator(kernel, arch, selection).run();
}

}  // namespace sardonyx::codegen
