#include "graph/verify.h"

#include <algorithm>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

// Thrown at the first fault; carries its description.
struct Fault {
  std::string text;
};

template <typename... Args>
[[noreturn]] void fault(fmt::format_string<Args...> format, Args&&... args) {
  throw Fault{fmt::format(format, std::forward<Args>(args)...)};
}

std::string label(const Value* v) {
  return v->name.empty() ? fmt::format("%{}", v->id) : fmt::format("%{} '{}'", v->id, v->name);
}

std::string label(const Node& n) {
  return fmt::format("node {} '{}'", n.outputs.empty() ? "" : label(n.outputs[0]), n.origin);
}

// Checks one expression: types and indices of loads, free variables.
class ExpressionCheck {
 public:
  ExpressionCheck(const Exprs& vars, bool runs) : runs_(runs) {
    for (const Expr& v : vars) bound_.insert(v->i);
  }

  void run(const Expr& e, std::string_view what) {
    what_ = what;
    seen_.clear();
    check_node(e, false);
  }

 private:
  // `guarded`: only evaluated where a condition holds.
  void check_node(const Expr& e, bool guarded) {
    if (!seen_.insert({e.get(), guarded}).second) return;
    if (e->op == Op::kVar) {
      if (!bound_.count(e->i)) fault("the {} contains variable i{} of another loop", what_, e->i);
      return;
    }
    if (e->op == Op::kLoad) check_load(e, guarded);
    std::vector<std::int64_t> added;
    for (const Expr& v : e->vars) {
      check_node(v->args[0], guarded);
      if (bound_.insert(v->i).second) added.push_back(v->i);
    }
    for (std::size_t k = 0; k < e->args.size(); ++k)
      check_node(e->args[k], guarded || (e->op == Op::kSelect && k > 0) || e->op == Op::kAnd || e->op == Op::kOr);
    for (const std::int64_t v : added) bound_.erase(v);
    if (!e->vars.empty()) seen_.clear();  // outside of the reduction its variables are unknown
  }

  void check_load(const Expr& e, bool guarded) const {
    const Value* v = e->value;
    if (!v) fault("the {} loads nothing", what_);
    if (e->dtype != v->dtype)
      fault("the {} loads {} as {}, but it is {}", what_, label(v), name(e->dtype), name(v->dtype));
    if (e->args.size() != v->shape.size())
      fault("the {} loads {} of rank {} with {} indices", what_, label(v), v->rank(), e->args.size());
    for (std::size_t k = 0; k < e->args.size(); ++k) {
      std::int64_t index = 0, extent = 0;
      if (e->args[k]->dtype != DType::kInt64) fault("index {} of {} in the {} is no int64", k, label(v), what_);
      if (guarded || !runs_ || !is_const_int(e->args[k], index)) continue;
      if (index < 0 || (is_const_int(v->shape[k], extent) && extent > 0 && index >= extent))
        fault("the {} loads {} of shape {} at index {} of dim {}", what_, label(v), to_string(v->shape), index, k);
    }
  }

  std::unordered_set<std::int64_t> bound_;
  struct Hash {
    std::size_t operator()(const std::pair<const ExprNode*, bool>& p) const {
      return std::hash<const void*>()(p.first) * 2 + p.second;
    }
  };
  std::unordered_set<std::pair<const ExprNode*, bool>, Hash> seen_;
  std::string_view what_;
  bool runs_;  // false: the loop has no iterations, so that its loads don't happen
};

// What nodes at some place of a graph may use.
struct Scope {
  std::unordered_set<const Value*> values;
  std::unordered_set<std::int64_t> symbols;
};

class GraphCheck {
 public:
  GraphCheck(const Graph& g, const std::unordered_set<const Node*>& fused, Scope scope)
      : g_(g), fused_(fused), scope_(std::move(scope)) {}

