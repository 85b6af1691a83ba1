// com.microsoft GroupQueryAttention: grouped-query attention with rotary embedding and a cache of keys and values.
//
// For sequence b, seqlens_k[b] + 1 tokens exist after this step, of which S are new; the cache holds the others. In the
// first step (S equals total_sequence_length) all tokens are new. The cache either grows (its length is that of the
// past) or is a buffer that is large enough for all tokens.
#include "ops/attention.h"
#include "ops/element_math.h"
#include "ops/families.h"
#include "ops/norm.h"
#include "ops/quantize.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

using tensor::accumulator;

/// New keys or values of all heads, token by token: element (b, s, h, d) is at
/// (b * S + s) * stride + offset + h * D + d of `all`.
struct Fresh {
  Value* all;
  Expr stride, offset;
};

/// How a cache stores keys or values: in the query's type, or in 8 bits as multiples of a scale, which the whole cache
/// or each channel of each head has.
struct Stored {
  DType dtype;
  Value* scales = nullptr;  ///< float32 [1], or [Hk, D]; null: not quantised

  Expr scale(const Expr& h, const Expr& d) const {
    return scales->rank() == 1 ? tensor::at(scales, {0}) : tensor::at(scales, {h, d});
  }
};

struct Cache {
  Value *seqlens, *past_key, *past_value;
  Expr queries, total;  // S, total_sequence_length
  Stored keys, values;

  Expr tokens(const Expr& b) const { return cast(tensor::at(seqlens, {b}), DType::kInt64) + 1; }
  /// Tokens of sequence b before the new ones. A first step may have sequences of fewer tokens than S, padded on the
  /// right, and a total that is the cache's length.
  Expr past(const Expr& b) const { return idx::max(0, tokens(b) - queries); }

  /// The past followed by the new tokens, [B, Hk, max(capacity, total), D] for keys and for values; a buffer that is
  /// both past and present gets only the new ones written.
  std::vector<Value*> append(Graph& g, const Fresh& key, const Fresh& value, const Expr& batch, std::int64_t kv_heads,
                             const Expr& size) const {
    const Expr capacity = past_key ? past_key->shape[2] : Expr(0), length = idx::max(capacity, total);
    Value* starts = tensor::generate(g, {batch}, [&](const Exprs& i) { return past(i[0]); });
    std::vector<Value*> in = {starts, key.all, value.all};
    if (past_key) {
      in.push_back(past_key);
      in.push_back(past_value);
    }
    const Exprs shape = {batch, kv_heads, length, size};
    return tensor::routine(g, "append", in, {queries, capacity, key.stride, key.offset, value.stride, value.offset}, {},
                           {{key.all->dtype, shape}, {value.all->dtype, shape}});
  }
};

// total_sequence_length is mostly a dim that went through int32. As the dim itself it is known not to be negative, and
// indices simplify; that it fits is checked.
Expr as_size(Graph& g, const Expr& e) {
  if (e->op == Op::kCast && e->args[0]->op == Op::kCast && e->args[0]->dtype == DType::kInt32 &&
      e->args[0]->args[0]->dtype == DType::kInt64) {
    const Expr whole = e->args[0]->args[0];
    g.add_check(compare(Op::kLe, whole, Expr(INT32_MAX)), "total_sequence_length does not fit 32 bits");
    return whole;
  }
  return idx::max(0, e);
}

void refuse_unsupported(OpContext& c) {
  if (c.attr("sliding_window_cache", 0) != 0)
    c.refuse("a cache of the window's size; use one that holds the whole sequence");
}

struct Heads {
  std::int64_t query, kv;
};

Heads heads_of(OpContext& c) {
  const Heads n{c.attr("num_heads", 0), c.attr("kv_num_heads", 0)};
  c.require(n.query > 0 && n.kv > 0 && n.query % n.kv == 0, "num_heads is {} and kv_num_heads {}", n.query, n.kv);
  return n;
}

/// The inputs with their features divided into heads.
struct Projections {
  Heads heads;
  Expr batch, queries, size;  // B, S, D
  Value* packed = nullptr;    // [B, S, all heads, D] if query, key and value are one tensor
  Value* q = nullptr;         // [B, S, heads, D]
  Fresh key, value;

  Value* split(Graph& g, Value* x, std::int64_t n) const {
    return tensor::reshape(g, x, {x->shape[0], x->shape[1], n, size});
  }
};

