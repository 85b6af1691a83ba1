// See quantized_operand.h.
#include "codegen/quantized_operand.h"

#include "codegen/emit.h"
#include "codegen/loop_analysis.h"

namespace sardonyx::codegen {
namespace {

bool has_var(const Expr& e, const Expr& var) {
  bool found = false;
  visit(e, [&](const Expr& x) { found |= x->op == Op::kVar && x->i == var->i; });
  return found;
}

Expr without_casts(Expr e) {
  while (e->op == Op::kCast && is_float(e->dtype)) e = e->args[0];
  return e;
}

bool is_byte(const Expr& e) {
  return e->op == Op::kLoad && (e->dtype == DType::kUInt8 || e->dtype == DType::kInt8) && !e->args.empty();
}

// The element of b at one k, as a loaded byte and a shift. bits: 4 or 8.
bool number_of(const Expr& e, int& bits, Expr& byte, std::int64_t& shift) {
  shift = 0;
  if (is_byte(e)) {
    bits = 8;
    byte = e;
    return true;
  }
  if (e->op != Op::kBitAnd || !is_const(e->args[1], 15)) return false;
  byte = e->args[0];
  if (byte->op == Op::kShr) {
    if (!is_const_int(byte->args[1], shift)) return false;
    byte = byte->args[0];
  }
  bits = 4;
  return is_byte(byte) && byte->dtype == DType::kUInt8;
}

// Whether zero points are integers of up to 8 bits.
bool whole(const Expr& zero) {
  const Expr z = without_casts(zero);
  if (is_const(z)) return z->f == static_cast<double>(static_cast<int>(z->f)) && z->f >= -128 && z->f <= 255;
  return z->dtype == DType::kUInt8 || z->dtype == DType::kInt8;
}

}  // namespace

std::optional<QuantizedOperand> quantized_operand(const Contraction& c) {
  if ((c.type != DType::kFloat16 && c.type != DType::kBFloat16) || c.reduced.size() != 1 || c.inside) return {};
  std::int64_t depth = 0;
  const Expr& k = c.reduced[0];
  if (!is_const_int(k->args[0], depth)) return {};
  const Expr product = without_casts(c.b);
  if (product->op != Op::kMul) return {};
  for (std::size_t side = 0; side < 2; ++side) {
    Expr difference = without_casts(product->args[side]);
    const Expr& scale = product->args[1 - side];
    Expr zero = constant_float(0, DType::kFloat32);
    if (difference->op == Op::kSub) {
      zero = difference->args[1];
      difference = without_casts(difference->args[0]);
    }
    QuantizedOperand q;
    Expr byte;
    std::int64_t shift = 0;
    const auto number = [&](const Expr& at_k) {
      return number_of(without_casts(substitute(difference, {{k, at_k}})), q.bits, byte, shift);
    };
    // Scales are stored in the type of the GEMM, and are not rounded further.
    if (!number(Expr(0)) || without_casts(scale)->op != Op::kLoad) continue;
    if (c.type == DType::kFloat16 && without_casts(scale)->dtype != DType::kFloat16) continue;
    const std::int64_t length = 128 / q.bits, per_byte = 8 / q.bits;
    if (depth % length != 0) return {};
    q.run = loop_var(Expr(depth / length));
    const Expr j = loop_var(Expr(length / per_byte)), l = loop_var(Expr(length));
    for (std::int64_t part = 0; part < per_byte; ++part) {
      if (!number(q.run * Expr(length) + j * Expr(per_byte) + Expr(part)) || shift != part * q.bits) return {};
      const Expr at = flatten_loads(byte)->args[0];
      Expr step, rest;
      if (!idx::split_affine(at, j, step, rest) || !is_const(step, 1) || has_var(rest, j)) return {};
      const Expr here = load(byte->value, byte->dtype, {rest});
      if (part == 0)
        q.packed = here;
      else if (!same(here, q.packed))
        return {};
    }
    if (divisor_of(q.packed->args[0]) % 16 != 0) return {};
    q.is_signed = q.packed->dtype == DType::kInt8;
    q.float_zeros = !whole(zero);
    const Expr at = q.run * Expr(length) + l;
    q.scale = flatten_loads(widen_halves_of(substitute(scale, {{k, at}})));
    q.zero = flatten_loads(widen_halves_of(substitute(zero, {{k, at}})));
    if (has_var(q.scale, l) || has_var(q.zero, l)) return {};
    q.scale = cast(q.scale, DType::kFloat32);
    q.zero = cast(q.zero, DType::kFloat32);
    return q;
  }
  return {};
}

}  // namespace sardonyx::codegen
