// See integer_gemm.h.
#include "fuse/integer_gemm.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr DType kI32 = DType::kInt32, kI8 = DType::kInt8;

// An element of an 8-bit tensor as `type`: int8 for uint8 minus 128, uint8 for int8 plus 128.
Expr as_byte(const Expr& x, DType type) {
  if (x->dtype == type) return x;
  const Expr bits = x->dtype == DType::kUInt8 ? x : bitcast(x, DType::kUInt8);
  const Expr flipped = binary(Op::kBitXor, bits, constant_int(128, DType::kUInt8));
  return type == DType::kUInt8 ? flipped : bitcast(flipped, type);
}

// A zero point at index i, in int32, shifted like as_byte().
Expr zero_at(const Value* zero, const Value* of, DType type, const Expr& i) {
  const std::int64_t shift = of->dtype == type ? 0 : of->dtype == DType::kUInt8 ? 128 : -128;
  if (is_const(zero->elements(), 0)) return constant_int(-shift, kI32);
  Exprs at;
  for (const Expr& d : zero->shape) at.push_back(is_const(d, 1) ? Expr(0) : i);
  if (zero->content && zero->content->size() == 1 && is_const(zero->content->front()))
    return constant_int(zero->content->front()->i - shift, kI32);
  return binary(Op::kSub, cast(load(zero, zero->dtype, at), kI32), constant_int(shift, kI32));
}

Expr times(const Expr& a, const Expr& b) { return binary(Op::kMul, a, b); }

class Lowering {
 public:
  Lowering(Graph& g, const FuseOptions& options) : g_(g), options_(options), left_(options.integer_left) {}

  void run() {
    const auto constants = constant_nodes(g_);
    const std::size_t count = g_.nodes.size();
    for (std::size_t k = 0; k < count; ++k) {
      Node& n = *g_.nodes[k];
      const auto* r = n.as<RoutineOp>();
      if (!r || (r->name != "integer_matmul" && r->name != "integer_conv")) continue;
      if (on_host() && constants.count(&n)) continue;  // computed once, in row-major order
      const Node* pack = n.inputs[2]->producer;
      const auto* p = pack ? pack->as<RoutineOp>() : nullptr;
      if (!p || p->name != "integer_pack") continue;
      g_.origin = n.origin;
      Value* y = r->name == "integer_matmul" ? matmul(n, pack->inputs[0], pack->inputs[1], is_const(p->params[0], 1))
                                             : conv(n, *r, pack->inputs[0], pack->inputs[1]);
      if (!y) {
        remark(options_, "integer_gemm", n.origin, [&] { return "stays a routine: " + why_; });
        continue;
      }
      // The new value replaces the routine's output; the routine's workspace is dead.
      Value* out = n.outputs[0];
      const Exprs vars = vars_of(out->shape);
      Node* copy = g_.add_node(LoopOp{vars, load(y, kI32, vars)}, {y}, {});
      copy->outputs.push_back(out);
      out->producer = copy;
      out->output_index = 0;
      n.outputs[0] = g_.new_value(kI32, {0});
      n.outputs[0]->producer = &n;
    }
    g_.origin.clear();
    share_unsigned();
    sort_nodes(g_);
    remove_dead_nodes(g_);
  }

 private:
  // The type of a left operand.
  DType left_of(const Value* x, const Value* zero) const {
    return options_.integer_unsigned && is_const(zero_at(zero, x, DType::kUInt8, Expr(0)), 0) ? DType::kUInt8 : left_;
  }

  // Loops that read an int8 tensor which products read as uint8 read the latter too, so that one is stored.
  void share_unsigned() {
    std::unordered_map<const Value*, Value*> shared;
    for (const auto& [key, as_unsigned] : bytes_)
      if (key.second == DType::kUInt8 && key.first->dtype == kI8) shared.emplace(key.first, as_unsigned);
    if (on_host() || shared.empty()) return;
    for (const auto& n : g_.nodes) {
      auto* l = n->as<LoopOp>();
      if (!l || std::none_of(n->inputs.begin(), n->inputs.end(), [&](const Value* v) { return shared.count(v) > 0; }))
        continue;
      if (bytes_.count({n->inputs[0], n->outputs[0]->dtype}) &&
          bytes_.at({n->inputs[0], n->outputs[0]->dtype}) == n->outputs[0])
        continue;
      l->body = rewrite(l->body, [&](const Expr& x) -> Expr {
        if (const Expr minus = minus_zero(x, shared)) return minus;
        const auto at = x->op == Op::kLoad ? shared.find(x->value) : shared.end();
        return at == shared.end() ? Expr() : as_byte(load(at->second, DType::kUInt8, x->args), kI8);
      });
      refresh_inputs(*n);
    }
  }

