// See contraction.h.
#include "codegen/contraction.h"

#include <array>

#include "codegen/emit.h"
#include "graph/analysis.h"
#include "support/error.h"

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kShortSum = 16;  // terms that a thread loads and adds up by itself

bool half(DType t) { return t == DType::kFloat16 || t == DType::kBFloat16; }
bool operand_type(DType t) { return half(t) || t == DType::kFloat32; }
// Whether tile kernels support these operand types with this result type.
bool products(DType a, DType b, DType out) {
  if ((a == DType::kInt8 || a == DType::kUInt8) && b == DType::kInt8) return out == DType::kInt32;
  if (a == b && (a == DType::kFloat8E4M3FN || a == DType::kFloat8E4M3FNUZ)) return out == DType::kFloat32;
  return operand_type(a) && operand_type(b) && is_float(out);
}

Exprs extents(const Exprs& vars) {
  Exprs e;
  for (const Expr& v : vars) e.push_back(v->args[0]);
  return e;
}

bool uses(const Expr& e, const Expr& var) {
  bool found = false;
  visit(e, [&](const Expr& x) { found |= x->op == Op::kVar && x->i == var->i; });
  return found;
}

// Replaces several variables by one; adds the replacements to `r`.
Expr flatten(const Exprs& vars, std::vector<std::pair<Expr, Expr>>& r) {
  const Exprs dims = extents(vars);
  const Expr flat = loop_var(idx::product(dims));
  const Exprs parts = idx::delinearize(flat, dims);
  for (std::size_t k = 0; k < vars.size(); ++k) r.emplace_back(vars[k], parts[k]);
  return flat;
}

// The epilogue and the position of its result. `vars`: of the tile node's output; r: the same in terms of z, row and
// col.
void finish(const TileKernel& t, Value& accumulator, const Expr& sum, const Exprs& vars,
            const std::vector<std::pair<Expr, Expr>>& r, Contraction& c) {
  const Value* node_out = t.node->outputs[0];
  c.out = t.out;
  c.accumulator = &accumulator;
  Expr result = sum;
  if (t.pairs) {
    Exprs half = vars, shape = node_out->shape;
    c.pair = loop_var(t.out->shape.back());
    half.back() = c.pair;
    shape.back() = t.out->shape.back();
    c.second = std::make_shared<Value>();
    c.second->dtype = accumulator.dtype;
    const Expr here = idx::linearize(half, shape);
    const Exprs at = idx::delinearize(here, t.out->shape);
    std::vector<std::pair<Expr, Expr>> own;
    for (std::size_t k = 0; k < at.size(); ++k) own.emplace_back(t.vars[k], at[k]);
    result = rewrite(substitute(t.epilogue, own), [&](const Expr& x) -> Expr {
      if (!x->has_load) return x;
      if (x->op != Op::kLoad || storage_of(const_cast<Value*>(x->value)) != node_out) return Expr();
      const bool even = idx::provably_equal(idx::linearize(x->args, x->value->shape), here * Expr(2));
      return cast(even ? sum : load(c.second.get(), c.second->dtype, {}), x->dtype);
    });
    c.result = substitute(widened_result(result, t.out->dtype), r);
    for (const Expr& i : at) c.out_index.push_back(substitute(i, r));
    return;
  }
  if (t.epilogue) {
    std::vector<std::pair<Expr, Expr>> own;  // replaces the kernel's variables by the node's
    for (std::size_t k = 0; k < vars.size(); ++k) own.emplace_back(t.vars[k], vars[k]);
    result = rewrite(substitute(t.epilogue, own), [&](const Expr& x) -> Expr {
      if (!x->has_load) return x;
      if (x->op == Op::kLoad && storage_of(const_cast<Value*>(x->value)) == node_out) return cast(sum, x->dtype);
      return Expr();
    });
  } else {
    result = cast(sum, node_out->dtype);
  }
  c.result = substitute(widened_result(result, t.out->dtype), r);
  for (const Expr& i : idx::delinearize(idx::linearize(vars, node_out->shape), t.out->shape))
    c.out_index.push_back(substitute(i, r));
}

// Whether the rows are divided by group. Passes may have changed b so that it depends on the row in another way too.
bool has_groups(const MatMulOp& m) {
  std::int64_t groups = 0;
  return m.end && is_const_int(m.group->args[0], groups) && groups > 0 && !uses(of_group(m, m.group), m.vars[0]);
}

