// com.microsoft: Attention, MultiHeadAttention, DecoderMaskedMultiHeadAttention and RotaryEmbedding.
#include "ops/attention.h"
#include "ops/element_math.h"
#include "ops/families.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

using tensor::accumulator;

Value* add_bias(Graph& g, Value* x, Value* bias, const Expr& start) {
  return tensor::generate(
      g, x->shape, [&](const Exprs& i) { return el::add(tensor::at(x, i), tensor::at(bias, {start + i.back()})); });
}

void add_term(AttentionSpec& spec, const ScoreTerm& term) {
  if (!spec.bias) {
    spec.bias = term;
    return;
  }
  const ScoreTerm before = spec.bias;
  spec.bias = [=](const Expr& b, const Expr& h, const Expr& s, const Expr& t) {
    return el::add(before(b, h, s, t), term(b, h, s, t));
  };
}

// Padding masks of int32: what they forbid costs `mask_filter_value`, which is finite, so that a row without any key
// stays defined.
//   [B]: keys from that position on;  [2 B]: also those before the second half's position;  [B, T], [B, S, T]: where it
//   is 0; [B, 1, M, M]: the same, where queries are the last S of T.
void add_padding_mask(OpContext& c, AttentionSpec& spec, Value* mask) {
  Graph& g = c.graph();
  const DType type = spec.type;
  const Expr forbidden = constant(c.attr_f("mask_filter_value", -10000.0f), type), zero = constant(0, type);
  const Expr batch = spec.q->shape[0], queries = spec.q->shape[2], keys = spec.k->shape[2];
  c.require(mask->rank() >= 1 && mask->rank() <= 4, "a mask of rank {}", mask->rank());
  if (mask->rank() == 1) {
    const bool both = idx::provably_equal(mask->shape[0], batch * 2) && !idx::provably_equal(mask->shape[0], batch);
    if (!both)
      g.add_check(compare(Op::kEq, mask->shape[0], batch),
                  "a mask of one dim must have one or two elements per sequence");
    add_term(spec, [=](const Expr& b, const Expr&, const Expr&, const Expr& t) {
      auto element = [&](const Expr& at) { return cast(tensor::at(mask, {at}), DType::kInt64); };
      Expr ok = el::lt(t, element(b));
      if (both) ok = logical_and(ok, el::ge(t, element(b + batch)));
      return select(ok, zero, forbidden);
    });
    return;
  }
  g.add_check(compare(Op::kEq, mask->shape[0], batch), "the mask doesn't fit the batch");
  if (mask->rank() == 4) {
    for (std::size_t d : {2u, 3u})
      g.add_check(compare(Op::kGe, mask->shape[d], keys), "the mask is shorter than the keys");
  } else {
    g.add_check(compare(Op::kEq, mask->shape.back(), keys),
                fmt::format("a mask for {} keys, not {}", to_string(mask->shape.back()), to_string(keys)));
    if (mask->rank() == 3) g.add_check(compare(Op::kEq, mask->shape[1], queries), "the mask doesn't fit the queries");
  }
  add_term(spec, [=](const Expr& b, const Expr&, const Expr& s, const Expr& t) {
    const Expr m = mask->rank() == 2   ? tensor::at(mask, {b, t})
                   : mask->rank() == 3 ? tensor::at(mask, {b, s, t})
                                       : tensor::at(mask, {b, 0, keys - queries + s, t});
    return select(compare(Op::kGt, m, constant(0, m->dtype)), zero, forbidden);
  });
}

void add_attention_bias(OpContext& c, AttentionSpec& spec, Value* bias) {
  c.require(bias->rank() == 4, "an attention bias of rank {}", bias->rank());
  const Exprs scores = {spec.q->shape[0], spec.q->shape[1], spec.q->shape[2], spec.k->shape[2]};
  tensor::check_broadcast(c.graph(), bias->shape, scores);
  const DType type = spec.type;
  add_term(spec, [=](const Expr& b, const Expr& h, const Expr& s, const Expr& t) {
    return cast(tensor::at_broadcast(bias, {b, h, s, t}, scores), type);
  });
}

