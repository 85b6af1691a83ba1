// Building graphs, and the folding of small known tensors.
#include "graph/graph.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <unordered_set>

#include "support/placed_error.h"

namespace sardonyx {

bool Value::is_constant() const { return producer && producer->as<ConstantOp>(); }

const Data& Value::constant() const {
  check(is_constant(), "value {} is not constant", id);
  return producer->as<ConstantOp>()->data;
}

Expr SymbolTable::dim(const std::string& name) {
  infos_.push_back({unique(name)});
  return symbol(size() - 1, infos_.back().name);
}

Expr SymbolTable::data(const std::string& name) {
  infos_.push_back({unique(name)});
  return data_symbol(size() - 1, infos_.back().name);
}

Expr SymbolTable::named_dim(const std::string& name) {
  auto it = by_name_.find(name);
  if (it != by_name_.end()) return it->second;
  return by_name_.emplace(name, dim(name)).first->second;
}

std::string SymbolTable::unique(const std::string& name) {
  const int n = counts_[name]++;
  return n == 0 ? name : name + "." + std::to_string(n);
}

Graph::Graph(Graph* parent)
    : parent_(parent),
      symbols_(parent ? parent->symbols_ : std::make_shared<SymbolTable>()),
      next_id_(parent ? parent->next_id_ : &own_next_id_) {
  if (parent) origin = parent->origin;
}

bool constant_dims(const Exprs& shape, std::vector<std::int64_t>& dims) {
  dims.clear();
  std::int64_t n = 1;
  bool all = true;
  for (const Expr& d : shape) {
    std::int64_t v;
    if (!is_const_int(d, v)) {
      all = false;
      continue;
    }
    if (v < 0) fail(ErrorKind::kInvalidModel, "negative dim in shape {}", to_string(shape));
    dims.push_back(v);
    if (v != 0 && __builtin_mul_overflow(n, v, &n))
      fail(ErrorKind::kInvalidModel, "the shape {} has too many elements", to_string(shape));
  }
  if (n > (std::int64_t{1} << 56))
    fail(ErrorKind::kInvalidModel, "the shape {} has too many elements", to_string(shape));
  return all;
}

Value* Graph::new_value(DType dtype, Exprs shape) {
  std::vector<std::int64_t> dims;
  try {
    constant_dims(shape, dims);
  } catch (const Error& e) {
    throw PlacedError(e.kind(), fmt::format("{}: {}", origin, e.what()), origin);
  }
  auto v = std::make_unique<Value>();
  v->id = (*next_id_)++;
  v->dtype = dtype;
  v->shape = std::move(shape);
  v->graph = this;
  values_.push_back(std::move(v));
  return values_.back().get();
}

Value* Graph::add_input(std::string name, DType dtype, Exprs shape) {
  Value* v = new_value(dtype, std::move(shape));
  v->name = std::move(name);
  inputs.push_back(v);
  return v;
}

Node* Graph::add_node(Payload op, std::vector<Value*> in, const std::vector<std::pair<DType, Exprs>>& out) {
  auto node = std::make_unique<Node>();
  node->id = static_cast<int>(nodes.size());
  node->op = std::move(op);
  node->inputs = std::move(in);
  node->origin = origin;
  for (const auto& [dtype, shape] : out) {
    Value* v = new_value(dtype, shape);
    v->producer = node.get();
    v->output_index = static_cast<int>(node->outputs.size());
    node->outputs.push_back(v);
  }
  nodes.push_back(std::move(node));
  return nodes.back().get();
}

namespace {

double half_to_double(std::uint16_t h) {
  const int e = (h >> 10) & 31, m = h & 1023;
  const double v = e == 0 ? std::ldexp(m, -24) : e == 31 ? (m ? std::nan("") : INFINITY) : std::ldexp(1024 + m, e - 25);
  return h & 0x8000 ? -v : v;
}

std::uint16_t double_to_half(double v) {
  const std::uint16_t sign = std::signbit(v) ? 0x8000 : 0;
  if (std::isnan(v)) return sign | 0x7e00;
  v = std::fabs(round_to(v, DType::kFloat16));
  if (std::isinf(v)) return sign | 0x7c00;
  if (v == 0) return sign;
  int e;
  std::frexp(v, &e);
  e -= 1;
  if (e < -14) return static_cast<std::uint16_t>(sign | static_cast<int>(std::ldexp(v, 24)));
  return static_cast<std::uint16_t>(sign | ((e + 15) << 10) | (static_cast<int>(std::ldexp(v, 10 - e)) - 1024));
}

template <typename T>
T read(const std::byte* p, std::int64_t k) {
  T v;
  std::memcpy(&v, p + static_cast<std::size_t>(k) * sizeof(T), sizeof(T));
  return v;
}

template <typename T, typename S>
void write(std::byte* p, std::int64_t k, S s) {
  const T v = static_cast<T>(s);
  std::memcpy(p + static_cast<std::size_t>(k) * sizeof(T), &v, sizeof(T));
}

bool store_element(std::byte* p, DType t, std::int64_t k, const Expr& e) {
  switch (t) {
    case DType::kBool:
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kInt4:
    case DType::kUInt4:
    case DType::kInt2:
    case DType::kUInt2:
      write<std::uint8_t>(p, k, e->i);
      return true;
    case DType::kInt16:
    case DType::kUInt16:
      write<std::uint16_t>(p, k, e->i);
      return true;
    case DType::kInt32:
    case DType::kUInt32:
      write<std::uint32_t>(p, k, e->i);
      return true;
    case DType::kInt64:
    case DType::kUInt64:
      write<std::int64_t>(p, k, e->i);
      return true;
    case DType::kFloat32:
      write<float>(p, k, e->f);
      return true;
    case DType::kFloat64:
      write<double>(p, k, e->f);
      return true;
    case DType::kFloat16:
      write<std::uint16_t>(p, k, double_to_half(e->f));
      return true;
    case DType::kBFloat16: {
      const float f = static_cast<float>(e->f);
      std::uint32_t u;
      std::memcpy(&u, &f, 4);
      write<std::uint16_t>(p, k, std::isnan(f) ? 0x7fc0 : u >> 16);
      return true;
    }
    default:
      return false;
  }
}

}  // namespace

Expr constant_element(const Value& v, std::int64_t k) {
  const std::byte* p = v.constant().bytes;
  switch (v.dtype) {
    case DType::kBool:
      return constant_bool(read<std::uint8_t>(p, k) != 0);
    case DType::kInt8:
    case DType::kInt4:
    case DType::kInt2:
      return constant_int(read<std::int8_t>(p, k), v.dtype);
    case DType::kUInt8:
    case DType::kUInt4:
    case DType::kUInt2:
      return constant_int(read<std::uint8_t>(p, k), v.dtype);
    case DType::kInt16:
      return constant_int(read<std::int16_t>(p, k), v.dtype);
    case DType::kUInt16:
      return constant_int(read<std::uint16_t>(p, k), v.dtype);
    case DType::kInt32:
      return constant_int(read<std::int32_t>(p, k), v.dtype);
    case DType::kUInt32:
      return constant_int(read<std::uint32_t>(p, k), v.dtype);
    case DType::kInt64:
    case DType::kUInt64:
      return constant_int(read<std::int64_t>(p, k), v.dtype);
    case DType::kFloat32:
      return constant_float(read<float>(p, k), v.dtype);
    case DType::kFloat64:
      return constant_float(read<double>(p, k), v.dtype);
    case DType::kFloat16:
      return constant_float(half_to_double(read<std::uint16_t>(p, k)), v.dtype);
    case DType::kBFloat16: {
      const std::uint32_t u = static_cast<std::uint32_t>(read<std::uint16_t>(p, k)) << 16;
      float f;
      std::memcpy(&f, &u, 4);
      return constant_float(f, v.dtype);
    }
    default:
      return Expr();
  }
}

Value* Graph::add_constant(DType dtype, std::vector<std::int64_t> dims, Data data) {
  Exprs shape(dims.begin(), dims.end());
  Node* n = add_node(ConstantOp{std::move(data)}, {}, {{dtype, shape}});
  Value* v = n->outputs[0];
  std::int64_t count = 1;
  for (std::int64_t d : dims) count *= d;
  check(v->constant().size == static_cast<std::size_t>(count) * size_of(dtype), "constant of {} bytes for shape {}",
        v->constant().size, to_string(shape));
  if (count <= kMaxContent) {
    auto content = std::make_shared<Exprs>();
    for (std::int64_t k = 0; k < count; ++k) {
      content->push_back(constant_element(*v, k));
      if (!content->back()) {
        content.reset();
        break;
      }
    }
    v->content = content;
  }
  return v;
}

Value* Graph::add_content(DType dtype, std::vector<std::int64_t> dims, Exprs elements) {
  bool all_constant = true;
  for (const Expr& e : elements) all_constant &= is_const(e);
  if (all_constant) {
    std::byte* p;
    Data data = make_data(elements.size() * size_of(dtype), &p);
    bool stored = true;
    for (std::size_t k = 0; k < elements.size(); ++k)
      stored &= store_element(p, dtype, static_cast<std::int64_t>(k), elements[k]);
    if (stored) return add_constant(dtype, std::move(dims), std::move(data));
  }
  // A loop without loads, which writes the elements if they are needed in memory.
  Exprs shape(dims.begin(), dims.end()), vars;
  for (const Expr& d : shape) vars.push_back(loop_var(d));
  const Expr at = idx::linearize(vars, shape);
  Expr body = elements.empty() ? constant(0, dtype) : elements.back();
  for (std::size_t k = elements.size(); k-- > 1;)
    body = select(compare(Op::kLt, at, Expr(static_cast<std::int64_t>(k))), elements[k - 1], body);
  Node* n = add_node(LoopOp{vars, body}, {}, {{dtype, shape}});
  n->outputs[0]->content = std::make_shared<Exprs>(std::move(elements));
  return n->outputs[0];
}

std::vector<Value*> loads_of(const Expr& e) {
  std::vector<Value*> out;
  std::unordered_set<const Value*> seen;
  if (!e) return out;
  visit(e, [&](const Expr& x) {
    if (x->op == Op::kLoad && seen.insert(x->value).second) out.push_back(const_cast<Value*>(x->value));
  });
  return out;
}

namespace {

// Replaces loads of tensors with known content; returns an empty Expr if anything remains unknown.
Expr fold_loads(const Expr& body) {
  bool failed = false;
  const Expr r = rewrite(body, [&](const Expr& x) -> Expr {
    if (failed || (!x->has_load && !x->has_reduce)) return x;
    if (x->op == Op::kReduce) {
      const auto kind = static_cast<ReduceKind>(x->i);
      std::int64_t total = 1;
      for (const Expr& v : x->vars) {
        std::int64_t d;
        if (!is_const_int(v->args[0], d) || d > Graph::kMaxContent || (total *= d) > Graph::kMaxContent) {
          failed = true;
          return x;
        }
      }
      if (kind > ReduceKind::kAll || total == 0) {
        failed = true;
        return x;
      }
      Expr acc;
      for (std::int64_t k = 0; k < total; ++k) {
        std::vector<std::pair<Expr, Expr>> at;
        std::int64_t rest = k;
        for (std::size_t j = x->vars.size(); j-- > 0;) {
          const std::int64_t d = x->vars[j]->args[0]->i;
          at.emplace_back(x->vars[j], Expr(rest % d));
          rest /= d;
        }
        const Expr e = fold_loads(substitute(x->args[0], at));
        if (!e) {
          failed = true;
          return x;
        }
        static constexpr Op ops[] = {Op::kAdd, Op::kMul, Op::kMin, Op::kMax, Op::kOr, Op::kAnd};
        acc = acc ? binary(ops[static_cast<int>(kind)], acc, e) : e;
      }
      return acc;
    }
    if (x->op != Op::kLoad) return Expr();
    const Value* v = x->value;
    std::vector<std::int64_t> dims;
    if (!v->content || !constant_dims(v->shape, dims)) {
      failed = true;
      return x;
    }
    std::int64_t at = 0;
    for (std::size_t k = 0; k < dims.size(); ++k) {
      const Expr i = fold_loads(x->args[k]);
      std::int64_t c;
      if (!i || !is_const_int(i, c) || c < 0 || c >= dims[k]) {
        failed = true;
        return x;
      }
      at = at * dims[k] + c;
    }
    return (*v->content)[static_cast<std::size_t>(at)];
  });
  return failed ? Expr() : r;
}

bool is_storable(const Expr& e) { return !e->has_load && !e->has_var && !e->has_reduce && e->op != Op::kRandom; }

}  // namespace

Value* Graph::add_loop(Exprs vars, Expr body) {
  Exprs shape;
  for (const Expr& v : vars) shape.push_back(v->args[0]);
  std::vector<std::int64_t> dims;
  if (constant_dims(shape, dims)) {
    std::int64_t count = 1;
    for (std::int64_t d : dims) count *= d;
    bool known = count <= kMaxContent && count > 0;
    for (Value* v : loads_of(body)) known &= v->content != nullptr;
    bool random = false;
    if (known) visit(body, [&](const Expr& x) { random |= x->op == Op::kRandom; });
    if (known && !random) {
      Exprs elements;
      for (std::int64_t k = 0; k < count; ++k) {
        std::vector<std::pair<Expr, Expr>> at;
        std::int64_t rest = k;
        for (std::size_t j = dims.size(); j-- > 0;) {
          at.emplace_back(vars[j], Expr(rest % dims[j]));
          rest /= dims[j];
        }
        const Expr e = fold_loads(substitute(body, at));
        if (!e || !is_storable(e)) break;
        elements.push_back(e);
      }
      if (static_cast<std::int64_t>(elements.size()) == count)
        return add_content(body->dtype, dims, std::move(elements));
    }
  }
  const DType dtype = body->dtype;
  auto loads = loads_of(body);
  return add_node(LoopOp{std::move(vars), std::move(body)}, std::move(loads), {{dtype, std::move(shape)}})->outputs[0];
}

Value* Graph::add_view(Value* x, Exprs shape) {
  bool identical = shape.size() == x->shape.size();
  for (std::size_t k = 0; identical && k < shape.size(); ++k) identical = idx::provably_equal(shape[k], x->shape[k]);
  if (identical) return x;
  if (x->content) {
    std::vector<std::int64_t> dims;
    if (constant_dims(shape, dims)) {
      if (x->is_constant()) return add_constant(x->dtype, dims, x->constant());
      return add_content(x->dtype, dims, *x->content);
    }
  }
  std::vector<std::int64_t> dims;
  if (x->is_constant() && constant_dims(shape, dims)) return add_constant(x->dtype, dims, x->constant());
  if (x->producer && x->producer->as<ViewOp>()) x = x->producer->inputs[0];
  return add_node(ViewOp{}, {x}, {{x->dtype, std::move(shape)}})->outputs[0];
}

void Graph::add_check(const Expr& condition, std::string message, bool assumption) {
  if (is_const(condition)) {
    if (!condition->i) fail(ErrorKind::kInvalidModel, "{}: {}", origin, message);
    return;
  }
  for (const Graph* g = this; g; g = g->parent_)
    for (const Expr& c : g->checked_)
      if (same(c, condition)) return;
  checked_.push_back(condition);
  add_node(CheckOp{condition, origin + ": " + message, assumption}, {}, {});
}

Exprs Graph::bind(Value* integers, bool sizes) {
  if (integers->content) {
    Exprs out;
    for (const Expr& e : *integers->content) out.push_back(cast(e, DType::kInt64));
    return out;
  }
  std::vector<std::int64_t> dims;
  check(constant_dims(integers->shape, dims), "bind of a tensor with shape {}", to_string(integers->shape));
  std::int64_t count = 1;
  for (std::int64_t d : dims) count *= d;
  if (count > kMaxContent)
    fail(ErrorKind::kUnsupported, "{}: a size tensor of {} elements; at most {} are supported", origin, count,
         kMaxContent);
  // One BindOp per tensor, so that binding it again gives the same symbols.
  for (const auto& n : nodes)
    if (const auto* b = n->as<BindOp>(); b && n->inputs[0] == integers &&
                                         static_cast<std::int64_t>(b->symbols.size()) == count &&
                                         (count == 0 || !sizes || b->symbols[0]->f == 0))
      return b->symbols;
  Exprs syms;
  const std::string base = integers->name.empty() ? "v" + std::to_string(integers->id) : integers->name;
  for (std::int64_t k = 0; k < count; ++k) {
    const std::string name = base + "#" + std::to_string(k);
    syms.push_back(sizes ? symbols().dim(name) : symbols().data(name));
  }
  add_node(BindOp{syms}, {integers}, {});
  return syms;
}

}  // namespace sardonyx
