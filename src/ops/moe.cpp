// com.microsoft MoE and QMoE: a layer of experts (small feed-forward networks); a router chooses a few of them for each
// token. com.sardonyx GroupedMatMul: one of their projections, of rows that are sorted by expert, as PyTorch has it.
//
// Tokens are grouped by expert (routine `group`), so that each block of rows is a GEMM with the weights of one expert.
// Only experts that some token has chosen are read, and tokens share a reading of their weights.
#include <cmath>

#include "ops/contrib.h"
#include "ops/element_math.h"
#include "ops/families.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kMostExperts = 1024;  // of the routine `group` on GPUs
constexpr double kJitter = 0.01;             // of the sparse mixer, as its models are trained

// Weights [E, N, K] of one projection, with what it adds; or [E, K, N].
struct Projection {
  Value *weights = nullptr, *bias = nullptr;  // null for none
  bool k_first = false;

  explicit operator bool() const { return weights != nullptr; }
  Expr outputs() const { return weights->shape[k_first ? 2 : 1]; }
  Expr inputs() const { return weights->shape[k_first ? 1 : 2]; }
  Expr at(const Expr& expert, const Expr& n, const Expr& k) const {
    return tensor::at(weights, k_first ? Exprs{expert, k, n} : Exprs{expert, n, k});
  }
};

// The experts of each token, and the weights of their results.
struct Routing {
  Value* experts;  // [T, k] int64
  Value* shares;   // [T, k], float32
};

// Rows of tokens by expert, in blocks of one expert each.
struct Groups {
  Value *positions, *sources, *owners;  // see routines/scatter.cpp
  Expr rows, blocks;                    // of a block; how many

  Expr owner(const Expr& z) const { return tensor::at(owners, {z}); }
};

Routing route(OpContext& c, Value* logits, Value* mix, std::int64_t k) {
  Graph& g = c.graph();
  const Expr tokens = logits->shape[0], experts = logits->shape[1];
  const auto top = tensor::routine(g, "topk", {tensor::reshape(g, logits, {tokens, experts, 1})}, {1, 1}, {},
                                   {{logits->dtype, {tokens, k, 1}}, {DType::kInt64, {tokens, k, 1}}});
  Value* values = tensor::reshape(g, top[0], {tokens, k});
  Routing r;
  r.experts = tensor::reshape(g, top[1], {tokens, k});
  const DType f = DType::kFloat32;
  const bool normalize = c.attr("normalize_routing_weights", 0) != 0;
  const auto value = [&](const Expr& t, const Expr& j) { return cast(tensor::at(values, {t, j}), f); };
  const auto logit = [&](const Expr& t, const Expr& e) { return cast(tensor::at(logits, {t, e}), f); };
  if (c.attr("use_sparse_mixer", 0) != 0) {
    // SparseMixer-v2 (Phi-3.5-MoE): each of two experts is weighted by a softmax over the experts that are nearly as
    // good; for the second expert without the first.
    c.require(k == 2, "a sparse mixer of {} experts a token", k);
    c.require(!mix, "a sparse mixer with router_weights");
    r.shares = tensor::generate(g, {tokens, k}, [&](const Exprs& i) {
      const Expr e = loop_var(experts), x = logit(i[0], e), best = value(i[0], i[1]);
      const Expr distance = el::div(el::sub(best, x), el::max(el::abs(x), best));
      const Expr first = logical_and(compare(Op::kGt, i[1], 0), compare(Op::kEq, e, tensor::at(r.experts, {i[0], 0})));
      const Expr out = logical_or(first, compare(Op::kGt, distance, constant(2 * kJitter, f)));
      return el::div(constant(1, f),
                     sardonyx::reduce(ReduceKind::kSum, {e}, select(out, constant(0, f), el::exp(el::sub(x, best)))));
    });
    return r;
  }
  // The largest logit, so that no exponential overflows.
  Value* numerators = tensor::generate(g, {tokens, k}, [&](const Exprs& i) {
    if (mix) return cast(tensor::at(mix, {i[0], tensor::at(r.experts, i)}), f);
    return el::exp(el::sub(value(i[0], i[1]), value(i[0], 0)));
  });
  if (mix && !normalize) {
    r.shares = numerators;
    return r;
  }
  Value* sums = tensor::generate(g, {tokens}, [&](const Exprs& i) {
    const Expr j = loop_var(normalize ? Expr(k) : experts);
    const Expr x = normalize ? tensor::at(numerators, {i[0], j}) : el::exp(el::sub(logit(i[0], j), value(i[0], 0)));
    return sardonyx::reduce(ReduceKind::kSum, {j}, x);
  });
  r.shares = tensor::generate(
      g, {tokens, k}, [&](const Exprs& i) { return el::div(tensor::at(numerators, i), tensor::at(sums, {i[0]})); });
  return r;
}

