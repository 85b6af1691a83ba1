// Conditions and loops of graphs in the text form.
#include <algorithm>

#include "graph_text/graph_parser.h"

namespace sardonyx::text {

std::unique_ptr<Graph> GraphParser::nested(Names& inner) {
  auto g = std::make_unique<Graph>(&g_);
  expect(in_, "{");
  inner = GraphParser(in_, *g, names_, depth_ + 1).run();
  expect(in_, "}");
  return g;
}

std::vector<SymbolBinding> GraphParser::bindings(const Names& inner) {
  std::vector<SymbolBinding> out;
  if (!accept(in_, "with")) return out;
  do {
    const Expr s = known_or_new_symbol();
    expect(in_, "=");
    out.push_back({s, ExprParser(in_, inner).size()});
  } while (accept(in_, ","));
  return out;
}

Expr GraphParser::known_or_new_symbol() {
  const bool dim = accept(in_, "dim");
  if (!dim) expect(in_, "data");
  const std::string name = symbol_name();
  if (const auto it = branch_symbols_.find(name); it != branch_symbols_.end()) return it->second;
  if (names_.symbols.count(name)) in_.fail_here(fmt::format("the symbol '{}' is defined twice", name));
  const Expr s = dim ? g_.symbols().dim(name) : g_.symbols().data(name);
  branch_symbols_.emplace(name, s);
  return s;
}

Node* GraphParser::if_node() {
  IfOp i;
  i.condition = ExprParser(in_, names_).expression();
  expect(in_, "reads");
  std::vector<Value*> in = values();
  branch_symbols_.clear();
  Names inner;
  expect(in_, "then");
  i.then_graph = nested(inner);
  i.then_symbols = bindings(inner);
  expect(in_, "else");
  i.else_graph = nested(inner);
  i.else_symbols = bindings(inner);
  names_.symbols.insert(branch_symbols_.begin(), branch_symbols_.end());
  expect(in_, "gives");
  return add(std::move(i), std::move(in), types());
}

Node* GraphParser::while_node() {
  WhileOp w;
  expect(in_, ":");
  std::vector<Value*> in = values();
  attributes([&](const std::string& name) { while_attribute(w, name); });
  if (!w.iteration || w.carried < 0 || w.carried > static_cast<int>(in.size()))
    in_.fail_here("while needs an iteration, and no more carried values than inputs");
  Names inner;
  expect(in_, "do");
  w.body = nested(inner);
  expect(in_, "then");
  attributes([&](const std::string& name) { while_result(w, name, inner); });
  for (const auto& d : w.carried_dims)
    if (!d.next) in_.fail_here(fmt::format("the carried dim '{}' has no next value", d.symbol->name));
  expect(in_, "gives");
  const std::vector<Type> out = types();
  w.stacked = static_cast<int>(out.size()) - w.carried;
  return add(std::move(w), std::move(in), out);
}

void GraphParser::while_attribute(WhileOp& w, const std::string& name) {
  if (name == "carry") {
    const Expr s = symbol();
    expect(in_, "=");
    w.carried_dims.push_back({s, ExprParser(in_, names_).size(), Expr()});
    return;
  }
  expect(in_, "=");
  if (name == "iteration")
    w.iteration = symbol();
  else if (name == "carried")
    w.carried = static_cast<int>(std::clamp<std::int64_t>(integer(in_), -1, 1 << 20));
  else if (name == "limit")
    w.trip_count = ExprParser(in_, names_).size();
  else if (name == "condition")
    w.condition = ExprParser(in_, names_).expression();
  else
    in_.fail_here(fmt::format("while has no attribute '{}'", name));
}

void GraphParser::while_result(WhileOp& w, const std::string& name, const Names& inner) {
  if (name == "carry") {
    const std::string s = symbol_name();
    expect(in_, "=");
    const auto it =
        std::find_if(w.carried_dims.begin(), w.carried_dims.end(), [&](const auto& d) { return d.symbol->name == s; });
    if (it == w.carried_dims.end()) in_.fail_here(fmt::format("'{}' is not carried", s));
    it->next = ExprParser(in_, inner).size();
  } else if (name == "stack") {
    const Expr s = symbol();
    expect(in_, "=");
    w.stacked_dims.push_back({s, ExprParser(in_, inner).size()});
  } else {
    expect(in_, "=");
    if (name == "condition")
      w.next_condition = ExprParser(in_, inner).expression();
    else if (name == "trips")
      w.trips = symbol();
    else
      in_.fail_here(fmt::format("while has no result '{}'", name));
  }
}

}  // namespace sardonyx::text
