// Internal to graph/: reads the statements of the text form.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"
#include "graph_text/lexer.h"
#include "graph_text/parse_expr.h"

namespace sardonyx::text {

/// The type of an output as the text gives it.
struct Type {
  DType dtype = DType::kFloat32;
  Exprs shape;
  std::vector<int> order;
};

/// Reads one graph; for a nested one another parser.
class GraphParser {
 public:
  /// `names`: what the graphs around this one define. `depth`: how many of them there are.
  GraphParser(Lexer& in, Graph& g, Names names, int depth);

  /// Reads statements up to the end of the text or, of a nested graph, up to its closing brace. Gives what is defined
  /// then. Throws Error(kInvalidArgument) for anything else.
  Names run();

 private:
  struct Result {
    std::string name;   // in the text
    std::string model;  // the model's name
  };

  void statement();
  Node* node(const std::string& kind);
  void define(const Result& r, Value* v);
  std::string string();
  Value* value();
  std::vector<Value*> values();
  DType dtype();
  std::vector<int> order(std::size_t rank);
  // `new_dims`: names that are no symbols yet become dims (inputs of the outermost graph).
  Type type(bool new_dims = false);
  std::vector<Type> types();
  void declare_dim();
  // "dim n" or "data n": a new symbol.
  Expr symbol();
  std::string symbol_name();
  Node* add(Payload op, std::vector<Value*> inputs, const std::vector<Type>& out);
  void input(const std::vector<Result>& results);
  void outputs();
  Node* constant();
  // "float32[i < n; k < 4]:": the type of a node over variables. `summed`: those after the semicolon.
  Type over_variables(ExprParser& e, Exprs& vars, Exprs* summed);
  Node* loop();
  Node* view();
  Node* matmul();
  std::vector<std::int64_t> integers();
  Node* conv();
  Node* attention();
  Node* routine();
  Node* bind();
  Node* check_node();
  void content(Node& n);
  // A nested graph between braces. Its symbols stay known, its values don't.
  std::unique_ptr<Graph> nested(Names& inner);
  // "with dim n = ..., ...": evaluated where `inner` is known.
  std::vector<SymbolBinding> bindings(const Names& inner);
  // Both branches of an if bind the same symbols.
  Expr known_or_new_symbol();
  Node* if_node();
  Node* while_node();
  void while_attribute(WhileOp& w, const std::string& name);
  void while_result(WhileOp& w, const std::string& name, const Names& inner);

  // "{name = ..., flag, ...}", if there is one: `take` reads what follows each name.
  template <typename Take>
  void attributes(const Take& take) {
    if (!accept(in_, "{")) return;
    while (!accept(in_, "}")) {
      if (in_.peek().kind != Token::Kind::kName) in_.fail_here("expected an attribute");
      take(in_.next().text);
      if (!accept(in_, ",") && in_.peek().text != "}") in_.fail_here("expected ',' or '}'");
    }
  }

  Lexer& in_;
  Graph& g_;
  Names names_;
  std::unordered_map<std::string, Expr> branch_symbols_;  // of the if that is being read
  int depth_;
  bool returned_ = false;
};

}  // namespace sardonyx::text