  // An element of such a tensor minus a constant zero point, in int32, as DequantizeLinear computes it: the unsigned
  // element minus the zero point plus 128, which is usually 0. Otherwise empty.
  static Expr minus_zero(const Expr& x, const std::unordered_map<const Value*, Value*>& shared) {
    if (x->op != Op::kSub || x->dtype != kI32 || !is_const(x->args[1]) || x->args[0]->op != Op::kCast) return {};
    const Expr& element = x->args[0]->args[0];
    const auto at = element->op == Op::kLoad ? shared.find(element->value) : shared.end();
    if (at == shared.end()) return {};
    const Expr wide = cast(load(at->second, DType::kUInt8, element->args), kI32);
    const std::int64_t zero = x->args[1]->i + 128;
    return zero == 0 ? wide : binary(Op::kSub, wide, constant_int(zero, kI32));
  }

  bool on_host() const { return left_ == DType::kUInt8; }

  Value* bytes(Value* x, DType type) {
    if (x->dtype == type) return x;
    Value*& b = bytes_[{x, type}];
    const Exprs vars = vars_of(x->shape);
    if (!b) b = g_.add_loop(vars, as_byte(load(x, x->dtype, vars), type));
    return b;
  }

  // b has its own batches at the end of y's (broadcast where 1); likewise a.
  static Exprs batch_at(const Value* x, const Exprs& vars) {
    const std::size_t own = static_cast<std::size_t>(x->rank()) - 2, all = vars.size() - 2;
    Exprs at;
    for (std::size_t k = 0; k < own; ++k) at.push_back(is_const(x->shape[k], 1) ? Expr(0) : vars[all - own + k]);
    return at;
  }

  Value* matmul(const Node& n, Value* b, Value* zero_b, bool trans_b) {
    Value *a = n.inputs[0], *zero_a = n.inputs[1];
    const Exprs shape = n.outputs[0]->shape;
    const Expr k_extent = a->shape.back();
    const DType left = left_of(a, zero_a);
    Value *a8 = bytes(a, left), *b8 = bytes(b, kI8);
    const Exprs vars = vars_of(shape);
    const Expr k = loop_var(k_extent);
    const Expr &row = vars[vars.size() - 2], &col = vars.back();
    auto at_a = [&](const Exprs& v, const Expr& i, const Expr& j) {
      Exprs at = batch_at(a, v);
      at.insert(at.end(), {i, j});
      return at;
    };
    auto at_b = [&](const Exprs& v, const Expr& i, const Expr& j) {  // i along k
      Exprs at = batch_at(b, v);
      if (trans_b)
        at.insert(at.end(), {j, i});
      else
        at.insert(at.end(), {i, j});
      return at;
    };
    MatMulOp m{vars, k, load(a8, left, at_a(vars, row, k)), load(b8, kI8, at_b(vars, k, col))};
    Value* s = g_.add_node(m, {a8, b8}, {{kI32, shape}})->outputs[0];
    const Exprs v = vars_of(shape);
    const Expr &i = v[v.size() - 2], &j = v.back();
    const Expr za = zero_at(zero_a, a, left, i), zb = zero_at(zero_b, b, kI8, j);
    Expr e = load(s, kI32, v);
    if (!is_const(zb, 0))
      e = binary(Op::kSub, e, times(zb, sum_over(a8, static_cast<std::size_t>(a->rank()) - 1, at_a(v, i, 0))));
    if (!is_const(za, 0)) {
      const std::size_t axis = static_cast<std::size_t>(b->rank()) - (trans_b ? 1 : 2);
      e = binary(Op::kSub, e, times(za, sum_over(b8, axis, at_b(v, 0, j))));
    }
    if (!is_const(za, 0) && !is_const(zb, 0)) e = binary(Op::kAdd, e, times(cast(k_extent, kI32), times(za, zb)));
    return g_.add_loop(v, e);
  }

  // The sum of x over one axis; `at` has the indices of the other axes.
  Expr sum_over(Value* x, std::size_t axis, Exprs at) {
    Exprs shape = x->shape, vars;
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
    vars = vars_of(shape);
    const Expr k = loop_var(x->shape[axis]);
    Exprs inner = vars;
    inner.insert(inner.begin() + static_cast<std::ptrdiff_t>(axis), k);
    Value* sum = g_.add_loop(vars, reduce(ReduceKind::kSum, {k}, cast(load(x, x->dtype, inner), kI32)));
    at.erase(at.begin() + static_cast<std::ptrdiff_t>(axis));
    return load(sum, kI32, at);
  }

