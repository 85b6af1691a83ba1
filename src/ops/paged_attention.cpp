// com.microsoft PagedAttention: grouped-query attention of sequences whose keys and values lie in pages of one cache.
//
// Tokens of all sequences are packed: sequence b has the new tokens cumulative[b] to cumulative[b + 1], which follow
// past[b] tokens in the cache. Its token t lies in page table[b, t / P], at row t % P. Attention reads pages in place:
// the page's number is part of the index expressions of keys and values.
//
// com.sardonyx has the same operator with two additions. Caches may be int8 or float8 (e4m3), with a scale for each row
// of a head: inputs and outputs more are the scales [pages, P, Hk]. New rows are divided by their largest magnitude /
// 127 (448 for float8) and rounded. With the attribute `prompt` = T, sequences have one token each, and after them
// others have T tokens each, the last of them perhaps fewer, but two at least: then the numbers of tokens and of
// sequences tell how many there are of each kind. So answers go on while parts of prompts are computed, and each kind
// has its own form of attention; the tokens of both together may fill whole tiles of GEMMs. A long part is several
// sequences with the same pages, since all new rows are stored before any is read. With one_token, every sequence has
// one token, and no two write to the same page: then one kernel may rotate, append and attend.
#include "ops/attention.h"
#include "ops/element_math.h"
#include "ops/families.h"
#include "ops/norm.h"
#include "ops/quantize.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

using tensor::accumulator;

enum Input {
  kQuery,
  kKey,
  kValue,
  kKeyCache,
  kValueCache,
  kCumulative,
  kPast,
  kTable,
  kCos,
  kSin,
  kSlots,
  kSink,
  kQueryNorm,
  kKeyNorm,
  kKeyScale,
  kValueScale
};

void refuse_unsupported(OpContext& c, bool scaled) {
  if (c.attr_s("k_quant_type", "NONE") != "NONE" || c.attr_s("v_quant_type", "NONE") != "NONE" ||
      (!scaled && (c.has(kKeyScale) || c.has(kValueScale))))
    c.refuse("a quantised cache");
  if (c.attr_s("kv_cache_layout", "SEPARATE") != "SEPARATE") c.refuse("a cache of latent vectors");
  if (c.attr("rotary_offset", 0) != 0) c.refuse("a rotary embedding that does not begin at a head's first element");
  if (c.attr("v_head_size", 0) != 0) c.refuse("v_head_size");
}

/// A cache with its sequences.
struct Pages {
  Value *keys, *values;  // [pages, P, Hk, D]
  Value *cumulative, *past, *table;
  Value* owner;             // the sequence of each packed token; null if there is only one sequence, or `prompt`
  std::int64_t prompt = 0;  // tokens of each sequence after those of one token; 0: there are none
  bool one_token = false;   // every sequence has one token
  Expr tokens, sequences;   // N, B
  Value *key_scales = nullptr, *value_scales = nullptr;  // [pages, P, Hk]; null: the cache is not quantised

  Expr pages() const { return keys->shape[0]; }
  Expr rows() const { return keys->shape[1]; }
  Expr keys_of_sequence() const { return table->shape[1] * rows(); }
  /// Sequences of `prompt` tokens, and of one token. The last of the former has prompt - 2 tokens less at most, so the
  /// number of tokens is that of one number of parts alone.
  Expr parts() const { return idx::ceildiv(tokens - sequences, prompt - 1); }
  Expr answers() const { return sequences - parts(); }
  /// Tokens of parts before this one; 0 for an answer's.
  Expr in_parts(const Expr& token) const { return idx::max(token - answers(), 0); }
  Expr sequence(const Expr& token) const {
    if (one_token) return token;
    if (prompt) return idx::min(token, answers() + idx::floordiv(in_parts(token), prompt));
    return owner ? tensor::at(owner, {token}) : Expr(0);
  }
  static Expr number(const Value* v, const Expr& i) { return cast(tensor::at(v, {i}), DType::kInt64); }
  /// Tokens of the token's sequence before it.
  Expr position(const Expr& token) const {
    const Expr b = sequence(token);
    if (one_token) return number(past, b);
    if (prompt) return number(past, b) + idx::mod(in_parts(token), prompt);
    return number(past, b) + token - number(cumulative, b);
  }
  Expr total(const Expr& token) const {
    const Expr b = sequence(token);
    return number(past, b) + number(cumulative, b + 1) - number(cumulative, b);
  }
  Expr entry(const Expr& sequence, const Expr& column) const {
    return cast(tensor::at(table, {sequence, column}), DType::kInt64);
  }
  /// The page of key t; entries of the table are data, which must not lead outside of the cache.
  Expr page(const Expr& sequence, const Expr& t) const {
    return idx::max(0, idx::min(entry(sequence, idx::floordiv(t, rows())), pages() - 1));
  }
};

