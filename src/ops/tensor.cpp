#include "ops/tensor.h"

#include <algorithm>

namespace sardonyx::tensor {

Exprs loop_vars(const Exprs& shape) {
  Exprs v;
  for (const Expr& d : shape) v.push_back(loop_var(d));
  return v;
}

Expr at(const Value* x, Exprs indices) {
  check(indices.size() == x->shape.size(), "{} indices into a tensor of rank {}", indices.size(), x->rank());
  return load(x, x->dtype, std::move(indices));
}

Expr at_broadcast(const Value* x, const Exprs& indices, const Exprs& shape) {
  const std::size_t skip = indices.size() - x->shape.size();
  Exprs i;
  for (std::size_t k = 0; k < x->shape.size(); ++k) {
    const Expr& d = x->shape[k];
    i.push_back(is_const(d, 1) ? Expr(0) : indices[skip + k]);
  }
  return at(x, std::move(i));
}

Value* generate(Graph& g, const Exprs& shape, const std::function<Expr(const Exprs&)>& f) {
  Exprs v = loop_vars(shape);
  Expr body = f(v);
  return g.add_loop(std::move(v), std::move(body));
}

Exprs broadcast_shapes(Graph& g, const std::vector<Exprs>& shapes) {
  std::size_t rank = 0;
  for (const Exprs& s : shapes) rank = std::max(rank, s.size());
  Exprs out(rank, Expr(1));
  for (const Exprs& s : shapes)
    for (std::size_t k = 0; k < s.size(); ++k) {
      Expr& o = out[rank - s.size() + k];
      const Expr& d = s[k];
      if (is_const(d, 1) || idx::provably_equal(o, d)) continue;
      if (is_const(o, 1)) {
        o = d;
        continue;
      }
      if (is_const(o) && is_const(d))
        fail(ErrorKind::kInvalidModel, "dims {} and {} can't be broadcast together", to_string(o), to_string(d));
      // One of the two may be 1 at run time, but hardly ever is: code is generated for equal dims.
      g.add_check(compare(Op::kEq, o, d),
                  fmt::format("dims {} and {} can't be broadcast together", to_string(o), to_string(d)), true);
      if (is_const(d) || (d->op == Op::kSym && o->op != Op::kSym && !is_const(o))) o = d;
    }
  return out;
}

void check_broadcast(Graph& g, const Exprs& from, const Exprs& shape) {
  const auto mismatch = [&] {
    return fmt::format("shape {} can't be broadcast to {}", to_string(from), to_string(shape));
  };
  if (from.size() > shape.size()) fail(ErrorKind::kInvalidModel, "{}", mismatch());
  for (std::size_t k = 0; k < from.size(); ++k)
    if (!is_const(from[k], 1))
      g.add_check(compare(Op::kEq, from[k], shape[shape.size() - from.size() + k]), mismatch(), !is_const(from[k]));
}

Value* map(Graph& g, const std::vector<Value*>& xs, const std::function<Expr(const Exprs&)>& f) {
  std::vector<Exprs> shapes;
  for (Value* x : xs) shapes.push_back(x->shape);
  const Exprs shape = broadcast_shapes(g, shapes);
  return generate(g, shape, [&](const Exprs& i) {
    Exprs e;
    for (Value* x : xs) e.push_back(at_broadcast(x, i, shape));
    return f(e);
  });
}

Value* map1(Graph& g, Value* x, const std::function<Expr(const Expr&)>& f) {
  return generate(g, x->shape, [&](const Exprs& i) { return f(at(x, i)); });
}

Value* map2(Graph& g, Value* x, Value* y, const std::function<Expr(const Expr&, const Expr&)>& f) {
  return map(g, {x, y}, [&](const Exprs& e) { return f(e[0], e[1]); });
}

Value* binary(Graph& g, Op op, Value* x, Value* y) {
  return map2(g, x, y, [&](const Expr& a, const Expr& b) { return sardonyx::binary(op, a, b); });
}

Value* unary(Graph& g, Op op, Value* x) {
  return map1(g, x, [&](const Expr& a) { return sardonyx::unary(op, a); });
}

Value* cast(Graph& g, Value* x, DType t, int mode) {
  if (x->dtype == t) return x;
  return map1(g, x, [&](const Expr& a) { return sardonyx::cast(a, t, mode); });
}

Value* scalar(Graph& g, double v, DType t) { return g.add_content(t, {}, {constant(v, t)}); }

Value* ints(Graph& g, const std::vector<std::int64_t>& v) {
  return g.add_content(DType::kInt64, {static_cast<std::int64_t>(v.size())}, Exprs(v.begin(), v.end()));
}

DType accumulator(DType t) { return is_float(t) && t != DType::kFloat64 ? DType::kFloat32 : t; }

Value* reduce(Graph& g, ReduceKind kind, Value* x, std::vector<int> axes, bool keepdims,
              const std::function<Expr(const Expr&)>& f) {
  std::vector<bool> reduced(x->shape.size());
  for (int a : axes) reduced[static_cast<std::size_t>(a)] = true;
  Exprs out, in_idx(x->shape.size()), vars, red;
  for (std::size_t k = 0; k < x->shape.size(); ++k) {
    Expr v = loop_var(x->shape[k]);
    in_idx[k] = v;
    if (reduced[k]) {
      red.push_back(v);
      if (keepdims) vars.push_back(loop_var(1));
    } else
      vars.push_back(v);
  }
  Expr e = at(x, in_idx);
  if (f) e = f(e);
  return g.add_loop(std::move(vars), sardonyx::reduce(kind, red, e));
}

Value* reshape(Graph& g, Value* x, const Exprs& shape) { return g.add_view(x, shape); }

Value* unsqueeze(Graph& g, Value* x, std::vector<int> axes) {
  std::sort(axes.begin(), axes.end());
  Exprs shape = x->shape;
  for (int a : axes) shape.insert(shape.begin() + a, Expr(1));
  return g.add_view(x, shape);
}

Value* squeeze(Graph& g, Value* x, std::vector<int> axes) {
  std::sort(axes.begin(), axes.end());
  Exprs shape = x->shape;
  for (auto it = axes.rbegin(); it != axes.rend(); ++it) {
    g.add_check(compare(Op::kEq, shape[static_cast<std::size_t>(*it)], 1),
                fmt::format("axis {} of shape {} is not 1 and can't be squeezed", *it, to_string(x->shape)));
    shape.erase(shape.begin() + *it);
  }
  return g.add_view(x, shape);
}

Value* transpose(Graph& g, Value* x, const std::vector<int>& perm) {
  Exprs shape;
  bool identity = true;
  for (std::size_t k = 0; k < perm.size(); ++k) {
    shape.push_back(x->shape[static_cast<std::size_t>(perm[k])]);
    identity &= perm[k] == static_cast<int>(k);
  }
  if (identity) return x;
  return generate(g, shape, [&](const Exprs& i) {
    Exprs j(perm.size());
    for (std::size_t k = 0; k < perm.size(); ++k) j[static_cast<std::size_t>(perm[k])] = i[k];
    return at(x, j);
  });
}

Value* expand(Graph& g, Value* x, const Exprs& shape) {
  // A target read from data may be 1 where x has a constant dim; that dim is the result's in any case.
  Exprs target = shape;
  for (std::size_t k = 0; k < std::min(shape.size(), x->shape.size()); ++k) {
    Expr& t = target[target.size() - 1 - k];
    const Expr& d = x->shape[x->shape.size() - 1 - k];
    if (is_const(t) || !is_const(d) || is_const(d, 1)) continue;
    g.add_check(logical_or(compare(Op::kEq, t, d), compare(Op::kEq, t, 1)),
                fmt::format("dim {} can't be expanded to {}", to_string(d), to_string(t)));
    t = d;
  }
  const Exprs out = broadcast_shapes(g, {x->shape, target});
  bool identical = out.size() == x->shape.size();
  for (std::size_t k = 0; identical && k < out.size(); ++k) identical = idx::provably_equal(out[k], x->shape[k]);
  if (identical) return x;
  return generate(g, out, [&](const Exprs& i) { return at_broadcast(x, i, out); });
}

Value* concat(Graph& g, const std::vector<Value*>& xs, int axis) {
  if (xs.size() == 1) return xs[0];
  if (xs.size() > kMaxOperands)
    return concat(g, in_runs(xs, [&](const std::vector<Value*>& run) { return concat(g, run, axis); }), axis);
  const auto ax = static_cast<std::size_t>(axis);
  Exprs shape = xs[0]->shape;
  Exprs starts = {Expr(0)};
  for (std::size_t k = 1; k < xs.size(); ++k) {
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (d == ax) continue;
      g.add_check(compare(Op::kEq, shape[d], xs[k]->shape[d]),
                  fmt::format("concatenated tensors differ in dim {}: {} and {}", d, to_string(shape[d]),
                              to_string(xs[k]->shape[d])));
      if (is_const(xs[k]->shape[d])) shape[d] = xs[k]->shape[d];
    }
  }
  for (std::size_t k = 0; k < xs.size(); ++k) starts.push_back(starts.back() + xs[k]->shape[ax]);
  shape[ax] = starts.back();
  return generate(g, shape, [&](const Exprs& i) {
    Expr e;
    for (std::size_t k = xs.size(); k-- > 0;) {
      if (is_const(xs[k]->shape[ax], 0)) continue;
      Exprs j = i;
      j[ax] = i[ax] - starts[k];
      const Expr x = at(xs[k], j);
      e = e ? select(compare(Op::kLt, i[ax], starts[k + 1]), x, e) : x;
    }
    return e ? e : constant(0, xs[0]->dtype);
  });
}