  // w: [M, kernel... * C], in that order.
  Value* conv(const Node& n, const RoutineOp& r, Value* w, Value* zero_w) {
    Value *x = n.inputs[0], *zero_x = n.inputs[1];
    const Exprs shape = n.outputs[0]->shape;
    const std::size_t dims = shape.size() - 2;
    if (!is_const(zero_at(zero_w, w, kI8, Expr(0)), 0)) {
      why_ = "the convolution's weights have a zero point";
      return nullptr;
    }
    ConvOp c;
    Exprs begin, kernel, padded = {x->shape[0], x->shape[1]};
    for (std::size_t d = 0; d < dims; ++d) {
      c.strides.push_back(r.params[d]->i);
      c.dilations.push_back(r.params[dims + d]->i);
      begin.push_back(r.params[2 * dims + d]);
      kernel.push_back(r.params[3 * dims + d]);
      padded.push_back(
          idx::max(0, (shape[d + 2] - 1) * Expr(c.strides[d]) + (kernel[d] - 1) * Expr(c.dilations[d]) + 1));
    }
    const DType left = left_of(x, zero_x);
    const Expr zero = zero_at(zero_x, x, left, Expr(0));
    const bool in_place = on_host() || is_const(zero, 0) || !pads(x, begin, padded);
    Value* x8 = in_place ? image(c, x, left, begin, padded, zero) : padded_image(c, x, left, begin, padded, zero);
    if (!x8) return nullptr;
    Exprs w_shape = {w->shape[0], x->shape[1]};
    w_shape.insert(w_shape.end(), kernel.begin(), kernel.end());
    const Exprs u = vars_of(w_shape);
    Expr position = 0;
    for (std::size_t d = 0; d < dims; ++d) position = position * kernel[d] + u[d + 2];
    Value* w8 = g_.add_loop(u, as_byte(load(w, w->dtype, {u[0], position * x->shape[1] + u[1]}), kI8));
    Value* s = g_.add_node(c, {x8, w8}, {{kI32, shape}})->outputs[0];
    if (is_const(zero, 0)) return s;
    const Expr k = loop_var(w->shape[1]), m = loop_var(w->shape[0]);
    Value* sums = g_.add_loop({m}, reduce(ReduceKind::kSum, {k}, cast(as_byte(load(w, w->dtype, {m, k}), kI8), kI32)));
    const Exprs o = vars_of(shape);
    return g_.add_loop(o, binary(Op::kSub, load(s, kI32, o), times(zero, load(sums, kI32, {o[1]}))));
  }

  // The image with its padding materialised: padding has the value of the zero point, not 0.
  Value* padded_image(ConvOp& c, Value* x, DType left, const Exprs& begin, const Exprs& padded, const Expr& zero) {
    Exprs v = vars_of(padded), at = {v[0], v[1]};
    Expr inside = constant_bool(true);
    for (std::size_t d = 0; d < begin.size(); ++d) {
      c.pads_begin.push_back(0);
      c.pads_end.push_back(0);
      at.push_back(v[d + 2] - begin[d]);
      inside = logical_and(inside,
                           logical_and(compare(Op::kGe, at.back(), 0), compare(Op::kLt, at.back(), x->shape[d + 2])));
    }
    return g_.add_loop(v, select(inside, as_byte(load(x, x->dtype, at), left), cast(zero, left)));
  }

  // Whether the windows reach beyond the image.
  static bool pads(const Value* x, const Exprs& begin, const Exprs& padded) {
    bool some = false;
    for (std::size_t d = 0; d < begin.size(); ++d)
      some |= !is_const(begin[d], 0) || !idx::provably_nonnegative(x->shape[d + 2] - padded[d + 2]);
    return some;
  }

  // The image itself, with padding that the convolution adds: 0 on GPUs.
  Value* image(ConvOp& c, Value* x, DType left, const Exprs& begin, const Exprs& padded, const Expr& zero) {
    const bool some = pads(x, begin, padded);
    for (std::size_t d = 0; d < begin.size(); ++d) {
      c.pads_begin.push_back(begin[d]);
      c.pads_end.push_back(padded[d + 2] - begin[d] - x->shape[d + 2]);
    }
    if (some && !is_const(zero)) {
      why_ = "the convolution pads with a zero point that is known only at run time";
      return nullptr;
    }
    if (some) c.padding = zero->i;
    return bytes(x, left);
  }

  Graph& g_;
  const FuseOptions& options_;
  const DType left_;
  std::map<std::pair<const Value*, DType>, Value*> bytes_;  // what bytes() made
  std::string why_;                                         // a convolution stays a routine
};

}  // namespace

void lower_integer_gemm(Graph& g, const FuseOptions& options) { Lowering(g, options).run(); }

}  // namespace sardonyx
