#include "codegen/attention_source.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "codegen/attention_step.h"
#include "codegen/loop_codegen.h"

namespace sardonyx::codegen {

void AttentionSource::write() {
  q_ = operand("query", a_.q, s_, d_);
  k_ = a_.k_scale ? scaled("key", a_.k, a_.k_scale, d_) : operand("key", a_.k, t_, d_);
  v_ = a_.v_scale ? scaled("value", a_.v, a_.v_scale, e_) : operand("value", a_.v, t_, e_);
  group_ = group_of(k_, v_);
  find_pages(k_, v_);
  query_functions(q_);
  row_functions(k_);
  row_functions(v_);
  scores();
  limits();
  out();
  one_query_text_ = one_query_functions(k_, v_, group_);
  write_problem();
}

// Writes the parameters of all kernels, and the struct P of most of them.
void AttentionSource::write_problem() {
  for (std::size_t i = 0; i < emit_.buffers.size(); ++i) {
    const Value* x = emit_.buffers[i];
    const std::string t = fmt::format("{}{}*", x == kernel_.out ? "" : "const ", storage_name(x->dtype));
    head_ += fmt::format("{} __restrict b{}, ", t, i);
    members_ += fmt::format("  {} b{};\n", t, i);
    values_ += fmt::format("{}({})__builtin_assume_aligned(b{}, 16)", i ? ", " : "", t, i);
    after_wait_ += fmt::format("b{0} = after_wait(b{0});\n", i);
  }
  for (std::size_t i = 0; i < emit_.symbols.size(); ++i) {
    sizes_ += fmt::format("i64 s{}, ", i);
    members_ += fmt::format("  i64 s{};\n", i);
    values_ += fmt::format(", s{}", i);
  }
  sizes_ += "i64 batch, i64 queries, i64 keys, i64 heads, i64 splits) {\n";
  problem_ = fmt::format(
      "struct P {{\n  using T = {};\n  using Out = {};\n  enum : int {{ kHeadDim = {}, kValueDim = {}, kQueryDirect "
      "= "
      "{}, kKeyDirect = {}, kValueDirect = {}, kOutDirect = {}, kPlain = {}, kColumn = {}, kBias = {}, kBounds = {}, "
      "kSink = {}, kZeroEmpty = {}, kWideOut = {}, kQueryLoose = {}, kKeyLoose = {}, kValueLoose = {}, kOutRows = {}, "
      "kPageRows = {}, kKeyStride = {}, kValueStride = {}{} "
      "}};\n{}{}}};\nconst P p{{{}}};\n",
      storage_name(type_), storage_name(kernel_.out->dtype), extent(d_), extent(e_), int(q_.direct), k_.form(),
      v_.form(), int(out_direct_), int(plain_), int(bool(column_)), int(bool(row_bias_)), int(a_.begin || a_.end),
      int(bool(a_.sink)), int(a_.zero_empty), int(wide_out_), int(q_.loose), int(k_.loose), int(v_.loose),
      int(out_rows_), page_rows_, key_stride_, value_stride_, units(), members_, text_, values_);
}

// What kernels/attention_short_mma.h requires besides.
std::string AttentionSource::units() const {
  if (!few_keys_by_mma()) return {};
  return fmt::format(", kQueryUnit = {}, kKeyUnit = {}, kValueUnit = {}, kOutUnit = {}, kBiasUnit = {}", q_.unit,
                     k_.unit, v_.unit, out_unit_, row_bias_ ? unit_of(extent(t_), row_bias_at_) : 0);
}

// The functions of the struct of kernels/attention_step_mma.h: for one query per sequence, and keys and values in the
// layout of a KV cache, or in pages. Empty for anything else.
std::string AttentionSource::one_query_functions(const Operand& k, const Operand& v, std::int64_t group) {
  std::int64_t heads = 0;
  const std::int64_t d = extent(d_);
  if (!chip_.has(Feature::kClusters) || d != extent(e_) || !takes_step_mma(type_, d, group) ||
      !is_const_int(h_->args[0], heads) || heads % group != 0)
    return {};
  for (const Expr& x : {a_.begin, a_.end})
    if (x && (mentions(x, h_) || mentions(x, t_))) return {};
  const bool bytes = k.numbers && v.numbers && is_const(k.scale) && is_const(v.scale) && k.scale->f == 1 &&
                     v.scale->f == 1 && d % 32 == 0;
  const bool paged = page_rows_ != 0;
  if (!paged && !whole_cache(k, v, group, bytes)) return {};
  std::string others;
  std::swap(text_, others);
  const Expr query = is_const(s_) ? a_.q : substitute(a_.q, {{s_, Expr(0)}});
  function("T query(i64 b, i64 h, i64 d)", {{b_, "b"}, {h_, "h"}, {d_, "d"}}, [&] { returns(flatten_loads(query)); });
  Expr rows = t_->args[0];
  if (paged) {
    for (const Operand* o : {&k, &v})
      function(fmt::format("const T* {}_page(i64 b, i64 h, i64 t)", o->name), {{b_, "b"}, {h_, "h"}, {t_, "t"}},
               [&] { returns_address(o->load->value, o->start); });
  } else {
    const auto load_of = [&](const Operand& o) { return bytes ? o.numbers : o.load; };
    const Value* cache = load_of(k)->value;  // which may have room for more keys
    if (cache->rank() == 4) rows = cache->shape[2];
    function("const Stored* past_key()", {}, [&] { returns_address(cache, 0); });
    function("const Stored* past_value()", {}, [&] { returns_address(load_of(v)->value, 0); });
  }
  function("i64 past_rows()", {}, [&] { returns(rows); });
  scores();
  limits();
  out();
  std::swap(text_, others);
  return others;
}

// Whether keys and values are whole tensors [batch, heads of keys, rows, size], or those in 8 bits.
bool AttentionSource::whole_cache(const Operand& k, const Operand& v, std::int64_t group, bool bytes) const {
  if (!bytes && !(k.direct && v.direct)) return false;
  const std::int64_t heads = h_->args[0]->i;
  const Expr shared = idx::floordiv(h_, Expr(group));
  const auto number = [](const Expr& v) { return is_const(v) || is_const(v->args[0], 1) ? Expr(0) : v; };
  const auto load_of = [&](const Operand& o) { return bytes ? o.numbers : o.load; };
  const Value* cache = load_of(k)->value;
  const Expr rows = cache->rank() == 4 ? cache->shape[2] : t_->args[0];
  return std::ranges::all_of(std::array{&k, &v}, [&](const Operand* o) {
    return idx::provably_equal(load_of(*o)->args[0],
                               idx::linearize({number(b_), heads == group ? Expr(0) : shared, number(t_), o->element},
                                              {b_->args[0], Expr(heads / group), rows, Expr(extent(d_))}));
  });
}

void AttentionSource::find_pages(const Operand& k, const Operand& v) {
  std::int64_t rows_of_keys = 0, rows_of_values = 0;
  const std::int64_t key = page_stride(k, rows_of_keys), value = page_stride(v, rows_of_values);
  if (key != 0 && value != 0 && rows_of_keys == rows_of_values)
    page_rows_ = rows_of_keys, key_stride_ = key, value_stride_ = value;
}

std::int64_t AttentionSource::page_stride(const Operand& o, std::int64_t& rows) const {
  if (!o.gathered || is_const(t_)) return 0;
  visit(o.start, [&](const Expr& x) {
    if (x->op == Op::kMod && same(x->args[0], t_)) is_const_int(x->args[1], rows);
  });
  constexpr std::int64_t kTile = sdx::layout::StepMmaLayout::kTile;
  if (rows < kTile || rows % kTile != 0) return 0;
  const Expr page = loop_var(idx::ceildiv(t_->args[0], rows)), row = loop_var(Expr(rows));
  const Expr at = substitute(o.start, {{t_, page * Expr(rows) + row}});
  Expr step, rest;
  std::int64_t stride = 0;
  if (!idx::split_affine(at, row, step, rest) || mentions(rest, row) || !is_const_int(step, stride) ||
      stride % vec_ != 0)
    return 0;
  return stride;
}

AttentionOperand AttentionSource::operand(const std::string& name, const Expr& load, const Expr& row,
                                          const Expr& element) {
  Operand o;
  o.name = name;
  o.load = flatten_loads(load);
  o.row = row;
  o.element = element;
  const Expr at = o.load->args[0];
  Expr factor, rest;
  const bool single = is_const(element) || is_const(element->args[0], 1);
  if (single || (at->has_load && name == "query") || !idx::split_affine(at, element, factor, rest) ||
      !is_const(factor, 1) || mentions(rest, element))
    return o;
  const bool aligned = extent(element) % vec_ == 0 && divisor_of(rest) % vec_ == 0;
  o.start = rest;
  if (at->has_load) {
    o.gathered = aligned && !mentions(rest, s_);
    return o;
  }
  o.distance = 0;
  if (name != "query" && !is_const(row) && mentions(rest, row)) {
    if (!idx::split_affine(rest, row, o.distance, o.start) || mentions(o.start, row) || o.distance->has_var) return o;
  }
  if (name != "query" && mentions(o.start, s_)) return o;
  o.direct = aligned && (name == "query" || divisor_of(o.distance) % vec_ == 0);
  if (few_keys_by_mma())
    o.unit = std::gcd(unit_of(extent(element), rest), name == "query" ? 0 : divisor_of(o.distance));
  o.loose = !o.direct && chip_.policy.any_address && size_of(type_) == 2 && extent(element) >= vec_;
  return o;
}

// Integers times a scale for each row.
AttentionOperand AttentionSource::scaled(const std::string& name, const Expr& numbers, const Expr& scale,
                                         const Expr& element) const {
  Operand o;
  o.name = name;
  o.load = flatten_loads(cast(binary(Op::kMul, cast(numbers, DType::kFloat32), scale), type_));
  o.row = t_;
  o.element = element;
  const Expr flat = flatten_loads(numbers), &at = flat->args[0];
  Expr factor, rest;
  if (is_const(element) || !idx::split_affine(at, element, factor, rest) || !is_const(factor, 1) ||
      mentions(rest, element) || mentions(rest, s_) || extent(element) % vec_ != 0 || divisor_of(rest) % vec_ != 0)
    return o;
  o.start = rest;
  o.numbers = flat;
  o.scale = flatten_loads(scale);
  return o;
}

// The number of heads that share keys and values: those with the same h / group.
std::int64_t AttentionSource::group_of(const Operand& k, const Operand& v) const {
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

void AttentionSource::query_functions(const Operand& q) {
  if (q.direct || q.loose || q.unit != 0)
    function("const T* query(i64 b, i64 h, i64 s)", {{b_, "b"}, {h_, "h"}, {s_, "s"}},
             [&] { returns_address(q.load->value, q.start); });
  if (!q.direct) element_function(q, "s");
}
void AttentionSource::row_functions(const Operand& o) {
  if (o.gathered)
    return function(fmt::format("const T* {}_from(i64 b, i64 h, i64 t)", o.name), {{b_, "b"}, {h_, "h"}, {t_, "t"}},
                    [&] { returns_address(o.load->value, o.start); });
  if (o.numbers) {
    const std::vector<std::pair<Expr, std::string>> vars = {{b_, "b"}, {h_, "h"}, {t_, "t"}};
    function(fmt::format("const {}* {}_numbers(i64 b, i64 h, i64 t)", storage_name(o.numbers->dtype), o.name), vars,
             [&] { returns_address(o.numbers->value, o.start); });
    return function(fmt::format("f32 {}_scale(i64 b, i64 h, i64 t)", o.name), vars, [&] { returns(o.scale); });
  }
  if (!o.direct) element_function(o, "t");
  if (!o.direct && !o.loose && o.unit == 0) return;
  function(fmt::format("const T* {}(i64 b, i64 h)", o.name), {{b_, "b"}, {h_, "h"}},
           [&] { returns_address(o.load->value, o.start); });
  function(fmt::format("i64 {}_row()", o.name), {}, [&] { returns(o.distance); });
}
void AttentionSource::element_function(const Operand& o, const std::string& row) {
  function(fmt::format("T {}_at(i64 b, i64 h, i64 {}, i64 d)", o.name, row),
           {{b_, "b"}, {h_, "h"}, {o.row, row}, {o.element, "d"}}, [&] { returns(o.load); });
}

}  // namespace sardonyx::codegen
