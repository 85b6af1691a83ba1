// com.microsoft: GEMMs with transposition, bias, activation, or weights quantised to a few bits.
#include "ops/contrib.h"
#include "ops/conv.h"
#include "ops/element_math.h"
#include "ops/families.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

using contrib::unpack;
using tensor::accumulator;

// [d0, batch..., last] as [batch..., d0, last].
Value* batch_to_front(OpContext& c, Value* x) {
  if (x->rank() < 3) return x;
  std::vector<int> perm;
  for (int k = 1; k < x->rank() - 1; ++k) perm.push_back(k);
  perm.push_back(0);
  perm.push_back(x->rank() - 1);
  return tensor::transpose(c.graph(), x, perm);
}

Value* lower_fused_matmul(OpContext& c) {
  Graph& g = c.graph();
  Value *a = c.in(0), *b = c.in(1);
  if (c.attr("transBatchA", 0) != 0) a = batch_to_front(c, a);
  if (c.attr("transBatchB", 0) != 0) b = batch_to_front(c, b);
  // A vector has nothing to transpose.
  Value* y =
      tensor::matmul(g, a, b, c.attr("transA", 0) != 0 && a->rank() > 1, c.attr("transB", 0) != 0 && b->rank() > 1);
  const float alpha = c.attr_f("alpha", 1);
  const DType t = accumulator(y->dtype);
  return alpha == 1 ? y : tensor::map1(g, y, [&](const Expr& e) { return cast(el::mul(cast(e, t), alpha), e->dtype); });
}

void fused_matmul(OpContext& c) { c.out(0, lower_fused_matmul(c)); }

std::vector<float> activation_params(OpContext& c) {
  std::vector<float> p;
  for (const char* name : {"activation_alpha", "activation_beta", "activation_gamma"})
    if (c.has_attr(name)) p.push_back(c.attr_f(name, 0));
  return p;
}

void fused_matmul_activation(OpContext& c) {
  c.out(0, contrib::activate(c, lower_fused_matmul(c), c.attr_s("activation", ""), activation_params(c)));
}

void fused_gemm(OpContext& c) {
  Graph& g = c.graph();
  Value *a = c.in(0), *b = c.in(1), *bias = c.opt(2);
  c.require(a->rank() == 2 && b->rank() == 2, "operands of ranks {} and {}", a->rank(), b->rank());
  const float alpha = c.attr_f("alpha", 1), beta = c.attr_f("beta", 1);
  const DType t = accumulator(a->dtype);
  std::vector<Value*> in = {tensor::matmul(g, a, b, c.attr("transA", 0) != 0, c.attr("transB", 0) != 0, t)};
  if (bias) in.push_back(bias);
  const std::string activation = c.attr_s("activation", "");
  const std::vector<float> params = activation_params(c);
  c.out(0, tensor::map(g, in, [&](const Exprs& e) {
          Expr r = alpha == 1 ? e[0] : el::mul(e[0], alpha);
          if (bias) r = el::add(r, beta == 1 ? cast(e[1], t) : el::mul(cast(e[1], t), beta));
          return cast(contrib::fused_activation(c, activation, r, params), a->dtype);
        }));
}

// Conv, plus an addend, then an activation.
void fused_conv(OpContext& c) {
  Value* y = lower_conv(c, c.in(0), c.in(1), c.opt(2));
  if (Value* z = c.opt(3))
    y = tensor::map2(c.graph(), y, z, [](const Expr& a, const Expr& b) { return el::add(a, b); });
  c.out(0, contrib::activate(c, y, c.attr_s("activation", ""), c.attr_floats("activation_params")));
}

