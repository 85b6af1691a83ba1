// Graphs as text.
#include "graph/graph.h"

namespace sardonyx {
namespace {

std::string label(const Value* v) { return fmt::format("%{}{}{}", v->id, v->name.empty() ? "" : ":", v->name); }

std::string body_text(const Expr& e) {
  // Loads print as %id[...] so that a listing can be followed.
  if (e->op == Op::kLoad) return fmt::format("%{}{}", e->value->id, to_string(e->args));
  return to_string(e);
}

struct Describe {
  std::string operator()(const ConstantOp& c) const { return fmt::format("constant {} bytes", c.data.size); }
  std::string operator()(const LoopOp& l) const { return "loop " + body_text(l.body); }
  std::string operator()(const ViewOp&) const { return "view"; }
  std::string operator()(const MatMulOp& m) const {
    return fmt::format("matmul {} . {}", body_text(m.a), body_text(m.b));
  }
  std::string operator()(const ConvOp& c) const {
    return fmt::format("{}conv groups={}", c.transposed ? "transposed " : "", c.groups);
  }
  std::string operator()(const AttentionOp&) const { return "attention"; }
  std::string operator()(const RoutineOp& r) const { return "routine " + r.name; }
  std::string operator()(const BindOp& b) const { return "bind " + to_string(b.symbols); }
  std::string operator()(const CheckOp& c) const { return "check " + to_string(c.condition); }
  std::string operator()(const IfOp& i) const { return "if " + to_string(i.condition); }
  std::string operator()(const WhileOp& w) const {
    std::string s = fmt::format("while {} <", to_string(w.iteration));
    s += w.trip_count ? to_string(w.trip_count) : "infinity";
    if (w.condition) s += " and " + to_string(w.condition);
    if (w.next_condition) s += ", then " + to_string(w.next_condition);
    for (const auto& d : w.carried_dims)
      s += fmt::format("; {} = {}, then {}", to_string(d.symbol), to_string(d.initial), to_string(d.next));
    return s;
  }
};

void print(const Graph& g, int indent, std::string& out) {
  const std::string pad(static_cast<std::size_t>(indent), ' ');
  for (const Value* v : g.inputs)
    out += fmt::format("{}{} = input {} {}\n", pad, label(v), name(v->dtype), to_string(v->shape));
  for (const auto& n : g.nodes) {
    std::string left, ins;
    for (const Value* v : n->outputs)
      left += fmt::format("{}{} {}{}", left.empty() ? "" : ", ", label(v), name(v->dtype), to_string(v->shape));
    for (const Value* v : n->inputs) ins += " " + label(v);
    out += fmt::format("{}{} = {} <-{}  // {}\n", pad, left, std::visit(Describe{}, n->op), ins, n->origin);
    if (const auto* i = n->as<IfOp>()) {
      print(*i->then_graph, indent + 4, out);
      print(*i->else_graph, indent + 4, out);
    }
    if (const auto* w = n->as<WhileOp>()) print(*w->body, indent + 4, out);
  }
  for (const Value* v : g.outputs) out += fmt::format("{}return {}\n", pad, label(v));
}

}  // namespace

std::string to_string(const Graph& g) {
  std::string out;
  print(g, 0, out);
  return out;
}

}  // namespace sardonyx
