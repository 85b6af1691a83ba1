// If and Loop, and the loops that other operators are made of (Scan: ops/scan.cpp). A condition known when compiling
// leaves only the taken branch. Values that leave a nested graph have dims known outside, or symbols that the node
// binds (see IfOp and WhileOp in graph/graph.h).
#include "ops/control_flow.h"

#include <algorithm>

#include "ops/families.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

constexpr int kMaxDepth = 6;  // nested loops are lowered several times each, so depth costs exponentially

// True if all symbols of e existed when there were `mark` of them.
bool known_outside(const Expr& e, int mark) {
  bool known = true;
  visit(e, [&](const Expr& x) { known &= x->op != Op::kSym || x->i < mark; });
  return known;
}

bool content_known_outside(const Value* v, int mark) {
  if (!v->content) return false;
  for (const Expr& e : *v->content)
    if (!known_outside(e, mark)) return false;
  return true;
}

void check_depth(OpContext& c) {
  int depth = 0;
  for (const Graph* g = &c.graph(); g->parent(); g = g->parent()) ++depth;
  if (depth >= kMaxDepth) c.refuse("loops and conditions nested more than {} deep", kMaxDepth);
}

// True if all symbols of e are dims of the model's inputs.
bool made_of_input_dims(const Graph& nested, const Expr& e) {
  const Graph* g = &nested;
  while (g->parent()) g = g->parent();
  bool all = !e->has_load && !e->has_var;
  visit(e, [&](const Expr& x) {
    if (x->op != Op::kSym || !all) return;
    bool found = false;
    for (const Value* v : g->inputs)
      for (const Expr& d : v->shape) found |= same(d, x);
    all = found;
  });
  return all;
}

void take_branch(OpContext& c, const model::Graph& body) {
  const std::vector<Value*> out = c.lowerer().lower_body(body, c.graph(), {});
  c.require(static_cast<int>(out.size()) >= c.output_count(), "a branch with {} outputs for {}", out.size(),
            c.output_count());
  for (int k = 0; k < c.output_count(); ++k) c.out(k, out[static_cast<std::size_t>(k)]);
}

// The dims of an If's output, which either branch may compute, as seen after the IfOp.
Exprs merge_shapes(OpContext& c, IfOp& op, const Value* a, const Value* b, int mark, const std::string& name) {
  Exprs shape;
  for (std::size_t d = 0; d < a->shape.size(); ++d) {
    const Expr &x = a->shape[d], &y = b->shape[d];
    const bool known = known_outside(x, mark) && known_outside(y, mark);
    if (known) {
      shape.push_back(idx::provably_equal(x, y)
                          ? x
                          : select(compare(Op::kNe, op.condition, constant(0, op.condition->dtype)), x, y));
      continue;
    }
    shape.push_back(c.graph().symbols().dim(name + "." + std::to_string(d)));
    op.then_symbols.push_back({shape.back(), x});
    op.else_symbols.push_back({shape.back(), y});
  }
  return shape;
}

// Element-wise work on known elements that cannot fail for any values, so it may be computed although it is not needed.
bool harmless(const Expr& e) {
  bool ok = true;
  visit(e, [&](const Expr& x) {
    switch (x->op) {
      case Op::kReduce:
      case Op::kRandom:
        ok = false;
        break;
      case Op::kDiv:
      case Op::kFloorDiv:
      case Op::kMod:
        ok &= is_float(x->dtype) || is_const(x->args[1]) || !x->args[1]->has_load;
        break;
      case Op::kLoad:
        for (const Expr& i : x->args) ok &= !i->has_load;
        break;
      default:
        break;
    }
  });
  return ok;
}
bool harmless(const Graph& g) {
  constexpr std::size_t kMost = 24;  // operations: they become part of one kernel, or two
  if (g.nodes.size() > kMost) return false;
  return std::all_of(g.nodes.begin(), g.nodes.end(), [](const auto& n) {
    const LoopOp* l = n->template as<LoopOp>();
    return n->template as<ViewOp>() || n->template as<ConstantOp>() || (l && harmless(l->body));
  });
}

