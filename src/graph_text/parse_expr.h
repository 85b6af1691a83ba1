// Internal to graph/: reads expressions of the text form.
#pragma once
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"
#include "graph_text/lexer.h"

namespace sardonyx::text {

/// The meaning of names in an expression.
struct Names {
  std::unordered_map<std::string, Value*> values;
  std::unordered_map<std::string, Expr> symbols;
  /// Elements of all constants of the text, nested graphs included, which are limited.
  std::shared_ptr<std::int64_t> elements = std::make_shared<std::int64_t>(0);
};

/// Reads the expressions of one node, which share variables and named subexpressions. Throws
/// Error(kInvalidArgument) for text that is no expression or does not fit in its types.
class ExprParser {
 public:
  ExprParser(Lexer& in, const Names& names) : in_(in), names_(names) {}

  /// "i0 < n, i1 < 4" up to a token that is no comma.
  Exprs variables();
  Expr expression();
  /// An expression of int64 over symbols: a dim, a parameter.
  Expr size();
  /// Comma-separated sizes up to `end`, which is consumed.
  Exprs sizes(std::string_view end);
  /// A number in the braces of a constant.
  Expr element(DType type);

 private:
  Expr binary_from(int least);
  Expr operand();
  Expr named();
  Expr function(const Token& name);
  Expr reduction(const Token& name);
  Expr converted(DType type);
  Expr load_of(const Token& value);
  Expr literal(bool negative);
  Expr parenthesised();
  Expr combine(Op op, const Expr& a, const Expr& b);
  Exprs arguments();

  Lexer& in_;
  const Names& names_;
  std::unordered_map<std::string, Expr> variables_, shared_;
  int depth_ = 0;
  int nodes_ = 0;
};

/// Consumes a token of this text; throws otherwise.
void expect(Lexer& in, std::string_view punctuation_or_name);
/// Consumes a token of this text if it is next.
bool accept(Lexer& in, std::string_view punctuation_or_name);
/// An integer literal, which may have a minus.
std::int64_t integer(Lexer& in);

}  // namespace sardonyx::text
