#include "tiles/match.h"

#include <algorithm>
#include <unordered_set>

#include "tiles/scalar_function.h"

namespace sardonyx::tiles {
namespace {

constexpr std::size_t kMostReads = 48;  // tensors of a generated epilogue; a kernel has 64 arguments at most

bool integers(DType a, DType b, DType out) { return a == DType::kUInt8 && b == DType::kInt8 && out == DType::kInt32; }

// Whether generated code can be the epilogue of an integer product. It computes any expression.
bool takes_epilogue(const TileKernel& kernel, std::string& why) {
  if (kernel.epilogue && loads_of(kernel.epilogue).size() > kMostReads) {
    why = "the epilogue reads too many tensors";
    return false;
  }
  return true;
}

bool library_float(DType t) { return t == DType::kFloat32 || t == DType::kFloat16 || t == DType::kBFloat16; }

// Strips casts between float types from x: the host's epilogues compute in float32.
Expr strip_casts(Expr e) {
  while (e->op == Op::kCast && !(e->i & kCastRounds) && library_float(e->dtype) && library_float(e->args[0]->dtype))
    e = e->args[0];
  return e;
}

Expr offset_of(const Expr& l) {
  const Value& v = *l->value;
  if (v.storage_order.empty()) return idx::linearize(l->args, v.shape);
  Exprs i, s;
  for (int d : v.storage_order) {
    i.push_back(l->args[static_cast<std::size_t>(d)]);
    s.push_back(v.shape[static_cast<std::size_t>(d)]);
  }
  return idx::linearize(i, s);
}

// The load as one of a contiguous tensor over `vars` (outermost first); a var that does not move it has dim 1. False if
// there is no such tensor.
bool as_contiguous(const Expr& offset, const Exprs& vars, Exprs& dims) {
  dims.assign(vars.size(), Expr(1));
  Expr rest = offset, stride = 1;
  for (std::size_t k = vars.size(); k-- > 0;) {
    Expr c, left;
    if (!idx::split_affine(rest, vars[k], c, left)) return false;
    rest = left;
    if (is_const(c, 0) || is_const(vars[k]->args[0], 1)) continue;
    if (!idx::provably_equal(c, stride)) return false;
    dims[k] = vars[k]->args[0];
    stride = stride * vars[k]->args[0];
  }
  return is_const(rest, 0);
}

bool contains(const Expr& e, const Value* t) {
  if (!e->has_load) return false;
  bool found = false;
  visit(e, [&](const Expr& x) { found |= x->op == Op::kLoad && storage_of(x->value) == t; });
  return found;
}

// Nodes that are on every path from `root` to the accumulator; accumulator first, root last.
Exprs dominators(const Expr& root, const Value* t) {
  Exprs nodes;  // nodes that contain the accumulator, operands first
  visit(root, [&](const Expr& x) {
    if (contains(x, t)) nodes.push_back(x);
  });
  Exprs out;
  for (const Expr& d : nodes) {
    // Is the accumulator reachable without passing d?
    std::unordered_set<const ExprNode*> seen;
    std::vector<Expr> stack;
    if (!same(d, root)) stack.push_back(root);
    bool reached = false;
    while (!stack.empty() && !reached) {
      const Expr x = stack.back();
      stack.pop_back();
      if (same(x, d) || !seen.insert(x.get()).second) continue;
      if (x->op == Op::kLoad && storage_of(x->value) == t) {
        reached = true;
        break;
      }
      for (const Expr& a : x->args)
        if (contains(a, t)) stack.push_back(a);
    }
    if (!reached) {
      bool twice = false;
      for (const Expr& o : out) twice |= same(o, d);
      if (!twice) out.push_back(d);
    }
  }
  return out;
}

std::optional<PostStep> tensor_step(const Expr& from, const Expr& to, const Exprs& vars, const std::vector<int>& order,
                                    bool final_layout) {
  using Kind = PostKind;
  const Expr e = strip_casts(to);
  if (e->args.size() != 2) return {};
  const bool left = same(strip_casts(e->args[0]), strip_casts(from)),
             right = same(strip_casts(e->args[1]), strip_casts(from));
  if (left == right) return {};
  const Expr y = strip_casts(left ? e->args[1] : e->args[0]);
  if (y->op != Op::kLoad || !library_float(y->dtype)) return {};
  PostStep s;
  switch (e->op) {
    case Op::kAdd:
      s.op.kind = Kind::kAddTensor;
      break;
    case Op::kMul:
      s.op.kind = Kind::kMulTensor;
      break;
    case Op::kMax:
      s.op.kind = Kind::kMaxTensor;
      break;
    case Op::kMin:
      s.op.kind = Kind::kMinTensor;
      break;
    case Op::kSub:
      if (!left) return {};
      s.op.kind = Kind::kSubTensor;
      break;
    case Op::kDiv:
      if (!left) return {};
      s.op.kind = Kind::kDivTensor;
      break;
    default:
      return {};
  }
  Exprs ordered;
  for (int d : order) ordered.push_back(vars[static_cast<std::size_t>(d)]);
  s.operand = const_cast<Value*>(y->value);
  s.op.dtype = y->dtype;
  if (!final_layout && y->args.size() == vars.size()) {
    // The operand is read at the output's own position, dim by dim; the layout pass brings it into the output's order.
    // A slice of a larger tensor would stay a slice in any order, so the dims must be the operand's own.
    bool aligned = true;
    s.dims.clear();
    for (int d : order) {
      const Expr& i = y->args[static_cast<std::size_t>(d)];
      const bool moves = same(i, vars[static_cast<std::size_t>(d)]);
      s.dims.push_back(moves ? vars[static_cast<std::size_t>(d)]->args[0] : Expr(1));
      aligned &=
          (moves || is_const(i, 0)) && idx::provably_equal(y->value->shape[static_cast<std::size_t>(d)], s.dims.back());
    }
    if (aligned) return s;
  }
  if (!as_contiguous(offset_of(y), ordered, s.dims)) return {};
  return s;
}

}  // namespace

std::optional<std::vector<PostStep>> match_epilogue(const Expr& epilogue, const Value* accumulator, const Exprs& vars,
                                                    const std::vector<int>& order, bool final_layout,
                                                    std::string& why) {
  std::vector<PostStep> steps;
  if (!library_float(epilogue->dtype)) {
    why = fmt::format("the epilogue's result is {}", name(epilogue->dtype));
    return {};
  }
  const Exprs chain = dominators(epilogue, accumulator);
  if (chain.empty()) return {};
  std::size_t at = 0;
  while (at + 1 < chain.size()) {
    bool advanced = false;
    // The longest run of pure functions that the host has, then a step with a tensor.
    for (std::size_t to = chain.size() - 1; to > at && !advanced; --to) {
      if (same(strip_casts(chain[to]), strip_casts(chain[at]))) {  // nothing but casts
        at = to;
        advanced = true;
        break;
      }
      if (auto op = recognize_function(chain[to], chain[at])) {
        PostStep s;
        s.op = *op;
        steps.push_back(std::move(s));
        at = to;
        advanced = true;
      }
    }
    if (advanced) continue;
    auto s = tensor_step(chain[at], chain[at + 1], vars, order, final_layout);
    if (!s) {
      why = "the host has no such epilogue step: " + to_string(chain[at + 1]);
      return {};
    }
    steps.push_back(std::move(*s));
    ++at;
  }
  return steps;
}

std::optional<GemmMatch> match_gemm(const TileKernel& kernel, std::string& why) {
  const auto* m = kernel.node->as<MatMulOp>();
  const Value* acc = kernel.node->outputs[0];
  GemmMatch g;
  g.out = kernel.out;
  const Expr a = m->a, b = m->b;
  g.integers = integers(a->dtype, b->dtype, acc->dtype);
  const bool floats = library_float(a->dtype) && library_float(b->dtype) && library_float(acc->dtype) &&
                      library_float(kernel.out->dtype);
  if (a->op != Op::kLoad || b->op != Op::kLoad || !(g.integers || floats)) {
    why = "operands are not tensors in memory, of floats or of uint8 and int8";
    return {};
  }
  const std::size_t batch = m->vars.size() - 2;
  const Expr &row = m->vars[batch], &col = m->vars[batch + 1];
  g.m = row->args[0];
  g.n = col->args[0];
  g.k = m->k->args[0];
  const Exprs batch_vars(m->vars.begin(), m->vars.end() - 2);
  auto operand = [&](const Expr& l, const Expr& outer, const Expr& inner, Exprs& dims, bool& trans) {
    for (const bool t : {false, true}) {
      Exprs vars = batch_vars;
      vars.push_back(t ? inner : outer);
      vars.push_back(t ? outer : inner);
      Exprs d;
      if (!as_contiguous(offset_of(l), vars, d)) continue;
      // The host's GEMM would read a matrix along a dim that the load ignores.
      if (!idx::provably_equal(d[batch], vars[batch]->args[0]) ||
          !idx::provably_equal(d[batch + 1], vars[batch + 1]->args[0]))
        continue;
      dims.assign(d.begin(), d.end() - 2);
      trans = t;
      return true;
    }
    return false;
  };
  if (!operand(a, row, m->k, g.batch_a, g.trans_a) || !operand(b, m->k, col, g.batch_b, g.trans_b)) {
    why = "an operand is not a contiguous matrix";
    return {};
  }
  if (g.integers && g.trans_a) {
    why = "the left operand is transposed";
    return {};
  }
  for (std::size_t k = 0; k < batch; ++k)
    if (is_const(g.batch_a[k], 1) && is_const(g.batch_b[k], 1) && !is_const(batch_vars[k]->args[0], 1)) {
      why = "all GEMMs of a batch are the same";  // the host would otherwise compute one GEMM
      return {};
    }
  g.a = const_cast<Value*>(a->value);
  g.b = const_cast<Value*>(b->value);
  if (g.integers) {
    if (!takes_epilogue(kernel, why)) return {};
  } else if (kernel.epilogue) {
    std::vector<int> order;
    for (std::size_t k = 0; k < kernel.vars.size(); ++k) order.push_back(static_cast<int>(k));
    auto post = match_epilogue(kernel.epilogue, acc, kernel.vars, order, true, why);
    if (!post) return {};
    g.post = std::move(*post);
  }
  return g;
}

namespace {

// The rest of match_conv() for 8-bit integers.
bool match_integer_conv(const TileKernel& kernel, bool final_layout, ConvMatch& m, std::string& why) {
  const Value* acc = kernel.node->outputs[0];
  m.integers = true;
  if (m.bias || m.op->transposed || m.op->groups != 1 || acc->rank() < 3 || acc->rank() > 4) {
    why = "the host's convolution of integers supports 1 or 2 spatial dims, without bias and groups";
    return false;
  }
  m.channels_last = !final_layout || !acc->storage_order.empty();
  if (kernel.epilogue && !m.channels_last) {
    why = "the convolution's sums have their channels last, unlike what the epilogue writes";
    return false;
  }
  return takes_epilogue(kernel, why);
}

}  // namespace

std::optional<ConvMatch> match_conv(const TileKernel& kernel, bool final_layout, std::string& why) {
  const auto* c = kernel.node->as<ConvOp>();
  const Value* acc = kernel.node->outputs[0];
  ConvMatch m;
  m.op = c;
  m.x = kernel.node->inputs[0];
  m.w = kernel.node->inputs[1];
  m.bias = c->has_bias ? kernel.node->inputs[2] : nullptr;
  m.out = kernel.out;
  const int rank = acc->rank();
  if (integers(m.x->dtype, m.w->dtype, acc->dtype)) {
    if (!match_integer_conv(kernel, final_layout, m, why)) return {};
    return m;
  }
  for (const Value* v : kernel.node->inputs)
    if (!library_float(v->dtype)) {
      why = fmt::format("the host's convolution does not support {}", name(v->dtype));
      return {};
    }
  if (m.bias && m.bias->dtype != DType::kFloat32) {
    why = "the host's convolution supports only float32 biases";
    return {};
  }
  if (rank < 3 || rank > 5 || !library_float(acc->dtype) || !library_float(kernel.out->dtype)) {
    why = "the host's convolution supports 1 to 3 spatial dims";
    return {};
  }
  for (const Exprs* pads : {&c->pads_begin, &c->pads_end})
    for (const Expr& p : *pads)
      if (!idx::provably_nonnegative(p)) {
        why = "a padding may be negative";
        return {};
      }
  std::vector<int> order = {0};
  for (int k = 2; k < rank; ++k) order.push_back(k);
  order.push_back(1);
  m.channels_last = true;
  // Not that of what the epilogue writes: a single channel is last in either order (fuse/layouts.cpp), but x is not.
  if (final_layout && acc->storage_order.empty()) {
    m.channels_last = false;
    order.clear();
    for (int k = 0; k < rank; ++k) order.push_back(k);
  }
  if (kernel.epilogue) {
    auto post = match_epilogue(kernel.epilogue, acc, kernel.vars, order, final_layout, why);
    if (!post) return {};
    m.post = std::move(*post);
  }
  return m;
}

namespace {

// e as an offset plus strides times vars.
bool head_tensor(const Expr& offset, const Exprs& vars, HeadTensor& t) {
  Expr rest = offset;
  t.strides.clear();
  for (const Expr& v : vars) {
    if (is_const(v) || is_const(v->args[0], 1)) {
      if (!is_const(v)) rest = substitute(rest, {{v, Expr(0)}});
      t.strides.push_back(0);
      continue;
    }
    Expr c, left;
    if (!idx::split_affine(rest, v, c, left)) return false;
    t.strides.push_back(c);
    rest = left;
  }
  t.offset = rest;
  return !rest->has_var;
}

// Key and value heads shared by several query heads have the index h / group.
bool key_tensor(const Expr& l, Exprs vars, std::int64_t& group, HeadTensor& t) {
  t.value = const_cast<Value*>(l->value);
  Expr offset = offset_of(l);
  const Expr h = vars[1];
  std::int64_t divisor = 1;
  visit(offset, [&](const Expr& x) {
    if (x->op == Op::kFloorDiv && same(x->args[0], h) && is_const(x->args[1])) divisor = x->args[1]->i;
  });
  if (divisor > 1) {
    const Expr outer = loop_var(idx::floordiv(h->args[0], divisor)), inner = loop_var(divisor);
    offset = substitute(offset, {{h, outer * divisor + inner}});
    vars[1] = outer;
    Expr c, rest;
    if (!idx::split_affine(offset, inner, c, rest) || !is_const(c, 0)) return false;
  }
  if (group != 0 && group != divisor) return false;
  group = divisor;
  return head_tensor(offset, vars, t);
}

// Keys or values in pages, whose numbers are in a table, as fuse/attention.cpp writes them. `l` becomes a load of page
// 0 at row `row`. False if it has another form, or not the same pages as before.
bool page_tensor(Expr& l, const Exprs& vars, const Expr& row, Expr& distance, AttentionMatch& m) {
  const Expr &b = vars[0], &h = vars[1], &t = vars[2];
  const Expr& number = l->args[0];
  const std::int64_t rows = row->args[0]->i;
  if (number->op != Op::kLoad || number->dtype != DType::kInt64 || number->value->rank() != 2 ||
      !same(number->args[1], idx::floordiv(t, rows)) || !same(l->args[1], idx::mod(t, rows)))
    return false;
  for (std::size_t k = 2; k < l->args.size(); ++k)
    if (mentions(l->args[k], t) || l->args[k]->has_load) return false;
  HeadTensor pages;
  pages.value = const_cast<Value*>(number->value);
  const Expr page = loop_var(idx::ceildiv(t->args[0], rows));
  const Expr at = load(number->value, number->dtype, {number->args[0], page});
  if (!head_tensor(offset_of(at), {b, h, page, Expr(0)}, pages) || !is_const(pages.strides[1], 0)) return false;
  if (!is_const(pages.strides[2], 1) && !is_const(page->args[0], 1)) return false;
  if (m.pages.value && (m.pages.value != pages.value || !same(m.pages.offset, pages.offset) ||
                        !same(m.pages.strides[0], pages.strides[0]) || m.page_rows != rows))
    return false;
  m.pages = std::move(pages);
  m.page_rows = rows;
  const Exprs& shape = l->value->shape;
  distance = idx::product(Exprs(shape.begin() + 1, shape.end()));
  Exprs first = l->args;
  first[0] = 0;
  first[1] = row;
  l = load(l->value, l->dtype, first);
  return true;
}

// The scales of keys and values in 8 bits, in pages of as many rows.
bool scales_in_pages(const AttentionOp& a, const Exprs& vars, const Expr& row, std::int64_t& group, AttentionMatch& m) {
  for (const auto& [scale, tensor, distance] :
       {std::tuple(a.k_scale, &m.k_scale, &m.k_scale_page), std::tuple(a.v_scale, &m.v_scale, &m.v_scale_page)}) {
    if (!m.pages.value || scale->op != Op::kLoad || scale->dtype != DType::kFloat32 || !scale->args[0]->has_load ||
        !scale->value->storage_order.empty() || scale->value->rank() != 3)
      return false;
    Expr l = scale;
    if (!is_const(scale->value->shape[1], m.page_rows) ||
        !page_tensor(l, {vars[0], vars[1], vars[3]}, row, *distance, m) ||
        !key_tensor(l, {vars[0], vars[1], row, Expr(0)}, group, *tensor))
      return false;
  }
  return true;
}

// Describes keys and values, in pages or not.
bool keys_and_values(const AttentionOp& a, const Exprs& vars, std::int64_t& group, AttentionMatch& m) {
  const Expr &b = vars[0], &h = vars[1], &t = vars[3];
  Expr k = a.k, v = a.v, k_row = t, v_row = t;
  const bool paged = k->args[0]->has_load;
  std::int64_t rows = 0, other = 0;
  if (paged) {
    if (!v->args[0]->has_load || !k->value->storage_order.empty() || !v->value->storage_order.empty() ||
        k->value->rank() != 4 || v->value->rank() != 4 || !is_const_int(k->value->shape[1], rows) ||
        !is_const_int(v->value->shape[1], other) || rows != other)
      return false;
    k_row = v_row = loop_var(rows);
    if (!page_tensor(k, {b, h, t}, k_row, m.k_page, m) || !page_tensor(v, {b, h, t}, v_row, m.v_page, m)) return false;
  }
  if (a.k_scale && !scales_in_pages(a, vars, k_row, group, m)) return false;
  return key_tensor(k, {b, h, k_row, vars[4]}, group, m.k) && key_tensor(v, {b, h, v_row, vars[5]}, group, m.v);
}

}  // namespace

std::optional<AttentionMatch> match_attention(const TileKernel& kernel, std::string& why) {
  const auto* a = kernel.node->as<AttentionOp>();
  AttentionMatch m;
  const auto refuse = [&](const char* reason) {
    why = reason;
    return std::nullopt;
  };
  if (kernel.epilogue || !is_const(a->scale)) return refuse("the host's attention does not have this form");
  bool floats = kernel.out->dtype == DType::kFloat32;
  if (a->has_bias)
    floats &= a->bias->op == Op::kLoad && (a->bias->dtype == DType::kFloat32 || a->bias->dtype == DType::kBool);
  const DType stored = a->k_scale ? a->k->dtype : DType::kFloat32;
  floats &= stored == DType::kFloat32 || stored == DType::kInt8 || stored == DType::kFloat8E4M3FN;
  for (const Expr& e : {a->q, a->k, a->v})
    floats &= e->op == Op::kLoad && e->dtype == (same(e, a->q) ? DType::kFloat32 : stored);
  if (!floats) return refuse("the host's attention needs float32 tensors in memory");
  const Expr &b = a->vars[0], &h = a->vars[1], &s = a->vars[2], &t = a->vars[3], &d = a->vars[4], &e = a->vars[5];
  m.batch = b->args[0];
  m.heads = h->args[0];
  m.queries = s->args[0];
  m.keys = t->args[0];
  m.head_dim = d->args[0];
  m.value_dim = e->args[0];
  m.scale = a->scale->f;
  m.q.value = const_cast<Value*>(a->q->value);
  std::int64_t group = 0;
  bool ok = head_tensor(offset_of(a->q), {b, h, s, d}, m.q) && keys_and_values(*a, a->vars, group, m);
  m.group = group;
  auto contiguous = [](const HeadTensor& x, const Expr& dim) { return is_const(x.strides[3], 1) || is_const(dim, 1); };
  ok =
      ok && contiguous(m.q, m.head_dim) && contiguous(m.v, m.value_dim) && (!a->k_scale || contiguous(m.k, m.head_dim));
  if (ok && a->has_bias) {
    m.bias.value = const_cast<Value*>(a->bias->value);
    ok = head_tensor(offset_of(a->bias), {b, h, s, t}, m.bias);
  }
  for (const auto& [term, type, tensor] :
       {std::tuple(a->begin, DType::kInt64, &m.begin), std::tuple(a->end, DType::kInt64, &m.end),
        std::tuple(a->sink, DType::kFloat32, &m.sink)}) {
    if (!ok || !term) continue;
    ok = term->op == Op::kLoad && term->dtype == type;
    if (!ok) break;
    tensor->value = const_cast<Value*>(term->value);
    ok = head_tensor(offset_of(term), {b, h, s, Expr(0)}, *tensor);
  }
  m.softcap = a->softcap;
  m.zero_empty = a->zero_empty;
  // The output's dims are the last of: batch, head, query, element.
  Exprs index = {b, h, s, e};
  index.erase(index.begin(), index.end() - kernel.out->rank());
  m.out.value = kernel.out;
  ok = ok && head_tensor(offset_of(load(kernel.out, kernel.out->dtype, index)), {b, h, s, e}, m.out) &&
       contiguous(m.out, m.value_dim);
  if (!ok) return refuse("the layout of an operand is not one that the host's attention reads");
  return m;
}

}  // namespace sardonyx::tiles