// Whether both branches can be computed and the results selected element by element, without reading the condition on
// the CPU.
bool selectable(const OpContext& c, const IfOp& op, const std::vector<Value*>& a, const std::vector<Value*>& b,
                int mark) {
  if (!harmless(*op.then_graph) || !harmless(*op.else_graph)) return false;
  for (int k = 0; k < c.output_count(); ++k) {
    if (!c.wants(k)) continue;
    const Value *x = a[static_cast<std::size_t>(k)], *y = b[static_cast<std::size_t>(k)];
    if (x->dtype != y->dtype || x->rank() != y->rank() || (x->content && y->content)) return false;
    for (std::size_t d = 0; d < x->shape.size(); ++d)
      if (!known_outside(x->shape[d], mark) || !idx::provably_equal(x->shape[d], y->shape[d])) return false;
  }
  return true;
}

// Puts both branches into the graph itself; fusion makes them the two sides of a select, only one of which is
// evaluated.
void select_branch(OpContext& c, Value* condition, const model::Graph& then_body, const model::Graph& else_body) {
  Graph& g = c.graph();
  const std::vector<Value*> a = c.lowerer().lower_body(then_body, g, {}), b = c.lowerer().lower_body(else_body, g, {});
  Value* chosen = tensor::reshape(g, tensor::cast(g, condition, DType::kBool), {});
  for (int k = 0; k < c.output_count(); ++k) {
    if (!c.wants(k)) continue;
    const Value *x = a[static_cast<std::size_t>(k)], *y = b[static_cast<std::size_t>(k)];
    c.out(k, tensor::generate(g, x->shape, [&](const Exprs& i) {
            return select(tensor::at(chosen, {}), tensor::at(x, i), tensor::at(y, i));
          }));
  }
}

void if_op(OpContext& c) {
  Value* condition = c.in(0);
  const model::GraphPtr then_body = body_of(c, "then_branch"), else_body = body_of(c, "else_branch");
  Graph& g = c.graph();
  const Expr taken = truth(c, g, condition);
  if (is_const(taken)) return take_branch(c, taken->i ? *then_body : *else_body);
  check_depth(c);
  IfOp op;
  op.condition = taken;
  op.then_graph = std::make_unique<Graph>(&g);
  op.else_graph = std::make_unique<Graph>(&g);
  const int mark = g.symbols().size();
  const std::vector<Value*> a = c.lowerer().lower_body(*then_body, *op.then_graph, {});
  const std::vector<Value*> b = c.lowerer().lower_body(*else_body, *op.else_graph, {});
  c.require(static_cast<int>(a.size()) >= c.output_count() && a.size() == b.size(),
            "branches with {} and {} outputs for {}", a.size(), b.size(), c.output_count());
  if (!condition->content && selectable(c, op, a, b, mark)) return select_branch(c, condition, *then_body, *else_body);
  std::vector<std::pair<DType, Exprs>> types;
  std::vector<int> which;
  for (int k = 0; k < c.output_count(); ++k) {
    if (!c.wants(k)) continue;
    Value *x = a[static_cast<std::size_t>(k)], *y = b[static_cast<std::size_t>(k)];
    c.require(x->dtype == y->dtype, "the branches give output {} as {} and {}", k, name(x->dtype), name(y->dtype));
    if (x->rank() != y->rank() && made_of_input_dims(g, taken)) {
      // The sizes decide a rank: a program for one of the branches, which the others' sizes don't use.
      const bool holds = c.lowerer().assume(c.node());
      g.add_check(holds ? compare(Op::kNe, taken, constant(0, taken->dtype))
                        : compare(Op::kEq, taken, constant(0, taken->dtype)),
                  fmt::format("{}: the branches' ranks differ; the sizes of the inputs take the other branch",
                              c.node().describe()),
                  true);
      return take_branch(c, holds ? *then_body : *else_body);
    }
    if (x->rank() != y->rank()) {
      // Only a condition that is known when compiling can decide a rank.
      c.const_ints(condition,
                   fmt::format("the condition of an If whose branches give ranks {} and {}", x->rank(), y->rank()));
      c.refuse("the branches give output {} ranks {} and {}; fix the dims that the condition depends on", k, x->rank(),
               y->rank());
    }
    std::vector<std::int64_t> dims, other;
    if (content_known_outside(x, mark) && content_known_outside(y, mark) && constant_dims(x->shape, dims) &&
        constant_dims(y->shape, other) && dims == other) {
      Exprs e;  // shape arithmetic stays known
      for (std::size_t j = 0; j < x->content->size(); ++j)
        e.push_back(select(compare(Op::kNe, taken, constant(0, taken->dtype)), (*x->content)[j], (*y->content)[j]));
      c.out(k, g.add_content(x->dtype, dims, std::move(e)));
      continue;
    }
    types.emplace_back(x->dtype, merge_shapes(c, op, x, y, mark, c.node().outputs[static_cast<std::size_t>(k)]));
    which.push_back(k);
    op.then_graph->outputs.push_back(x);
    op.else_graph->outputs.push_back(y);
  }
  if (which.empty()) return;
  for (const SymbolBinding& s : op.then_symbols) op.then_graph->final_expressions.push_back(s.value);
  for (const SymbolBinding& s : op.else_symbols) op.else_graph->final_expressions.push_back(s.value);
  std::vector<Value*> inputs = captured_values(*op.then_graph);
  for (Value* v : captured_values(*op.else_graph))
    if (std::find(inputs.begin(), inputs.end(), v) == inputs.end()) inputs.push_back(v);
  Node* n = g.add_node(std::move(op), std::move(inputs), types);
  for (std::size_t k = 0; k < which.size(); ++k) c.out(which[k], n->outputs[k]);
}