  Scope run() {
    for (const Value* v : g_.inputs) {
      if (v->producer || v->graph != &g_) fault("input {} belongs to a node or to another graph", label(v));
      check_value(*v);
      scope_.values.insert(v);
      for (const Expr& d : v->shape) collect_symbols(d, scope_.symbols);
    }
    for (const auto& n : g_.nodes) {
      if (!n) fault("a node is missing");
      try {
        check_node(*n);
      } catch (Fault& f) {
        throw Fault{label(*n) + ": " + f.text};
      }
    }
    for (const Value* v : g_.outputs) {
      if (!v) fault("an output is missing");
      if (!scope_.values.count(v)) fault("output {} is not defined", label(v));
    }
    if (!g_.output_names.empty() && g_.output_names.size() != g_.outputs.size())
      fault("{} outputs have {} names", g_.outputs.size(), g_.output_names.size());
    for (const Expr& e : g_.final_expressions) check_symbols(e, "a final expression");
    return std::move(scope_);
  }

 private:
  void check_value(const Value& v) const {
    for (const Expr& d : v.shape) {
      if (!d || d->dtype != DType::kInt64) fault("{} has a dim that is no int64", label(&v));
      if (d->has_load || d->has_var) fault("the shape of {} has loads or variables", label(&v));
    }
    std::vector<std::int64_t> dims;
    if (v.content && constant_dims(v.shape, dims)) {
      std::int64_t count = 1;
      for (const std::int64_t d : dims) count *= d;
      if (static_cast<std::int64_t>(v.content->size()) != count)
        fault("{} of {} elements has content of {}", label(&v), count, v.content->size());
      for (const Expr& e : *v.content)
        if (e->dtype != v.dtype) fault("{} of {} has content of {}", label(&v), name(v.dtype), name(e->dtype));
    }
    if (v.storage_order.empty()) return;
    std::vector<int> order = v.storage_order;
    std::sort(order.begin(), order.end());
    for (int k = 0; k < static_cast<int>(order.size()); ++k)
      if (order[static_cast<std::size_t>(k)] != k || v.rank() != static_cast<int>(order.size()))
        fault("the storage order of {} is not a permutation of its {} dims", label(&v), v.rank());
  }

  void check_symbols(const Expr& e, std::string_view what) const {
    std::unordered_set<std::int64_t> used;
    collect_symbols(e, used);
    for (const std::int64_t s : used)
      if (!scope_.symbols.count(s)) fault("{} uses symbol '{}' before it is defined", what, symbol_name(s));
  }

  std::string symbol_name(std::int64_t id) const {
    return id < g_.symbols().size() ? g_.symbols().info(static_cast<int>(id)).name : fmt::format("#{}", id);
  }

  void check_node(const Node& n) {
    for (const Value* v : n.inputs) {
      if (!v) fault("an input is missing");
      if (!scope_.values.count(v)) fault("input {} is not defined here", label(v));
    }
    for (const std::int64_t s : symbols_used(n))
      if (!scope_.symbols.count(s)) fault("symbol '{}' is used before it is defined", symbol_name(s));
    std::visit([&](const auto& op) { check_op(n, op); }, n.op);
    for (const std::int64_t s : symbols_defined(n)) scope_.symbols.insert(s);
    for (std::size_t k = 0; k < n.outputs.size(); ++k) {
      const Value* v = n.outputs[k];
      if (!v) fault("output {} is missing", k);
      if (v->producer != &n || v->output_index != static_cast<int>(k) || v->graph != &g_)
        fault("output {} ({}) names another producer, position or graph", k, label(v));
      if (!scope_.values.insert(v).second) fault("{} is defined twice", label(v));
      check_value(*v);
    }
  }

  static void expect(const Node& n, std::size_t inputs, std::size_t outputs) {
    if (n.inputs.size() != inputs || n.outputs.size() != outputs)
      fault("{} inputs and {} outputs, expected {} and {}", n.inputs.size(), n.outputs.size(), inputs, outputs);
  }

  // The node's inputs are what its expressions load.
  void check_inputs(const Node& n) const {
    std::unordered_set<const Value*> loaded;
    for (const Expr& e : expressions_of(n))
      for (const Value* v : loads_of(e)) loaded.insert(v);
    for (const Value* v : loaded)
      if (std::find(n.inputs.begin(), n.inputs.end(), v) == n.inputs.end())
        fault("{} is loaded but not among the inputs", label(v));
    for (const Value* v : n.inputs)
      if (!loaded.count(v) && !fused_.count(&n)) fault("input {} is not loaded", label(v));
  }

