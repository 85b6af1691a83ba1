// Attention (opset 23 on) and RotaryEmbedding.
#include "ops/attention.h"

#include <cmath>

#include "ops/element_math.h"
#include "ops/families.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

using tensor::accumulator;

// Softmax over the last dim of z. Rows of minus infinity only give zeros; a sink adds to the sum.
Value* masked_softmax(Graph& g, Value* z, const std::function<Expr(const Exprs&)>& sink, DType out) {
  const std::size_t last = z->shape.size() - 1;
  auto row = [&](Exprs i) {
    i[last] = 0;
    return i;
  };
  Exprs shape = z->shape;
  shape[last] = 1;
  Value* top = tensor::generate(g, shape, [&](const Exprs& i) {
    Exprs j = i;
    j[last] = loop_var(z->shape[last]);
    const Expr m = reduce(ReduceKind::kMax, {j[last]}, tensor::at(z, j));
    // Finite, so that minus infinity minus it is minus infinity, not NaN.
    return sink ? el::max(m, sink(i)) : el::max(m, std::numeric_limits<float>::lowest());
  });
  Value* sum = tensor::generate(g, shape, [&](const Exprs& i) {
    Exprs j = i;
    j[last] = loop_var(z->shape[last]);
    const Expr s = reduce(ReduceKind::kSum, {j[last]}, el::exp(el::sub(tensor::at(z, j), tensor::at(top, i))));
    // The largest element contributes 1, so the sum is smaller only if the row is empty.
    return sink ? el::add(s, el::exp(el::sub(sink(i), tensor::at(top, i)))) : el::max(s, 1);
  });
  return tensor::generate(g, z->shape, [&](const Exprs& i) {
    return cast(el::div(el::exp(el::sub(tensor::at(z, i), tensor::at(top, row(i)))), tensor::at(sum, row(i))), out);
  });
}

// The additive or boolean mask input as terms of a score. `pad`: keys past the mask's end are not allowed (otherwise a
// last dim of 1 is broadcast).
void add_mask(OpContext& c, AttentionSpec& spec, Value* mask, const Exprs& scores, bool pad) {
  c.require(mask->rank() >= 1 && mask->rank() <= 4, "a mask of rank {}", mask->rank());
  Exprs shape = mask->shape;
  const Expr length = shape.back();
  const bool whole = idx::provably_equal(length, scores[3]) || (!pad && is_const(length, 1));
  if (!whole) {
    if (pad)
      c.graph().add_check(compare(Op::kLe, length, scores[3]), "the mask is longer than the keys");
    else
      c.graph().add_check(compare(Op::kEq, length, scores[3]), "the mask's length differs from the keys'");
    shape.back() = scores[3];
  }
  tensor::check_broadcast(c.graph(), shape, scores);
  const ScoreTerm element = [=](const Expr& b, const Expr& h, const Expr& s, const Expr& t) {
    const Exprs all = {b, h, s, t};
    Exprs i(all.end() - mask->rank(), all.end());
    for (std::size_t d = 0; d < i.size(); ++d) {
      if (is_const(mask->shape[d], 1) && !(pad && d + 1 == i.size())) i[d] = 0;
    }
    return tensor::at(mask, i);
  };
  const bool beyond = !whole && pad;
  if (mask->dtype == DType::kBool) {
    spec.allowed = [=](const Expr& b, const Expr& h, const Expr& s, const Expr& t) {
      const Expr m = element(b, h, s, t);
      return beyond ? select(compare(Op::kLt, t, length), m, constant_bool(false)) : m;
    };
  } else {
    const DType type = spec.type;
    spec.bias = [=](const Expr& b, const Expr& h, const Expr& s, const Expr& t) {
      const Expr m = cast(element(b, h, s, t), type);
      return beyond ? select(compare(Op::kLt, t, length), m, constant(-INFINITY, type)) : m;
    };
  }
  spec.empty_rows = true;
}