Pages pages_of(OpContext& c, Value* query, bool scaled, std::int64_t prompt, bool one_token) {
  Graph& g = c.graph();
  Pages p{c.in(kKeyCache),
          c.in(kValueCache),
          c.in(kCumulative),
          c.in(kPast),
          c.in(kTable),
          nullptr,
          prompt,
          one_token,
          {},
          {}};
  for (const Value* v : {p.keys, p.values}) {
    c.require(v->rank() == 4, "a cache of rank {}, not [pages, rows, heads, head size]", v->rank());
    const bool fits = scaled ? v->dtype == DType::kInt8 || v->dtype == DType::kFloat8E4M3FN : v->dtype == query->dtype;
    if (!fits || v->dtype != p.keys->dtype)
      c.refuse("a cache of {} for queries of {}", name(v->dtype), name(query->dtype));
    for (std::size_t d = 0; d < 4; ++d)
      g.add_check(compare(Op::kEq, v->shape[d], p.keys->shape[d]), "the caches of keys and values differ in shape");
  }
  c.require(p.cumulative->rank() == 1 && p.past->rank() == 1 && p.table->rank() == 2,
            "cumulative_sequence_length, past_seqlens and block_table of ranks {}, {} and {}", p.cumulative->rank(),
            p.past->rank(), p.table->rank());
  if (scaled) {
    c.require(c.has(kKeyScale) && c.has(kValueScale), "a quantised cache without its scales");
    p.key_scales = c.in(kKeyScale);
    p.value_scales = c.in(kValueScale);
    for (const Value* v : {p.key_scales, p.value_scales}) {
      c.require(v->rank() == 3 && v->dtype == DType::kFloat32, "scales of rank {} and type {}", v->rank(),
                name(v->dtype));
      for (std::size_t d = 0; d < 3; ++d)
        g.add_check(compare(Op::kEq, v->shape[d], p.keys->shape[d]), "the scales do not fit the cache");
    }
  }
  p.tokens = query->shape[0];
  p.sequences = p.table->shape[0];
  g.add_check(compare(Op::kEq, p.past->shape[0], p.sequences), "past_seqlens does not fit block_table");
  g.add_check(compare(Op::kEq, p.cumulative->shape[0], p.sequences + 1),
              "cumulative_sequence_length does not fit block_table");
  if (prompt) {
    g.add_check(compare(Op::kGe, p.tokens, p.sequences), "there are fewer tokens than sequences");
    g.add_check(compare(Op::kGe, p.answers(), 0), "there are more tokens than the sequences have");
    return p;
  }
  if (one_token) {
    g.add_check(compare(Op::kEq, p.tokens, p.sequences), "the sequences don't have one token each");
    return p;
  }
  if (is_const(p.sequences, 1)) return p;
  p.owner = tensor::generate(g, {p.tokens}, [&](const Exprs& i) {
    const Expr b = loop_var(p.sequences);
    const Expr begun = select(compare(Op::kLe, Pages::number(p.cumulative, b), i[0]), Expr(1), Expr(0));
    // Every sequence that begins at this token or before counts; the last of them is the token's.
    return idx::max(0, idx::min(reduce(ReduceKind::kSum, {b}, begun) - 1, p.sequences - 1));
  });
  return p;
}

