// See tile_operand.h.
#include "codegen/tile_operand.h"

#include <fmt/format.h>

#include "codegen/loop_analysis.h"

namespace sardonyx::codegen {
namespace {

// Bytes of a vector of 16 that kernels load where memory has no more (kShortA of kernels/gemm_problem.h), and their
// alignment.
constexpr std::int64_t kShortVector = 12, kShortAlignment = 4;

bool divisible(const Expr& e, std::int64_t by) { return divisor_of(e) % by == 0; }

bool has_var(const Expr& e, const Expr& var) {
  if (!e) return false;
  bool found = false;
  visit(e, [&](const Expr& x) { found |= x->op == Op::kVar && x->i == var->i; });
  return found;
}

}  // namespace

const char* name_of(Access a) {
  return a == Access::kVector ? "Access::kVector" : a == Access::kAcross ? "Access::kAcross" : "Access::kElements";
}

Operand::Operand(const Contraction& c, bool is_a)
    : c_(c), is_a_(is_a), line_(is_a ? c.row : c.col), e_(is_a ? c.a : c.b), inside_(is_a ? c.inside : Expr()) {
  vec_ = 16 / static_cast<std::int64_t>(size_of(c.type));
  if (try_vector())
    access_ = Access::kVector;
  else if (try_across())
    access_ = Access::kAcross;
  else if (!is_a)
    quantized_ = quantized_operand(c);
  else if (c.stored > 0)
    inside_ = logical_and(inside_, compare(Op::kLt, c.reduced.back(), c.stored));
}
std::optional<CopiedOperand> Operand::copied() const {
  std::int64_t depth = 0;
  if (access_ == Access::kElements || where_ || size_of(c_.type) > 2 || !is_const_int(c_.k(), depth)) return {};
  // wgmma's operands of 8 bits have K innermost.
  if (access_ == Access::kAcross && size_of(c_.type) != 2) return {};
  if (access_ == Access::kAcross)
    return copied_across(offset_, c_.z, line_, index_, is_a_ && c_.row_dims.size() > 1 ? c_.row_dims.back() : Expr());
  return copied_operand(offset_, c_.z, line_, index_, vec_, depth);
}
void Operand::emit(Emitter& e) const {
  const char* f = is_a_ ? "a" : "b";
  if (quantized_) return blocks(e, *quantized_);
  if (access_ == Access::kElements) return elements(e);
  const auto open = [&](std::string_view type, std::string_view name) {
    e.open(fmt::format("SDX_FN {} {}(u32 z, u32 line, u32 at, bool& inside) const", type, name));
    bind(e, c_.z, "z");
    bind(e, line_, "line");
    bind(e, index_, access_ == Access::kVector ? fmt::format("at / {}", vec_) : "at");
  };
  open("const T*", f);
  const std::string offset = e.value(offset_);
  if (where_) {
    const std::string in = e.value(where_);
    e.line(fmt::format("inside = inside && {};", in));
    e.line(fmt::format("return (const T*){} + (inside ? {} : 0);", e.buffer(e_->value), offset));
  } else {
    e.line(fmt::format("return (const T*){} + {};", e.buffer(e_->value), offset));
  }
  e.close();
  // Where the bytes certainly fit 31 bits, hardware leaves out what is outside (kBufferA).
  if (checked(e.range)) {
    e.line("enum : bool { kBufferA = true };");
    e.line(fmt::format("SDX_FN const T* a_base() const {{ return (const T*){}; }}", e.buffer(e_->value)));
    open("u32", "a_offset");
    const std::string at = e.value(offset_), in = e.value(where_);
    e.line(fmt::format("inside = inside && {};", in));
    e.line(fmt::format("return u32({});", at));
    e.close();
  }
  emit_facts(e);
}

bool Operand::checked(IndexRange* range) const {
  return where_ && is_a_ && range && range->narrow(offset_ * Expr(static_cast<std::int64_t>(size_of(c_.type))));
}

void Operand::emit_facts(Emitter& e) const {
  const char upper = is_a_ ? 'A' : 'B', lower = is_a_ ? 'a' : 'b';
  if (!where_) e.line(fmt::format("enum : bool {{ kMasked{} = false }};", upper));
  if (is_short() && access_ == Access::kVector) e.line("enum : bool { kShortA = true };");
  if (run_ > 0 && e.named_factors.empty()) e.line(fmt::format("enum : u32 {{ kRun{} = {} }};", upper, run_));
  const Expr step = step_of_k();
  if (!step) return;
  e.line(fmt::format("enum : bool {{ kLinear{} = true }};", upper));
  e.open(fmt::format("SDX_FN i64 {}_step() const", lower));
  e.line(fmt::format("return {};", access_ == Access::kVector ? "1" : e.value(step)));
  e.close();
}

Expr Operand::step_of_k() const {
  Expr step, rest;
  if (!idx::split_affine(offset_, index_, step, rest) || has_var(step, c_.z) || has_var(step, line_) ||
      (access_ == Access::kVector && !is_const(step, vec_)))
    return {};
  return step;
}

void Operand::bind(Emitter& e, const Expr& var, const std::string& value) {
  if (is_const(var)) return;
  const std::string i = e.fresh("i");
  e.line(fmt::format("const i64 {} = {};", i, value));
  e.bind(var, i);
}

// kVector: 16 bytes along k. The innermost reduced variable is vec_ * outer + j.
bool Operand::try_vector() {
  if (!plain()) return false;
  const Expr& last = c_.reduced.back();
  std::int64_t extent = 0;
  if (!is_const_int(last->args[0], extent) || extent % vec_ != 0) return false;
  const auto bytes = static_cast<std::int64_t>(size_of(c_.type));
  if (is_short() && (extent != vec_ || c_.stored * bytes != kShortVector)) return false;
  Exprs dims;
  for (const Expr& v : c_.reduced) dims.push_back(v->args[0]);
  dims.back() = extent / vec_;
  index_ = loop_var(idx::product(dims));
  const Expr j = loop_var(vec_);
  const Exprs parts = idx::delinearize(index_, dims);
  std::vector<std::pair<Expr, Expr>> r;
  for (std::size_t k = 0; k < parts.size(); ++k) r.emplace_back(c_.reduced[k], parts[k]);
  r.back().second = parts.back() * vec_ + j;
  if (!contiguous(r, j)) return false;
  const Expr at = flatten_loads(e_)->args[0];
  Expr step, rest;
  if (idx::split_affine(at, last, step, rest) && is_const(step, 1) && !has_var(rest, last) && !has_var(inside_, last))
    run_ = extent;
  return true;
}

// kAcross: 16 bytes along rows (columns), if their innermost dim and K are whole vectors.
bool Operand::try_across() {
  if (!plain() || is_short()) return false;
  if (is_a_ && c_.end) return false;  // groups begin at any row, not at whole vectors
  std::int64_t k = 0, inner = 0;
  const Exprs dims = is_a_ ? c_.row_dims : Exprs{line_->args[0]};
  if (!is_const_int(c_.k(), k) || k % vec_ != 0 || !is_const_int(dims.back(), inner) || inner % vec_ != 0) return false;
  // line = inner * outer + vec_ * part + j, so that the offset moves by one with j
  const Expr j = loop_var(vec_), part = loop_var(inner / vec_), outer = loop_var(idx::floordiv(line_->args[0], inner));
  index_ = loop_var(k);
  const auto reduced = split_k();
  std::vector<std::pair<Expr, Expr>> r = reduced;
  r.emplace_back(line_, outer * inner + part * vec_ + j);
  if (!contiguous(r, j)) return false;
  // The emitted function gets the line undivided.
  offset_ = flatten_loads(substitute(e_, reduced))->args[0];
  where_ = inside_ ? substitute(inside_, reduced) : Expr();
  if (where_ && is_const(where_)) where_ = Expr();
  return true;
}

bool Operand::is_short() const { return is_a_ && c_.stored > 0; }

std::vector<std::pair<Expr, Expr>> Operand::split_k() const {
  Exprs dims;
  for (const Expr& v : c_.reduced) dims.push_back(v->args[0]);
  const Exprs parts = idx::delinearize(index_, dims);
  std::vector<std::pair<Expr, Expr>> r;
  for (std::size_t k = 0; k < parts.size(); ++k) r.emplace_back(c_.reduced[k], parts[k]);
  return r;
}

bool Operand::contiguous(const std::vector<std::pair<Expr, Expr>>& r, const Expr& j) {
  const Expr at = flatten_loads(substitute(e_, r))->args[0];
  Expr step, rest;
  if (at->has_load || !idx::split_affine(at, j, step, rest) || !is_const(step, 1) || has_var(rest, j) ||
      !divisible(rest, is_short() ? kShortAlignment / static_cast<std::int64_t>(size_of(c_.type)) : vec_))
    return false;
  where_ = inside_ ? substitute(inside_, r) : Expr();
  if (has_var(where_, j)) return false;
  if (where_ && is_const(where_)) where_ = Expr();  // always true
  offset_ = rest;
  return true;
}

void Operand::blocks(Emitter& e, const QuantizedOperand& q) const {
  const std::int64_t length = 128 / q.bits;
  const auto begin = [&](std::string_view head) {
    e.open(fmt::format("SDX_FN {} const", head));
    bind(e, c_.z, "z");
    bind(e, line_, "line");
    bind(e, q.run, fmt::format("at / {}", length));
  };
  begin("const u8* b_packed(u32 z, u32 line, u32 at)");
  const std::string offset = e.value(q.packed->args[0]);
  e.line(fmt::format("return (const u8*){} + {};", e.buffer(q.packed->value), offset));
  e.close();
  Expr step, rest;
  if (idx::split_affine(q.packed->args[0], q.run, step, rest) && is_const(step, 16))
    e.line("enum : bool { kLinearPacked = true };");
  begin("void b_block(u32 z, u32 line, u32 at, f32& scale, f32& zero)");
  e.line(fmt::format("scale = {};", e.value(q.scale)));
  e.line(fmt::format("zero = {};", e.value(q.zero)));
  e.close();
  e.line("SDX_FN void b_elements(u32 z, u32 line, u32 at, T* x) const { block_elements(*this, z, line, at, x); }");
}

Expr Operand::scale_load() const {
  Expr e = quantized_->scale;
  while (e->op == Op::kCast && is_float(e->dtype)) e = e->args[0];
  const bool loads = e->op == Op::kLoad && size_of(e->dtype) == 2 && is_float(e->dtype) && e->args.size() == 1;
  return loads && !e->args[0]->has_load ? e : Expr();
}

bool Operand::loads_early(const std::function<bool(const Value*)>& loaded) const {
  if (!loaded || where_) return false;
  Expr step, rest;
  if (!quantized_)
    return access_ == Access::kVector && loaded(e_->value) && idx::split_affine(offset_, index_, step, rest) &&
           is_const(step, vec_);
  bool zeros = true;
  visit(quantized_->zero, [&](const Expr& x) { zeros = zeros && (x->op != Op::kLoad || loaded(x->value)); });
  return zeros && vectors_per_scale() > 0 && loaded(quantized_->packed->value) && loaded(scale_load()->value) &&
         idx::split_affine(quantized_->packed->args[0], quantized_->run, step, rest) && is_const(step, 16);
}

bool Operand::streams(const std::function<bool(const Value*)>& loaded) const {
  return loads_early(loaded) && (!quantized_ || is_const(quantized_->zero));
}

int Operand::vectors_per_scale() const {
  const Expr scale = quantized_ ? scale_load() : Expr();
  std::int64_t runs = 0;
  if (!scale || !is_const_int(quantized_->run->args[0], runs)) return 0;
  for (const int each : {1, 2, 4, 8}) {
    if (runs % (each * 8) != 0) break;
    const Expr u = loop_var(Expr(runs / each)), r = each == 1 ? Expr(0) : loop_var(Expr(each));
    const Expr at = substitute(scale->args[0], {{quantized_->run, u * Expr(each) + r}});
    Expr step, rest;
    if ((each == 1 || !has_var(at, r)) && idx::split_affine(at, u, step, rest) && is_const(step, 1) &&
        !has_var(rest, u) && divisible(rest, 8))
      return each;
  }
  return 0;
}

bool Operand::scales_follow() const {
  const int each = vectors_per_scale();
  std::int64_t runs = 0;
  Expr step, rest;
  if (each == 0 || !is_const_int(quantized_->run->args[0], runs)) return false;
  const Expr at = scale_load()->args[0];
  return idx::split_affine(at, line_, step, rest) && is_const(step, runs / each) && !has_var(rest, line_);
}

void Operand::emit_stream(Emitter& e) const {
  if (!quantized_) return;
  const Expr scale = scale_load();
  e.line(fmt::format("using Scale = {};", storage_name(scale->dtype)));
  e.open("SDX_FN const Scale* b_scale(u32 z, u32 line, u32 at) const");
  bind(e, c_.z, "z");
  bind(e, line_, "line");
  bind(e, quantized_->run, fmt::format("at / {}", 128 / quantized_->bits));
  const std::string offset = e.value(scale->args[0]);
  e.line(fmt::format("return (const Scale*){} + {};", e.buffer(scale->value), offset));
  e.close();
  if (is_const(quantized_->zero))
    e.line(fmt::format("SDX_FN f32 b_zero() const {{ return {}; }}", e.value(quantized_->zero)));
}

void Operand::emit_row(Emitter& e) const {
  if (access_ != Access::kElements || quantized_ || !plain() || inside_ || c_.reduced.size() != 1) return;
  const Expr at = flatten_loads(e_)->args[0], &k = c_.reduced[0];
  Expr step, rest;
  if (at->has_load || !idx::split_affine(at, k, step, rest) || !is_const(step, 1) || has_var(rest, k)) return;
  e.line(fmt::format("enum : bool {{ kRows{} = true }};", is_a_ ? 'A' : 'B'));
  e.open(fmt::format("SDX_FN const T* {}_row(u32 z, u32 line) const", is_a_ ? "a" : "b"));
  bind(e, c_.z, "z");
  bind(e, line_, "line");
  const std::string offset = e.value(rest);
  e.line(fmt::format("return (const T*){} + {};", e.buffer(e_->value), offset));
  e.close();
}

// kElements: any expression.
void Operand::elements(Emitter& e) const {
  e.open(fmt::format("SDX_FN void {}_elements(u32 z, u32 line, u32 at, T* x) const", is_a_ ? "a" : "b"));
  bind(e, c_.z, "z");
  bind(e, line_, "line");
  std::int64_t last = 0;
  const bool together = is_const_int(c_.reduced.back()->args[0], last) && last % vec_ == 0;
  Exprs dims;
  for (const Expr& v : c_.reduced) dims.push_back(v->args[0]);
  if (together) dims.back() = last / vec_;
  const Expr index = loop_var(idx::product(dims));
  const Exprs parts = idx::delinearize(index, dims);
  if (together) bind(e, index, fmt::format("at / {}", vec_));
  for (std::int64_t j = 0; j < vec_; ++j) {
    e.open(together ? "" : fmt::format("if (at + {} < this->k)", j));
    if (!together) bind(e, index, fmt::format("at + {}", j));
    std::vector<std::pair<Expr, Expr>> r;
    for (std::size_t k = 0; k < parts.size(); ++k) r.emplace_back(c_.reduced[k], parts[k]);
    if (together) r.back().second = parts.back() * vec_ + Expr(j);
    Expr x = flatten_loads(widen_halves_of(substitute(e_, r)));
    if (inside_) x = select(substitute(inside_, r), cast(x, sum_type()), constant(0, sum_type()));
    const std::string value = e.value(cast(x, c_.type));
    e.line(fmt::format("x[{}] = {};", j, value));
    e.close();
  }
  e.close();
}

}  // namespace sardonyx::codegen