void also_allow(AttentionSpec& spec, const ScoreTerm& term) {
  if (!spec.allowed) {
    spec.allowed = term;
    return;
  }
  const ScoreTerm before = spec.allowed;
  spec.allowed = [=](const Expr& b, const Expr& h, const Expr& s, const Expr& t) {
    return logical_and(before(b, h, s, t), term(b, h, s, t));
  };
}

// Inputs: Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen. Outputs: Y, present_key, present_value,
// qk_matmul_output.
void attention_op(OpContext& c) {
  Graph& g = c.graph();
  AttentionSpec spec;
  spec.q = c.in(0);
  spec.k = c.in(1);
  spec.v = c.in(2);
  const int rank = spec.q->rank();
  c.require((rank == 3 || rank == 4) && spec.k->rank() == rank && spec.v->rank() == rank,
            "Q, K and V of ranks {}, {} and {}", rank, spec.k->rank(), spec.v->rank());
  const DType out = spec.q->dtype;
  if (rank == 3) {
    const std::int64_t heads = c.attr("q_num_heads", 0), kv_heads = c.attr("kv_num_heads", 0);
    c.require(heads > 0 && kv_heads > 0, "q_num_heads is {} and kv_num_heads {}; inputs of rank 3 need both", heads,
              kv_heads);
    spec.q = split_heads(g, spec.q, heads);
    spec.k = split_heads(g, spec.k, kv_heads);
    spec.v = split_heads(g, spec.v, kv_heads);
  }
  Value *past_key = c.opt(4), *past_value = c.opt(5), *lengths = c.opt(6);
  c.require(!past_key == !past_value, "past_key and past_value are needed together");
  c.require(!lengths || !past_key, "nonpad_kv_seqlen can't be combined with past_key");
  if (past_key) {
    c.require(past_key->rank() == 4 && past_value->rank() == 4, "past_key and past_value of ranks {} and {}",
              past_key->rank(), past_value->rank());
    spec.k = tensor::concat(g, {past_key, spec.k}, 2);
    spec.v = tensor::concat(g, {past_value, spec.v}, 2);
  }
  c.out(1, spec.k);
  c.out(2, spec.v);
  spec.type = accumulator(out);
  if (c.attr("softmax_precision", 0) == to_onnx(DType::kFloat64)) spec.type = DType::kFloat64;
  if (const float scale = c.attr_f("scale", 0); c.has_attr("scale")) spec.scale = constant(scale, spec.type);
  spec.softcap = c.attr_f("softcap", 0);

  const Expr queries = spec.q->shape[2], keys = spec.k->shape[2];
  if (c.has(3)) add_mask(c, spec, c.in(3), {spec.q->shape[0], spec.q->shape[1], queries, keys}, c.opset() >= 24);
  if (lengths) {
    c.require(lengths->rank() == 1, "nonpad_kv_seqlen of rank {}", lengths->rank());
    g.add_check(compare(Op::kEq, lengths->shape[0], spec.q->shape[0]), "nonpad_kv_seqlen doesn't fit the batch");
    also_allow(spec, [=](const Expr& b, const Expr&, const Expr&, const Expr& t) {
      return el::lt(t, cast(tensor::at(lengths, {b}), DType::kInt64));
    });
    spec.empty_rows = true;
  }
  // The absolute position of query s: keys before this block, plus s.
  auto position = [=](const Expr& b, const Expr& s) {
    if (past_key) return past_key->shape[2] + s;
    return lengths ? cast(tensor::at(lengths, {b}), DType::kInt64) - queries + s : s;
  };
  if (c.attr("is_causal", 0) != 0)
    also_allow(spec, [=](const Expr& b, const Expr&, const Expr& s, const Expr& t) {
      return compare(Op::kLe, t, position(b, s));
    });
  const std::int64_t left = c.attr("left_window_size", -1), right = c.attr("right_window_size", -1);
  c.require(left >= -1 && right >= -1, "window sizes of {} and {}", left, right);
  spec.empty_rows |= left >= 0 || right >= 0;
  if (left >= 0)
    also_allow(spec, [=](const Expr& b, const Expr&, const Expr& s, const Expr& t) {
      return compare(Op::kGe, t, position(b, s) - left);
    });
  if (right >= 0)
    also_allow(spec, [=](const Expr& b, const Expr&, const Expr& s, const Expr& t) {
      return compare(Op::kLe, t, position(b, s) + right);
    });

  const AttentionResult r = attention(g, spec);
  c.out(0, tensor::cast(g, rank == 3 ? merge_heads(g, r.y) : r.y, out));
  if (!c.wants(3)) return;
  const std::int64_t mode = c.attr("qk_matmul_output_mode", 0);
  c.require(mode >= 0 && mode <= 3, "qk_matmul_output_mode is {}", mode);
  Value* const stages[] = {r.scores, r.capped, r.masked, r.probabilities};
  c.out(3, tensor::cast(g, stages[mode], out));
}