/// Queries, keys and values of the new tokens, [1, N, heads, D].
struct Projections {
  std::int64_t heads, kv_heads;
  Value *q, *k, *v;
  Expr size;
  Value* both = nullptr;  ///< queries' heads, then keys', if they are side by side

  void split(Graph& g, Value* x) {
    both = x;
    q = tensor::slice(g, x, 2, 0, heads);
    k = tensor::slice(g, x, 2, heads, kv_heads);
  }
};

Projections projections(OpContext& c, const Pages& pages) {
  Graph& g = c.graph();
  Projections p{c.attr("num_heads", 0), c.attr("kv_num_heads", 0), nullptr, nullptr, nullptr, pages.keys->shape[3]};
  c.require(p.heads > 0 && p.kv_heads > 0 && p.heads % p.kv_heads == 0, "num_heads is {} and kv_num_heads {}", p.heads,
            p.kv_heads);
  g.add_check(compare(Op::kEq, pages.keys->shape[2], p.kv_heads), "the cache does not fit kv_num_heads");
  const auto split = [&](Value* x, std::int64_t heads) {
    c.require(x->rank() == 2, "an input of rank {}, not [tokens, features]", x->rank());
    g.add_check(compare(Op::kEq, x->shape[0], pages.tokens), "keys or values differ from queries in number");
    g.add_check(compare(Op::kEq, x->shape[1], p.size * Expr(heads)), "the features do not fit the heads of the cache");
    return tensor::reshape(g, x, {1, pages.tokens, heads, p.size});
  };
  c.require(c.has(kKey) == c.has(kValue), "key and value are needed together");
  if (c.has(kKey)) {
    p.q = split(c.in(kQuery), p.heads);
    p.k = split(c.in(kKey), p.kv_heads);
    p.v = split(c.in(kValue), p.kv_heads);
    return p;
  }
  Value* all = split(c.in(kQuery), p.heads + 2 * p.kv_heads);  // all queries' heads, then keys', then values'
  p.split(g, tensor::slice(g, all, 2, 0, p.heads + p.kv_heads));
  p.v = tensor::slice(g, all, 2, p.heads + p.kv_heads, p.kv_heads);
  return p;
}

/// RMS norm over each head of queries and keys, then the rotary embedding.
void transform_heads(OpContext& c, Projections& p, const Pages& pages) {
  Graph& g = c.graph();
  c.require(c.has(kQueryNorm) == c.has(kKeyNorm), "q_norm_weight and k_norm_weight are needed together");
  if (c.has(kQueryNorm)) {
    const double epsilon = c.attr_f("qk_norm_epsilon", 1e-6f);
    for (const auto& [x, at] : {std::pair(&p.q, kQueryNorm), std::pair(&p.k, kKeyNorm)}) {
      c.require(c.in(at)->rank() == 1, "a norm's weight of rank {}", c.in(at)->rank());
      g.add_check(compare(Op::kEq, c.in(at)->shape[0], p.size), "a norm's weight does not fit the head size");
      *x = layer_norm(g, *x, c.in(at), nullptr, 3, epsilon, true, c.in(kQuery)->dtype).y;
    }
    p.both = nullptr;
  }
  if (c.attr("do_rotary", 0) == 0) return;
  c.require(c.has(kCos) && c.has(kSin) && c.in(kCos)->rank() == 2 && c.in(kSin)->rank() == 2,
            "do_rotary needs cos_cache and sin_cache of rank 2");
  Rotary r;
  r.cos = c.in(kCos);
  r.sin = c.in(kSin);
  r.rotated = r.cos->shape[1] * 2;
  r.interleaved = c.attr("rotary_interleaved", 0) != 0;
  r.position = [=](const Expr&, const Expr& s) { return pages.position(s); };
  if (p.both) return p.split(g, rotate(g, p.both, false, r));  // one kernel
  p.q = rotate(g, p.q, false, r);
  p.k = rotate(g, p.k, false, r);
}

