// See contraction_source.h.
#include "codegen/contraction_source.h"

#include <algorithm>
#include <limits>

#include "codegen/contraction_epilogue.h"
#include "codegen/emit.h"
#include "codegen/index_range.h"
#include "codegen/tile_operand.h"
#include "support/error.h"
#include "target/chip.h"

namespace sardonyx::codegen {
namespace {

// The smallest N and K that may be arguments: smaller numbers occur in indices for other reasons.
constexpr std::int64_t kLeastNamed = 32;

// Emits where in its image the window of a row begins, and how K iterates over the taps: see kernels/gemm_tma.h.
void emit_windows(Emitter& e, const Contraction& c, const CopiedWindows& copied) {
  const Windows& w = *c.windows;
  e.line(fmt::format("enum : u32 {{ kChannels = {}, kTapsX = {}, kTapsY = {}, kTapX = {}, kTapY = {} }};",
                     copied.channels, copied.taps[0], copied.taps[1], w.dilations[1], w.dilations[0]));
  e.open("SDX_FN void window(u32 row, i32& image, i32& y, i32& x) const");
  if (!is_const(c.row)) {
    const std::string i = e.fresh("i");
    e.line(fmt::format("const i64 {} = row;", i));
    e.bind(c.row, i);
  }
  const Exprs at = idx::delinearize(c.row, {w.image->args[0], w.out[0], w.out[1]});
  e.line(fmt::format("image = i32({});", e.value(at[0])));
  e.line(fmt::format("y = i32({});", e.value(at[1] * w.strides[0] - w.pads[0])));
  e.line(fmt::format("x = i32({});", e.value(at[2] * w.strides[1] - w.pads[1])));
  e.close();
}

// The kernels' parameters, the members of P, and the values that initialise them.
struct Parameters {
  std::string buffers, sizes, members, values;
};

Parameters parameters(const Emitter& e, const Value* out) {
  Parameters p;
  for (std::size_t k = 0; k < e.buffers.size(); ++k) {
    const Value* v = e.buffers[k];
    const std::string type = fmt::format("{}{}*", v == out ? "" : "const ", storage_name(v->dtype));
    p.buffers += fmt::format("{} __restrict b{}, ", type, k);
    p.members += fmt::format("  {} b{};\n", type, k);
    p.values += fmt::format(", ({})__builtin_assume_aligned(b{}, 16)", type, k);
  }
  for (std::size_t k = 0; k < e.symbols.size(); ++k) {
    p.sizes += fmt::format("i64 s{}, ", k);
    p.members += fmt::format("  i64 s{};\n", k);
    p.values += fmt::format(", s{}", k);
  }
  // The first 56 bytes of arguments are in registers when a kernel for CDNA starts: M is needed for the first address.
  p.sizes += "i64 m, i64 nk, i64 batches";
  return p;
}

// Emits the functions of operands and epilogue in order, and collects the problem's properties.
class Writer {
 public:
  Writer(const Contraction& c, std::string_view arch, const TileSelection& selection, const RowPrologue* rows,
         int row_height)
      : c_(c),
        loaded_(selection.loaded),
        rows_(rows),
        a_(c, true),
        b_(c, false),
        e_(text_),
        out_{{.chip = chip_of(arch)}} {
    ContractionProblem& p = out_.problem;
    p.type = c.type;
    p.a = a_.access();
    p.b = b_.access();
    p.quantized = b_.quantized().has_value();
    if (p.quantized) p.bits = b_.quantized()->bits;
    is_const_int(c.n(), p.columns);
    is_const_int(c.k(), p.depth);
    p.least_rows = smallest(c.m());
    p.full_columns = is_const(c.n()) && p.columns % 8 == 0;
    p.padded = static_cast<bool>(c.inside);
    p.windows =
        std::any_of(c.reduced.begin(), c.reduced.end() - 1, [](const Expr& v) { return !is_const(v->args[0], 1); });
    p.linear = a_.linear() && b_.linear();
    p.groups = static_cast<bool>(c.end);
    p.pairs = static_cast<bool>(c.pair);
    p.computed_rows = rows ? row_height : 0;
    p.shares = shares();
    if (p.chip.policy.narrow_indices) e_.range = &range_;
    e_.joins_bounds = p.chip.policy.joins_bounds;
    const std::int64_t line = 128 / static_cast<std::int64_t>(size_of(c.type));
    const bool checked = a_.checked(e_.range) && a_.run() > 0 && a_.run() % line == 0;
    p.to_lds = p.vectors() && p.full_columns && b_.linear() && (a_.linear() || checked);
    e_.plain_reductions = true;
    e_.quantizes = true;
    e_.scales_are_arguments = of_eight_bits(c.type) || of_eight_bits(c.out->dtype) || loads_eight_bits(c.result);
    // Results of 8 bits that another device has to give exactly need exact functions.
    e_.for_halves =
        is_float(c.out->dtype) ? size_of(c.out->dtype) <= 2 : selection.narrow_floats && size_of(c.out->dtype) == 1;
  }

