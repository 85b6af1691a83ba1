// com.microsoft: normalisation fused with sums and embeddings; SimplifiedLayerNormalization, which ONNX Runtime also
// takes in ONNX's domain.
#include "ops/element_math.h"
#include "ops/families.h"
#include "ops/norm.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

using tensor::accumulator;

void simplified_layer_normalization(OpContext& c) {
  Value *x = c.in(0), *scale = c.in(1);
  const LayerNorm n = layer_norm(c.graph(), x, scale, nullptr, c.axis(c.attr("axis", -1), x->rank()),
                                 c.attr_f("epsilon", 1e-5f), true, scale->dtype);
  c.out(0, n.y);
  if (c.wants(1)) c.out(1, n.inverse);
}

// Inputs: input, skip, gamma, beta (not for rms), bias. Outputs: normalised sum, mean, inverse deviation, sum.
void skip_norm(OpContext& c, bool rms) {
  Graph& g = c.graph();
  Value *x = c.in(0), *skip = c.in(1), *gamma = c.in(2);
  Value *beta = rms ? nullptr : c.opt(3), *bias = c.opt(rms ? 3 : 4);
  c.require(x->rank() >= 1, "an input without dims");
  c.require(!bias || bias->rank() == 1, "a bias of rank {}", bias ? bias->rank() : 0);
  tensor::check_broadcast(g, skip->shape, x->shape);
  if (bias) tensor::check_broadcast(g, bias->shape, x->shape);
  const DType t = accumulator(x->dtype);
  Value* sum = tensor::generate(g, x->shape, [&](const Exprs& i) {
    Expr e = el::add(cast(tensor::at(x, i), t), cast(tensor::at_broadcast(skip, i, x->shape), t));
    return bias ? el::add(e, cast(tensor::at_broadcast(bias, i, x->shape), t)) : e;
  });
  const LayerNorm n = layer_norm(g, sum, gamma, beta, x->rank() - 1, c.attr_f("epsilon", 1e-12f), rms, x->dtype);
  c.out(0, n.y);
  if (c.wants(1)) {
    if (rms) c.refuse("the mean of a root-mean-square normalisation");
    c.out(1, n.mean);
  }
  if (c.wants(2)) c.out(2, n.inverse);
  if (c.wants(3)) c.out(3, tensor::cast(g, sum, x->dtype));
}

void skip_layer_normalization(OpContext& c) { skip_norm(c, false); }
void skip_simplified_layer_normalization(OpContext& c) { skip_norm(c, true); }

// Inputs: word ids, segment ids, word, position and segment tables, gamma, beta, mask, position ids. Outputs:
// normalised sum, how many words each mask lets through, the sum.
void embed_layer_normalization(OpContext& c) {
  Graph& g = c.graph();
  Value *ids = c.in(0), *segments = c.opt(1), *words = c.in(2), *positions = c.in(3), *segment_table = c.opt(4),
        *mask = c.opt(7), *position_ids = c.opt(8);
  c.require(ids->rank() == 2, "word ids of rank {}", ids->rank());
  c.require(!segments == !segment_table, "segment ids and their table are needed together");
  for (const Value* v : {words, positions, segment_table})
    c.require(!v || v->rank() == 2, "a table of rank {}", v ? v->rank() : 0);
  for (const Value* v : {segments, mask, position_ids})
    c.require(!v || v->rank() == 2, "ids or mask of rank {}", v ? v->rank() : 0);
  const Exprs shape = {ids->shape[0], ids->shape[1], words->shape[1]};
  if (position_ids) tensor::check_broadcast(g, position_ids->shape, ids->shape);
  const DType t = accumulator(words->dtype);
  auto row = [&](const Value* table, const Expr& id, const Expr& d) {
    return cast(tensor::at(table, {idx::max(0, idx::min(cast(id, DType::kInt64), table->shape[0] - 1)), d}),
                t);  // ids are data
  };
  Value* sum = tensor::generate(g, shape, [&](const Exprs& i) {
    const Exprs at = {i[0], i[1]};
    const Expr position = position_ids ? tensor::at_broadcast(position_ids, at, ids->shape) : i[1];
    Expr e = el::add(row(words, tensor::at(ids, at), i[2]), row(positions, position, i[2]));
    return segments ? el::add(e, row(segment_table, tensor::at(segments, at), i[2])) : e;
  });
  c.out(0, layer_norm(g, sum, c.in(5), c.in(6), 2, c.attr_f("epsilon", 1e-12f), false, words->dtype).y);
  if (c.wants(1)) {
    const DType i32 = DType::kInt32;
    c.out(1, mask ? tensor::reduce(g, ReduceKind::kSum, mask, {1}, false, [&](const Expr& e) { return cast(e, i32); })
                  : tensor::generate(g, {ids->shape[0]}, [&](const Exprs&) { return constant_int(0, i32); }));
  }
  if (c.wants(2)) c.out(2, tensor::cast(g, sum, words->dtype));
}