/// Where the rows of new tokens are stored, in rows of the cache; -1: nowhere.
Value* slots_of(OpContext& c, const Pages& pages) {
  Graph& g = c.graph();
  Value* given = c.opt(kSlots);
  if (given) {
    c.require(given->rank() == 1, "slot_mapping of rank {}", given->rank());
    g.add_check(compare(Op::kEq, given->shape[0], pages.tokens), "slot_mapping does not fit the tokens");
  }
  return tensor::generate(g, {pages.tokens}, [&](const Exprs& i) {
    if (given) return Pages::number(given, i[0]);
    const Expr t = pages.position(i[0]), last = pages.keys_of_sequence() - 1;
    const Expr inside = idx::max(0, idx::min(t, last));
    const Expr slot = pages.entry(pages.sequence(i[0]), idx::floordiv(inside, pages.rows())) * pages.rows() +
                      idx::mod(t, pages.rows());
    return select(compare(Op::kEq, inside, t), slot, Expr(-1));  // outside: not stored
  });
}

/// Two caches of `row` elements for each token, with the new rows.
std::vector<Value*> append_rows(Graph& g, Value* slots, const Pages& pages, const Expr& row, Value* x, Value* y,
                                Value* x_cache, Value* y_cache) {
  const auto flat = [&](Value* v) { return tensor::reshape(g, v, {pages.tokens, row}); };
  return tensor::routine(g, pages.one_token ? "append_own_rows" : "append_rows",
                         {slots, flat(x), flat(y), x_cache, y_cache}, {pages.tokens, row, row, 0, row, 0}, {},
                         {{x_cache->dtype, x_cache->shape}, {y_cache->dtype, y_cache->shape}});
}

/// A token's row of a head as the cache stores it [1, N, Hk, D], and its scale, float32 [N, Hk].
std::pair<Value*, Value*> quantized(Graph& g, const Pages& pages, std::int64_t heads, const Expr& size, Value* x) {
  const DType type = pages.keys->dtype;
  const double most = type == DType::kInt8 ? 127 : 448;  // of float8_e4m3fn
  constexpr double kLeast = 1e-30;                       // zeros: any scale
  Value* scales = tensor::generate(g, {pages.tokens, Expr(heads)}, [&](const Exprs& i) {
    const Expr d = loop_var(size);
    const Expr magnitude = unary(Op::kAbs, cast(tensor::at(x, {0, i[0], i[1], d}), DType::kFloat32));
    const Expr largest = reduce(ReduceKind::kMax, {d}, magnitude);
    return binary(Op::kMul, binary(Op::kMax, largest, constant_float(kLeast, DType::kFloat32)),
                  constant_float(1 / most, DType::kFloat32));
  });
  Value* rows = tensor::generate(g, {1, pages.tokens, Expr(heads), size}, [&](const Exprs& i) {
    const Expr value = cast(tensor::at(x, {0, i[1], i[2], i[3]}), DType::kFloat32);
    return quantize(value, tensor::at(scales, {i[1], i[2]}), {}, type);
  });
  return {rows, scales};
}

/// The caches with the new tokens' keys and values; then the scales, if there are any.
std::vector<Value*> append(OpContext& c, const Projections& p, const Pages& pages) {
  Graph& g = c.graph();
  Value* slots = slots_of(c, pages);
  const Expr row = p.size * Expr(p.kv_heads);
  if (!pages.key_scales) return append_rows(g, slots, pages, row, p.k, p.v, pages.keys, pages.values);
  const auto [k, k_scales] = quantized(g, pages, p.kv_heads, p.size, p.k);
  const auto [v, v_scales] = quantized(g, pages, p.kv_heads, p.size, p.v);
  std::vector<Value*> found = append_rows(g, slots, pages, row, k, v, pages.keys, pages.values);
  for (Value* scales :
       append_rows(g, slots, pages, Expr(p.kv_heads), k_scales, v_scales, pages.key_scales, pages.value_scales))
    found.push_back(scales);
  return found;
}