  ContractionSource write(const Value& accumulator) {
    ContractionProblem& p = out_.problem;
    if (p.shares) e_.named_factors = {{p.depth, std::string(kNamedK)}};
    if (rows_)
      emit_row_prologue(e_, c_, *rows_);
    else
      a_.emit(e_);
    b_.emit(e_);
    if (p.shares) e_.named_factors = {{p.columns, std::string(kNamedN)}};
    if (!rows_) a_.emit_row(e_);
    b_.emit_row(e_);
    if (c_.end) emit_end();
    const bool loaded = may_load_early(), streams = loaded && p.least_rows <= 1 && b_.streams(loaded_);
    if (loaded) b_.emit_stream(e_);
    p.loaded_blocks = loaded && p.quantized;
    p.loaded_scales = p.loaded_blocks && b_.streams(loaded_);
    p.vectors_per_scale = p.loaded_blocks ? b_.vectors_per_scale() : 0;
    const std::string row = streams && rows_ ? emit_streamed_row(e_, c_, *rows_, loaded_) : "";
    if (streams && (!rows_ || (p.computed_rows == 1 && !row.empty()))) {
      p.streams = true;
      p.scales_follow = b_.scales_follow();
    }
    const bool copy_engine = p.chip.has(Feature::kTensorCopy) && !rows_;
    const std::string reads = emit_epilogue(e_, c_, accumulator, copy_engine, p.chip.policy.octet_results);
    e_.named_factors.clear();
    if (copy_engine) find_copied();
    if (loaded) emit_wait();
    assemble(reads + row);
    return std::move(out_);
  }

 private:
  // Whether kernels may get N and K as arguments: plain GEMMs whose operands and results have whole vectors, in tiles
  // of AMD's matrix instructions (gemm_families.cpp).
  bool shares() const {
    constexpr std::int64_t kMostDepth = std::int64_t{1} << 31;
    const ContractionProblem& p = out_.problem;
    const MatrixLayout layout = p.chip.layout();
    return layout != MatrixLayout::kVector && layout != MatrixLayout::kMma && !rows_ && !p.windows && !p.groups &&
           !p.pairs && p.linear && p.vectors() && is_const(c_.batches(), 1) && p.full_columns &&
           p.columns >= kLeastNamed && p.depth >= kLeastNamed && p.depth < kMostDepth && p.columns < kMostDepth;
  }

  // Whether b is in memory before any launch, and its weights and scales have the layout of stream.h.
  bool may_load_early() const {
    const ContractionProblem& p = out_.problem;
    return p.chip.has(Feature::kTensorCopy) && size_of(c_.type) == 2 && is_const(c_.batches(), 1) && !c_.inside &&
           is_const(c_.n()) && is_const(c_.k()) && !c_.end && p.a != Access::kAcross && b_.loads_early(loaded_);
  }

  // Where the rows of a group end: see P::kGroups of kernels/gemm_problem.h.
  void emit_end() {
    e_.line("enum : bool { kGroups = true };");
    e_.open("SDX_FN u32 end_of(u32 z) const");
    const std::string i = e_.fresh("i");
    e_.line(fmt::format("const i64 {} = z;", i));
    if (!is_const(c_.z)) e_.bind(c_.z, i);
    const std::string end = e_.value(flatten_loads(c_.end));
    e_.line(fmt::format("return {0} < 0 ? 0 : {0} < this->m ? u32({0}) : this->m;", end));
    e_.close();
  }

  // A copy of P whose pointers may be read after the previous launch has ended.
  void emit_wait() {
    std::string after;
    for (std::size_t k = 0; k < e_.buffers.size(); ++k) after += fmt::format("p.b{0} = after_wait(b{0}); ", k);
    text_ += fmt::format("SDX_FN P after_launch() const {{ P p = *this; {}return p; }}\n", after);
  }

