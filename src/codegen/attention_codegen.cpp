// See attention_codegen.h.
#include "codegen/attention_codegen.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "codegen/attention_problem.h"
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
  Generator(const TileKernel& kernel, std::string_view arch) : AttentionProblem(kernel, arch) {}

  GpuAttentionSource run() {
    const Operand q = operand("query", a_.q, s_, d_), k = operand("key", a_.k, t_, d_),
                  v = operand("value", a_.v, t_, e_);
    const std::int64_t group = group_of(k, v);
    queries_rows(q);
    rows(k);
    rows(v);
    scores();
    limits();
    out();

    std::string head = "(", members, values;
    for (std::size_t i = 0; i < emit_.buffers.size(); ++i) {
      const Value* x = emit_.buffers[i];
      const std::string t = fmt::format("{}{}*", x == kernel_.out ? "" : "const ", storage_name(x->dtype));
      head += fmt::format("{} __restrict b{}, ", t, i);
      members += fmt::format("  {} b{};\n", t, i);
      values += fmt::format("{}({})__builtin_assume_aligned(b{}, 16)", i ? ", " : "", t, i);
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
    const Expr units = batch * idx::floordiv(heads, group);
    const Expr few = compare(Op::kLe, queries * group, kDecodeRows);
    const Expr blocks = batch * heads * idx::ceildiv(queries, rows_of_tile());
    // The kernel for few rows makes more and smaller workgroups, which a card that is not full otherwise wants.
    const Expr shared = logical_or(few, compare(Op::kLt, blocks, kFullBlocks));
    const Expr splits = select(
        few, idx::max(1, idx::min(idx::ceildiv(kSplitBlocks, idx::max(units, 1)), idx::ceildiv(keys, kSplitKeys))), 1);
    const Expr split = compare(Op::kGt, splits, 1);
    GpuAttentionSource g;
    g.buffers = emit_.buffers;
    g.symbols = emit_.symbols;
    g.limit = idx::max(keys, batch * heads * queries);
    for (const Expr& x : {batch, queries, keys, heads, splits}) g.symbols.push_back(x);
    const std::int64_t value = (extent(e_) + 15) / 16 * 16;
    const auto add = [&](bool partial, const std::string& rest, const Expr& points, std::uint32_t lds = 0) {
      if (is_const(points, 0)) return;
      g.kernels.push_back(
          {head + (partial ? "f32* __restrict partial, " : "") + sizes + problem + rest + "}\n", points, partial, lds});
      if (partial) g.partial = select(split, batch * heads * queries * splits * (value + 2), 1);
    };
    const std::string numbers = "u32(queries), u32(keys), u32(heads)";
    const bool wgmma = takes_wgmma(q, k, v);
    if (wgmma) {
      const bool narrow = extent(d_) == 64;  // so that two workgroups run on a unit
      const auto form = [&](int tile, int shares, const Expr& points) {
        add(false,
            fmt::format("attention_wgmma<P, {}, {}, {}>(p, {}, u32(batch));\n", tile, shares, narrow ? 2 : 1, numbers),
            points, wgmma_bytes(tile, shares));
      };
      const Expr wide = batch * heads * idx::ceildiv(queries, 128), small = batch * heads * idx::ceildiv(queries, 64);
      const Expr full = compare(Op::kGe, wide, narrow ? kWgmmaUnits : kWgmmaUnits / 2);
      form(narrow ? 64 : 128, 1, select(few, 0, select(full, wide, 0)));
      form(64, 2, select(few, 0, select(full, 0, small)));
    } else {
      add(false, fmt::format("attention<P, false>(p, {{{}, 1, 1, nullptr}}, u32(batch));\n", numbers),
          select(shared, 0, blocks));
    }
    add(true, fmt::format("attention<P, true>(p, {{{}, {}, u32(splits), partial}}, u32(batch));\n", numbers, group),
        select(wgmma ? few : shared, units * splits * idx::ceildiv(queries * group, kDecodeTile), 0));
    add(true,
        fmt::format("attention_merge(p, {{{}, {}, u32(splits), partial}}, batch * heads * queries);\n", numbers, group),
        select(split, batch * heads * queries, 0));
    return g;
  }

 private:
  // Of the kernel for many rows; only so many workgroups are started.
  std::int64_t rows_of_tile() const {
    const std::int64_t longest = std::max((extent(d_) + 31) / 32 * 32, (extent(e_) + 15) / 16 * 16);
    const bool wave64 = arch_.starts_with("gfx9");
    return wave64 && longest * static_cast<std::int64_t>(size_of(type_)) > 256 ? 64 : 128;
  }

  // See kernels/attention_wgmma.h.
  bool takes_wgmma(const Operand& q, const Operand& k, const Operand& v) const {
    const std::int64_t d = extent(d_);
    return arch_ == "sm_90a" && size_of(type_) == 2 && d == extent(e_) && (d == 64 || d == 128) && q.direct &&
           k.direct && v.direct && (plain_ || column_);
  }
  // Bytes of LDS of WgmmaAttention.
  std::uint32_t wgmma_bytes(int keys, int shares) const {
    const std::int64_t row = extent(d_) * 2, tile = keys * shares;
    return static_cast<std::uint32_t>((row == 256 ? 128 / shares * row : 0) + 5 * tile * row +
                                      (column_ ? 2 * tile * 4 : 0));
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

GpuAttentionSource generate_gpu_attention(const TileKernel& kernel, std::string_view arch) {
  return Generator(kernel, arch).run();
}

}  // namespace sardonyx::codegen