/// Tokens that attend in one way: each for itself, all as one sequence, or in sequences of Pages::prompt tokens.
enum class Form { kEach, kWhole, kParts };

/// What all parts of the attention have in common.
struct Attention {
  OpContext& c;
  const Projections& p;
  const Pages& pages;
  const std::vector<Value*>& cache;

  /// Keys or values as one of `batch` sequences sees them: [batch, Hk, T, D].
  Value* read(const Value* x, const Value* scales, const Expr& batch,
              const std::function<Expr(const Expr&)>& sequence) const {
    const Exprs shape = {batch, p.kv_heads, pages.keys_of_sequence(), p.size};
    return tensor::generate(c.graph(), shape, [&](const Exprs& i) {
      const Expr page = pages.page(sequence(i[0]), i[2]), row = idx::mod(i[2], pages.rows());
      Expr element = tensor::at(x, {page, row, i[1], i[3]});
      if (!scales) return element;
      const Expr scale = tensor::at(scales, {page, row, i[1]});
      return cast(binary(Op::kMul, cast(element, DType::kFloat32), scale), c.in(kQuery)->dtype);
    });
  }

  /// The result of `count` tokens from `first` on, [count, H * D]. The queries of a sequence share keys.
  Value* tokens(const Expr& first, const Expr& count, Form form) const {
    Graph& g = c.graph();
    const bool scaled = pages.key_scales != nullptr;
    AttentionSpec spec;
    const Expr batch = form == Form::kWhole ? Expr(1) : form == Form::kEach ? count : pages.parts();
    Value* q = p.q;
    if (form == Form::kParts) {
      // Rows that the last part does not have repeat its last one; what they give is not used.
      q = tensor::generate(g, {batch, pages.prompt, p.heads, p.size}, [&](const Exprs& i) {
        const Expr token = idx::min(first + i[0] * Expr(pages.prompt) + i[1], pages.tokens - 1);
        return tensor::at(p.q, {0, token, i[2], i[3]});
      });
    } else if (!is_const(first, 0) || !same(count, pages.tokens)) {
      q = tensor::slice(g, p.q, 1, first, count);
    }
    spec.q = tensor::transpose(g, q, form == Form::kEach ? std::vector<int>{1, 2, 0, 3} : std::vector<int>{0, 2, 1, 3});
    // Where all sequences have one token, and after those that do, they are counted.
    const auto sequence = [=, pages = pages](const Expr& b) {
      if (form == Form::kWhole) return pages.sequence(first);
      return form == Form::kParts || pages.prompt ? first + b : pages.sequence(first + b);
    };
    spec.k = read(cache[0], scaled ? cache[2] : nullptr, batch, sequence);
    spec.v = read(cache[1], scaled ? cache[3] : nullptr, batch, sequence);
    spec.type = accumulator(c.in(kQuery)->dtype);
    if (const float scale = c.attr_f("scale", 0); scale != 0) spec.scale = constant(scale, spec.type);
    spec.softcap = c.attr_f("softcap", 0);
    const std::int64_t window = c.attr("local_window_size", -1);
    const bool causal = c.attr("is_causal", 1) != 0;
    c.require(window == -1 || window > 0, "local_window_size is {}", window);
    spec.allowed = [=, pages = pages](const Expr& b, const Expr&, const Expr& s, const Expr& t) {
      const Expr n = first + (form == Form::kWhole ? s : b);
      const bool counted = pages.prompt || pages.one_token;
      const Expr before = Pages::number(pages.past, sequence(b));
      const Expr position = !counted ? pages.position(n) : form == Form::kParts ? before + s : before;
      const Expr own = form == Form::kParts ? idx::min(pages.prompt, count - b * Expr(pages.prompt)) : Expr(1);
      const Expr total = !counted ? pages.total(n) : before + own;
      const Expr ok = causal ? compare(Op::kLe, t, position) : compare(Op::kLt, t, total);
      return window < 0 ? ok : logical_and(ok, compare(Op::kGt, t, position - window));
    };
    if (Value* sink = c.opt(kSink)) {
      c.require(sink->rank() == 1, "head_sink of rank {}", sink->rank());
      g.add_check(compare(Op::kEq, sink->shape[0], p.heads), "head_sink does not fit the heads");
      spec.sink = [=, type = spec.type](const Expr& h) { return cast(tensor::at(sink, {h}), type); };
    }
    Value* y = attention(g, spec).y;  // [1, H, N, D], [N, H, 1, D] or [parts, H, T, D]
    if (form != Form::kEach) y = tensor::transpose(g, y, {0, 2, 1, 3});
    if (form != Form::kParts) return tensor::reshape(g, y, {count, p.size * Expr(p.heads)});
    y = tensor::reshape(g, y, {batch * Expr(pages.prompt), p.size * Expr(p.heads)});
    return tensor::slice(g, y, 0, 0, count);
  }
};