// Attention whose scores and probabilities are modified by graphs of the model.
void flex_attention_op(OpContext& c) {
  Graph& g = c.graph();
  AttentionSpec spec{.q = c.in(0), .k = c.in(1), .v = c.in(2)};
  for (const Value* v : {spec.q, spec.k, spec.v}) {
    c.require(v->rank() == 4, "an input of rank {}, not 4", v->rank());
    c.require(is_float(v->dtype) && v->dtype == spec.q->dtype, "an input of {} beside one of {}", name(v->dtype),
              name(spec.q->dtype));
  }
  spec.type = accumulator(spec.q->dtype);
  DType modified = spec.type;  // of what the graphs see
  if (const std::int64_t t = c.attr("softmax_precision", 0)) modified = from_onnx(static_cast<int>(t));
  c.require(is_float(modified), "softmax_precision is {}", name(modified));
  if (modified == DType::kFloat64) spec.type = modified;
  if (c.has_attr("scale")) spec.scale = constant(c.attr_f("scale", 1), spec.type);
  auto modifier = [&](std::string_view name) -> std::function<Value*(Value*)> {
    const model::GraphPtr body = c.node().get_graph(name);
    if (!body) return {};
    c.require(body->inputs.size() == 1 && body->outputs.size() == 1, "{} has {} inputs and {} outputs", name,
              body->inputs.size(), body->outputs.size());
    return [&c, &g, body, modified, name = std::string(name), type = spec.type](Value* x) {
      Value* y = c.lowerer().lower_body(*body, g, {tensor::cast(g, x, modified)}).at(0);
      c.require(y->rank() == 4 && y->dtype == modified, "{} gives rank {} and {}", name, y->rank(),
                sardonyx::name(y->dtype));
      for (std::size_t d = 0; d < 4; ++d)
        g.add_check(compare(Op::kEq, x->shape[d], y->shape[d]), name + " changes the shape");
      return tensor::cast(g, y, type);
    };
  };
  spec.change_scores = modifier("score_mod");
  spec.change_probabilities = modifier("prob_mod");
  c.out(0, tensor::cast(g, attention(g, spec).y, spec.q->dtype));
}

