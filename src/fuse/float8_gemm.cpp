// See float8_gemm.h.
#include "fuse/float8_gemm.h"

#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr DType kF32 = DType::kFloat32;

// The result of DequantizeLinear on 8-bit floats: the number in float32, times a scale.
struct Scaled {
  Value* q = nullptr;
  Exprs vars;
  Expr scale;  // over vars
};

std::optional<Scaled> scaled(const Value* x, DType type) {
  if (x->dtype != kF32 || !x->producer) return {};
  const auto* loop = x->producer->as<LoopOp>();
  if (!loop || loop->body->op != Op::kMul) return {};
  Expr q = loop->body->args[0], scale = loop->body->args[1];
  const auto is_number = [&](const Expr& e) { return e->op == Op::kCast && e->args[0]->dtype == type; };
  if (!is_number(q)) std::swap(q, scale);
  if (!is_number(q) || q->args[0]->op != Op::kLoad) return {};
  q = q->args[0];
  for (std::size_t k = 0; k < loop->vars.size(); ++k)
    if (!same(q->args[k], loop->vars[k]) && !(is_const(q->args[k], 0) && is_const(loop->vars[k]->args[0], 1)))
      return {};
  return Scaled{const_cast<Value*>(q->value), loop->vars, scale};
}

// Whether e depends on no variable except `var` (empty: on none).
bool only_over(const Expr& e, const Expr& var) {
  bool ok = true;
  visit(e, [&](const Expr& x) {
    if (x->op == Op::kVar) ok = ok && var && same(x, var);
  });
  return ok;
}

Expr at(const Expr& e, const Exprs& vars, const Exprs& index) {
  std::vector<std::pair<Expr, Expr>> r;
  for (std::size_t k = 0; k < vars.size(); ++k) r.emplace_back(vars[k], index[k]);
  return substitute(e, r);
}

class Lowering {
 public:
  Lowering(Graph& g, const FuseOptions& options) : g_(g), options_(options), type_(options.float8_tiles) {}

  void run() {
    const std::size_t count = g_.nodes.size();
    for (std::size_t k = 0; k < count; ++k) {
      Node& n = *g_.nodes[k];
      g_.origin = n.origin;
      if (const auto* m = n.as<MatMulOp>())
        matmul(n, *m);
      else if (const auto* c = n.as<ConvOp>())
        conv(n, *c);
    }
    g_.origin.clear();
    sort_nodes(g_);
    remove_dead_nodes(g_);
  }

 private:
  void reject(const Node& n, const char* why) const {
    remark(options_, "float8_gemm", n.origin, [&] { return fmt::format("multiplied in float32: {}", why); });
  }

  // Replaces the node's output by `e` over `vars`, which reads the GEMM of 8-bit floats.
  void replace(Node& n, const Exprs& vars, const Expr& e) {
    n.op = LoopOp{vars, e};
    refresh_inputs(n);
  }

  void matmul(Node& n, const MatMulOp& m) {
    if (m.a->op != Op::kLoad || m.b->op != Op::kLoad || n.outputs[0]->dtype != kF32) return;
    const auto a = scaled(m.a->value, type_), b = scaled(m.b->value, type_);
    if (!a || !b) return;
    if (!only_over(a->scale, {})) return reject(n, "the left operand has more than one scale");
    const Expr scale = at(b->scale, b->vars, m.b->args);
    if (!only_over(scale, m.vars.back())) return reject(n, "the right operand has more than one scale per column");
    const MatMulOp product{m.vars, m.k, load(a->q, type_, m.a->args), load(b->q, type_, m.b->args)};
    Value* y = g_.add_node(product, {a->q, b->q}, {{kF32, n.outputs[0]->shape}})->outputs[0];
    const Exprs v = vars_of(y->shape);
    const Expr column = substitute(scale, {{m.vars.back(), v.back()}});
    replace(n, v, binary(Op::kMul, load(y, kF32, v), binary(Op::kMul, a->scale, column)));
  }

  void conv(Node& n, const ConvOp& c) {
    if (n.outputs[0]->dtype != kF32 || c.transposed) return;
    const auto x = scaled(n.inputs[0], type_), w = scaled(n.inputs[1], type_);
    if (!x || !w) return;
    if (!only_over(x->scale, {})) return reject(n, "the image has more than one scale");
    if (!only_over(w->scale, w->vars[0])) return reject(n, "the weights have more than one scale per output channel");
    ConvOp product = c;
    product.has_bias = false;
    Value* bias = c.has_bias ? n.inputs[2] : nullptr;
    Value* y = g_.add_node(product, {x->q, w->q}, {{kF32, n.outputs[0]->shape}})->outputs[0];
    const Exprs v = vars_of(y->shape);
    const Expr channel = substitute(w->scale, {{w->vars[0], v[1]}});
    Expr e = binary(Op::kMul, load(y, kF32, v), binary(Op::kMul, x->scale, channel));
    if (bias) e = binary(Op::kAdd, e, cast(load(bias, bias->dtype, {v[1]}), kF32));
    replace(n, v, e);
  }

  Graph& g_;
  const FuseOptions& options_;
  DType type_;
};

}  // namespace

void lower_float8_gemm(Graph& g, const FuseOptions& options) { Lowering(g, options).run(); }

}  // namespace sardonyx