void finish_spec(OpContext& c, AttentionSpec& spec, const Expr& past_length) {
  const float scale = c.attr_f("scale", 0);
  if (scale != 0) spec.scale = constant(scale, spec.type);
  if (c.attr("unidirectional", 0) != 0)
    spec.allowed = [=](const Expr&, const Expr&, const Expr& s, const Expr& t) {
      return compare(Op::kLe, t, past_length + s);
    };
}

// Inputs: input, weights, bias, mask_index, past, attention_bias, past_sequence_length. Outputs: output, present.
void attention_op(OpContext& c) {
  Graph& g = c.graph();
  Value *x = c.in(0), *w = c.in(1), *bias = c.opt(2), *past = c.opt(4);
  c.require(x->rank() == 3 && w->rank() == 2, "an input of rank {} with weights of rank {}", x->rank(), w->rank());
  if (c.attr("do_rotary", 0) != 0)
    c.refuse("rotary embedding inside Attention; use RotaryEmbedding before MultiHeadAttention");
  if (c.has(6) || c.attr("past_present_share_buffer", 0) != 0) c.refuse("past and present in one buffer");
  const std::int64_t heads = c.attr("num_heads", 0);
  c.require(heads > 0, "num_heads is {}", heads);
  const std::vector<std::int64_t> sizes = c.attr_ints("qkv_hidden_sizes");
  c.require(sizes.empty() || sizes.size() == 3, "qkv_hidden_sizes has {} entries", sizes.size());
  Value* qkv = tensor::matmul(g, x, w);
  if (bias) {
    c.require(bias->rank() == 1, "a bias of rank {}", bias->rank());
    g.add_check(compare(Op::kEq, bias->shape[0], w->shape[1]), "the bias doesn't fit the weights");
    qkv = add_bias(g, qkv, bias, 0);
  }
  AttentionSpec spec;
  Expr start = 0;
  Value** const parts[] = {&spec.q, &spec.k, &spec.v};
  for (std::size_t k = 0; k < 3; ++k) {
    const Expr size = sizes.empty() ? idx::floordiv(w->shape[1], 3) : Expr(sizes[k]);
    *parts[k] = split_heads(g, tensor::slice(g, qkv, 2, start, size), heads);
    start = start + size;
  }
  g.add_check(compare(Op::kEq, start, w->shape[1]), "the weights' columns don't fit the hidden sizes");
  Expr past_length = 0;
  if (past) {
    c.require(past->rank() == 5, "a past of rank {}", past->rank());
    auto half = [&](const Expr& which) {
      return tensor::generate(g, Exprs(past->shape.begin() + 1, past->shape.end()),
                              [&](const Exprs& i) { return tensor::at(past, {which, i[0], i[1], i[2], i[3]}); });
    };
    past_length = past->shape[3];
    spec.k = tensor::concat(g, {half(0), spec.k}, 2);
    spec.v = tensor::concat(g, {half(1), spec.v}, 2);
  }
  if (c.wants(1))
    c.out(1, tensor::concat(g, {tensor::unsqueeze(g, spec.k, {0}), tensor::unsqueeze(g, spec.v, {0})}, 0));
  spec.type = accumulator(x->dtype);
  if (c.has(3)) add_padding_mask(c, spec, c.in(3));
  if (c.has(5)) add_attention_bias(c, spec, c.in(5));
  finish_spec(c, spec, past_length);
  c.out(0, merge_heads(g, attention(g, spec).y));
}

struct QueryKeyValue {
  Value *q, *k, *v;  // [B, H, S, D]
};