void rotary_embedding_op(OpContext& c) {
  Graph& g = c.graph();
  Value *x = c.in(0), *ids = c.opt(3);
  Rotary r;
  r.cos = c.in(1);
  r.sin = c.in(2);
  const int rank = x->rank(), table = ids ? 2 : 3;
  c.require(rank == 3 || rank == 4, "an input of rank {}", rank);
  c.require(r.cos->rank() == table && r.sin->rank() == table, "caches of ranks {} and {}, not {}", r.cos->rank(),
            r.sin->rank(), table);
  Value* v = x;
  if (rank == 3) {
    const std::int64_t heads = c.attr("num_heads", 0);
    c.require(heads > 0, "num_heads is {}; an input of rank 3 needs it", heads);
    v = tensor::reshape(g, x, {x->shape[0], x->shape[1], heads, idx::floordiv(x->shape[2], heads)});
  }
  if (ids) {
    c.require(ids->rank() == 2, "position_ids of rank {}", ids->rank());
    r.position = [=](const Expr& b, const Expr& s) { return cast(tensor::at(ids, {b, s}), DType::kInt64); };
  }
  r.interleaved = c.attr("interleaved", 0) != 0;
  const std::int64_t rotated = c.attr("rotary_embedding_dim", 0);
  c.require(rotated >= 0, "rotary_embedding_dim is {}", rotated);
  r.rotated = rotated > 0 ? Expr(rotated) : v->shape[3];
  Value* y = rotate(g, v, rank == 4, r);
  c.out(0, tensor::reshape(g, y, x->shape));
}

}  // namespace

AttentionResult attention(Graph& g, const AttentionSpec& spec) {
  Value *q = spec.q, *k = spec.k, *v = spec.v;
  const DType type = spec.type;
  const Exprs qs = q->shape, vs = v->shape;
  const Expr heads = qs[1], kv_heads = k->shape[1];
  // Grouped queries: [B, Hk, G, S, D] against [B, Hk, 1, T, D].
  const bool grouped = !idx::provably_equal(heads, kv_heads);
  const Expr group = grouped ? idx::floordiv(heads, kv_heads) : Expr(1);
  if (grouped) {
    g.add_check(compare(Op::kEq, idx::mod(heads, kv_heads), 0),
                fmt::format("{} query heads for {} key heads", to_string(heads), to_string(kv_heads)));
    q = tensor::reshape(g, q, {qs[0], kv_heads, group, qs[2], qs[3]});
    k = tensor::unsqueeze(g, k, {2});
    v = tensor::unsqueeze(g, v, {2});
  }
  auto whole = [&](Value* x) {  // without the groups
    return grouped ? tensor::reshape(g, x, {qs[0], heads, x->shape[3], x->shape[4]}) : x;
  };
  auto term = [&](const ScoreTerm& f, const Exprs& i) {
    return grouped ? f(i[0], i[1] * group + i[2], i[3], i[4]) : f(i[0], i[1], i[2], i[3]);
  };
  const Expr scale = spec.scale ? spec.scale : el::div(constant(1, type), el::sqrt(cast(qs[3], type)));
  Value* products = tensor::matmul(g, q, k, false, true, type);
  Value* scores = tensor::map1(g, products, [&](const Expr& e) { return el::mul(e, scale); });
  Value* capped =
      spec.softcap > 0
          ? tensor::map1(g, scores,
                         [&](const Expr& e) { return el::mul(el::tanh(el::div(e, spec.softcap)), spec.softcap); })
          : scores;
  Value* masked = capped;
  if (spec.bias || spec.allowed)
    masked = tensor::generate(g, capped->shape, [&](const Exprs& i) {
      Expr e = tensor::at(capped, i);
      if (spec.bias) e = el::add(e, term(spec.bias, i));
      return spec.allowed ? select(term(spec.allowed, i), e, constant(-INFINITY, type)) : e;
    });
  auto change = [&](const std::function<Value*(Value*)>& f, Value* x) {
    return tensor::reshape(g, f(whole(x)), x->shape);
  };
  if (spec.change_scores) masked = change(spec.change_scores, masked);
  const DType p_type = spec.change_probabilities ? type : v->dtype;
  Value* p;
  if (spec.empty_rows || spec.sink) {
    std::function<Expr(const Exprs&)> sink;
    if (spec.sink) sink = [&](const Exprs& i) { return spec.sink(grouped ? i[1] * group + i[2] : i[1]); };
    p = masked_softmax(g, masked, sink, p_type);
  } else {
    p = tensor::cast(g, tensor::softmax(g, masked, {masked->rank() - 1}), p_type);
  }
  if (spec.change_probabilities) p = tensor::cast(g, change(spec.change_probabilities, p), v->dtype);
  return {whole(tensor::matmul(g, p, v)), whole(scores), whole(capped), whole(masked), whole(p)};
}

