// See contraction_source.h.
#include "codegen/contraction_source.h"

#include <algorithm>
#include <limits>
#include <unordered_set>

#include "codegen/emit.h"
#include "codegen/index_range.h"
#include "codegen/loop_analysis.h"
#include "codegen/tile_operand.h"
#include "support/error.h"
#include "target/chip.h"

namespace sardonyx::codegen {
namespace {

// Maximum bytes of epilogue operands that are loaded before the sum is complete: per result, and per column. A thread
// has up to 32 results at a time, mostly of the same eight columns.
constexpr std::size_t kMostRead = 4, kMostColumnsRead = 8;

bool has_var(const Expr& e, const Expr& var) {
  if (!e) return false;
  bool found = false;
  visit(e, [&](const Expr& x) { found |= x->op == Op::kVar && x->i == var->i; });
  return found;
}

// Whether eight columns (or pairs of them), from a multiple of eight on, are contiguous in memory at a multiple of
// eight elements; offset: of an element.
bool has_octets(const Contraction& c, const Expr& offset) {
  const Expr& var = c.pair ? c.pair : c.col;
  std::int64_t columns = 0;
  if (!is_const_int(var->args[0], columns) || columns % 8 != 0) return false;
  const Expr octet = loop_var(columns / 8), in_octet = loop_var(8);
  const Expr at = substitute(offset, {{var, octet * 8 + in_octet}});
  Expr step, rest;
  return idx::split_affine(at, in_octet, step, rest) && is_const(step, 1) && !mentions(rest, in_octet) &&
         divisor_of(rest) % 8 == 0;
}
bool stores_octets(const Contraction& c) { return has_octets(c, storage_offset(*c.out, c.out_index)); }

// Which of the loads is the only one that depends on the row, if it is of bytes in octets and results are of bytes too.
std::optional<std::size_t> row_bytes(const Contraction& c, const Exprs& loads) {
  std::optional<std::size_t> found;
  for (std::size_t k = 0; k < loads.size(); ++k) {
    if (!has_var(loads[k]->args[0], c.row)) continue;
    const DType type = loads[k]->dtype;
    if (found || (type != DType::kUInt8 && type != DType::kInt8) || !has_octets(c, loads[k]->args[0])) return {};
    found = k;
  }
  return size_of(c.out->dtype) == 1 ? found : std::nullopt;
}

// A load of bytes as a number, minus a zero point (null: 0), in float32.
struct ByteNumber {
  Expr e, zero;
};

// Whether `e` uses the load in another way than by `part`.
bool uses_beside(const Expr& e, const Expr& part, const Expr& load) {
  if (!e || same(e, part)) return false;
  return same(e, load) ||
         std::any_of(e->args.begin(), e->args.end(), [&](const Expr& x) { return uses_beside(x, part, load); });
}

// How `e` uses the load, if it is always the same number.
std::optional<ByteNumber> byte_number(const Expr& e, const Expr& load) {
  std::optional<ByteNumber> found;
  visit(e, [&](const Expr& x) {
    if (found || x->op != Op::kCast || x->dtype != DType::kFloat32) return;
    Expr y = x->args[0], zero;
    if (y->op == Op::kSub && y->dtype == DType::kInt32 && is_const(y->args[1])) {
      zero = y->args[1];
      y = y->args[0];
    }
    if (y->op == Op::kCast && y->dtype == DType::kInt32) y = y->args[0];
    if (same(y, load)) found = {x, zero};
  });
  if (found && uses_beside(e, found->e, load)) return {};
  return found;
}

// Emits the epilogue. What it reads is read by a separate function before the sum is complete, as far as it fits in
// registers. `fetches`: for kernels/gemm_tma.h, which prefetches operands that are read by rows to L2, and stores eight
// results at a time.
class EpilogueWriter {
 public:
  EpilogueWriter(Emitter& e, const Contraction& c, const Value& accumulator, bool fetches, bool octets)
      : e_(e),
        c_(c),
        accumulator_(accumulator),
        fetches_(fetches),
        result_(flatten_loads(c.result)),
        sum_(type_name(accumulator.dtype)) {
    if (!c.pair) find_loads();
    octets_ = (fetches || (octets && !c.pair)) && stores_octets(c);
    if (octets_ && fetches && !c.pair) row_ = row_bytes(c, loads_);
    if (row_) number_ = byte_number(result_, loads_[*row_]);
  }

