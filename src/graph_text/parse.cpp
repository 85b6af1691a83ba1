// Graphs from text: see text.h. The text may come from anywhere; whatever it holds, the result is a valid graph or an
// error.
#include "graph_text/parse.h"

#include "graph/analysis.h"
#include "graph/text_names.h"
#include "graph/verify.h"
#include "graph_text/graph_parser.h"

namespace sardonyx {
namespace text {
namespace {

using Kind = Token::Kind;

constexpr int kMaxNesting = 16;       // of graphs: parsing recurses; far more than a test needs
constexpr std::size_t kMaxRank = 64;  // as in ONNX files (onnx/tensor.h)

}  // namespace

GraphParser::GraphParser(Lexer& in, Graph& g, Names names, int depth)
    : in_(in), g_(g), names_(std::move(names)), depth_(depth) {
  if (depth > kMaxNesting) in_.fail_here(fmt::format("graphs nested more than {} deep", kMaxNesting));
}

Names GraphParser::run() {
  const bool nested = depth_ > 0;
  while (in_.peek().kind != Kind::kEnd && !(nested && in_.peek().text == "}" && in_.peek().kind == Kind::kPunctuation))
    statement();
  return std::move(names_);
}

void GraphParser::statement() {
  if (accept(in_, "return")) return outputs();
  if (returned_) {
    if (!accept(in_, "finally")) in_.fail_here("a statement after return");
    do g_.final_expressions.push_back(ExprParser(in_, names_).size());
    while (accept(in_, ","));
    return;
  }
  std::vector<Result> results;
  while (in_.peek().kind == Kind::kValue) {
    results.push_back({in_.next().text, ""});
    if (in_.peek().kind == Kind::kString) results.back().model = in_.next().text;
    if (!accept(in_, ",")) break;
  }
  if (!results.empty()) expect(in_, "=");
  if (in_.peek().kind != Kind::kName) in_.fail_here("expected a statement");
  const std::string kind = in_.next().text;
  if (kind == "input") return input(results);
  Node* n = node(kind);
  if (n->outputs.size() != results.size())
    in_.fail_here(fmt::format("{} gives {} values, and {} are named", kind, n->outputs.size(), results.size()));
  for (std::size_t k = 0; k < results.size(); ++k) define(results[k], n->outputs[k]);
  if (accept(in_, "content")) content(*n);
  if (accept(in_, "@")) n->origin = string();
}

Node* GraphParser::node(const std::string& kind) {
  if (kind == "constant") return constant();
  if (kind == "loop") return loop();
  if (kind == "view") return view();
  if (kind == "matmul") return matmul();
  if (kind == "conv") return conv();
  if (kind == "attention") return attention();
  if (kind == "routine") return routine();
  if (kind == "bind") return bind();
  if (kind == "check") return check_node();
  if (kind == "if") return if_node();
  if (kind == "while") return while_node();
  in_.fail_here(fmt::format("'{}' is no kind of node", kind));
}

void GraphParser::define(const Result& r, Value* v) {
  if (!names_.values.emplace(r.name, v).second) in_.fail_here(fmt::format("%{} is defined twice", r.name));
  v->name = r.model;
}

std::string GraphParser::string() {
  if (in_.peek().kind != Kind::kString) in_.fail_here("expected a string");
  return in_.next().text;
}

Value* GraphParser::value() {
  if (in_.peek().kind != Kind::kValue) in_.fail_here("expected a value");
  const auto it = names_.values.find(in_.peek().text);
  if (it == names_.values.end()) in_.fail_here(fmt::format("%{} is not defined", in_.peek().text));
  in_.next();
  return it->second;
}

std::vector<Value*> GraphParser::values() {
  std::vector<Value*> out;
  if (in_.peek().kind != Kind::kValue) return out;
  do out.push_back(value());
  while (accept(in_, ","));
  return out;
}

DType GraphParser::dtype() {
  DType t;
  if (in_.peek().kind != Kind::kName || !parse_dtype(in_.peek().text, t)) in_.fail_here("expected a type");
  in_.next();
  return t;
}

std::vector<int> GraphParser::order(std::size_t rank) {
  std::vector<int> out;
  if (!accept(in_, "order")) return out;
  expect(in_, "(");
  do {
    const std::int64_t d = integer(in_);
    if (d < 0 || d >= static_cast<std::int64_t>(rank)) in_.fail_here("a storage order beyond the rank");
    out.push_back(static_cast<int>(d));
  } while (accept(in_, ","));
  expect(in_, ")");
  return out;
}

Type GraphParser::type(bool new_dims) {
  Type t;
  t.dtype = dtype();
  expect(in_, "[");
  if (!accept(in_, "]")) {
    do {
      if (new_dims) declare_dim();
      t.shape.push_back(ExprParser(in_, names_).size());
      if (t.shape.size() > kMaxRank) in_.fail_here("a rank that is too large");
    } while (accept(in_, ","));
    expect(in_, "]");
  }
  t.order = order(t.shape.size());
  return t;
}

std::vector<Type> GraphParser::types() {
  std::vector<Type> out;
  do out.push_back(type());
  while (accept(in_, ","));
  return out;
}

void GraphParser::declare_dim() {
  const Token& t = in_.peek();
  if ((t.kind != Kind::kName && t.kind != Kind::kQuotedName) || names_.symbols.count(t.text)) return;
  if (t.kind == Kind::kName && needs_quotes(t.text)) return;
  names_.symbols.emplace(t.text, g_.symbols().dim(t.text));
}

Expr GraphParser::symbol() {
  const bool dim = accept(in_, "dim");
  if (!dim) expect(in_, "data");
  const std::string name = symbol_name();
  if (names_.symbols.count(name)) in_.fail_here(fmt::format("the symbol '{}' is defined twice", name));
  const Expr s = dim ? g_.symbols().dim(name) : g_.symbols().data(name);
  names_.symbols.emplace(name, s);
  return s;
}

std::string GraphParser::symbol_name() {
  if (in_.peek().kind != Kind::kName && in_.peek().kind != Kind::kQuotedName) in_.fail_here("expected a symbol");
  return in_.next().text;
}

Node* GraphParser::add(Payload op, std::vector<Value*> inputs, const std::vector<Type>& out) {
  std::vector<std::pair<DType, Exprs>> plain;
  for (const Type& t : out) plain.emplace_back(t.dtype, t.shape);
  Node* n = g_.add_node(std::move(op), std::move(inputs), plain);
  for (std::size_t k = 0; k < out.size(); ++k) n->outputs[k]->storage_order = out[k].order;
  refresh_inputs(*n);
  return n;
}

void GraphParser::input(const std::vector<Result>& results) {
  if (results.size() != 1) in_.fail_here("an input names one value");
  const Type t = type(depth_ == 0);
  Value* v = g_.add_input("", t.dtype, t.shape);
  v->storage_order = t.order;
  define(results[0], v);
}

void GraphParser::outputs() {
  if (returned_) in_.fail_here("a second return");
  returned_ = true;
  while (in_.peek().kind == Kind::kValue) {
    g_.outputs.push_back(value());
    if (in_.peek().kind == Kind::kString) g_.output_names.push_back(in_.next().text);
    if (!accept(in_, ",")) break;
  }
}

std::vector<std::int64_t> GraphParser::integers() {
  std::vector<std::int64_t> out;
  expect(in_, "[");
  do out.push_back(integer(in_));
  while (accept(in_, ","));
  expect(in_, "]");
  return out;
}

}  // namespace text

std::unique_ptr<Graph> parse_graph(std::string_view text) {
  text::Lexer in(text);
  auto g = std::make_unique<Graph>();
  try {
    text::GraphParser(in, *g, {}, 0).run();
  } catch (const Error& e) {
    // Constructors of expressions and shapes reject what does not fit; say where.
    if (e.kind() == ErrorKind::kInvalidArgument) throw;
    in.fail_here(e.what());
  }
  const std::string fault = verify(*g);
  if (!fault.empty()) fail(ErrorKind::kInvalidArgument, "graph text: {}", fault);
  return g;
}

}  // namespace sardonyx