// Inputs: trip count, condition (both optional), initial values. Body: (iteration, condition, carried...) ->
// (condition, carried..., stacked...).
void loop_op(OpContext& c) {
  const model::GraphPtr body = body_of(c, "body");
  std::vector<Value*> initial;
  for (int k = 2; k < c.input_count(); ++k) initial.push_back(c.in(k));
  c.require(body->inputs.size() == initial.size() + 2, "a body with {} inputs for {} carried values",
            body->inputs.size(), initial.size());
  c.require(body->outputs.size() > initial.size(), "a body with {} outputs for {} carried values", body->outputs.size(),
            initial.size());
  const Expr trip_count = c.has(0) ? c.int_scalar(c.in(0)) : Expr();
  const Expr condition = c.has(1) ? truth(c, c.graph(), c.in(1)) : Expr();
  const LoopResult r = add_while(
      c, initial, trip_count, condition, [&](Graph& g, const Expr& iteration, const std::vector<Value*>& carried) {
        std::vector<Value*> in = {g.add_content(DType::kInt64, {}, {iteration}),
                                  g.add_content(DType::kBool, {}, {constant_bool(true)})};
        in.insert(in.end(), carried.begin(), carried.end());
        const std::vector<Value*> out = c.lowerer().lower_body(*body, g, in);
        const auto first_stacked = out.begin() + 1 + static_cast<std::ptrdiff_t>(carried.size());
        return LoopBody{{out.begin() + 1, first_stacked}, {first_stacked, out.end()}, out[0]};
      });
  int k = 0;
  for (Value* v : r.carried) c.out(k++, v);
  for (Value* v : r.stacked) c.out(k++, v);
}