// A times the transposed weights [N, K], which are (q - zero) * scale, with a scale and a zero point per block of K.
void matmul_nbits(OpContext& c) {
  Graph& g = c.graph();
  Value *a = c.in(0), *b = c.in(1), *scales = c.in(2), *zeros = c.opt(3), *groups = c.opt(4), *bias = c.opt(5);
  const std::int64_t K = c.attr("K", 0), N = c.attr("N", 0), bits = c.attr("bits", 4), block = c.attr("block_size", 0);
  const std::int64_t limit = std::int64_t{1} << 40;
  c.require(K > 0 && N > 0 && K < limit && N < limit, "K is {} and N {}", K, N);
  c.require(bits >= 2 && bits <= 8 && block >= 16 && block < limit && (block & (block - 1)) == 0,
            "{} bits in blocks of {}", bits, block);
  if (c.attr("weight_prepacked", 0) != 0) c.refuse("weights prepacked for another device");
  c.require(b->dtype == DType::kUInt8, "weights of {}", name(b->dtype));
  const std::int64_t blocks = (K + block - 1) / block, blob = block * bits / 8, zero_row = (blocks * bits + 7) / 8;
  auto shaped = [&](Value* v, const Exprs& shape, std::string_view what) {  // older models have flat tensors
    g.add_check(compare(Op::kEq, v->elements(), idx::product(shape)),
                fmt::format("{} of shape {} instead of {}", what, to_string(v->shape), to_string(shape)));
    return tensor::reshape(g, v, shape);
  };
  b = shaped(b, {N, blocks, blob}, "weights");
  scales = shaped(scales, {N, blocks}, "scales");
  const bool packed_zeros = zeros && zeros->dtype == DType::kUInt8;
  if (zeros) zeros = shaped(zeros, {N, packed_zeros ? zero_row : blocks}, "zero points");
  if (groups) {
    c.require(groups->rank() == 1, "g_idx of rank {}", groups->rank());
    g.add_check(compare(Op::kGe, groups->shape[0], K), "g_idx is shorter than K");
  }
  const DType t = accumulator(a->dtype);
  Value* w = tensor::generate(g, {N, K}, [&](const Exprs& i) {
    const Expr own = idx::floordiv(i[1], block);
    const Expr group =
        groups ? idx::max(0, idx::min(cast(tensor::at(groups, {i[1]}), DType::kInt64), blocks - 1)) : own;
    const Expr q = cast(unpack(b, {i[0], own, 0}, idx::mod(i[1], block), bits), t);
    Expr zero = constant(static_cast<double>(1 << (bits - 1)), t);
    if (zeros) zero = cast(packed_zeros ? unpack(zeros, {i[0], 0}, group, bits) : tensor::at(zeros, {i[0], group}), t);
    return cast(el::mul(el::sub(q, zero), cast(tensor::at(scales, {i[0], group}), t)), a->dtype);
  });
  Value* y = tensor::matmul(g, a, w, false, true);
  if (bias) y = tensor::map2(g, y, bias, [](const Expr& u, const Expr& v) { return el::add(u, v); });
  c.out(0, y);
}