  // Returns the declaration of the struct that holds what is read.
  std::string write() {
    const auto by_row = [&](const Expr& x) { return has_var(x->args[0], c_.row); };
    const bool rows = std::any_of(loads_.begin(), loads_.end(), by_row);
    if (rows) e_.line("enum : bool { kReadsRows = true };");
    if (size_of(c_.out->dtype) != 2)
      e_.line(fmt::format("enum : int {{ kResultBytes = {} }};", size_of(c_.out->dtype)));
    if (fetches_ && rows) {
      begin("SDX_FN void fetch_early(u32 z, u32 row, u32 col) const");
      for (const Expr& x : loads_) {
        if (!by_row(x)) continue;
        const std::string at = e_.value(x->args[0]);
        e_.line(fmt::format("fetch_to_l2({} + {});", e_.buffer(x->value), at));
      }
      e_.close();
    }
    if (!loads_.empty()) write_read();
    if (octets_ && !c_.pair) write_octets();
    write_element();
    if (octets_ && c_.pair && size_of(c_.out->dtype) == 1) write_pairs();
    return loads_.empty() ? "" : fmt::format("  struct Read {{{} }};\n", members_);
  }

 private:
  void begin(const std::string& head) {
    e_.open(head);
    for (const auto& [var, n] :
         {std::pair(c_.z, "z"), std::pair(c_.row, "row"), std::pair(c_.pair ? c_.pair : c_.col, "col")}) {
      if (is_const(var)) continue;
      const std::string i = e_.fresh("i");
      e_.line(fmt::format("const i64 {} = {};", i, n));
      e_.bind(var, i);
    }
  }

  void find_loads() {
    std::size_t room = kMostRead, columns_room = kMostColumnsRead;
    std::unordered_set<Expr, ExprHash, ExprSame> seen;
    certain_parts(result_, [&](const Expr& x) {
      if (!seen.insert(x).second) return false;
      if (x->op != Op::kLoad || x->value == &accumulator_ || x->args[0]->has_load || !has_var(x->args[0], c_.col))
        return true;
      std::size_t& left = has_var(x->args[0], c_.row) ? room : columns_room;
      if (size_of(x->dtype) > left) return true;
      left -= size_of(x->dtype);
      loads_.push_back(x);
      return true;
    });
  }

  void bind() {
    for (std::size_t k = 0; k < loads_.size(); ++k) e_.bind_value(loads_[k], fmt::format("r.r{}", k));
    e_.bind_local(&accumulator_, "sum");
    if (c_.second) e_.bind_local(c_.second.get(), "next");
  }
  const char* read_parameter() const { return loads_.empty() ? "" : ", const Read& r"; }

  void write_read() {
    begin("SDX_FN void read(u32 z, u32 row, u32 col, Read& r) const");
    for (std::size_t k = 0; k < loads_.size(); ++k) {
      const std::string x = e_.value(loads_[k]);
      e_.line(fmt::format("r.r{} = {};", k, x));
      members_ += fmt::format(" {} r{};", e_.type_of(loads_[k]), k);
    }
    if (number_) {
      const std::string x = e_.value(number_->e);
      e_.line(fmt::format("r.number = {};", x));
      members_ += " f32 number;";
    }
    e_.close();
    e_.open(fmt::format("SDX_FN void element(u32 z, u32 row, u32 col, {} sum) const", sum_));
    e_.line("Read r;");
    e_.line("read(z, row, col, r);");
    e_.line("element(z, row, col, sum, r);");
    e_.close();
  }

  void write_element() {
    begin(c_.pair
              ? fmt::format("SDX_FN void pair(u32 z, u32 row, u32 col, {0} sum, {0} next) const", sum_)
              : fmt::format("SDX_FN void element(u32 z, u32 row, u32 col, {} sum{}) const", sum_, read_parameter()));
    if (octets_ && !fetches_) {
      e_.line(fmt::format("*place(z, row, col) = result(z, row, col, sum{});", loads_.empty() ? "" : ", r"));
    } else {
      bind();
      const std::string x = e_.value(result_), at = e_.value(storage_offset(*c_.out, c_.out_index));
      e_.line(fmt::format("{}[{}] = {};", e_.buffer(c_.out), at, x));
    }
    e_.close();
  }

  void write_place() {
    begin("SDX_FN Out* place(u32 z, u32 row, u32 col) const");
    e_.line(fmt::format("return {} + {};", e_.buffer(c_.out), e_.value(storage_offset(*c_.out, c_.out_index))));
    e_.close();
  }

  void write_pairs() {
    e_.line(fmt::format("using Out = {};", storage_name(c_.out->dtype)));
    begin(fmt::format("SDX_FN auto paired(u32 z, u32 row, u32 col, {0} sum, {0} next) const", sum_));
    bind();
    const Emitter::Wide wide = e_.wide(result_);
    e_.line(fmt::format("return {};", wide.text.empty() ? "sum" : wide.text));
    e_.close();
    write_place();
    e_.line(fmt::format("enum : bool {{ kPairOctets = {}, kSaturates = {} }};", !wide.text.empty(), wide.saturates));
  }

