// GEMM and convolution of 8-bit integers as the routines integer_pack, integer_matmul and integer_conv, and the
// recognition of float ones on dequantised tensors.
#include "ops/integer_gemm.h"

#include "ops/element_math.h"
#include "ops/quantize.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

constexpr DType kF32 = DType::kFloat32;

bool is_byte(const Value* v) { return v->dtype == DType::kInt8 || v->dtype == DType::kUInt8; }

bool single(const Value* v) {
  for (const Expr& d : v->shape)
    if (!is_const(d, 1)) return false;
  return true;
}

// Zero points that the routines take: none, one, or one for each of `each`.
bool zero_fits(const Value* x, const Value* zero, const Expr& each) {
  return !zero || (zero->dtype == x->dtype &&
                   (single(zero) || (zero->rank() == 1 && each && idx::provably_equal(zero->shape[0], each))));
}

Value* zero_or_none(Graph& g, const Value* x, Value* zero) {
  std::byte* nothing;
  return zero && !all_zeros(zero) ? zero : g.add_constant(x->dtype, {0}, make_data(0, &nothing));
}

Expr even(const Expr& n) { return idx::ceildiv(n, 2) * Expr(2); }

// Enough for the packed form of every instruction set (host/integer_kernels.h): 16 bits an element, or 8 bits with K
// padded to at most twice its size and 8 bytes a column. Likewise for the scratch memory below.
Value* pack(Graph& g, Value* b, Value* zero, bool trans, const Expr& k, const Expr& n) {
  const Expr batch = idx::product({b->shape.begin(), b->shape.end() - 2});
  const Expr bytes = batch * (idx::ceildiv(n, 32) * Expr(32)) * (even(k) * Expr(2) + 8) + 128;
  return tensor::routine(g, "integer_pack", {b, zero_or_none(g, b, zero)}, {trans ? 1 : 0}, {},
                         {{DType::kUInt8, {bytes}}})[0];
}

// A tensor (q - zero) * scale of DequantizeLinear, with both over its loop's variables.
struct Dequantized {
  Value* q = nullptr;
  Exprs vars;
  Expr zero, scale;  // zero: empty for none, of q's dtype

  /// Whether zero point and scale are the same for all elements, or differ along the axis only.
  bool along(int axis) const {
    for (const Expr& e : {zero, scale}) {
      if (!e) continue;
      bool ok = true;
      visit(e, [&](const Expr& x) {
        if (x->op == Op::kVar) ok = ok && axis >= 0 && same(x, vars[static_cast<std::size_t>(axis)]);
      });
      if (!ok) return false;
    }
    return true;
  }
  Expr scale_at(int axis, const Expr& i) const {
    return axis < 0 ? scale : substitute(scale, {{vars[static_cast<std::size_t>(axis)], i}});
  }
  /// The zero points as a tensor: one, or one for each index of the axis that they differ along.
  Value* zeros(Graph& g, int axis) const {
    if (!zero || is_const(zero, 0)) return nullptr;
    const bool each = axis >= 0 && zero->has_var;
    const Exprs shape = each ? Exprs{q->shape[static_cast<std::size_t>(axis)]} : Exprs{};
    return tensor::generate(g, shape, [&](const Exprs& i) {
      return each ? substitute(zero, {{vars[static_cast<std::size_t>(axis)], i[0]}}) : zero;
    });
  }
};

std::optional<Dequantized> dequantized(const Value* x) {
  if (x->dtype != kF32 || !x->producer) return {};
  const auto* loop = x->producer->as<LoopOp>();
  if (!loop || loop->body->op != Op::kMul) return {};
  Expr q = loop->body->args[0], scale = loop->body->args[1];
  if (q->op != Op::kCast || q->args[0]->dtype != DType::kInt32) std::swap(q, scale);
  if (q->op != Op::kCast || q->args[0]->dtype != DType::kInt32) return {};
  q = q->args[0];
  Dequantized d;
  d.vars = loop->vars;
  d.scale = scale;
  Expr zero;
  if (q->op == Op::kSub) {
    zero = q->args[1];
    q = q->args[0];
  }
  if (q->op != Op::kCast || q->args[0]->op != Op::kLoad) return {};
  q = q->args[0];
  d.q = const_cast<Value*>(q->value);
  if (!is_byte(d.q) || q->args.size() != d.vars.size()) return {};
  for (std::size_t k = 0; k < d.vars.size(); ++k)
    if (!same(q->args[k], d.vars[k]) && !(is_const(q->args[k], 0) && is_const(d.vars[k]->args[0], 1))) return {};
  if (zero) {
    if (is_const(zero))
      d.zero = constant_int(zero->i, d.q->dtype);
    else if (zero->op == Op::kCast && zero->args[0]->dtype == d.q->dtype)
      d.zero = zero->args[0];
    else
      return {};
  }
  return d;
}

}  // namespace