// Inputs: see Input; attention_metadata (16) is a hint that is not needed. Outputs: output, key_cache_out,
// value_cache_out; with scales: the updated ones.
void paged_attention_of(OpContext& c, bool scaled, std::int64_t prompt, bool one_token) {
  refuse_unsupported(c, scaled);
  Graph& g = c.graph();
  c.require(c.in(kQuery)->rank() == 2, "a query of rank {}, not [tokens, features]", c.in(kQuery)->rank());
  const Pages pages = pages_of(c, c.in(kQuery), scaled, prompt, one_token);
  Projections p = projections(c, pages);
  transform_heads(c, p, pages);
  const std::vector<Value*> cache = append(c, p, pages);
  for (std::size_t k = 0; k < cache.size(); ++k) c.out(static_cast<int>(k) + 1, cache[k]);
  const Attention attention{c, p, pages, cache};
  if (!prompt)
    return c.out(0, attention.tokens(0, pages.tokens, pages.owner || one_token ? Form::kEach : Form::kWhole));
  const Expr answers = pages.answers();
  c.out(0, tensor::concat(g,
                          {attention.tokens(0, answers, Form::kEach),
                           attention.tokens(answers, pages.tokens - answers, Form::kParts)},
                          0));
}

void paged_attention(OpContext& c) { paged_attention_of(c, false, 0, false); }
void own_paged_attention(OpContext& c) {
  const std::int64_t prompt = c.attr("prompt", 0);
  const bool one_token = c.attr("one_token", 0) != 0;
  c.require(prompt == 0 || prompt > 1, "prompt is {}", prompt);
  c.require(!prompt || !one_token, "both prompt and one_token");
  paged_attention_of(c, c.has(kKeyScale) || c.has(kValueScale), prompt, one_token);
}

}  // namespace

void register_paged_attention(OpRegistry& r) {
  r.add({.name = "PagedAttention",
         .domain = "com.microsoft",
         .lower = paged_attention,
         .dtypes = "floats",
         .notes = "pages are read in place; the caches may be inputs and outputs in one buffer; without quantised or "
                  "latent caches"});
  r.add({.name = "PagedAttention",
         .domain = "com.sardonyx",
         .lower = own_paged_attention,
         .dtypes = "floats",
         .notes = "com.microsoft's; caches may be int8 or float8e4m3fn: inputs 14 and 15 and outputs 3 and 4 are then "
                  "scales of each row of a "
                  "head, float32 [pages, rows, heads]; prompt = T: sequences of one token each, then others of T "
                  "tokens each (the last one: 2 to T); "
                  "one_token = 1: each has one token, and a page that it writes to for itself"});
}

}  // namespace sardonyx