  // Variables are distinct and run over `shape`. False if there are no iterations.
  static bool check_vars(const Exprs& vars, const Exprs& shape) {
    if (vars.size() != shape.size()) fault("{} variables for an output of rank {}", vars.size(), shape.size());
    bool runs = true;
    std::unordered_set<std::int64_t> seen;
    for (std::size_t k = 0; k < vars.size(); ++k) {
      const Expr& v = vars[k];
      if (v->op != Op::kVar) fault("dim {} has no variable", k);
      if (!seen.insert(v->i).second) fault("two dims have the same variable");
      if (!idx::provably_equal(v->args[0], shape[k]))
        fault("variable {} runs to {}, but the dim is {}", k, to_string(v->args[0]), to_string(shape[k]));
      runs &= !is_const(v->args[0], 0);
    }
    return runs;
  }

  void check_op(const Node& n, const ConstantOp& c) const {
    expect(n, 0, 1);
    std::vector<std::int64_t> dims;
    const Value* v = n.outputs[0];
    if (!constant_dims(v->shape, dims)) fault("a constant of shape {}", to_string(v->shape));
    std::size_t bytes = size_of(v->dtype);
    for (const std::int64_t d : dims) bytes *= static_cast<std::size_t>(d);
    if (c.data.size != bytes) fault("{} bytes of data for {} {}", c.data.size, name(v->dtype), to_string(v->shape));
  }

  void check_op(const Node& n, const LoopOp& l) const {
    expect(n, n.inputs.size(), 1);
    if (!l.body) fault("the loop has no body");
    if (l.body->dtype != n.outputs[0]->dtype)
      fault("the body is {}, but the output {}", name(l.body->dtype), name(n.outputs[0]->dtype));
    ExpressionCheck(l.vars, check_vars(l.vars, n.outputs[0]->shape)).run(l.body, "body");
    check_inputs(n);
  }

  void check_op(const Node& n, const ViewOp&) const {
    expect(n, 1, 1);
    const Value *from = n.inputs[0], *to = n.outputs[0];
    if (from->dtype != to->dtype) fault("a view of {} as {}", name(from->dtype), name(to->dtype));
    const Expr a = from->elements(), b = to->elements();
    if (is_const(a) && is_const(b) && a->i != b->i)
      fault("a view of shape {} as {}", to_string(from->shape), to_string(to->shape));
  }

  // uint8 times int8, which the host multiplies.
  static bool bytes(DType a, DType b) { return a == DType::kUInt8 && b == DType::kInt8; }

  void check_op(const Node& n, const MatMulOp& m) const {
    expect(n, n.inputs.size(), 1);
    if (m.vars.size() < 2) fault("a matmul over {} dims", m.vars.size());
    const bool runs = check_vars(m.vars, n.outputs[0]->shape);
    const Expr &row = m.vars[m.vars.size() - 2], &column = m.vars.back();
    if (!m.k || m.k->op != Op::kVar) fault("K has no variable");
    if (m.a->dtype != m.b->dtype && !bytes(m.a->dtype, m.b->dtype))
      fault("operands of types {} and {}", name(m.a->dtype), name(m.b->dtype));
    if (mentions(m.a, column)) fault("the left operand depends on the column");
    if (mentions(m.b, row)) fault("the right operand depends on the row");
    Exprs vars = m.vars;
    vars.push_back(m.k);
    ExpressionCheck e(vars, runs && !is_const(m.k->args[0], 0));
    e.run(m.a, "left operand");
    e.run(m.b, "right operand");
    check_groups(m, runs);
    check_inputs(n);
  }

  static void check_groups(const MatMulOp& m, bool runs) {
    if (!m.owner && !m.group && !m.end) return;
    if (!m.owner || !m.group || !m.end) fault("groups of rows without an owner, a variable or an end");
    if (m.vars.size() != 3 || !is_const(m.vars[1]->args[0], 1)) fault("groups of rows that have more than one dim");
    if (m.group->op != Op::kVar) fault("groups have no variable");
    if (m.owner->dtype != DType::kInt64 || m.end->dtype != DType::kInt64) fault("an owner or an end is no int64");
    ExpressionCheck({m.vars[0]}, runs).run(m.owner, "owner");
    ExpressionCheck({m.group}, !is_const(m.group->args[0], 0)).run(m.end, "end");
  }