Value* slice(Graph& g, Value* x, int axis, const Expr& start, const Expr& size, const Expr& step) {
  Exprs shape = x->shape;
  const auto ax = static_cast<std::size_t>(axis);
  if (is_const(start, 0) && is_const(step, 1) && idx::provably_equal(size, shape[ax])) return x;
  shape[ax] = size;
  return generate(g, shape, [&](const Exprs& i) {
    Exprs j = i;
    j[ax] = start + i[ax] * step;
    return at(x, j);
  });
}

Expr wrap_index(const Expr& i, const Expr& size) {
  if (idx::provably_nonnegative(i)) return i;
  return select(compare(Op::kLt, i, 0), i + size, i);
}

Value* gather(Graph& g, Value* x, Value* indices, int axis) {
  const auto ax = static_cast<std::size_t>(axis);
  Exprs shape(x->shape.begin(), x->shape.begin() + axis);
  shape.insert(shape.end(), indices->shape.begin(), indices->shape.end());
  shape.insert(shape.end(), x->shape.begin() + axis + 1, x->shape.end());
  const std::size_t r = indices->shape.size();
  return generate(g, shape, [&](const Exprs& i) {
    Exprs at_index(i.begin() + axis, i.begin() + axis + static_cast<std::ptrdiff_t>(r));
    Expr k = wrap_index(sardonyx::cast(at(indices, at_index), DType::kInt64), x->shape[ax]);
    // Indices are data: an out-of-range one must not read outside of the tensor.
    k = idx::max(0, idx::min(k, x->shape[ax] - 1));
    Exprs j(i.begin(), i.begin() + axis);
    j.push_back(k);
    j.insert(j.end(), i.begin() + axis + static_cast<std::ptrdiff_t>(r), i.end());
    return at(x, j);
  });
}