// GroupNorm and, after adding a skip and a bias, SkipGroupNorm; channels last by default.
void lower_group_norm(OpContext& c, bool skip) {
  Graph& g = c.graph();
  Value *x = c.in(0), *gamma = c.in(1), *beta = c.in(2);
  const int rank = x->rank();
  c.require(rank >= 3, "an input of rank {}", rank);
  const bool last = c.attr("channels_last", 1) != 0;
  const std::int64_t groups = c.attr("groups", 0), activation = c.attr("activation", 0);
  c.require(groups > 0, "groups is {}", groups);
  c.require(activation == 0 || activation == 1, "activation is {}", activation);
  const DType t = accumulator(x->dtype);
  const int axis = last ? rank - 1 : 1;
  const Expr channels = x->shape[static_cast<std::size_t>(axis)], in_group = idx::floordiv(channels, groups);
  g.add_check(compare(Op::kEq, idx::mod(channels, groups), 0),
              fmt::format("{} channels can't be divided into {} groups", to_string(channels), groups));
  for (const Value* v : {gamma, beta}) {
    c.require(v->rank() == 1, "gamma or beta of rank {}", v->rank());
    g.add_check(compare(Op::kEq, v->shape[0], channels), "gamma or beta doesn't fit the channels");
  }
  Value* sum = tensor::cast(g, x, t);
  if (skip) {
    Value *s = c.in(3), *bias = c.opt(4);
    if (s->rank() == 2) {  // [N, C]
      Exprs shape(static_cast<std::size_t>(rank), Expr(1));
      shape[0] = s->shape[0];
      shape[static_cast<std::size_t>(axis)] = s->shape[1];
      s = tensor::reshape(g, s, shape);
    }
    c.require(s->rank() == rank && (!bias || bias->rank() == 1), "a skip or bias of another rank");
    tensor::check_broadcast(g, s->shape, x->shape);
    sum = tensor::generate(g, x->shape, [&](const Exprs& i) {
      const Expr e = el::add(cast(tensor::at(x, i), t), cast(tensor::at_broadcast(s, i, x->shape), t));
      return bias ? el::add(e, cast(tensor::at(bias, {i[static_cast<std::size_t>(axis)]}), t)) : e;
    });
    if (c.wants(1)) c.out(1, tensor::cast(g, sum, x->dtype));
  }
  // [N, groups, rest] or [N, positions, groups, channels of a group]
  const Expr spatial = last ? idx::product(Exprs(x->shape.begin() + 1, x->shape.end() - 1))
                            : idx::product(Exprs(x->shape.begin() + 2, x->shape.end()));
  const Exprs view =
      last ? Exprs{x->shape[0], spatial, groups, in_group} : Exprs{x->shape[0], groups, in_group, spatial};
  const std::vector<int> axes = last ? std::vector<int>{1, 3} : std::vector<int>{2, 3};
  Value* v = tensor::reshape(g, sum, view);
  const Moments m = moments(g, v, axes, t);
  const double epsilon = c.attr_f("epsilon", 1e-5f);
  Value* y = tensor::generate(g, view, [&](const Exprs& i) {
    Exprs o = i;
    for (int a : axes) o[static_cast<std::size_t>(a)] = 0;
    const Expr k = last ? i[2] * in_group + i[3] : i[1] * in_group + i[2];
    Expr e = el::div(el::sub(tensor::at(v, i), tensor::at(m.mean, o)),
                     el::sqrt(el::add(tensor::at(m.variance, o), epsilon)));
    e = el::add(el::mul(e, cast(tensor::at(gamma, {k}), t)), cast(tensor::at(beta, {k}), t));
    return cast(activation == 1 ? el::silu(e) : e, x->dtype);
  });
  c.out(0, tensor::reshape(g, y, x->shape));
}

void group_norm(OpContext& c) { lower_group_norm(c, false); }
void skip_group_norm(OpContext& c) { lower_group_norm(c, true); }

}  // namespace

void register_contrib_norm(OpRegistry& r) {
  const char* ms = "com.microsoft";
  for (const char* domain : {"", ms})
    r.add({.name = "SimplifiedLayerNormalization",
           .domain = domain,
           .lower = simplified_layer_normalization,
           .dtypes = "floats",
           .notes = "computed in fp32"});
  r.add({.name = "SkipLayerNormalization",
         .domain = ms,
         .lower = skip_layer_normalization,
         .dtypes = "floats",
         .notes = "the sum is normalised in fp32"});
  r.add({.name = "SkipSimplifiedLayerNormalization",
         .domain = ms,
         .lower = skip_simplified_layer_normalization,
         .dtypes = "floats",
         .notes = "the sum is normalised in fp32"});
  r.add({.name = "EmbedLayerNormalization", .domain = ms, .lower = embed_layer_normalization, .dtypes = "floats"});
  r.add({.name = "GroupNorm", .domain = ms, .lower = group_norm, .dtypes = "floats"});
  r.add({.name = "SkipGroupNorm", .domain = ms, .lower = skip_group_norm, .dtypes = "floats"});
}

}  // namespace sardonyx