// Element `index` of v over elements of the model's integer inputs, if comparisons and logic of those are all that it
// is made of; else empty. Inputs are read where the caller has them: nothing has to be computed on the device and read
// back.
Expr of_inputs(Graph& g, Value* v, const Exprs& index) {
  std::vector<std::int64_t> dims;
  if (!constant_dims(v->shape, dims) ||
      !std::all_of(index.begin(), index.end(), [](const Expr& i) { return is_const(i); }))
    return {};
  const Expr at = idx::linearize(index, v->shape);
  if (!is_const(at)) return {};
  const auto flat = static_cast<std::size_t>(at->i);
  if (v->content) return flat < v->content->size() ? (*v->content)[flat] : Expr();
  if (!v->producer) {
    constexpr std::int64_t kMost = 16;  // elements: as many symbols are bound, for a condition or a trip count
    const bool integer = v->dtype == DType::kInt64 || v->dtype == DType::kInt32 || v->dtype == DType::kBool;
    if (v->graph->parent() || !integer || !is_const(idx::product(v->shape)) || idx::product(v->shape)->i > kMost)
      return {};
    const Expr element = g.bind(v)[flat];
    return v->dtype == DType::kBool ? compare(Op::kNe, element, 0) : cast(element, v->dtype);
  }
  if (v->producer->as<ViewOp>()) {
    Value* x = v->producer->inputs[0];
    return of_inputs(g, x, idx::delinearize(at, x->shape));
  }
  const LoopOp* l = v->producer->as<LoopOp>();
  if (!l) return {};
  std::vector<std::pair<Expr, Expr>> replacements;
  for (std::size_t k = 0; k < l->vars.size(); ++k) replacements.emplace_back(l->vars[k], index[k]);
  bool ok = true;
  const Expr e = rewrite(substitute(l->body, replacements), [&](const Expr& x) -> Expr {
    switch (x->op) {
      case Op::kLoad: {
        Expr element = of_inputs(g, const_cast<Value*>(x->value), x->args);
        ok &= static_cast<bool>(element);
        return element ? element : constant(0, x->dtype);
      }
      case Op::kConst:
      case Op::kSym:
      case Op::kCast:
      case Op::kSelect:
      case Op::kAnd:
      case Op::kOr:
      case Op::kNot:
      case Op::kEq:
      case Op::kNe:
      case Op::kLt:
      case Op::kLe:
      case Op::kGt:
      case Op::kGe:
        ok &= !is_float(x->dtype);
        return {};
      default:
        ok = false;
        return {};
    }
  });
  return ok && !e->has_load ? e : Expr();
}

}  // namespace

model::GraphPtr body_of(OpContext& c, std::string_view name) {
  model::GraphPtr g = c.node().get_graph(name);
  c.require(g != nullptr, "attribute {} is missing", name);
  return g;
}

Expr truth(OpContext& c, Graph& g, Value* v) {
  if (!v->content && is_const(idx::product(v->shape), 1))
    if (const Expr e = of_inputs(g, v, Exprs(v->shape.size(), Expr(0)))) return cast(e, DType::kInt64);
  if (!v->content) {
    std::vector<std::int64_t> dims;
    c.require(constant_dims(v->shape, dims), "a condition of shape {}", to_string(v->shape));
    v = tensor::reshape(g, tensor::cast(g, v, DType::kInt64), {});
  }
  const Exprs e = g.bind(v);
  c.require(e.size() == 1, "a condition of {} elements", e.size());
  return e[0];
}