  void write_octets() {
    e_.line(fmt::format("using Out = {};", storage_name(c_.out->dtype)));
    begin(fmt::format("SDX_FN auto result(u32 z, u32 row, u32 col, {} sum{}) const", sum_, read_parameter()));
    bind();
    if (number_) e_.bind_value(number_->e, "r.number");
    const Emitter::Wide wide = fetches_ ? e_.wide(result_) : Emitter::Wide{};
    e_.line(fmt::format("return {};", wide.text.empty() ? fmt::format("Out({})", e_.value(result_)) : wide.text));
    e_.close();
    write_place();
    e_.line(fmt::format("enum : bool {{ kOctets = true, kWide = {}, kSaturates = {} }};", !wide.text.empty(),
                        wide.saturates));
    if (row_) write_row_bytes();
  }

  void write_row_bytes() {
    const Expr& bytes = loads_[*row_];
    e_.line("enum : bool { kRowBytes = true };");
    begin("SDX_FN const u8* row_bytes(u32 z, u32 row, u32 col) const");
    e_.line(fmt::format("return (const u8*)({} + {});", e_.buffer(bytes->value), e_.value(bytes->args[0])));
    e_.close();
    begin("SDX_FN void read_columns(u32 z, u32 row, u32 col, u32 word, u32 place, u32 exponent, Read& r) const");
    for (std::size_t k = 0; k < loads_.size(); ++k) {
      const std::string type = e_.type_of(loads_[k]);
      if (k != *row_)
        e_.line(fmt::format("r.r{} = {};", k, e_.value(loads_[k])));
      else if (number_)
        e_.line(fmt::format("r.number = byte_number<{}>(word, place, exponent, {});", type,
                            number_->zero ? e_.zero_point(number_->zero->i) : "0"));
      else
        e_.line(fmt::format("r.r{} = {}(word >> (place * 8));", k, type));
    }
    e_.close();
  }

  Emitter& e_;
  const Contraction& c_;
  const Value& accumulator_;
  const bool fetches_;
  const Expr result_;
  const std::string sum_;  // type of the accumulator
  Exprs loads_;
  std::string members_;
  bool octets_ = false;
  std::optional<std::size_t> row_;  // see row_bytes()
  std::optional<ByteNumber> number_;
};

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
  p.sizes += "i64 m, i64 batches, i64 n, i64 k";
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
    if (rows_)
      emit_row_prologue(e_, c_, *rows_);
    else
      a_.emit(e_);
    b_.emit(e_);
    if (p.chip.policy.wide_gemv) {
      if (!rows_) a_.emit_row(e_);
      b_.emit_row(e_);
    }
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
    const std::string reads = EpilogueWriter(e_, c_, accumulator, copy_engine, p.chip.policy.octet_results).write();
    if (copy_engine) find_copied();
    if (loaded) emit_wait();
    assemble(reads + row);
    return std::move(out_);
  }

 private:
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
    p.tma = true;
    p.whole_stages = !windows || windows->channels % stage == 0 || p.depth % stage == 0;
  }

  // The initial values of Problem's sizes: constants where they are known, so that CDNA's kernels do not divide by them
  // before their first loads. On gfx1100 a known K moved the loads of the main loop.
  std::string extents() const {
    const auto extent = [&](const Expr& e, std::string_view parameter) {
      std::int64_t size = 0;
      const bool known = out_.problem.chip.wave == 64 && is_const_int(e, size) && size >= 0 &&
                         size <= std::numeric_limits<std::int32_t>::max();
      return known ? fmt::format("{}u", size) : fmt::format("u32({})", parameter);
    };
    return fmt::format("{}, {}, {}, {}", extent(c_.batches(), "batches"), extent(c_.m(), "m"), extent(c_.n(), "n"),
                       extent(c_.k(), "k"));
  }

  void assemble(const std::string& structs) {
    const ContractionProblem& p = out_.problem;
    const QuantizedOperand plain{.bits = 16}, &q = b_.quantized() ? *b_.quantized() : plain;
    const Parameters names = parameters(e_, c_.out);
    out_.text.buffers = names.buffers;
    out_.text.sizes = names.sizes;
    out_.text.problem = fmt::format(
        "struct P : Problem<{}, {}, {}, {}, {}, {}, {}, {}, {}> {{\n{}{}{}}};\n"
        "const P p{{{{{}}}{}}};\n",
        type_name(c_.type), name_of(p.a), name_of(p.b), p.full_columns, q.bits, q.is_signed, q.float_zeros, p.pairs,
        p.computed_rows, names.members, structs, text_, extents(), names.values);
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

ContractionSource contraction_source(const Contraction& c, const Value& accumulator, std::string_view arch,
                                     const TileSelection& selection, const RowPrologue* rows, int row_height) {
  return Writer(c, arch, selection, rows, row_height).write(accumulator);
}

}  // namespace sardonyx::codegen
