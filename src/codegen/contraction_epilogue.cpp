// See contraction_epilogue.h.
#include "codegen/contraction_epilogue.h"

#include <algorithm>
#include <unordered_set>

#include "codegen/loop_analysis.h"

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

// Whether `length` columns (or pairs of them), from a multiple of it on, are contiguous in memory at a multiple of
// `length` elements; offset: of an element.
bool has_runs(const Contraction& c, const Expr& offset, std::int64_t length) {
  const Expr& var = c.pair ? c.pair : c.col;
  std::int64_t columns = 0;
  if (!is_const_int(var->args[0], columns) || columns % length != 0) return false;
  const Expr run = loop_var(columns / length), in_run = loop_var(length);
  const Expr at = substitute(offset, {{var, run * Expr(length) + in_run}});
  Expr step, rest;
  return idx::split_affine(at, in_run, step, rest) && is_const(step, 1) && !mentions(rest, in_run) &&
         divisor_of(rest) % length == 0;
}
bool has_octets(const Contraction& c, const Expr& offset) { return has_runs(c, offset, 8); }
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
    sines_ = octets_ && has_far_sines(result_);
    if (row_) number_ = byte_number(result_, loads_[*row_]);
  }

  // Neighbouring columns of a result that one store holds where N is no multiple of eight.
  int short_run() const {
    std::int64_t columns = 0;
    if (c_.pair || !is_const_int(c_.n(), columns) || columns % 8 == 0) return 1;
    const Expr offset = storage_offset(*c_.out, c_.out_index);
    return has_runs(c_, offset, 4) ? 4 : has_runs(c_, offset, 2) ? 2 : 1;
  }

  // Returns the declaration of the struct that holds what is read.
  std::string write() {
    const auto by_row = [&](const Expr& x) { return has_var(x->args[0], c_.row); };
    const bool rows = std::any_of(loads_.begin(), loads_.end(), by_row);
    if (rows) e_.line("enum : bool { kReadsRows = true };");
    if (size_of(c_.out->dtype) != 2)
      e_.line(fmt::format("enum : int {{ kResultBytes = {} }};", size_of(c_.out->dtype)));
    if (const int run = short_run(); run > 1) e_.line(fmt::format("enum : int {{ kColumnRun = {} }};", run));
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
    if (octets_ && !fetches_) write_read_octet();
    e_.open(fmt::format("SDX_FN void element(u32 z, u32 row, u32 col, {} sum) const", sum_));
    e_.line("Read r;");
    e_.line("read(z, row, col, r);");
    e_.line("element(z, row, col, sum, r);");
    e_.close();
  }

  // What is read of eight columns, with one load of each operand: the compiler would have to join single loads.
  void write_read_octet() {
    const auto joins = [&](const Expr& x) { return x->dtype != DType::kBool && has_octets(c_, x->args[0]); };
    if (!std::all_of(loads_.begin(), loads_.end(), joins)) return;
    e_.line("enum : bool { kReadsOctets = true };");
    begin("SDX_FN void read_octet(u32 z, u32 row, u32 col, Read (&r)[8]) const");
    for (std::size_t k = 0; k < loads_.size(); ++k) {
      const std::string at = e_.value(loads_[k]->args[0]);
      e_.line(fmt::format("const auto o{} = gemm_detail::load_octet({} + {});", k, e_.buffer(loads_[k]->value), at));
    }
    for (std::size_t k = 0; k < loads_.size(); ++k)
      e_.line(fmt::format("for (int e = 0; e < 8; ++e) r[e].r{0} = o{0}.x[e];", k));
    e_.close();
  }

  void write_element() {
    begin(c_.pair
              ? fmt::format("SDX_FN void pair(u32 z, u32 row, u32 col, {0} sum, {0} next) const", sum_)
              : fmt::format("SDX_FN void element(u32 z, u32 row, u32 col, {} sum{}) const", sum_, read_parameter()));
    if (octets_ && !fetches_) {
      if (sines_) e_.line("AllSines sines;");
      e_.line(fmt::format("*place(z, row, col) = result(z, row, col, sum{}{});", loads_.empty() ? "" : ", r",
                          sines_ ? ", sines" : ""));
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

  Emitter::Wide write_result(const char* sines) {
    begin(fmt::format("SDX_FN auto result(u32 z, u32 row, u32 col, {} sum{}{}) const", sum_, read_parameter(), sines));
    bind();
    if (number_) e_.bind_value(number_->e, "r.number");
    if (sines_) e_.sines = "sines";
    const Emitter::Wide wide = fetches_ ? e_.wide(result_) : Emitter::Wide{};
    e_.line(fmt::format("return {};", wide.text.empty() ? fmt::format("Out({})", e_.value(result_)) : wide.text));
    e_.sines.clear();
    e_.close();
    return wide;
  }

  // Classes within functions have no member templates.
  void write_octets() {
    e_.line(fmt::format("using Out = {};", storage_name(c_.out->dtype)));
    if (sines_) e_.line("enum : bool { kSines = true };");
    if (sines_) write_result(", NearSines& sines");
    const Emitter::Wide wide = write_result(sines_ ? ", AllSines& sines" : "");
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
  bool octets_ = false, sines_ = false;  // sines_: result() is passed what with_sines() passes
  std::optional<std::size_t> row_;       // see row_bytes()
  std::optional<ByteNumber> number_;
};

}  // namespace

std::string emit_epilogue(Emitter& e, const Contraction& c, const Value& accumulator, bool fetches, bool octets) {
  return EpilogueWriter(e, c, accumulator, fetches, octets).write();
}

}  // namespace sardonyx::codegen
