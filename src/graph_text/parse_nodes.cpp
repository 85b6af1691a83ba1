// The kinds of nodes in the text form.
#include <algorithm>
#include <cstring>

#include "graph_text/graph_parser.h"

namespace sardonyx::text {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1}
                                      << 24;  // of all constants, so that a short text cannot allocate gigabytes

}  // namespace

Node* GraphParser::constant() {
  const Type t = type();
  std::vector<std::int64_t> dims;
  if (!constant_dims(t.shape, dims)) in_.fail_here("a constant's shape must be constant");
  std::int64_t count = 1;
  for (const std::int64_t d : dims) count *= d;
  if (count > kMaxElements - *names_.elements)
    in_.fail_here(fmt::format("constants of more than {} elements", kMaxElements));
  *names_.elements += count;
  expect(in_, "{");
  Exprs elements;
  if (accept(in_, "...")) {
    for (std::int64_t k = 0; k < std::min<std::int64_t>(count, 7); ++k)
      elements.push_back(sardonyx::constant(static_cast<double>(k % (t.dtype == DType::kBool ? 2 : 4)), t.dtype));
  } else if (in_.peek().text != "}") {
    do elements.push_back(ExprParser(in_, names_).element(t.dtype));
    while (accept(in_, ","));
    if (static_cast<std::int64_t>(elements.size()) != count)
      in_.fail_here(fmt::format("{} elements for the shape {}", elements.size(), to_string(t.shape)));
  }
  expect(in_, "}");
  if (elements.empty() && count > 0) in_.fail_here("a constant without its elements");
  const std::size_t size = size_of(t.dtype);
  std::byte* p;
  Data data = make_data(static_cast<std::size_t>(count) * size, &p);
  if (count > 0) {
    // The graph stores elements; a list that is too short repeats.
    Graph scratch;
    const auto n = static_cast<std::int64_t>(elements.size());
    const Value* v = scratch.add_content(t.dtype, {n}, elements);
    if (v->is_constant())
      for (std::int64_t k = 0; k < count; ++k)
        std::memcpy(p + static_cast<std::size_t>(k) * size,
                    v->constant().bytes + static_cast<std::size_t>(k % n) * size, size);
  }
  Value* v = g_.add_constant(t.dtype, dims, std::move(data));
  v->storage_order = t.order;
  return v->producer;
}

Type GraphParser::over_variables(ExprParser& e, Exprs& vars, Exprs* summed) {
  Type t;
  t.dtype = dtype();
  expect(in_, "[");
  vars = e.variables();
  if (summed) {
    expect(in_, ";");
    *summed = e.variables();
  }
  expect(in_, "]");
  for (const Expr& v : vars) {
    if (v->args[0]->has_var) in_.fail_here("an extent that depends on a variable");
    t.shape.push_back(v->args[0]);
  }
  t.order = order(t.shape.size());
  expect(in_, ":");
  return t;
}

Node* GraphParser::loop() {
  ExprParser e(in_, names_);
  LoopOp l;
  const Type t = over_variables(e, l.vars, nullptr);
  l.body = e.expression();
  return add(std::move(l), {}, {t});
}

Node* GraphParser::view() {
  const Type t = type();
  expect(in_, ":");
  return add(ViewOp{}, {value()}, {t});
}

Node* GraphParser::matmul() {
  ExprParser e(in_, names_);
  MatMulOp m;
  Exprs k;
  const Type t = over_variables(e, m.vars, &k);
  if (k.size() != 1 || m.vars.size() < 2) in_.fail_here("a matmul needs two variables or more, and one after ';'");
  m.k = k[0];
  m.a = e.expression();
  expect(in_, ",");
  m.b = e.expression();
  if (accept(in_, "by")) {
    m.owner = e.expression();
    expect(in_, "over");
    expect(in_, "[");
    const Exprs groups = e.variables();
    if (groups.size() != 1) in_.fail_here("groups have one variable");
    m.group = groups[0];
    expect(in_, "]");
    expect(in_, "to");
    m.end = e.expression();
  }
  return add(std::move(m), {}, {t});
}

