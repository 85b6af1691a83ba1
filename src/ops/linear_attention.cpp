// LinearAttention: a recurrence over the sequence with a matrix per head as its state. One token is computed in place;
// more are a loop.
#include "ops/control_flow.h"
#include "ops/element_math.h"
#include "ops/families.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

constexpr DType kF32 = DType::kFloat32;

struct Inputs {
  Value *q, *k, *v, *decay, *beta;
  std::int64_t heads, kv_heads;
  Expr dk, dv;       // features of keys and values
  bool per_feature;  // decay has one number per key feature instead of one per head
  Expr scale;
};

// One step: the state [B, Hk, dk, dv] (fp32) after token t, and its output [B, H, dv].
std::pair<Value*, Value*> step(Graph& g, const Inputs& in, Value* state, const Expr& t) {
  const Expr batch = state->shape[0], group = in.heads / in.kv_heads;
  auto key = [&](const Expr& b, const Expr& h, const Expr& d) {
    return cast(tensor::at(in.k, {b, t, h * in.dk + d}), kF32);
  };
  auto value = [&](const Expr& b, const Expr& h, const Expr& m) {
    return cast(tensor::at(in.v, {b, t, h * in.dv + m}), kF32);
  };
  Value* decayed = state;
  if (in.decay)
    decayed = tensor::generate(g, state->shape, [&](const Exprs& i) {
      const Expr at = in.per_feature ? i[1] * in.dk + i[2] : i[1];
      return el::mul(tensor::at(state, i), el::exp(cast(tensor::at(in.decay, {i[0], t, at}), kF32)));
    });
  // What is written for the key: the value or, with a delta rule, its difference from what the state returns for the
  // key.
  Value* written = tensor::generate(g, {batch, in.kv_heads, in.dv}, [&](const Exprs& i) {
    const Expr v = value(i[0], i[1], i[2]);
    if (!in.beta) return v;
    const Expr d = loop_var(in.dk);
    const Expr held =
        reduce(ReduceKind::kSum, {d}, el::mul(tensor::at(decayed, {i[0], i[1], d, i[2]}), key(i[0], i[1], d)));
    const Expr rate = cast(tensor::at(in.beta, {i[0], t, is_const(in.beta->shape[2], 1) ? Expr(0) : i[1]}), kF32);
    return el::mul(rate, el::sub(v, held));
  });
  Value* next = tensor::generate(g, state->shape, [&](const Exprs& i) {
    return el::add(tensor::at(decayed, i), el::mul(key(i[0], i[1], i[2]), tensor::at(written, {i[0], i[1], i[3]})));
  });
  Value* out = tensor::generate(g, {batch, in.heads, in.dv}, [&](const Exprs& i) {
    const Expr d = loop_var(in.dk);
    const Expr q = cast(tensor::at(in.q, {i[0], t, i[1] * in.dk + d}), kF32);
    return el::mul(in.scale, reduce(ReduceKind::kSum, {d},
                                    el::mul(q, tensor::at(next, {i[0], idx::floordiv(i[1], group), d, i[2]}))));
  });
  return {next, out};
}