// Gather of quantised rows, followed by dequantisation. uint8 data holds 8 / bits numbers per byte along the last dim.
void gather_block_quantized(OpContext& c) {
  Graph& g = c.graph();
  Value *data = c.in(0), *indices = c.in(1), *scales = c.in(2), *zeros = c.opt(3);
  const int rank = data->rank();
  c.require(rank >= 1 && scales->rank() == rank && (!zeros || zeros->rank() == rank),
            "data of rank {} with scales of rank {}", rank, scales->rank());
  const int gather_axis = c.axis(c.attr("gather_axis", 0), rank),
            quantize_axis = c.axis(c.attr("quantize_axis", 1), rank);
  const auto ga = static_cast<std::size_t>(gather_axis), qa = static_cast<std::size_t>(quantize_axis);
  const bool byte = data->dtype == DType::kUInt8;
  const std::int64_t bits = byte ? c.attr("bits", 4) : 8, block = c.attr("block_size", 128);
  c.require(bits == 2 || bits == 4 || bits == 8, "bits is {}", bits);
  c.require(block >= 0 && block < (std::int64_t{1} << 40), "block_size is {}", block);
  const bool packed = byte && bits < 8;
  c.require(!packed || gather_axis != rank - 1, "packed data can't be gathered along the dim that it is packed in");
  c.require(!zeros || zeros->dtype == data->dtype, "zero points of {} for data of {}",
            name(zeros ? zeros->dtype : data->dtype), name(data->dtype));
  Exprs full = data->shape;
  if (packed) full.back() = full.back() * Expr(8 / bits);
  Exprs shape(full.begin(), full.begin() + gather_axis);
  shape.insert(shape.end(), indices->shape.begin(), indices->shape.end());
  shape.insert(shape.end(), full.begin() + gather_axis + 1, full.end());
  for (std::size_t d = 0; d < full.size(); ++d) {
    const Expr& n = scales->shape[d];
    const Expr want = d != qa ? full[d] : block == 0 ? Expr(1) : idx::ceildiv(full[d], block);
    g.add_check(logical_or(compare(Op::kEq, n, want), compare(Op::kEq, n, 1)),
                fmt::format("scales of shape {} for data of shape {}", to_string(scales->shape), to_string(full)));
  }
  const DType t = accumulator(scales->dtype);
  const auto q = static_cast<std::ptrdiff_t>(indices->rank());
  c.out(0, tensor::generate(g, shape, [&](const Exprs& i) {
          const Expr k = tensor::wrap_index(
              cast(tensor::at(indices, Exprs(i.begin() + gather_axis, i.begin() + gather_axis + q)), DType::kInt64),
              full[ga]);
          const Expr ok = logical_and(compare(Op::kGe, k, 0), compare(Op::kLt, k, full[ga]));
          Exprs at(i.begin(), i.begin() + gather_axis);
          at.push_back(k);
          at.insert(at.end(), i.begin() + gather_axis + q, i.end());
          Exprs s = at;
          s[qa] = block == 0 ? Expr(0) : idx::floordiv(s[qa], block);
          Exprs scale_at = s;
          for (std::size_t d = 0; d < s.size(); ++d)
            if (is_const(scales->shape[d], 1)) scale_at[d] = 0;
          Expr e = cast(packed ? unpack(data, at, at.back(), bits) : tensor::at(data, at), t);
          if (zeros)
            e = el::sub(e, cast(packed ? unpack(zeros, s, s.back(), bits) : tensor::at(zeros, s), t));
          else if (byte)
            e = el::sub(e, static_cast<double>(1 << (bits - 1)));
          return select(ok, cast(el::mul(e, cast(tensor::at(scales, scale_at), t)), scales->dtype),
                        constant(0, scales->dtype));
        }));
}

}  // namespace

Expr contrib::unpack(const Value* packed, Exprs i, const Expr& k, std::int64_t bits) {
  const DType u8 = DType::kUInt8;
  const Expr mask = constant_int((1 << bits) - 1, u8);
  auto byte = [&](const Expr& at) {
    i.back() = at;
    return tensor::at(packed, i);
  };
  if (bits == 8) return byte(k);
  if (8 % bits == 0) {
    const std::int64_t per_byte = 8 / bits;
    const Expr shift = cast(idx::mod(k, per_byte) * Expr(bits), u8);
    return binary(Op::kBitAnd, binary(Op::kShr, byte(idx::floordiv(k, per_byte)), shift), mask);
  }
  // A number may lie across two bytes.
  const DType u16 = DType::kUInt16;
  const Expr bit = k * Expr(bits), at = idx::floordiv(bit, 8), last = packed->shape.back() - 1;
  const Expr both = binary(Op::kBitOr, cast(byte(at), u16),
                           binary(Op::kShl, cast(byte(idx::min(at + 1, last)), u16), constant_int(8, u16)));
  return binary(Op::kBitAnd, cast(binary(Op::kShr, both, cast(idx::mod(bit, 8), u16)), u8), mask);
}

void register_contrib_matmul(OpRegistry& r) {
  const char* ms = "com.microsoft";
  r.add({.name = "FusedMatMul", .domain = ms, .lower = fused_matmul, .dtypes = "floats"});
  r.add({.name = "TransposeMatMul", .domain = ms, .lower = fused_matmul, .dtypes = "floats"});
  r.add({.name = "FusedMatMulActivation", .domain = ms, .lower = fused_matmul_activation, .dtypes = "floats"});
  r.add({.name = "FusedGemm", .domain = ms, .lower = fused_gemm, .dtypes = "floats"});
  r.add({.name = "FusedConv", .domain = ms, .lower = fused_conv, .dtypes = "floats"});
  r.add({.name = "MatMulNBits",
         .domain = ms,
         .lower = matmul_nbits,
         .dtypes = "floats; weights of 2 to 8 bits",
         .notes = "not weights prepacked for another device"});
  r.add({.name = "GatherBlockQuantized",
         .domain = ms,
         .lower = gather_block_quantized,
         .dtypes = "int4, uint4, uint8 (2, 4 or 8 bits), float8, float4e2m1"});
}

}  // namespace sardonyx