LoopResult add_while(OpContext& c, const std::vector<Value*>& initial, const Expr& trip_count, const Expr& condition,
                     const MakeBody& make) {
  check_depth(c);
  Graph& g = c.graph();
  const int mark = g.symbols().size();
  std::vector<Exprs> shapes;  // of the carried tensors in the body
  for (const Value* v : initial) shapes.push_back(v->shape);
  WhileOp op;
  LoopBody body;
  bool stable = false;
  while (!stable) {  // ends: each round turns at least one dim into a symbol
    stable = true;
    op.body = std::make_unique<Graph>(&g);
    op.iteration = g.symbols().data("iteration");
    std::vector<Value*> in;
    for (std::size_t k = 0; k < initial.size(); ++k) in.push_back(op.body->add_input("", initial[k]->dtype, shapes[k]));
    body = make(*op.body, op.iteration, in);
    check(body.carried.size() == initial.size(), "a loop body with {} carried values instead of {}",
          body.carried.size(), initial.size());
    for (std::size_t k = 0; k < initial.size(); ++k) {
      const Value* next = body.carried[k];
      c.require(next->dtype == initial[k]->dtype, "carried value {} changes from {} to {}", k, name(initial[k]->dtype),
                name(next->dtype));
      if (next->rank() != initial[k]->rank())
        c.refuse("carried value {} changes its rank from {} to {}", k, initial[k]->rank(), next->rank());
      for (std::size_t d = 0; d < shapes[k].size(); ++d) {
        Expr& dim = shapes[k][d];
        if (idx::provably_equal(next->shape[d], dim) || (dim->op == Op::kSym && dim->i >= mark)) continue;
        dim = g.symbols().dim(fmt::format("carried{}.{}", k, d));
        stable = false;
      }
    }
  }
  for (std::size_t k = 0; k < initial.size(); ++k)
    for (std::size_t d = 0; d < shapes[k].size(); ++d)
      if (const Expr& dim = shapes[k][d]; dim->op == Op::kSym && dim->i >= mark)
        op.carried_dims.push_back({dim, initial[k]->shape[d], body.carried[k]->shape[d]});
  op.trip_count = trip_count;
  if (condition && !is_const(condition, 1)) op.condition = condition;
  if (body.condition) {
    const Expr next = truth(c, *op.body, body.condition);
    if (!is_const(next) || next->i == 0) op.next_condition = next;
  }
  if (!op.trip_count && !op.next_condition && !(condition && is_const(condition, 0)))
    c.invalid("a loop that never ends");
  Expr trips;
  if (!op.condition && !op.next_condition)
    trips = idx::max(trip_count, 0);
  else
    trips = op.trips = g.symbols().dim("trips");
  std::vector<std::pair<DType, Exprs>> types;
  for (std::size_t k = 0; k < initial.size(); ++k) types.emplace_back(initial[k]->dtype, shapes[k]);
  for (const Value* v : body.stacked) {
    Exprs shape = {trips};
    for (const Expr& d : v->shape) {
      shape.push_back(known_outside(d, mark) ? d : g.symbols().dim("stacked"));
      if (shape.back()->op == Op::kSym && shape.back()->i >= mark) op.stacked_dims.push_back({shape.back(), d});
    }
    types.emplace_back(v->dtype, shape);
  }
  op.carried = static_cast<int>(initial.size());
  op.stacked = static_cast<int>(body.stacked.size());
  op.body->outputs = body.carried;
  op.body->outputs.insert(op.body->outputs.end(), body.stacked.begin(), body.stacked.end());
  if (op.next_condition) op.body->final_expressions.push_back(op.next_condition);
  for (const auto& d : op.carried_dims) op.body->final_expressions.push_back(d.next);
  for (const SymbolBinding& s : op.stacked_dims) op.body->final_expressions.push_back(s.value);
  std::vector<Value*> inputs = initial;
  for (Value* v : captured_values(*op.body)) inputs.push_back(v);
  const std::vector<Value*> out = g.add_node(std::move(op), std::move(inputs), types)->outputs;
  const auto split = out.begin() + static_cast<std::ptrdiff_t>(initial.size());
  return {{out.begin(), split}, {split, out.end()}};
}

void register_control_flow(OpRegistry& r) {
  const std::string tensors = "tensors only (no sequences or optionals); ";
  r.add({.name = "If",
         .lower = if_op,
         .notes = tensors + "branches must agree in rank unless the condition is known when compiling"});
  r.add({.name = "Loop",
         .lower = loop_op,
         .notes = tensors + "carried values may change their dims, not their rank; a body's false condition ends the "
                            "loop even without a condition input"});
}

}  // namespace sardonyx