// With few tokens, each of their experts has a block of its own; with more, blocks have as many rows as tiles prefer.
Groups group(Graph& g, Value* experts, const Expr& count) {
  const Expr n = experts->elements();
  Groups r;
  r.rows = idx::max(1, idx::min(idx::floordiv(n, count * Expr(4)), Expr(8)) * Expr(16));
  r.blocks = idx::min(n, idx::floordiv(n, r.rows) + count);
  const auto out =
      tensor::routine(g, "group", {tensor::reshape(g, experts, {n})}, {count, r.rows}, {},
                      {{DType::kInt64, {n}}, {DType::kInt64, {r.blocks, r.rows}}, {DType::kInt64, {r.blocks}}});
  r.positions = out[0];
  r.sources = out[1];
  r.owners = out[2];
  return r;
}

// y[z, row, n] = sum over k of x[row of the block, k] * the weight of the owner of the block for n and k
Value* product(Graph& g, const Groups& groups, const Projection& p, DType out,
               const std::function<Expr(const Expr& z, const Expr& row, const Expr& k)>& x) {
  const Exprs shape = {groups.blocks, groups.rows, p.outputs()};
  const Exprs vars = tensor::loop_vars(shape);
  const Expr k = loop_var(p.inputs());
  const Expr a = x(vars[0], vars[1], k), b = p.at(groups.owner(vars[0]), vars[2], k);
  std::vector<Value*> inputs = loads_of(a);
  for (Value* v : loads_of(b))
    if (std::find(inputs.begin(), inputs.end(), v) == inputs.end()) inputs.push_back(v);
  return g.add_node(MatMulOp{vars, k, a, b}, inputs, {{out, shape}})->outputs[0];
}

struct Experts {
  Projection up, down, gate;  // fc1, fc2, fc3
};

Expr activation(OpContext& c, const std::string& name, const Expr& x) {
  if (name == "relu") return el::max(x, 0);
  if (name == "gelu") return contrib::fast_gelu(x);  // by tanh, as the CPU provider
  if (name == "silu") return el::silu(x);
  if (name == "identity") return x;
  c.invalid("the activation {}", name);
}