Value* integer_matmul(Graph& g, Value* a, Value* a_zero, Value* b, Value* b_zero, bool trans_b) {
  if (!is_byte(a) || !is_byte(b) || a->rank() < 2 || b->rank() < 2) return nullptr;
  const Expr &m = a->shape[a->shape.size() - 2], &ka = a->shape.back();
  const Expr &n = b->shape[b->shape.size() - (trans_b ? 2 : 1)], &kb = b->shape[b->shape.size() - (trans_b ? 1 : 2)];
  if (!zero_fits(a, a_zero, m) || !zero_fits(b, b_zero, n)) return nullptr;
  g.add_check(compare(Op::kEq, ka, kb),
              fmt::format("inner dims of a matrix product differ: {} and {}", to_string(ka), to_string(kb)));
  const Exprs batch_a(a->shape.begin(), a->shape.end() - 2), batch_b(b->shape.begin(), b->shape.end() - 2);
  Exprs shape = tensor::broadcast_shapes(g, {batch_a, batch_b});
  shape.push_back(m);
  shape.push_back(n);
  const Expr scratch = idx::product(batch_a) * m * (even(ka) * Expr(2) + 8) + 256;
  return tensor::routine(g, "integer_matmul", {a, zero_or_none(g, a, a_zero), pack(g, b, b_zero, trans_b, kb, n)},
                         batch_b, {}, {{DType::kInt32, shape}, {DType::kUInt8, {scratch}}})[0];
}

Value* integer_conv(Graph& g, Value* x, Value* x_zero, Value* w, Value* w_zero, const Window& win) {
  if (!is_byte(x) || !is_byte(w) || win.dims() < 1 || win.dims() > 2) return nullptr;
  if (!zero_fits(x, x_zero, Expr()) || !zero_fits(w, w_zero, w->shape[0])) return nullptr;
  std::vector<int> perm = {0};  // a window's elements with channels last, as the routine reads the image
  for (int k = 2; k < w->rank(); ++k) perm.push_back(k);
  perm.push_back(1);
  const Expr k = idx::product(win.kernel) * w->shape[1];
  Value* flat = tensor::reshape(g, tensor::transpose(g, w, perm), {w->shape[0], k});
  Exprs params, shape = {x->shape[0], w->shape[0]};
  for (std::int64_t s : win.strides) params.push_back(s);
  for (std::int64_t d : win.dilations) params.push_back(d);
  params.insert(params.end(), win.begin.begin(), win.begin.end());
  params.insert(params.end(), win.kernel.begin(), win.kernel.end());
  shape.insert(shape.end(), win.output.begin(), win.output.end());
  Expr image = x->shape[0] * x->shape[1];
  for (std::size_t d = 0; d < win.dims(); ++d)
    image = image * idx::max(0, (win.output[d] - 1) * Expr(win.strides[d]) + win.extent(d));
  return tensor::routine(g, "integer_conv",
                         {x, zero_or_none(g, x, x_zero), pack(g, flat, w_zero, true, k, w->shape[0])}, params, {},
                         {{DType::kInt32, shape}, {DType::kUInt8, {image * Expr(2) + 128}}})[0];
}

Value* dequantized_matmul(Graph& g, Value* a, Value* b, bool trans_b) {
  if (a->rank() < 2 || b->rank() < 2) return nullptr;
  const auto da = dequantized(a), db = dequantized(b);
  if (!da || !db) return nullptr;
  const int column = b->rank() - (trans_b ? 2 : 1);
  if (!da->along(-1) || !db->along(column)) return nullptr;
  Value* y = integer_matmul(g, da->q, da->zeros(g, -1), db->q, db->zeros(g, column), trans_b);
  if (!y) return nullptr;
  return tensor::generate(g, y->shape, [&](const Exprs& i) {
    return el::mul(cast(tensor::at(y, i), kF32), el::mul(da->scale, db->scale_at(column, i.back())));
  });
}

bool is_dequantized(const Value* x) { return dequantized(x).has_value(); }

Value* dequantized_conv(Graph& g, Value* x, Value* w, Value* bias, const Window& win) {
  const auto dx = dequantized(x), dw = dequantized(w);
  if (!dx || !dw || !dx->along(-1) || !dw->along(0)) return nullptr;
  Value* y = integer_conv(g, dx->q, dx->zeros(g, -1), dw->q, dw->zeros(g, 0), win);
  if (!y) return nullptr;
  return tensor::generate(g, y->shape, [&](const Exprs& i) {
    const Expr e = el::mul(cast(tensor::at(y, i), kF32), el::mul(dx->scale, dw->scale_at(0, i[1])));
    return bias ? el::add(e, tensor::at(bias, {i[1]})) : e;
  });
}

}  // namespace sardonyx
