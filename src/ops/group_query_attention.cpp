// com.microsoft GroupQueryAttention: grouped-query attention with rotary embedding and a cache of keys and values.
//
// For sequence b, seqlens_k[b] + 1 tokens exist after this step, of which S are new; the cache holds the others. In the
// first step (S equals total_sequence_length) all tokens are new. The cache either grows (its length is that of the
// past) or is a buffer with room for all tokens.
#include "ops/attention.h"
#include "ops/element_math.h"
#include "ops/families.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

using tensor::accumulator;

struct Cache {
  Value *seqlens, *past_key, *past_value;
  Expr queries, total;  // S, total_sequence_length

  Expr tokens(const Expr& b) const { return cast(tensor::at(seqlens, {b}), DType::kInt64) + 1; }
  /// Tokens of sequence b before the new ones.
  Expr past(const Expr& b) const { return select(compare(Op::kEq, queries, total), 0, tokens(b) - queries); }
  /// The past followed by the new tokens [B, Hk, S, D]. Beyond them a cache keeps what it has.
  Value* append(Graph& g, Value* past_values, Value* fresh) const {
    const Expr capacity = past_values ? past_values->shape[2] : Expr(0);
    const Exprs shape = {fresh->shape[0], fresh->shape[1], idx::max(capacity, total), fresh->shape[3]};
    return tensor::generate(g, shape, [&](const Exprs& i) {
      const Expr start = past(i[0]), at = i[2] - start;
      const Expr kept =
          past_values ? select(compare(Op::kLt, i[2], capacity), tensor::at(past_values, i), el::zero(fresh->dtype))
                      : el::zero(fresh->dtype);
      return select(logical_and(compare(Op::kGe, at, 0), compare(Op::kLt, at, queries)),
                    tensor::at(fresh, {i[0], i[1], at, i[3]}), kept);
    });
  }
};

void refuse_unsupported(OpContext& c) {
  if (c.attr_s("k_quant_type", "NONE") != "NONE" || c.attr_s("v_quant_type", "NONE") != "NONE" || c.has(12) ||
      c.has(13))
    c.refuse("a quantised cache");
  if (c.attr("sliding_window_cache", 0) != 0)
    c.refuse("a cache of the window's size; use one that holds the whole sequence");
  if (c.has(14) || c.has(15)) c.refuse("normalisation of queries and keys inside the operator");
}