Value* matmul(Graph& g, Value* a, Value* b, bool trans_a, bool trans_b, std::optional<DType> out_type) {
  const bool vector_a = a->rank() == 1, vector_b = b->rank() == 1;
  if (vector_a) a = unsqueeze(g, a, {0});
  if (vector_b) b = unsqueeze(g, b, {1});
  const std::size_t ra = a->shape.size(), rb = b->shape.size();
  const Expr m = a->shape[ra - (trans_a ? 1 : 2)], ka = a->shape[ra - (trans_a ? 2 : 1)];
  const Expr kb = b->shape[rb - (trans_b ? 1 : 2)], n = b->shape[rb - (trans_b ? 2 : 1)];
  g.add_check(compare(Op::kEq, ka, kb),
              fmt::format("inner dims of a matrix product differ: {} and {}", to_string(ka), to_string(kb)));
  const Exprs batch_a(a->shape.begin(), a->shape.end() - 2), batch_b(b->shape.begin(), b->shape.end() - 2);
  Exprs shape = broadcast_shapes(g, {batch_a, batch_b});
  const Exprs batch = shape;
  shape.push_back(m);
  shape.push_back(n);
  const Exprs vars = loop_vars(shape);
  const Expr k = loop_var(is_const(kb) ? kb : ka);
  auto element = [&](Value* x, const Exprs& xb, bool trans, const Expr& row, const Expr& col) {
    Exprs i;
    for (std::size_t d = 0; d < xb.size(); ++d) {
      const std::size_t o = batch.size() - xb.size() + d;
      i.push_back(is_const(xb[d], 1) ? Expr(0) : vars[o]);
    }
    i.push_back(trans ? col : row);
    i.push_back(trans ? row : col);
    return at(x, i);
  };
  const Expr ea = element(a, batch_a, trans_a, vars[vars.size() - 2], k);
  const Expr eb = element(b, batch_b, trans_b, k, vars[vars.size() - 1]);
  Value* y = g.add_node(MatMulOp{vars, k, ea, eb}, a == b ? std::vector<Value*>{a} : std::vector<Value*>{a, b},
                        {{out_type.value_or(a->dtype), shape}})
                 ->outputs[0];
  if (vector_b) y = squeeze(g, y, {y->rank() - 1});
  if (vector_a) y = squeeze(g, y, {y->rank() - (vector_b ? 1 : 2)});
  return y;
}