Projections projections(OpContext& c) {
  Graph& g = c.graph();
  const Heads heads = heads_of(c);
  Value* query = c.in(0);
  c.require(query->rank() == 3, "a query of rank {}", query->rank());
  const bool packed = !c.has(1);
  const std::int64_t in_query = packed ? heads.query + 2 * heads.kv : heads.query;
  g.add_check(compare(Op::kEq, idx::mod(query->shape[2], in_query), 0),
              fmt::format("{} features can't be divided into {} heads", to_string(query->shape[2]), in_query));
  Projections p{heads, query->shape[0], query->shape[1], idx::floordiv(query->shape[2], in_query)};
  if (packed) {  // all queries' heads, then keys', then values'
    p.packed = p.split(g, query, in_query);
    p.q = tensor::slice(g, p.packed, 2, 0, heads.query);
    const Expr stride = query->shape[2];
    p.key = {query, stride, p.size * Expr(heads.query)};
    p.value = {query, stride, p.size * Expr(heads.query + heads.kv)};
    return p;
  }
  const Expr row = p.size * Expr(heads.kv);
  c.require(c.has(2) && c.in(1)->rank() == 3 && c.in(2)->rank() == 3, "keys or values are missing or not of rank 3");
  for (const int at : {1, 2}) {
    g.add_check(compare(Op::kEq, c.in(at)->shape[0], p.batch), "keys or values don't fit the batch");
    g.add_check(compare(Op::kEq, c.in(at)->shape[1], p.queries), "new keys and queries differ in number");
    g.add_check(compare(Op::kEq, c.in(at)->shape[2], row), "keys or values don't fit kv_num_heads and the head size");
  }
  p.q = p.split(g, query, heads.query);
  p.key = {c.in(1), row, 0};
  p.value = {c.in(2), row, 0};
  return p;
}

/// What the attribute `k_quant_type` or `v_quant_type` and the input with scales say of the past.
Stored stored(OpContext& c, const Projections& p, const char* attribute, int scales, int past) {
  const std::string kind = c.attr_s(attribute, "NONE");
  if (kind == "NONE") {
    c.require(!c.has(scales), "scales of a cache whose {} is NONE", attribute);
    return {c.in(0)->dtype};
  }
  c.require(kind == "PER_TENSOR" || kind == "PER_CHANNEL", "{} is '{}'", attribute, kind);
  if (c.attr("kv_cache_bit_width", 8) != 8) c.refuse("a cache of 4 bits; use one of int8 or float8e4m3fn");
  c.require(c.has(scales) && c.has(past), "a quantised cache without its scales, or without a past");
  const DType type = c.in(past)->dtype;
  if (type != DType::kInt8 && type != DType::kFloat8E4M3FN)
    c.refuse("a cache of {}; use int8 or float8e4m3fn", name(type));
  Graph& g = c.graph();
  Value* s = c.in(scales);
  c.require(s->dtype == DType::kFloat32, "scales of {}", name(s->dtype));
  const Exprs shape = kind == "PER_TENSOR" ? Exprs{1} : Exprs{p.heads.kv, p.size};
  g.add_check(compare(Op::kEq, s->elements(), idx::product(shape)),
              fmt::format("scales of shape {} for a cache that is quantised {}", to_string(s->shape), kind));
  return {type, tensor::reshape(g, s, shape)};
}

/// New rows as the cache stores them.
Fresh rows_for(Graph& g, const Stored& to, const Fresh& rows, const Projections& p) {
  if (!to.scales) return rows;
  const Expr row = p.size * Expr(p.heads.kv);
  Value* flat = tensor::reshape(g, rows.all, {rows.all->elements()});
  Value* q = tensor::generate(g, {p.batch, p.queries, Expr(p.heads.kv), p.size}, [&](const Exprs& i) {
    const Expr at = (i[0] * p.queries + i[1]) * rows.stride + rows.offset + i[2] * p.size + i[3];
    return quantize(cast(tensor::at(flat, {at}), DType::kFloat32), to.scale(i[2], i[3]), {}, to.dtype);
  });
  return {q, row, 0};
}

/// All keys or values as the cache stores them, [B, Hk, total, D], converted to the query's type without their scales.
Value* rows_of(Graph& g, const Stored& from, Value* present, const Expr& total, DType dtype) {
  if (!from.scales) return tensor::slice(g, present, 2, 0, total);
  const Exprs shape = {present->shape[0], present->shape[1], total, present->shape[3]};
  return tensor::generate(g, shape, [&](const Exprs& i) { return cast(tensor::at(present, i), dtype); });
}