// Queries, keys and values from inputs 0 to 2 in any of their packings, with the bias of their projections.
QueryKeyValue unpack_inputs(OpContext& c, const Expr& heads, Value* bias) {
  Graph& g = c.graph();
  Value *q = c.in(0), *k = c.opt(1), *v = c.opt(2);
  auto part = [&](Value* packed, int which) {  // [B, S, H, n, D] to [B, H, S, D]
    return tensor::generate(g, {packed->shape[0], packed->shape[2], packed->shape[1], packed->shape[4]},
                            [&](const Exprs& i) { return tensor::at(packed, {i[0], i[2], i[1], which, i[3]}); });
  };
  if (q->rank() == 5) {
    c.require(!k && !v && !bias, "packed queries, keys and values beside others or a bias");
    return {part(q, 0), part(q, 1), part(q, 2)};
  }
  c.require(q->rank() == 3 && k, "a query of rank {}{}", q->rank(), k ? "" : " without keys");
  const Expr hidden = q->shape[2];
  if (bias) {
    c.require(bias->rank() == 1, "a bias of rank {}", bias->rank());
    c.require(bias->dtype == q->dtype, "a bias of {} with a query of {}", name(bias->dtype), name(q->dtype));
    q = add_bias(g, q, bias, 0);
    if (k->rank() == 3) k = add_bias(g, k, bias, hidden);
    if (v && v->rank() == 3) v = add_bias(g, v, bias, hidden * 2);
  }
  q = split_heads(g, q, heads);
  if (k->rank() == 5) {
    c.require(!v, "packed keys and values beside values");
    // [B, H, S, D], with the bias of a head's elements.
    auto biased = [&](Value* x, const Expr& start) {
      if (!bias) return x;
      return tensor::generate(g, x->shape, [&](const Exprs& i) {
        return el::add(tensor::at(x, i), tensor::at(bias, {start + i[1] * x->shape[3] + i[3]}));
      });
    };
    return {q, biased(part(k, 0), hidden), biased(part(k, 1), hidden * 2)};
  }
  c.require(v && v->rank() == k->rank() && (k->rank() == 3 || k->rank() == 4), "keys of rank {} with values of another",
            k->rank());
  if (k->rank() == 3) return {q, split_heads(g, k, heads), split_heads(g, v, heads)};
  return {q, k, v};  // cross attention: already [B, H, T, D]
}

// Masked MHA lists its inputs in another order: mask, attention bias, pasts, ..., bias.
void lower_multi_head_attention(OpContext& c, int bias, int mask, int attention_bias, int past_key, int past_value,
                                int scores_output) {
  Graph& g = c.graph();
  const std::int64_t heads = c.attr("num_heads", 0);
  c.require(heads > 0, "num_heads is {}", heads);
  const QueryKeyValue qkv = unpack_inputs(c, heads, c.opt(bias));
  AttentionSpec spec{.q = qkv.q, .k = qkv.k, .v = qkv.v};
  Expr past_length = 0;
  if (c.has(past_key)) {
    c.require(c.has(past_value), "past_key without past_value");
    c.require(c.in(past_key)->rank() == 4 && c.in(past_value)->rank() == 4, "pasts of ranks {} and {}",
              c.in(past_key)->rank(), c.in(past_value)->rank());
    past_length = c.in(past_key)->shape[2];
    spec.k = tensor::concat(g, {c.in(past_key), spec.k}, 2);
    spec.v = tensor::concat(g, {c.in(past_value), spec.v}, 2);
  }
  if (c.wants(1)) c.out(1, spec.k);
  if (c.wants(2)) c.out(2, spec.v);
  spec.type = accumulator(spec.q->dtype);
  if (c.has(mask)) add_padding_mask(c, spec, c.in(mask));
  if (c.has(attention_bias)) add_attention_bias(c, spec, c.in(attention_bias));
  finish_spec(c, spec, past_length);
  const AttentionResult r = attention(g, spec);
  c.out(0, merge_heads(g, r.y));
  if (c.wants(scores_output)) c.out(scores_output, tensor::cast(g, r.masked, spec.q->dtype));
}