Contraction of_groups(const TileKernel& t, const MatMulOp& m, Value& accumulator, Contraction c) {
  std::vector<std::pair<Expr, Expr>> r;
  c.row = flatten({m.vars[0], m.vars[1]}, r);
  c.row_dims = {c.row->args[0]};
  c.z = m.group;
  c.end = m.end;
  c.col = m.vars.back();
  c.reduced = {m.k};
  c.a = substitute(m.a, r);
  c.b = of_group(m, m.group);
  accumulator.dtype = is_float(c.type) ? DType::kFloat32 : DType::kInt32;
  finish(t, accumulator, load(&accumulator, accumulator.dtype, {}), m.vars, r, c);
  return c;
}

Contraction of_matmul(const TileKernel& t, const MatMulOp& m, Value& accumulator) {
  Contraction c;
  c.type = m.a->dtype == m.b->dtype || size_of(m.a->dtype) == 1 ? m.a->dtype : DType::kFloat32;
  if (has_groups(m)) return of_groups(t, m, accumulator, std::move(c));
  // Dims on which b does not depend become rows.
  Exprs batch, rows;
  for (std::size_t k = 0; k + 2 < m.vars.size(); ++k) (uses(m.b, m.vars[k]) ? batch : rows).push_back(m.vars[k]);
  rows.push_back(m.vars[m.vars.size() - 2]);
  std::vector<std::pair<Expr, Expr>> r;
  c.row_dims = extents(rows);
  c.z = flatten(batch, r);
  c.row = flatten(rows, r);
  c.col = m.vars.back();
  c.reduced = {m.k};
  c.a = substitute(m.a, r);
  c.b = substitute(m.b, r);
  accumulator.dtype = is_float(c.type) ? DType::kFloat32 : DType::kInt32;
  finish(t, accumulator, load(&accumulator, accumulator.dtype, {}), m.vars, r, c);
  return c;
}

// Neighbouring outputs along the last dim that one window computes: see fuse/fill_channels.h.
std::int64_t outputs_of_window(const Value& w, const Value& out, const ConvOp& op) {
  std::int64_t columns = 0, outputs = 0;
  if (op.transposed || op.groups != 1 || !is_const_int(w.shape[0], columns) || !is_const_int(out.shape[1], outputs))
    return 1;
  return columns / outputs;
}

std::optional<Windows> windows_of(const Value& x, const Value& w, const Value& out, const ConvOp& op) {
  const std::size_t n = op.strides.size();
  if (op.transposed || op.groups != 1 || op.zeros > 0 || n < 1 || n > 2) return {};
  Windows s;
  s.images = &x;
  s.image = loop_var(x.shape[0]);
  s.channel = loop_var(x.shape[1]);
  for (std::size_t k = 0; k < 2; ++k) {
    const bool line = n == 1 && k == 0;  // a 1-D convolution, as images of height 1
    const std::size_t at = k + n - 2;
    (k == 0 ? s.y : s.x) = loop_var(line ? Expr(1) : x.shape[at + 2]);
    s.out[k] = line ? Expr(1) : out.shape[at + 2];
    if (k == 1) s.out[k] = idx::floordiv(s.out[k], outputs_of_window(w, out, op));
    s.pads[k] = line ? Expr(0) : op.pads_begin[at];
    s.pads_end[k] = line ? Expr(0) : op.pads_end[at];
    s.strides[k] = line ? 1 : op.strides[at];
    s.dilations[k] = line ? 1 : op.dilations[at];
    if (line)
      s.taps[k] = 1;
    else if (!is_const_int(w.shape[at + 2], s.taps[k]))
      return {};
  }
  Exprs i = {s.image, s.channel};
  if (n == 2) i.push_back(s.y);
  i.push_back(s.x);
  s.offset = storage_offset(x, i);
  return s;
}