void run_experts(OpContext& c, const Experts& e, Value* mix) {
  Graph& g = c.graph();
  Value *x = c.in(0), *logits = c.in(1);
  const std::string name = c.attr_s("activation_type", "relu");
  const bool swiglu = name == "swiglu";
  const std::int64_t fusion = swiglu ? c.attr("swiglu_fusion", 0) : 0, k = c.attr("k", 1);
  c.require(fusion >= 0 && fusion <= 2, "swiglu_fusion is {}", fusion);
  c.require(fusion == 0 || !e.gate, "fc3 beside a fused swiglu");
  c.require(!swiglu || fusion != 0 || e.gate, "swiglu that is not fused without fc3");
  c.require(x->rank() == 2 || x->rank() == 3, "an input of rank {}", x->rank());
  c.require(logits->rank() == 2, "router_probs of rank {}", logits->rank());
  const Expr hidden = x->shape.back(), count = e.up.weights->shape[0], inter = e.down.weights->shape[2];
  const Expr tokens = idx::product(Exprs(x->shape.begin(), x->shape.end() - 1));
  std::int64_t experts = 0;
  if (!is_const_int(count, experts) || experts < 1 || experts > kMostExperts)
    c.refuse("{} experts; there may be up to {}", to_string(count), kMostExperts);
  c.require(k >= 1 && k <= experts, "{} of {} experts for a token", k, experts);
  g.add_check(compare(Op::kEq, logits->shape[0], tokens), "router_probs has not one row for each token");
  g.add_check(compare(Op::kEq, logits->shape[1], count), "router_probs doesn't fit the number of experts");
  if (mix) {
    c.require(mix->rank() == 2, "router_weights of rank {}", mix->rank());
    g.add_check(compare(Op::kEq, mix->shape[0], tokens), "router_weights has not one row for each token");
    g.add_check(compare(Op::kEq, mix->shape[1], count), "router_weights doesn't fit the number of experts");
  }
  const auto check_projection = [&](const Projection& p, const Expr& n, const Expr& in, const char* what) {
    const Exprs want = {count, n, in};
    for (std::size_t d = 0; d < 3; ++d)
      g.add_check(compare(Op::kEq, p.weights->shape[d], want[d]),
                  fmt::format("{} of shape {} instead of {}", what, to_string(p.weights->shape), to_string(want)));
    if (!p.bias) return;
    c.require(p.bias->rank() == 2, "the bias of {} has rank {}", what, p.bias->rank());
    g.add_check(compare(Op::kEq, p.bias->shape[0], count), fmt::format("the bias of {} doesn't fit the experts", what));
    g.add_check(compare(Op::kEq, p.bias->shape[1], n), fmt::format("the bias of {} doesn't fit its outputs", what));
  };
  check_projection(e.up, fusion ? inter * Expr(2) : inter, hidden, "fc1");
  check_projection(e.down, hidden, inter, "fc2");
  if (e.gate) check_projection(e.gate, inter, hidden, "fc3");

  const DType f = DType::kFloat32, type = x->dtype;
  const Routing routing = route(c, logits, mix, k);
  const Groups groups = group(g, routing.experts, count);
  Value* rows = tensor::reshape(g, x, {tokens, hidden});
  const auto token = [&](const Expr& z, const Expr& row, const Expr& d) {
    // Rows without a token have arbitrary results, which are not used.
    const Expr source = idx::max(0, tensor::at(groups.sources, {z, row}));
    return tensor::at(rows, {idx::floordiv(source, k), d});
  };
  const auto biased = [&](const Projection& p, Value* y, const Exprs& i) {
    const Expr e0 = cast(tensor::at(y, i), f);
    return p.bias ? el::add(e0, cast(tensor::at(p.bias, {groups.owner(i[0]), i[2]}), f)) : e0;
  };
  Value* first = product(g, groups, e.up, type, token);
  Value* third = e.gate ? product(g, groups, e.gate, type, token) : nullptr;
  Value* inner = tensor::generate(g, {groups.blocks, groups.rows, inter}, [&](const Exprs& i) {
    Expr gate, linear;
    if (fusion) {
      const Expr at = fusion == 1 ? i[2] * Expr(2) : i[2], other = fusion == 1 ? at + 1 : at + inter;
      gate = biased(e.up, first, {i[0], i[1], at});
      linear = biased(e.up, first, {i[0], i[1], other});
    } else {
      gate = biased(e.up, first, i);
      if (third) linear = biased(e.gate, third, i);
    }
    if (!swiglu) {
      gate = activation(c, name, gate);
      return cast(linear ? el::mul(gate, linear) : gate, type);
    }
    if (c.has_attr("swiglu_limit")) {
      const double limit = c.attr_f("swiglu_limit", 0);
      gate = el::min(gate, limit);
      linear = el::clamp(linear, -limit, limit);
    }
    const Expr swish = el::mul(gate, el::sigmoid(el::mul(gate, c.attr_f("activation_alpha", 1))));
    return cast(el::mul(swish, el::add(linear, c.attr_f("activation_beta", 0))), type);
  });
  Value* second = product(g, groups, e.down, type, [&](const Expr& z, const Expr& row, const Expr& d) {
    return tensor::at(inner, {z, row, d});
  });
  Value* flat = tensor::reshape(g, second, {groups.blocks * groups.rows, hidden});
  Value* y = tensor::generate(g, {tokens, hidden}, [&](const Exprs& i) {
    const Expr j = loop_var(k);
    Expr v = cast(tensor::at(flat, {tensor::at(groups.positions, {i[0] * Expr(k) + j}), i[1]}), f);
    if (e.down.bias) v = el::add(v, cast(tensor::at(e.down.bias, {tensor::at(routing.experts, {i[0], j}), i[1]}), f));
    return cast(sardonyx::reduce(ReduceKind::kSum, {j}, el::mul(tensor::at(routing.shares, {i[0], j}), v)), type);
  });
  c.out(0, tensor::reshape(g, y, x->shape));
}