void multi_head_attention(OpContext& c) {
  if (c.has(8) || c.has(9))
    c.refuse("past_sequence_length or cache_indirection (past and present in one buffer, beam search in the operator)");
  lower_multi_head_attention(c, 3, 4, 5, 6, 7, 3);
}

void decoder_masked_multi_head_attention(OpContext& c) {
  if (c.has(7) || c.has(8) || c.has(9) || c.attr("past_present_share_buffer", 0) != 0)
    c.refuse("past and present in one buffer, or beam search in the operator");
  lower_multi_head_attention(c, 10, 3, 4, 5, 6, 3);
}

// Inputs: input, position_ids ([B, S], or one number: the first position), cos_cache, sin_cache.
void rotary_embedding(OpContext& c) {
  Graph& g = c.graph();
  Value *x = c.in(0), *ids = c.in(1);
  const int rank = x->rank();
  c.require(rank == 3 || rank == 4, "an input of rank {}", rank);
  c.require(ids->rank() == 1 || ids->rank() == 2, "position_ids of rank {}", ids->rank());
  if (c.attr("is_packed_batching", 0) != 0) c.refuse("packed batches");
  Rotary r;
  r.cos = c.in(2);
  r.sin = c.in(3);
  c.require(r.cos->rank() == 2 && r.sin->rank() == 2, "caches of ranks {} and {}", r.cos->rank(), r.sin->rank());
  const std::int64_t heads = c.attr("num_heads", 0), rotated = c.attr("rotary_embedding_dim", 0);
  c.require(heads >= 0 && rotated >= 0, "num_heads is {} and rotary_embedding_dim {}", heads, rotated);
  const Expr angles = r.cos->shape[1] * 2;
  r.rotated = rotated > 0 ? Expr(rotated) : angles;
  Value* v = x;
  if (rank == 3) {
    const Expr size = heads > 0 ? idx::floordiv(x->shape[2], heads) : angles;
    v = tensor::reshape(g, x,
                        {x->shape[0], x->shape[1], heads > 0 ? Expr(heads) : idx::floordiv(x->shape[2], angles), size});
    g.add_check(compare(Op::kEq, v->elements(), x->elements()), "the features can't be divided into heads");
  }
  if (ids->rank() == 1) {
    g.add_check(compare(Op::kEq, ids->shape[0], 1), "position_ids of one dim must have one element");
    r.position = [=](const Expr&, const Expr& s) { return cast(tensor::at(ids, {0}), DType::kInt64) + s; };
  } else {
    r.position = [=](const Expr& b, const Expr& s) { return cast(tensor::at(ids, {b, s}), DType::kInt64); };
  }
  r.interleaved = c.attr("interleaved", 0) != 0;
  Value* y = rotate(g, v, rank == 4, r);
  const float scale = c.attr_f("scale", 1);
  if (scale != 1)
    y = tensor::map1(g, y,
                     [&](const Expr& e) { return cast(el::mul(cast(e, accumulator(e->dtype)), scale), e->dtype); });
  c.out(0, tensor::reshape(g, y, x->shape));
}

}  // namespace

void register_contrib_attention(OpRegistry& r) {
  const char* ms = "com.microsoft";
  const std::string notes = "softmax in fp32; past and present must be two tensors";
  r.add({.name = "Attention",
         .domain = ms,
         .lower = attention_op,
         .dtypes = "floats",
         .notes = notes + "; without rotary embedding"});
  r.add({.name = "MultiHeadAttention",
         .domain = ms,
         .lower = multi_head_attention,
         .dtypes = "floats",
         .notes = notes + "; without cache indirection"});
  r.add({.name = "DecoderMaskedMultiHeadAttention",
         .domain = ms,
         .lower = decoder_masked_multi_head_attention,
         .dtypes = "floats",
         .notes = notes + "; without cache indirection"});
  r.add({.name = "RotaryEmbedding",
         .domain = ms,
         .lower = rotary_embedding,
         .dtypes = "floats",
         .notes = "computed in fp32; without packed batches"});
}

}  // namespace sardonyx