// Inputs: query, key, value, past_state, decay, beta. Outputs: output, present_state.
void linear_attention_op(OpContext& c) {
  Graph& g = c.graph();
  Inputs in{c.in(0), c.in(1), c.in(2), c.opt(4), c.opt(5), c.attr("q_num_heads", 0), c.attr("kv_num_heads", 0),
            {},      {},      false,   {}};
  const std::string rule = c.attr_s("update_rule", "gated_delta");
  c.require(rule == "linear" || rule == "gated" || rule == "delta" || rule == "gated_delta", "update_rule is '{}'",
            rule);
  const bool gated = rule == "gated" || rule == "gated_delta", delta = rule == "delta" || rule == "gated_delta";
  c.require(gated == (in.decay != nullptr), "update_rule '{}' {} decay", rule, gated ? "needs" : "takes no");
  c.require(delta == (in.beta != nullptr), "update_rule '{}' {} beta", rule, delta ? "needs" : "takes no");
  c.require(in.heads > 0 && in.kv_heads > 0 && in.heads % in.kv_heads == 0, "q_num_heads is {} and kv_num_heads {}",
            in.heads, in.kv_heads);
  for (const Value* v : {in.q, in.k, in.v, in.decay, in.beta})
    c.require(!v || v->rank() == 3, "an input of rank {}, not 3", v ? v->rank() : 0);
  const Expr batch = in.q->shape[0], steps = in.q->shape[1];
  in.dk = idx::floordiv(in.q->shape[2], in.heads);
  in.dv = idx::floordiv(in.v->shape[2], in.kv_heads);
  for (const Value* v : {in.k, in.v, in.decay, in.beta})
    if (v)
      g.add_check(logical_and(compare(Op::kEq, v->shape[0], batch), compare(Op::kEq, v->shape[1], steps)),
                  "inputs differ in batch or length");
  g.add_check(logical_and(compare(Op::kEq, in.dk * Expr(in.heads), in.q->shape[2]),
                          compare(Op::kEq, in.dk * Expr(in.kv_heads), in.k->shape[2])),
              "query and key features don't fit the heads");
  g.add_check(compare(Op::kEq, in.dv * Expr(in.kv_heads), in.v->shape[2]), "value features don't fit the heads");
  if (in.decay) {
    in.per_feature = !is_const(in.decay->shape[2], in.kv_heads);
    if (in.per_feature)
      g.add_check(compare(Op::kEq, in.decay->shape[2], in.dk * Expr(in.kv_heads)),
                  "decay's features don't fit the heads");
  }
  if (in.beta && !is_const(in.beta->shape[2], 1))
    g.add_check(compare(Op::kEq, in.beta->shape[2], in.kv_heads), "beta's features don't fit the heads");
  const float scale = c.attr_f("scale", 0);
  in.scale = scale != 0 ? constant(scale, kF32) : el::div(constant(1, kF32), el::sqrt(cast(in.dk, kF32)));

  const Exprs state_shape = {batch, in.kv_heads, in.dk, in.dv};
  Value* state;
  DType state_type = in.q->dtype;
  if (Value* past = c.opt(3)) {
    c.require(past->rank() == 4, "a past state of rank {}", past->rank());
    for (std::size_t d = 0; d < 4; ++d)
      g.add_check(compare(Op::kEq, past->shape[d], state_shape[d]), "the past state's shape doesn't fit");
    state_type = past->dtype;
    state = tensor::generate(g, state_shape, [&](const Exprs& i) { return cast(tensor::at(past, i), kF32); });
  } else {
    state = tensor::generate(g, state_shape, [](const Exprs&) { return constant(0, kF32); });
  }
  Value* out;  // [T, B, H, dv]
  if (is_const(steps, 1)) {
    const auto [next, y] = step(g, in, state, 0);
    state = next;
    out = tensor::unsqueeze(g, y, {0});
  } else {
    const LoopResult r =
        add_while(c, {state}, steps, Expr(), [&](Graph& body, const Expr& t, const std::vector<Value*>& carried) {
          const auto [next, y] = step(body, in, carried[0], t);
          return LoopBody{{next}, {y}, nullptr};
        });
    state = r.carried[0];
    out = r.stacked[0];
  }
  Value* y = tensor::generate(g, {batch, steps, in.heads, in.dv}, [&](const Exprs& i) {
    return cast(tensor::at(out, {i[1], i[0], i[2], i[3]}), in.q->dtype);
  });
  c.out(0, tensor::reshape(g, y, {batch, steps, in.dv * Expr(in.heads)}));
  c.out(1, tensor::cast(g, state, state_type));
}

}  // namespace

void register_linear_attention(OpRegistry& r) {
  r.add({.name = "LinearAttention",
         .min_opset = 27,
         .lower = linear_attention_op,
         .dtypes = "floats",
         .notes = "the state is fp32; tokens are computed one after the other"});
}

}  // namespace sardonyx
