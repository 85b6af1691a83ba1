// Cast, CastLike and BitCast.
#include "ops/families.h"
#include "ops/scalars.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

bool is_complex(DType t) { return t == DType::kComplex64 || t == DType::kComplex128; }

// Op::kCast's mode: bit 0 saturates (float8), bits 1 and 2 are the rounding to float8e8m0 (0 up, 1 down, 2 nearest).
int cast_mode(OpContext& c, DType to) {
  int mode = c.attr("saturate", 1) != 0 ? 1 : 0;
  if (to != DType::kFloat8E8M0) return mode;
  const std::string round = c.attr_s("round_mode", "up");
  c.require(round == "up" || round == "down" || round == "nearest", "round_mode is '{}'", round);
  return mode | (round == "down" ? 2 : round == "nearest" ? 4 : 0);
}

void cast_to(OpContext& c, DType to) {
  Value* x = c.in(0);
  if (x->dtype != to && (is_complex(to) || is_complex(x->dtype)))
    c.refuse("a cast from {} to {}; complex numbers are only moved, not converted", name(x->dtype), name(to));
  const bool half = to == DType::kFloat16 || to == DType::kBFloat16;
  c.out(0, tensor::cast(c.graph(), x, to, cast_mode(c, to) | (half ? kCastRounds : 0)));
}

void cast_op(OpContext& c) { cast_to(c, from_onnx(static_cast<int>(c.attr("to", 0)))); }

void cast_like_op(OpContext& c) { cast_to(c, c.in(1)->dtype); }

// Bits of the type in an array of ONNX; one bool takes a byte.
int storage_bits(DType t) { return t == DType::kBool ? 8 : bits_of(t); }

// Sub-byte types lie in memory extended to a byte, so their bits travel through the unsigned type of their width.
Expr reinterpret(const Expr& x, DType to) {
  const DType from = x->dtype;
  if (from == to) return x;
  const int bits = storage_bits(to);
  if (bits < 8) {
    const DType code = bits == 4 ? DType::kUInt4 : DType::kUInt2;
    auto to_code = [&](const Expr& e) { return is_float(e->dtype) ? bitcast(e, code) : cast(e, code); };
    const Expr y = to_code(x);
    return is_float(to) ? bitcast(y, to) : cast(y, to);
  }
  if (to == DType::kBool) return cast(bitcast(x, DType::kUInt8), to);
  if (from == DType::kBool) return bitcast(cast(x, DType::kUInt8), to);
  return bitcast(x, to);
}

void bit_cast_op(OpContext& c) {
  const DType to = from_onnx(static_cast<int>(c.attr("to", 0)));
  Value* x = c.in(0);
  c.require(storage_bits(x->dtype) == storage_bits(to), "{} and {} have different widths", name(x->dtype), name(to));
  if (x->dtype == to) return c.out(0, x);
  if (is_complex(to) || is_complex(x->dtype)) c.refuse("bits of complex numbers; split real and imaginary parts");
  c.out(0, tensor::map1(c.graph(), x, [&](const Expr& e) { return reinterpret(e, to); }));
}

}  // namespace

void register_cast(OpRegistry& r) {
  const char* notes = "strings and complex numbers are refused";
  r.add({.name = "Cast", .lower = cast_op, .dtypes = "numbers, bool", .notes = notes});
  r.add({.name = "CastLike", .lower = cast_like_op, .dtypes = "numbers, bool", .notes = notes});
  r.add({.name = "BitCast",
         .lower = bit_cast_op,
         .dtypes = "numbers, bool",
         .notes = "bool: any bits but 0 become true"});
}

}  // namespace sardonyx