// Whether a convolution has one tap, and image and result have the pixels of a channel side by side: between Fourier
// transforms, for example. Its columns should then be pixels.
bool along_pixels(const TileKernel& t, const ConvOp& op) {
  const Value *x = t.node->inputs[0], *w = t.node->inputs[1], *out = t.node->outputs[0];
  if (op.groups != 1 || op.transposed || op.zeros > 0 || size_of(x->dtype) == 1 || !t.out->storage_order.empty() ||
      t.out->rank() != out->rank())
    return false;
  for (std::size_t k = 0; k < op.strides.size(); ++k)
    if (!is_const(w->shape[k + 2], 1) || op.strides[k] != 1 || !is_const(Expr(op.pads_begin[k]), 0) ||
        !is_const(Expr(op.pads_end[k]), 0))
      return false;
  for (std::size_t k = 0; k < out->rank(); ++k)
    if (!idx::provably_equal(t.out->shape[k], out->shape[k])) return false;
  return true;
}

// Of each image, the product of the weights and the pixels of all channels.
Contraction of_pixels(const TileKernel& t, const ConvOp& op, Value& accumulator) {
  const std::vector<Value*>& in = t.node->inputs;
  const Value *x = in[0], *w = in[1], *out = t.node->outputs[0];
  Contraction c;
  c.type = x->dtype;
  c.z = loop_var(out->shape[0]);
  c.row = loop_var(out->shape[1]);
  const Expr channel = loop_var(x->shape[1]);
  Exprs pixel = vars_of({out->shape.begin() + 2, out->shape.end()}), at_x = {c.z, channel}, vars = {c.z, c.row},
        at_w = {c.row, channel};
  for (const Expr& p : pixel) at_x.push_back(p), vars.push_back(p), at_w.push_back(0);
  std::vector<std::pair<Expr, Expr>> r;
  c.row_dims = {c.row->args[0]};
  c.col = flatten(pixel, r);
  c.reduced = {channel};
  c.a = load(w, w->dtype, at_w);
  c.b = substitute(load(x, x->dtype, at_x), r);
  accumulator.dtype = DType::kFloat32;
  Expr sum = load(&accumulator, accumulator.dtype, {});
  if (op.has_bias) sum = binary(Op::kAdd, sum, cast(load(in[2], in[2]->dtype, {c.row}), accumulator.dtype));
  finish(t, accumulator, sum, vars, r, c);
  return c;
}

Contraction of_conv(const TileKernel& t, const ConvOp& op, Value& accumulator) {
  if (along_pixels(t, op)) return of_pixels(t, op, accumulator);
  const std::vector<Value*>& in = t.node->inputs;
  Value *x = in[0], *w = in[1];
  const Value* out = t.node->outputs[0];
  Contraction c;
  c.type = x->dtype;
  const Expr groups = op.groups;
  const Expr in_group = idx::floordiv(x->shape[1], groups), out_group = idx::floordiv(out->shape[1], groups);
  const std::size_t n = op.strides.size();
  Exprs rows = {loop_var(out->shape[0])};
  for (std::size_t k = 0; k < n; ++k) rows.push_back(loop_var(out->shape[k + 2]));
  const std::int64_t folded = outputs_of_window(*w, *out, op);
  if (folded > 1) rows.back() = loop_var(idx::floordiv(out->shape.back(), folded));
  const Expr group = loop_var(groups), column = loop_var(out_group * Expr(folded)),
             channel = loop_var(in_group + Expr(op.zeros));
  Exprs at_x = {rows[0], group * in_group + channel}, at_w;
  if (op.transposed)
    at_w = {group * in_group + channel, column};
  else
    at_w = {group * out_group + column, channel};
  c.inside = constant_bool(true);
  if (op.zeros > 0) is_const_int(x->shape[1], c.stored);
  for (std::size_t k = 0; k < n; ++k) {
    const Expr tap = loop_var(w->shape[k + 2]);
    c.reduced.push_back(tap);
    at_w.push_back(tap);
    Expr at;
    if (op.transposed) {
      const Expr shifted = rows[k + 1] + op.pads_begin[k] - tap * op.dilations[k];
      at = op.strides[k] == 1 ? shifted : idx::floordiv(shifted, op.strides[k]);
      if (op.strides[k] != 1) c.inside = logical_and(c.inside, compare(Op::kEq, idx::mod(shifted, op.strides[k]), 0));
    } else {
      at = rows[k + 1] * op.strides[k] + tap * op.dilations[k] - op.pads_begin[k];
    }
    c.inside = logical_and(c.inside, logical_and(compare(Op::kGe, at, 0), compare(Op::kLt, at, x->shape[k + 2])));
    at_x.push_back(at);
  }
  c.reduced.push_back(channel);
  Exprs vars = {rows[0], group * out_group + column};
  vars.insert(vars.end(), rows.begin() + 1, rows.end());
  if (folded > 1) {
    vars[1] = idx::mod(column, out_group);
    vars.back() = vars.back() * Expr(folded) + idx::floordiv(column, out_group);
  }
  std::vector<std::pair<Expr, Expr>> r;
  c.row_dims = extents(rows);
  c.z = flatten({group}, r);
  c.row = flatten(rows, r);
  c.col = column;
  c.a = substitute(load(x, x->dtype, at_x), r);
  c.b = substitute(load(w, w->dtype, at_w), r);
  c.inside = substitute(c.inside, r);
  c.windows = windows_of(*x, *w, *out, op);
  accumulator.dtype = is_float(c.type) ? DType::kFloat32 : DType::kInt32;
  Expr sum = load(&accumulator, accumulator.dtype, {});
  if (op.has_bias) sum = binary(Op::kAdd, sum, cast(load(in[2], in[2]->dtype, {vars[1]}), accumulator.dtype));
  finish(t, accumulator, sum, vars, r, c);
  return c;
}