Value* softmax(Graph& g, Value* x, std::vector<int> axes, bool log) {
  const DType t = x->dtype, acc = accumulator(t);
  auto widen = [&](const Expr& e) { return sardonyx::cast(e, acc); };
  Value* m = reduce(g, ReduceKind::kMax, x, axes, true, widen);
  auto shifted = [&](const Expr& e, const Expr& top) { return sardonyx::binary(Op::kSub, widen(e), top); };
  Exprs vars = loop_vars(x->shape), red, outer(vars.size());
  std::vector<bool> reduced(vars.size());
  for (int a : axes) reduced[static_cast<std::size_t>(a)] = true;
  Exprs sum_vars;
  for (std::size_t k = 0; k < vars.size(); ++k) {
    outer[k] = reduced[k] ? Expr(0) : vars[k];
    if (reduced[k]) {
      red.push_back(vars[k]);
      sum_vars.push_back(loop_var(1));
    } else
      sum_vars.push_back(vars[k]);
  }
  const Expr e = sardonyx::unary(Op::kExp, shifted(at(x, vars), at(m, outer)));
  Value* s = g.add_loop(sum_vars, sardonyx::reduce(ReduceKind::kSum, red, e));
  return generate(g, x->shape, [&](const Exprs& i) {
    Exprs o = i;
    for (std::size_t k = 0; k < i.size(); ++k)
      if (reduced[k]) o[k] = 0;
    const Expr z = shifted(at(x, i), at(m, o));
    const Expr r = log ? sardonyx::binary(Op::kSub, z, sardonyx::unary(Op::kLog, at(s, o)))
                       : sardonyx::binary(Op::kDiv, sardonyx::unary(Op::kExp, z), at(s, o));
    return sardonyx::cast(r, t);
  });
}

Value* conv(Graph& g, Value* x, Value* w, Value* bias, ConvOp op, const Exprs& output_spatial) {
  Exprs shape = {x->shape[0], op.transposed ? w->shape[1] * op.groups : w->shape[0]};
  shape.insert(shape.end(), output_spatial.begin(), output_spatial.end());
  std::vector<Value*> in = {x, w};
  op.has_bias = bias != nullptr;
  // Added to the sum, which is float32 for half types; float64 and integers are their own.
  if (bias) in.push_back(cast(g, bias, accumulator(bias->dtype)));
  return g.add_node(std::move(op), in, {{x->dtype, shape}})->outputs[0];
}

std::vector<Value*> routine(Graph& g, std::string name, std::vector<Value*> inputs, Exprs params,
                            std::vector<double> floats, const std::vector<std::pair<DType, Exprs>>& outputs) {
  return g.add_node(RoutineOp{std::move(name), std::move(params), std::move(floats)}, std::move(inputs), outputs)
      ->outputs;
}

}  // namespace sardonyx::tensor