  // Finds the operands that TMA can load.
  void find_copied() {
    ContractionProblem& p = out_.problem;
    std::optional<CopiedOperand> a = a_.copied(), b = b_.copied();
    std::optional<CopiedWindows> windows;
    const auto vec = 16 / static_cast<std::int64_t>(size_of(c_.type)), stage = 8 * vec;
    if (b && !a && p.a == Access::kVector && c_.windows) windows = copied_windows(*c_.windows, vec);
    if (windows) emit_windows(e_, c_, *windows);
    if (!b || !(a || windows)) return;
    const auto number = [&](const Value* v) {
      return static_cast<std::int32_t>(std::find(e_.buffers.begin(), e_.buffers.end(), v) - e_.buffers.begin());
    };
    CopiedOperands& o = out_.copied.emplace_back();
    o.a = a.value_or(CopiedOperand{});
    o.a.buffer = number(a_.in_memory());
    o.b = *b;
    o.b.buffer = number(b_.in_memory());
    if (windows) o.windows.push_back(*windows);
    const bool batched = !is_const(c_.z) && !is_const(c_.batches(), 1);
    if (batched && !windows && o.a.batch == 0) e_.line("enum : bool { kSharedA = true };");
    if (batched && o.b.batch == 0) e_.line("enum : bool { kSharedB = true };");
    if (loaded_ && loaded_(b_.in_memory()) && !c_.end) e_.line("enum : bool { kLoadedB = true };");
    if (o.a.inner > 0) e_.line(fmt::format("enum : u32 {{ kInnerA = {} }};", o.a.inner));
    if (!windows && o.a.heads > 0) e_.line(fmt::format("enum : u32 {{ kHeadsA = {} }};", o.a.heads));
    if (o.b.heads > 0) e_.line(fmt::format("enum : u32 {{ kHeadsB = {} }};", o.b.heads));
    p.tma = true;
    p.whole_stages = !windows || windows->channels % stage == 0 || p.depth % stage == 0;
  }

  // The initial values of Problem's sizes: constants where they are known, so that CDNA's kernels do not divide by them
  // before their first loads. On gfx1100 a known K moved the loads of the main loop.
  std::array<std::string, 4> extents() const {
    const auto extent = [&](const Expr& e, std::string_view parameter) {
      std::int64_t size = 0;
      const bool known = out_.problem.chip.wave == 64 && is_const_int(e, size) && size >= 0 &&
                         size <= std::numeric_limits<std::int32_t>::max();
      return known ? fmt::format("{}u", size) : fmt::format("u32({})", parameter);
    };
    return {extent(c_.batches(), "batches"), extent(c_.m(), "m"), extent(c_.n(), "nk"),
            extent(c_.k(), "u64(nk) >> 32")};
  }

  void assemble(const std::string& structs) {
    const ContractionProblem& p = out_.problem;
    const QuantizedOperand plain{.bits = 16}, &q = b_.quantized() ? *b_.quantized() : plain;
    const Parameters names = parameters(e_, c_.out);
    out_.text.buffers = names.buffers;
    out_.text.sizes = names.sizes;
    out_.text.structs = fmt::format("struct P : Problem<{}, {}, {}, {}, {}, {}, {}, {}, {}> {{\n{}{}{}",
                                    type_name(c_.type), name_of(p.a), name_of(p.b), p.full_columns, q.bits, q.is_signed,
                                    q.float_zeros, p.pairs, p.computed_rows, names.members, structs, text_);
    out_.text.values = names.values;
    out_.text.extents = extents();
    if (p.shares) {
      out_.text.columns = p.columns;
      out_.text.depth = p.depth;
      is_const_int(c_.m(), out_.text.rows);
    }
    if (std::int64_t k = 0; p.quantized && is_const_int(c_.k(), k) && k < std::int64_t{1} << 31)
      out_.unpack =
          gemm_spec(out_.text.begin("", fmt::format("{}* __restrict unpacked, ", type_name(c_.type))) +
                    fmt::format("unpack_columns<{}, {}>(p, unpacked);\n}}\n", k, p.chip.policy.unpacked_each));
    out_.buffers = e_.buffers;
    out_.symbols = e_.symbols;
  }

  const Contraction& c_;
  const std::function<bool(const Value*)>& loaded_;
  const RowPrologue* rows_;
  Operand a_, b_;
  std::string text_;
  Emitter e_;
  // Indices that certainly fit 32 bits: AMD's chips need several instructions for each 64-bit operation.
  IndexRange range_{[](std::int64_t) { return false; }};
  ContractionSource out_;
};

}  // namespace

std::int64_t smallest(const Expr& e) {
  // Symbols may be as small as 1.
  SymbolValues one;
  visit(e, [&](const Expr& x) {
    if (x->op == Op::kSym) one.set(static_cast<int>(x->i), 1);
  });
  try {
    return evaluate(e, one);
  } catch (const Error&) {
    return 1;
  }
}

Exprs size_arguments(const Contraction& c) { return {c.m(), c.n() + c.k() * Expr(std::int64_t{1} << 32), c.batches()}; }

ContractionSource contraction_source(const Contraction& c, const Value& accumulator, std::string_view arch,
                                     const TileSelection& selection, const RowPrologue* rows, int row_height) {
  return Writer(c, arch, selection, rows, row_height).write(accumulator);
}

}  // namespace sardonyx::codegen