/// Queries times the scales of keys, or results times the scales of values: [B, H, S, D]. The scales of a channel are
/// the same for all keys, so that they need not be applied to each of them.
Value* scaled_channels(Graph& g, const Stored& by, Value* x, std::int64_t group) {
  if (!by.scales) return x;
  return tensor::generate(g, x->shape, [&](const Exprs& i) {
    const Expr scale = by.scale(idx::floordiv(i[1], group), i[3]);
    return cast(el::mul(cast(tensor::at(x, i), DType::kFloat32), scale), x->dtype);
  });
}

Cache cache_of(OpContext& c, const Projections& p) {
  Graph& g = c.graph();
  Value* seqlens = c.in(5);
  c.require(seqlens->rank() <= 2, "seqlens_k of rank {}", seqlens->rank());
  g.add_check(compare(Op::kEq, seqlens->elements(), p.batch), "seqlens_k doesn't fit the batch");
  seqlens = tensor::reshape(g, seqlens, {p.batch});
  c.require(!c.has(3) == !c.has(4), "past_key and past_value are needed together");
  const Cache cache{seqlens,
                    c.opt(3),
                    c.opt(4),
                    p.queries,
                    as_size(g, c.int_scalar(c.in(6), true)),
                    stored(c, p, "k_quant_type", 12, 3),
                    stored(c, p, "v_quant_type", 13, 4)};
  for (const auto& [v, as] : {std::pair(cache.past_key, cache.keys), std::pair(cache.past_value, cache.values)}) {
    if (!v) continue;
    c.require(v->rank() == 4, "a past of rank {}", v->rank());
    c.require(v->dtype == as.dtype, "a past of {} for queries of {}", name(v->dtype), name(c.in(0)->dtype));
    g.add_check(compare(Op::kEq, v->shape[0], p.batch), "the past doesn't fit the batch");
    g.add_check(compare(Op::kEq, v->shape[1], p.heads.kv), "the past doesn't fit kv_num_heads");
    g.add_check(compare(Op::kEq, v->shape[2], cache.past_key->shape[2]), "past keys and values differ in length");
    g.add_check(compare(Op::kEq, v->shape[3], p.size), "the past doesn't fit the head size");
  }
  g.add_check(compare(Op::kLe, cache.queries, cache.total),
              "total_sequence_length is smaller than the number of new tokens");
  return cache;
}

/// RMS norm over each head of queries and keys, [B, S, heads + kv heads, D].
Value* normalize_heads(OpContext& c, Value* both, const Projections& p) {
  Graph& g = c.graph();
  const DType dtype = c.in(0)->dtype;
  for (const int at : {14, 15}) {
    c.require(c.in(at)->rank() == 1, "a norm's weight of rank {}", c.in(at)->rank());
    g.add_check(compare(Op::kEq, c.in(at)->shape[0], p.size), "a norm's weight doesn't fit the head size");
  }
  const double epsilon = c.attr_f("qk_norm_epsilon", 1e-6f);
  both = layer_norm(g, both, nullptr, nullptr, 3, epsilon, true, accumulator(dtype)).y;
  return tensor::generate(g, both->shape, [&](const Exprs& i) {
    const Expr e = tensor::at(both, i);
    const Expr weight =
        select(compare(Op::kLt, i[2], p.heads.query), tensor::at(c.in(14), {i[3]}), tensor::at(c.in(15), {i[3]}));
    return cast(el::mul(e, cast(weight, e->dtype)), dtype);
  });
}

Value* rotate_heads(OpContext& c, Value* both, const Projections& p, const Cache& cache) {
  Rotary r;
  r.cos = c.in(7);
  r.sin = c.in(8);
  c.require(r.cos->rank() == 2 && r.sin->rank() == 2, "caches of ranks {} and {}", r.cos->rank(), r.sin->rank());
  r.rotated = r.cos->shape[1] * 2;
  r.interleaved = c.attr("rotary_interleaved", 0) != 0;
  Value* ids = c.opt(9);
  c.require(!ids || ids->rank() == 2, "position_ids of rank {}", ids ? ids->rank() : 0);
  if (ids) {
    c.graph().add_check(compare(Op::kEq, ids->shape[0], p.batch), "position_ids don't fit the batch");
    c.graph().add_check(compare(Op::kEq, ids->shape[1], p.queries), "position_ids and queries differ in number");
  }
  r.position = [=](const Expr& b, const Expr& s) {
    return ids ? cast(tensor::at(ids, {b, s}), DType::kInt64) : cache.past(b) + s;
  };
  return rotate(c.graph(), both, false, r);
}