Node* GraphParser::conv() {
  const Type t = type();
  expect(in_, ":");
  std::vector<Value*> in = values();
  if (in.size() < 2 || in.size() > 3 || t.shape.size() < 3) in_.fail_here("conv takes an image, weights and a bias");
  const std::size_t dims = t.shape.size() - 2;
  ConvOp c;
  c.strides.assign(dims, 1);
  c.dilations.assign(dims, 1);
  Exprs pads(2 * dims, Expr(0));
  c.has_bias = in.size() == 3;
  attributes([&](const std::string& a) {
    if (a == "transposed") {
      c.transposed = true;
      return;
    }
    if (a == "exact") {
      c.exact = true;
      return;
    }
    expect(in_, "=");
    if (a == "strides") {
      c.strides = integers();
    } else if (a == "dilations") {
      c.dilations = integers();
    } else if (a == "groups") {
      c.groups = integer(in_);
    } else if (a == "zeros") {
      c.zeros = integer(in_);
    } else if (a == "padding") {
      c.padding = integer(in_);
    } else if (a == "pads") {
      expect(in_, "[");
      pads = ExprParser(in_, names_).sizes("]");
    } else {
      in_.fail_here(fmt::format("conv has no attribute '{}'", a));
    }
  });
  if (pads.size() != 2 * dims) in_.fail_here("pads has two numbers for each spatial dim");
  c.pads_begin.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(dims));
  c.pads_end.assign(pads.begin() + static_cast<std::ptrdiff_t>(dims), pads.end());
  return add(std::move(c), std::move(in), {t});
}

Node* GraphParser::attention() {
  const Type t = type();
  expect(in_, "over");
  expect(in_, "[");
  ExprParser e(in_, names_);
  AttentionOp a;
  a.vars = e.variables();
  expect(in_, "]");
  if (a.vars.size() != 6) in_.fail_here("attention runs over six variables");
  attributes([&](const std::string& name) {
    if (name == "zero_empty") {
      a.zero_empty = true;
      return;
    }
    expect(in_, "=");
    if (name == "softcap") {
      a.softcap = e.element(DType::kFloat64)->f;
      return;
    }
    for (const auto& [field, n] :
         {std::pair(&a.scale, "scale"), std::pair(&a.q, "q"), std::pair(&a.k, "k"), std::pair(&a.v, "v"),
          std::pair(&a.k_scale, "k_scale"), std::pair(&a.v_scale, "v_scale"), std::pair(&a.bias, "bias"),
          std::pair(&a.begin, "begin"), std::pair(&a.end, "end"), std::pair(&a.sink, "sink")})
      if (name == n) {
        *field = e.expression();
        return;
      }
    in_.fail_here(fmt::format("attention has no attribute '{}'", name));
  });
  if (!a.scale || !a.q || !a.k || !a.v) in_.fail_here("attention needs scale, q, k and v");
  a.has_bias = static_cast<bool>(a.bias);
  return add(std::move(a), {}, {t});
}

Node* GraphParser::routine() {
  RoutineOp r;
  r.name = string();
  const std::vector<Type> out = types();
  expect(in_, ":");
  std::vector<Value*> in = values();
  attributes([&](const std::string& name) {
    expect(in_, "=");
    expect(in_, "[");
    if (name == "params") {
      r.params = ExprParser(in_, names_).sizes("]");
    } else if (name == "floats") {
      do r.floats.push_back(ExprParser(in_, names_).element(DType::kFloat64)->f);
      while (accept(in_, ","));
      expect(in_, "]");
    } else {
      in_.fail_here(fmt::format("a routine has no attribute '{}'", name));
    }
  });
  return add(std::move(r), std::move(in), out);
}

Node* GraphParser::bind() {
  BindOp b;
  if (in_.peek().text != ":") {
    do b.symbols.push_back(symbol());
    while (accept(in_, ","));
  }
  expect(in_, ":");
  return add(std::move(b), {value()}, {});
}

Node* GraphParser::check_node() {
  CheckOp c;
  c.condition = ExprParser(in_, names_).expression();
  c.message = string();
  c.assumption = accept(in_, "assumption");
  return add(std::move(c), {}, {});
}

void GraphParser::content(Node& n) {
  expect(in_, "{");
  auto elements = std::make_shared<Exprs>();
  if (in_.peek().text != "}") {
    do elements->push_back(ExprParser(in_, names_).expression());
    while (accept(in_, ","));
  }
  expect(in_, "}");
  if (n.outputs.size() != 1 || !n.as<LoopOp>()) in_.fail_here("only loops have content");
  n.outputs[0]->content = std::move(elements);
}

}  // namespace sardonyx::text