  void check_op(const Node& n, const ConvOp& c) const {
    expect(n, c.has_bias ? 3 : 2, 1);
    const Value *x = n.inputs[0], *w = n.inputs[1];
    const std::size_t dims = c.strides.size();
    if (c.dilations.size() != dims || c.pads_begin.size() != dims || c.pads_end.size() != dims)
      fault("{} strides, {} dilations, {} and {} pads", dims, c.dilations.size(), c.pads_begin.size(),
            c.pads_end.size());
    for (const Value* v : {x, w, static_cast<const Value*>(n.outputs[0])})
      if (v->shape.size() != dims + 2) fault("{} has rank {}, expected {}", label(v), v->rank(), dims + 2);
    if (c.has_bias && n.inputs[2]->rank() != 1) fault("the bias has rank {}", n.inputs[2]->rank());
    if (c.groups < 1) fault("{} groups", c.groups);
    if (c.padding != 0 && (size_of(x->dtype) != 1 || is_float(x->dtype)))
      fault("an image of {} padded with {}", name(x->dtype), c.padding);
    if (x->dtype != w->dtype && !bytes(x->dtype, w->dtype))
      fault("an image of {} and weights of {}", name(x->dtype), name(w->dtype));
    const Expr channels = c.transposed ? w->shape[0] : w->shape[1] * Expr(c.groups);
    if (c.zeros < 0 || (c.zeros > 0 && (c.groups != 1 || c.transposed))) fault("{} channels of zeros", c.zeros);
    if (is_const(channels) && is_const(x->shape[1]) && channels->i != x->shape[1]->i + c.zeros)
      fault("an image of {} channels and weights for {}", x->shape[1]->i, channels->i);
  }

  void check_op(const Node& n, const AttentionOp& a) const {
    expect(n, n.inputs.size(), 1);
    if (a.vars.size() != 6) fault("attention over {} variables", a.vars.size());
    for (const Expr* e : {&a.scale, &a.q, &a.k, &a.v})
      if (!*e) fault("an operand is missing");
    for (const auto& [numbers, scale] : {std::pair(a.k, a.k_scale), std::pair(a.v, a.v_scale)})
      if ((size_of(numbers->dtype) == 1) != static_cast<bool>(scale)) fault("keys or values and their scale disagree");
    if (a.has_bias != static_cast<bool>(a.bias)) fault("has_bias disagrees with the bias");
    bool runs = true;
    for (const Expr& v : a.vars) runs &= !is_const(v->args[0], 0);
    ExpressionCheck e(a.vars, runs);
    for (const auto& [operand, what] :
         {std::pair(a.scale, "scale"), std::pair(a.q, "query"), std::pair(a.k, "key"), std::pair(a.v, "value"),
          std::pair(a.k_scale, "key's scale"), std::pair(a.v_scale, "value's scale"), std::pair(a.bias, "bias"),
          std::pair(a.begin, "begin"), std::pair(a.end, "end"), std::pair(a.sink, "sink")})
      if (operand) e.run(operand, what);
    check_inputs(n);
  }

  void check_op(const Node& n, const RoutineOp& r) const {
    if (r.name.empty()) fault("a routine without a name");
    for (const Expr& p : r.params)
      if (!p || p->dtype != DType::kInt64 || p->has_load || p->has_var) fault("a parameter is no int64 of symbols");
    if (n.outputs.empty()) fault("a routine without outputs");
  }

  void check_op(const Node& n, const BindOp& b) const {
    expect(n, 1, 0);
    if (!is_integer(n.inputs[0]->dtype) && n.inputs[0]->dtype != DType::kBool)
      fault("symbols of a tensor of {}", name(n.inputs[0]->dtype));
    for (const Expr& s : b.symbols)
      if (!s || s->op != Op::kSym) fault("a bind of something that is no symbol");
    const Expr count = n.inputs[0]->elements();
    if (is_const(count) && count->i != static_cast<std::int64_t>(b.symbols.size()))
      fault("{} symbols for {} elements", b.symbols.size(), count->i);
  }

  void check_op(const Node& n, const CheckOp& c) const {
    expect(n, 0, 0);
    if (!c.condition || c.condition->dtype != DType::kBool || c.condition->has_load || c.condition->has_var)
      fault("the condition is no bool of symbols");
  }