// Inputs: input, router_probs, then weights and bias of fc1, fc2, fc3.
void moe(OpContext& c) {
  const auto projection = [&](int at) { return Projection{c.opt(at), c.opt(at + 1)}; };
  const Experts e{projection(2), projection(4), projection(6)};
  c.require(e.up && e.down, "fc1 or fc2 has no weights");
  for (const Projection* p : {&e.up, &e.down, &e.gate})
    c.require(!*p || p->weights->rank() == 3, "weights of rank {}", *p ? p->weights->rank() : 0);
  run_experts(c, e, nullptr);
}

// Weights that are (q - zero) * scale, with a scale and a zero for each row of an expert or for each block of a row.
Value* dequantized(OpContext& c, Value* q, Value* scales, Value* zeros, std::int64_t bits, DType type) {
  Graph& g = c.graph();
  c.require(q->dtype == DType::kUInt8 && q->rank() == 3, "weights of {} and rank {}", name(q->dtype), q->rank());
  c.require(scales && is_float(scales->dtype), "weights without scales");
  c.require(bits == 2 || bits == 4 || bits == 8, "weights of {} bits", bits);
  const std::int64_t block = c.attr("block_size", 0);
  c.require(block == 0 || (block >= 16 && (block & (block - 1)) == 0 && block < (std::int64_t{1} << 40)),
            "blocks of {}", block);
  const Exprs shape = {q->shape[0], q->shape[1], q->shape[2] * Expr(8 / bits)};
  const Expr blocks = block ? idx::ceildiv(shape[2], block) : Expr(1);
  const auto shaped = [&](Value* v, const Exprs& want, const char* what) {
    g.add_check(compare(Op::kEq, v->elements(), idx::product(want)),
                fmt::format("{} of shape {} instead of {}", what, to_string(v->shape), to_string(want)));
    return tensor::reshape(g, v, want);
  };
  scales = shaped(scales, {shape[0], shape[1], blocks}, "scales");
  if (zeros) {  // rows of whole bytes
    c.require(zeros->dtype == DType::kUInt8, "zero points of {}", name(zeros->dtype));
    zeros = block ? shaped(zeros, {shape[0], shape[1], idx::ceildiv(blocks * Expr(bits), 8)}, "zero points")
                  : shaped(zeros, {shape[0], idx::ceildiv(shape[1] * Expr(bits), 8)}, "zero points");
  }
  const DType f = DType::kFloat32;
  return tensor::generate(g, shape, [&](const Exprs& i) {
    const Expr own = block ? idx::floordiv(i[2], block) : Expr(0);
    const Expr value = cast(contrib::unpack(q, {i[0], i[1], 0}, i[2], bits), f);
    Expr zero = constant(static_cast<double>(1 << (bits - 1)), f);
    if (zeros)
      zero = cast(
          block ? contrib::unpack(zeros, {i[0], i[1], 0}, own, bits) : contrib::unpack(zeros, {i[0], 0}, i[1], bits),
          f);
    return cast(el::mul(el::sub(value, zero), cast(tensor::at(scales, {i[0], i[1], own}), f)), type);
  });
}

// Inputs: input, router_probs, then weights, scales and bias of fc1, fc2, fc3, their zero points, router_weights.
void qmoe(OpContext& c) {
  if (const std::string type = c.attr_s("quant_type", "int"); type != "int")
    c.refuse("weights of quant_type {}; use int", type);
  if (c.attr("weights_prepacked", -1) == 1) c.refuse("weights prepacked for another device");
  for (int k = 15; k < c.input_count(); ++k)
    if (c.has(k)) c.refuse("global and activation scales, which integer weights don't have");
  const std::int64_t bits = c.attr("expert_weight_bits", 4);
  const auto projection = [&](int number) {
    const int at = 2 + 3 * (number - 1);
    Projection p;
    if (!c.has(at)) return p;
    p.weights = dequantized(c, c.in(at), c.opt(at + 1), c.opt(10 + number),
                            c.attr(fmt::format("fc{}_expert_weight_bits", number), bits), c.in(0)->dtype);
    p.bias = c.opt(at + 2);
    return p;
  };
  const Experts e{projection(1), projection(2), projection(3)};
  c.require(e.up && e.down, "fc1 or fc2 has no weights");
  run_experts(c, e, c.opt(14));
}