/// Norms and rotary embedding of queries and keys, which one kernel computes together.
void transform_heads(OpContext& c, Projections& p, const Cache& cache) {
  c.require(c.has(14) == c.has(15), "q_norm_weight and k_norm_weight are needed together");
  const bool norms = c.has(14), rotary = c.attr("do_rotary", 0) != 0;
  if (!norms && !rotary) return;
  Graph& g = c.graph();
  const std::int64_t n = p.heads.query + p.heads.kv;
  Value* both =
      p.packed ? tensor::slice(g, p.packed, 2, 0, n) : p.split(g, tensor::concat(g, {c.in(0), c.in(1)}, 2), n);
  if (norms) both = normalize_heads(c, both, p);
  if (rotary) both = rotate_heads(c, both, p, cache);
  p.q = tensor::slice(g, both, 2, 0, p.heads.query);
  p.key = {both, p.size * Expr(n), p.size * Expr(p.heads.query)};
}

/// Which keys each query may see, the bias and the sink.
void add_scores(OpContext& c, const Projections& p, const Cache& cache, AttentionSpec& spec) {
  Graph& g = c.graph();
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
    const Exprs scores = {p.batch, p.heads.query, cache.queries, cache.total};
    tensor::check_broadcast(g, bias->shape, scores);
    spec.bias = [=, type = spec.type](const Expr& b, const Expr& h, const Expr& s, const Expr& t) {
      return cast(tensor::at_broadcast(bias, {b, h, s, t}, scores), type);
    };
  }
  if (Value* sink = c.opt(11)) {
    c.require(sink->rank() == 1, "head_sink of rank {}", sink->rank());
    g.add_check(compare(Op::kEq, sink->shape[0], p.heads.query), "head_sink doesn't fit the heads");
    spec.sink = [=, type = spec.type](const Expr& h) { return cast(tensor::at(sink, {h}), type); };
  } else if (c.attr("smooth_softmax", -1) == 1) {
    spec.sink = [type = spec.type](const Expr&) { return constant(0, type); };
  }
}

// Inputs: query, key, value, past_key, past_value, seqlens_k, total_sequence_length, cos_cache, sin_cache,
// position_ids, attention_bias, head_sink, two scales of a quantised cache, q_norm_weight, k_norm_weight. Outputs:
// output, present_key, present_value, output_qk.
void group_query_attention(OpContext& c) {
  refuse_unsupported(c);
  Graph& g = c.graph();
  const DType dtype = c.in(0)->dtype;
  Projections p = projections(c);
  const Cache cache = cache_of(c, p);
  transform_heads(c, p, cache);
  const std::vector<Value*> present = cache.append(g, rows_for(g, cache.keys, p.key, p),
                                                   rows_for(g, cache.values, p.value, p), p.batch, p.heads.kv, p.size);
  c.out(1, present[0]);
  c.out(2, present[1]);
  AttentionSpec spec;
  const std::int64_t group = p.heads.query / p.heads.kv;
  spec.q = scaled_channels(g, cache.keys, tensor::transpose(g, p.q, {0, 2, 1, 3}), group);
  spec.k = rows_of(g, cache.keys, present[0], cache.total, dtype);
  spec.v = rows_of(g, cache.values, present[1], cache.total, dtype);
  spec.type = accumulator(dtype);
  if (const float scale = c.attr_f("scale", 0); scale != 0) spec.scale = constant(scale, spec.type);
  spec.softcap = c.attr_f("softcap", 0);
  add_scores(c, p, cache, spec);
  const AttentionResult r = attention(g, spec);
  c.out(0, merge_heads(g, scaled_channels(g, cache.values, r.y, group)));
  if (!c.wants(3)) return;
  const std::int64_t which = c.attr("qk_output", 0);
  c.require(which == 1 || which == 2, "qk_output is {} but its output is used", which);
  c.out(3, tensor::cast(g, which == 1 ? r.masked : r.probabilities, dtype));
}

}  // namespace

void register_group_query_attention(OpRegistry& r) {
  r.add({.name = "GroupQueryAttention",
         .domain = "com.microsoft",
         .lower = group_query_attention,
         .dtypes = "floats",
         .notes =
             "softmax in fp32; past and present may be one buffer; caches of int8 and float8e4m3fn, not of 4 bits or "
             "window-sized ones"});
}

}  // namespace sardonyx