// Whether K of a convolution in 16-bit floats is so long, in whole vectors, that matrix instructions are faster even if
// most of their columns are unused. An example is the last convolution of an image decoder, with 3 output channels.
bool long_sums(const ConvOp& c, const Value& x, const Value& w) {
  constexpr std::int64_t kLongSum = 128;  // terms: eight matrix instructions of K = 16
  constexpr std::int64_t kVector = 8;     // elements of a 16-byte load
  std::int64_t channels = 0, terms = 0;
  return half(x.dtype) && c.groups == 1 && !c.transposed && is_const_int(x.shape[1], channels) &&
         channels % kVector == 0 && is_const_int(idx::product({w.shape.begin() + 1, w.shape.end()}), terms) &&
         terms >= kLongSum;
}

// Whether each left matrix of a batch has a right one of its own.
bool batch_of_pairs(const MatMulOp& m) {
  for (std::size_t k = 0; k + 2 < m.vars.size(); ++k)
    if (!is_const(m.vars[k]->args[0], 1) && uses(m.a, m.vars[k]) && uses(m.b, m.vars[k])) return true;
  return false;
}

// Whether each matrix of a batch is multiplied by a vector of its own. Tiles would compute up to 63 columns that do not
// exist for each, and the operands are read once in any case.
bool multiplies_vectors(const MatMulOp& m) {
  const std::size_t n = m.vars.size();
  return (is_const(m.vars[n - 1]->args[0], 1) || is_const(m.vars[n - 2]->args[0], 1)) && batch_of_pairs(m);
}

// Whether this is a batched GEMM of which the right or the left matrices are so small that most of a tile would be
// empty. A loop kernel, whose neighbouring threads load vectors and sum few terms, is bound by memory only.
bool multiplies_small_matrices(const MatMulOp& m) {
  constexpr std::int64_t kSmall = 128;  // elements: 16 x 8. Products of attention are larger in one of the dims
  constexpr std::int64_t kShort = 16;   // terms; with more, few queries of attention would count as small
  std::int64_t k = 0, lines = 0;
  const auto few = [&](const Expr& v) { return is_const_int(v->args[0], lines) && lines > 1 && k * lines <= kSmall; };
  return is_const_int(m.k->args[0], k) && (few(m.vars.back()) || (k <= kShort && few(m.vars[m.vars.size() - 2]))) &&
         batch_of_pairs(m);
}

// Whether neither elements of a row nor those of a column of an operand are neighbours in memory.
bool is_scattered(const Expr& operand, const Expr& row, const Expr& k) {
  const Expr x = operand->op == Op::kCast ? operand->args[0] : operand;
  if (x->op != Op::kLoad) return false;
  const Expr at = flatten_loads(x)->args[0];
  return std::ranges::all_of(std::array{row, k}, [&](const Expr& var) {
    Expr step, rest;
    return !is_const(var) && idx::split_affine(at, var, step, rest) && !is_const(step, 1) && !uses(rest, var);
  });
}