// Inputs: query, key, value, past_key, past_value, seqlens_k, total_sequence_length, cos_cache, sin_cache,
// position_ids, attention_bias, head_sink. Outputs: output, present_key, present_value, output_qk.
void group_query_attention(OpContext& c) {
  refuse_unsupported(c);
  Graph& g = c.graph();
  const std::int64_t heads = c.attr("num_heads", 0), kv_heads = c.attr("kv_num_heads", 0);
  c.require(heads > 0 && kv_heads > 0 && heads % kv_heads == 0, "num_heads is {} and kv_num_heads {}", heads, kv_heads);
  Value* query = c.in(0);
  c.require(query->rank() == 3, "a query of rank {}", query->rank());
  AttentionSpec spec;
  if (c.has(1)) {
    c.require(c.has(2) && c.in(1)->rank() == 3 && c.in(2)->rank() == 3, "keys or values are missing or not of rank 3");
    spec.q = split_heads(g, query, heads);
    spec.k = split_heads(g, c.in(1), kv_heads);
    spec.v = split_heads(g, c.in(2), kv_heads);
  } else {  // packed: all queries' heads, then keys', then values'
    Value* all = split_heads(g, query, heads + 2 * kv_heads);
    spec.q = tensor::slice(g, all, 1, 0, heads);
    spec.k = tensor::slice(g, all, 1, heads, kv_heads);
    spec.v = tensor::slice(g, all, 1, heads + kv_heads, kv_heads);
  }
  Value* seqlens = c.in(5);
  c.require(seqlens->rank() <= 2, "seqlens_k of rank {}", seqlens->rank());
  const Expr batch = query->shape[0];
  g.add_check(compare(Op::kEq, seqlens->elements(), batch), "seqlens_k doesn't fit the batch");
  seqlens = tensor::reshape(g, seqlens, {batch});
  c.require(!c.has(3) == !c.has(4), "past_key and past_value are needed together");
  const Cache cache{seqlens, c.opt(3), c.opt(4), query->shape[1], c.int_scalar(c.in(6), true)};
  for (const Value* v : {cache.past_key, cache.past_value})
    c.require(!v || v->rank() == 4, "a past of rank {}", v ? v->rank() : 0);
  g.add_check(compare(Op::kLe, cache.queries, cache.total),
              "total_sequence_length is smaller than the number of new tokens");
  g.add_check(compare(Op::kEq, spec.k->shape[2], cache.queries), "new keys and queries differ in number");

  if (c.attr("do_rotary", 0) != 0) {
    Rotary r;
    r.cos = c.in(7);
    r.sin = c.in(8);
    c.require(r.cos->rank() == 2 && r.sin->rank() == 2, "caches of ranks {} and {}", r.cos->rank(), r.sin->rank());
    r.rotated = r.cos->shape[1] * 2;
    r.interleaved = c.attr("rotary_interleaved", 0) != 0;
    Value* ids = c.opt(9);
    c.require(!ids || ids->rank() == 2, "position_ids of rank {}", ids ? ids->rank() : 0);
    r.position = [=](const Expr& b, const Expr& s) {
      return ids ? cast(tensor::at(ids, {b, s}), DType::kInt64) : cache.past(b) + s;
    };
    spec.q = rotate(g, spec.q, true, r);
    spec.k = rotate(g, spec.k, true, r);
  }
  Value* present_key = cache.append(g, cache.past_key, spec.k);
  Value* present_value = cache.append(g, cache.past_value, spec.v);
  c.out(1, present_key);
  c.out(2, present_value);
  spec.k = tensor::slice(g, present_key, 2, 0, cache.total);
  spec.v = tensor::slice(g, present_value, 2, 0, cache.total);

  spec.type = accumulator(query->dtype);
  if (const float scale = c.attr_f("scale", 0); scale != 0) spec.scale = constant(scale, spec.type);
  spec.softcap = c.attr_f("softcap", 0);
  const std::int64_t window = c.attr("local_window_size", -1);
  const bool causal = c.attr("causal", 1) != 0;
  c.require(window == -1 || (window > 0 && causal), "local_window_size is {}{}", window,
            causal ? "" : " without causal");  // counts the query itself
  spec.allowed = [=](const Expr& b, const Expr&, const Expr& s, const Expr& t) {
    if (!causal) return compare(Op::kLt, t, cache.tokens(b));
    const Expr position = cache.past(b) + s;
    const Expr ok = compare(Op::kLe, t, position);
    return window < 0 ? ok : logical_and(ok, compare(Op::kGt, t, position - window));
  };
  if (Value* bias = c.opt(10)) {
    c.require(bias->rank() == 4, "an attention bias of rank {}", bias->rank());
    const Exprs scores = {batch, heads, cache.queries, cache.total};
    tensor::check_broadcast(g, bias->shape, scores);
    spec.bias = [=, type = spec.type](const Expr& b, const Expr& h, const Expr& s, const Expr& t) {
      return cast(tensor::at_broadcast(bias, {b, h, s, t}, scores), type);
    };
  }
  if (Value* sink = c.opt(11)) {
    c.require(sink->rank() == 1, "head_sink of rank {}", sink->rank());
    g.add_check(compare(Op::kEq, sink->shape[0], heads), "head_sink doesn't fit the heads");
    spec.sink = [=, type = spec.type](const Expr& h) { return cast(tensor::at(sink, {h}), type); };
  } else if (c.attr("smooth_softmax", -1) == 1) {
    spec.sink = [type = spec.type](const Expr&) { return constant(0, type); };
  }
  const AttentionResult r = attention(g, spec);
  c.out(0, merge_heads(g, r.y));
  if (!c.wants(3)) return;
  const std::int64_t which = c.attr("qk_output", 0);
  c.require(which == 1 || which == 2, "qk_output is {} but its output is used", which);
  c.out(3, tensor::cast(g, which == 1 ? r.masked : r.probabilities, query->dtype));
}

}  // namespace

void register_group_query_attention(OpRegistry& r) {
  r.add({.name = "GroupQueryAttention",
         .domain = "com.microsoft",
         .lower = group_query_attention,
         .dtypes = "floats",
         .notes = "softmax in fp32; without quantised or window-sized caches and without normalised queries and keys"});
}

}  // namespace sardonyx