  // `extra`: symbols that the node defines for its graph.
  Scope check_nested(const Node& n, const Graph& body, const Exprs& extra) const {
    if (body.parent() != &g_) fault("a nested graph has another parent");
    for (const Value* v : captured_values(body))
      if (std::find(n.inputs.begin(), n.inputs.end(), v) == n.inputs.end())
        fault("the nested graph uses {}, which is not among the inputs", label(v));
    Scope inner = scope_;
    for (const Expr& s : extra)
      if (s) inner.symbols.insert(s->i);
    return GraphCheck(body, {}, std::move(inner)).run();
  }

  static void check_bindings(const std::vector<SymbolBinding>& list, const Scope& inner) {
    for (const SymbolBinding& b : list) {
      if (!b.symbol || b.symbol->op != Op::kSym) fault("a binding of something that is no symbol");
      std::unordered_set<std::int64_t> used;
      collect_symbols(b.value, used);
      for (const std::int64_t s : used)
        if (!inner.symbols.count(s)) fault("the binding of '{}' uses a symbol that is not defined", b.symbol->name);
    }
  }

  void check_op(const Node& n, const IfOp& i) const {
    if (!i.then_graph || !i.else_graph || !i.condition) fault("a branch or the condition is missing");
    if (i.then_graph->outputs.size() != n.outputs.size() || i.else_graph->outputs.size() != n.outputs.size())
      fault("branches of {} and {} outputs for {}", i.then_graph->outputs.size(), i.else_graph->outputs.size(),
            n.outputs.size());
    if (!i.then_graph->inputs.empty() || !i.else_graph->inputs.empty()) fault("a branch has inputs");
    check_bindings(i.then_symbols, check_nested(n, *i.then_graph, {}));
    check_bindings(i.else_symbols, check_nested(n, *i.else_graph, {}));
    for (const Graph* branch : {i.then_graph.get(), i.else_graph.get()})
      for (std::size_t k = 0; k < n.outputs.size(); ++k) check_same_type(*branch->outputs[k], *n.outputs[k], 0);
  }

  static void check_same_type(const Value& inner, const Value& outer, int more_dims) {
    if (inner.dtype != outer.dtype || inner.rank() + more_dims != outer.rank())
      fault("{} is {} of rank {} in the nested graph, but {} of rank {} outside", label(&outer), name(inner.dtype),
            inner.rank(), name(outer.dtype), outer.rank());
  }

  void check_op(const Node& n, const WhileOp& w) const {
    if (!w.body || !w.iteration) fault("the body or the iteration is missing");
    const auto carried = static_cast<std::size_t>(w.carried), all = carried + static_cast<std::size_t>(w.stacked);
    if (n.inputs.size() < carried || w.body->inputs.size() != carried || w.body->outputs.size() != all ||
        n.outputs.size() != all)
      fault("{} carried and {} stacked values with {} inputs and {} outputs, the body {} and {}", w.carried, w.stacked,
            n.inputs.size(), n.outputs.size(), w.body->inputs.size(), w.body->outputs.size());
    Exprs known = {w.iteration};
    for (const auto& d : w.carried_dims) known.push_back(d.symbol);
    const Scope inner = check_nested(n, *w.body, known);
    check_bindings(w.stacked_dims, inner);
    for (std::size_t k = 0; k < all; ++k) check_same_type(*w.body->outputs[k], *n.outputs[k], k < carried ? 0 : 1);
    for (std::size_t k = 0; k < carried; ++k) check_same_type(*w.body->inputs[k], *n.outputs[k], 0);
  }

  const Graph& g_;
  const std::unordered_set<const Node*>& fused_;
  Scope scope_;
};

}  // namespace

std::string verify(const Graph& g, const std::unordered_set<const Node*>& fused) {
  Scope around;  // of a nested graph, which is fused by itself: all that its parents have
  for (const Graph* p = g.parent(); p; p = p->parent()) {
    around.values.insert(p->inputs.begin(), p->inputs.end());
    for (const auto& n : p->nodes) around.values.insert(n->outputs.begin(), n->outputs.end());
  }
  if (g.parent())
    for (int s = 0; s < g.symbols().size(); ++s) around.symbols.insert(s);
  try {
    GraphCheck(g, fused, std::move(around)).run();
  } catch (const Fault& f) {
    return f.text;
  }
  return "";
}

}  // namespace sardonyx