// Whether this is a batched GEMM of small right matrices, and left ones whose elements lie apart: of a Fourier
// operator's modes, for example. A tile would be loaded element by element. A loop loads them for each result, which
// caches make cheap, and fuses with the loops around it.
bool multiplies_scattered_matrices(const MatMulOp& m) {
  constexpr std::int64_t kMostTerms = 32, kMostElements = 1024;  // of a right matrix
  std::int64_t k = 0, columns = 0;
  return is_const_int(m.k->args[0], k) && is_const_int(m.vars.back()->args[0], columns) && k <= kMostTerms &&
         k * columns <= kMostElements && batch_of_pairs(m) && is_scattered(m.a, m.vars[m.vars.size() - 2], m.k);
}

}  // namespace

Expr Contraction::k() const {
  Exprs e;
  for (const Expr& v : reduced) e.push_back(v->args[0]);
  return idx::product(e);
}

bool is_contraction(const Node& node, std::string& why) {
  std::int64_t few = 0;
  if (const auto* m = node.as<MatMulOp>()) {
    if (!products(m->a->dtype, m->b->dtype, node.outputs[0]->dtype))
      why = fmt::format("products of {} and {} have no tile kernel", name(m->a->dtype), name(m->b->dtype));
    else if (m->a->has_reduce || m->b->has_reduce)
      why = "an operand is a sum";
    else if (is_const_int(m->k->args[0], few) && few < 8)
      why = "so short a sum is a loop";
    else if (is_const_int(m->k->args[0], few) && few <= kShortSum && multiplies_vectors(*m))
      why = "so short sums of matrices by vectors are a loop";
    else if (multiplies_small_matrices(*m))
      why = "such small matrices are a loop";
    else if (multiplies_scattered_matrices(*m))
      why = "products of matrices whose elements lie apart with small ones are a loop";
    return why.empty();
  }
  if (const auto* c = node.as<ConvOp>()) {
    const Value *x = node.inputs[0], *w = node.inputs[1], *out = node.outputs[0];
    const Expr in_group = idx::floordiv(x->shape[1], c->groups), out_group = idx::floordiv(out->shape[1], c->groups);
    const bool typed = x->dtype == w->dtype || x->dtype == DType::kUInt8;
    if (!typed || !products(x->dtype, w->dtype, out->dtype))
      why = fmt::format("convolutions of {} with {} have no tile kernel", name(x->dtype), name(w->dtype));
    else if (is_const_int(out_group, few) && few < 8 && !long_sums(*c, *x, *w))
      why = "so few output channels (of a group) are a loop";
    else if (c->groups > 1 && is_const_int(in_group, few) && few < 8)
      why = "so few channels of a group are a loop";
    else if (is_const_int(idx::product({w->shape.begin() + (c->transposed ? 2 : 1), w->shape.end()}), few) && few < 8 &&
             !c->transposed)
      why = "so short a sum is a loop";
    return why.empty();
  }
  why = "this kind of node has no tile kernel";
  return false;
}

Contraction contraction_of(const TileKernel& kernel, Value& accumulator) {
  if (const auto* m = kernel.node->as<MatMulOp>()) return of_matmul(kernel, *m, accumulator);
  return of_conv(kernel, *kernel.node->as<ConvOp>(), accumulator);
}

Expr widen_halves_of(const Expr& e) {
  // Converts leaves to float32; the expressions above them are rebuilt in the type of their operands.
  return rewrite(e, [](const Expr& x) -> Expr {
    const bool is_half = half(x->dtype);
    if (x->op == Op::kConst) return is_half ? constant_float(x->f, DType::kFloat32) : Expr();
    if (x->op != Op::kLoad && x->op != Op::kCast && x->op != Op::kBitCast) return Expr();
    Exprs args;
    for (const Expr& a : x->args) args.push_back(widen_halves_of(a));
    const int mode = static_cast<int>(x->i);
    Expr y;
    if (x->op == Op::kLoad)
      y = load(x->value, x->dtype, args);
    else if (x->op == Op::kBitCast)
      y = bitcast(half(x->args[0]->dtype) ? cast(args[0], x->args[0]->dtype) : args[0], x->dtype);
    else if (is_half && !(mode & kCastRounds))
      y = args[0];
    else
      y = cast(args[0], x->dtype, mode);
    return is_half ? cast(y, DType::kFloat32) : y;
  });
}

Expr widened_result(const Expr& e, DType out) {
  const bool saturates = e->op == Op::kCast && (e->i & kCastSaturatesHalf) && out == DType::kFloat16;
  return cast(widen_halves_of(e), out, saturates ? kCastSaturatesHalf : 0);
}

}  // namespace sardonyx::codegen