Value* split_heads(Graph& g, Value* x, const Expr& heads) {
  g.add_check(compare(Op::kEq, idx::mod(x->shape[2], heads), 0),
              fmt::format("{} features can't be divided into {} heads", to_string(x->shape[2]), to_string(heads)));
  return tensor::transpose(
      g, tensor::reshape(g, x, {x->shape[0], x->shape[1], heads, idx::floordiv(x->shape[2], heads)}), {0, 2, 1, 3});
}

Value* merge_heads(Graph& g, Value* x) {
  return tensor::reshape(g, tensor::transpose(g, x, {0, 2, 1, 3}),
                         {x->shape[0], x->shape[2], x->shape[1] * x->shape[3]});
}

Value* rotate(Graph& g, Value* x, bool heads_first, const Rotary& r) {
  const DType t = accumulator(x->dtype);
  const Expr half = idx::floordiv(r.rotated, 2);
  for (const Value* v : {r.cos, r.sin})
    g.add_check(compare(Op::kEq, v->shape.back(), half), fmt::format("a table of {} angles for {} rotated features",
                                                                     to_string(v->shape.back()), to_string(r.rotated)));
  g.add_check(compare(Op::kLe, r.rotated, x->shape[3]), "more rotated features than a head has");
  return tensor::generate(g, x->shape, [&](const Exprs& i) {
    const Expr b = i[0], s = i[heads_first ? 2 : 1], d = i[3];
    auto feature = [&](const Expr& at) {
      Exprs j = i;
      j[3] = at;
      return cast(tensor::at(x, j), t);
    };
    auto angle = [&](const Value* table, const Expr& k) {
      if (!r.position) return cast(tensor::at(table, {b, s, k}), t);
      return cast(tensor::at(table, {idx::max(0, idx::min(r.position(b, s), table->shape[0] - 1)), k}), t);
    };
    auto real = [&](const Expr& k, const Expr& other) {
      return el::sub(el::mul(angle(r.cos, k), feature(d)), el::mul(angle(r.sin, k), feature(other)));
    };
    auto imaginary = [&](const Expr& k, const Expr& other) {
      return el::add(el::mul(angle(r.sin, k), feature(other)), el::mul(angle(r.cos, k), feature(d)));
    };
    Expr y;
    if (r.interleaved) {
      const Expr k = idx::floordiv(d, 2);
      y = select(compare(Op::kEq, idx::mod(d, 2), 0), real(k, d + 1), imaginary(k, d - 1));
    } else {
      y = select(compare(Op::kLt, d, half), real(d, d + half), imaginary(d - half, d - half));
    }
    if (!idx::provably_equal(r.rotated, x->shape[3])) y = select(compare(Op::kLt, d, r.rotated), y, feature(d));
    return cast(y, x->dtype);
  });
}

void register_attention(OpRegistry& r) {
  r.add({.name = "Attention",
         .min_opset = 23,
         .lower = attention_op,
         .dtypes = "floats",
         .notes = "scores and softmax in fp32 (fp64 if asked for) whatever softmax_precision says"});
  r.add({.name = "FlexAttention",
         .domain = "ai.onnx.preview",
         .lower = flex_attention_op,
         .dtypes = "floats",
         .notes = "score_mod and prob_mod become part of the graph around"});
  r.add({.name = "RotaryEmbedding",
         .min_opset = 23,
         .lower = rotary_embedding_op,
         .dtypes = "floats",
         .notes = "computed in fp32"});
}

}  // namespace sardonyx