// Inputs: rows [S, K], sorted by expert; weights [E, K, N]; ends [E], integers that do not decrease: expert e has the
// rows from ends[e - 1] (0 for the first) to before ends[e]. Output [S, N]; rows after the last end are 0.
void grouped_matmul(OpContext& c) {
  Graph& g = c.graph();
  Value *x = c.in(0), *ends = c.in(2);
  const Projection p{c.in(1), nullptr, true};
  c.require(x->rank() == 2, "rows of rank {}", x->rank());
  c.require(p.weights->rank() == 3, "weights of rank {}", p.weights->rank());
  c.require(ends->rank() == 1, "ends of rank {}", ends->rank());
  c.require(is_integer(ends->dtype), "ends of {}", name(ends->dtype));
  c.require(p.weights->dtype == x->dtype, "rows of {} and weights of {}", name(x->dtype), name(p.weights->dtype));
  const Expr rows = x->shape[0], count = p.weights->shape[0];
  std::int64_t experts = 0;
  if (!is_const_int(count, experts) || experts < 1 || experts > kMostExperts)
    c.refuse("{} experts; there may be up to {}", to_string(count), kMostExperts);
  g.add_check(compare(Op::kEq, ends->shape[0], count), "there is not one end for each expert's weights");
  g.add_check(compare(Op::kEq, x->shape[1], p.inputs()), "the rows' length doesn't fit the weights");

  const auto is_before = [&](const Expr& row, const Expr& expert) {
    return compare(Op::kLt, row, cast(tensor::at(ends, {expert}), DType::kInt64));
  };
  Value* owners = tensor::generate(g, {rows}, [&](const Exprs& i) {
    const Expr e = loop_var(count);  // the row's expert is the number of those that end before it
    const Expr passed = select(is_before(i[0], e), constant(0, DType::kInt64), constant(1, DType::kInt64));
    return el::min(sardonyx::reduce(ReduceKind::kSum, {e}, passed), experts - 1);
  });
  const Exprs shape = {rows, 1, p.outputs()};
  MatMulOp m;
  m.vars = tensor::loop_vars(shape);
  m.k = loop_var(p.inputs());
  m.owner = tensor::at(owners, {m.vars[0]});
  m.group = loop_var(count);
  m.end = cast(tensor::at(ends, {m.group}), DType::kInt64);
  m.a = tensor::at(x, {m.vars[0], m.k});
  m.b = p.at(m.owner, m.vars[2], m.k);
  std::vector<Value*> inputs = {x, p.weights, owners};
  if (std::find(inputs.begin(), inputs.end(), ends) == inputs.end()) inputs.push_back(ends);
  Value* y = g.add_node(std::move(m), inputs, {{x->dtype, shape}})->outputs[0];
  Value* known = tensor::generate(g, shape, [&](const Exprs& i) {
    return select(is_before(i[0], experts - 1), tensor::at(y, i), constant(0, x->dtype));
  });
  c.out(0, tensor::reshape(g, known, {rows, p.outputs()}));
}

}  // namespace

void register_moe(OpRegistry& r) {
  r.add(
      {.name = "GroupedMatMul",
       .domain = "com.sardonyx",
       .lower = grouped_matmul,
       .dtypes = "floats",
       .notes = "rows [S, K] sorted by expert, weights [E, K, N], ends [E] of the experts' rows; up to 1024 experts"});
  r.add({.name = "MoE", .domain = "com.microsoft", .lower = moe, .dtypes = "floats", .notes = "up to 1024 experts"});
  r.add({.name = "QMoE",
         .domain = "com.microsoft",
         .lower = qmoe,
         .dtypes = "floats; weights of 2, 4 or 8 bits",
         .notes = "up to 1024 experts; integer weights, not prepacked for another device"});
}

}  // namespace sardonyx
