#include "graph_text/parse_expr.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "graph/text_names.h"

namespace sardonyx::text {
namespace {

using Kind = Token::Kind;

constexpr int kMaxDepth = 200;      // of nesting: parsing recurses
constexpr int kMaxNodes = 100'000;  // of one node's expressions: simplification is linear in them

bool is_word(const Token& t, std::string_view text) {
  return (t.kind == Kind::kPunctuation || t.kind == Kind::kName) && t.text == text;
}

bool is_bool_op(Op op) { return op == Op::kAnd || op == Op::kOr || op == Op::kXor; }

}  // namespace

void expect(Lexer& in, std::string_view text) {
  if (!accept(in, text)) in.fail_here(fmt::format("expected '{}'", text));
}

bool accept(Lexer& in, std::string_view text) {
  if (!is_word(in.peek(), text)) return false;
  in.next();
  return true;
}

std::int64_t integer(Lexer& in) {
  const bool negative = accept(in, "-");
  const std::string digits = in.peek().text;
  std::uint64_t v = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), v);
  const std::uint64_t most = (std::uint64_t{1} << 63) - (negative ? 0 : 1);
  if (in.peek().kind != Kind::kNumber || error != std::errc() || end != digits.data() + digits.size() || v > most)
    in.fail_here("expected an integer of 64 bits");
  in.next();
  return static_cast<std::int64_t>(negative ? 0 - v : v);
}

Exprs ExprParser::variables() {
  Exprs vars;
  if (is_word(in_.peek(), "]") || is_word(in_.peek(), ";")) return vars;
  do {
    if (in_.peek().kind != Kind::kName) in_.fail_here("expected a variable");
    const std::string name = in_.next().text;
    expect(in_, "<");
    const Expr extent = binary_from(precedence(Op::kLt) + 1);
    if (extent->dtype != DType::kInt64 || extent->has_load) in_.fail_here("an extent must be an int64 without loads");
    // A name that is declared again with the same extent is the same variable.
    Expr& v = variables_[name];
    if (!v || !same(v->args[0], extent)) v = loop_var(extent);
    vars.push_back(v);
  } while (accept(in_, ","));
  return vars;
}

Expr ExprParser::expression() { return binary_from(1); }

Expr ExprParser::size() {
  const Expr e = expression();
  if (e->dtype != DType::kInt64 || e->has_load || e->has_var || e->has_reduce)
    in_.fail_here("expected an int64 of symbols and constants");
  return e;
}

Exprs ExprParser::sizes(std::string_view end) {
  Exprs out;
  if (accept(in_, end)) return out;
  do out.push_back(size());
  while (accept(in_, ","));
  expect(in_, end);
  return out;
}

Expr ExprParser::binary_from(int least) {
  Expr left = operand();
  while (in_.peek().kind == Kind::kPunctuation) {
    const auto op = infix_op(in_.peek().text);
    if (!op || precedence(*op) < least) break;
    in_.next();
    left = combine(*op, left, binary_from(precedence(*op) + 1));
  }
  return left;
}

// Builds a binary operation; its operands have been read.
Expr ExprParser::combine(Op op, const Expr& a, const Expr& b) {
  if (a->dtype != b->dtype && op != Op::kPow)
    in_.fail_here(fmt::format("operands of types {} and {}", name(a->dtype), name(b->dtype)));
  if (is_bool_op(op) && a->dtype != DType::kBool) in_.fail_here("&&, || and ^^ take bool");
  if (++nodes_ > kMaxNodes) in_.fail_here("the expression is too large");
  if (a->dtype == DType::kInt64 && op == Op::kFloorDiv) return idx::floordiv(a, b);
  if (a->dtype == DType::kInt64 && op == Op::kMod) return idx::mod(a, b);
  return binary(op, a, b);
}

Expr ExprParser::operand() {
  if (++depth_ > kMaxDepth) in_.fail_here(fmt::format("an expression nested more than {} deep", kMaxDepth));
  if (++nodes_ > kMaxNodes) in_.fail_here("the expression is too large");
  Expr e;
  const Token& t = in_.peek();
  if (t.kind == Kind::kNumber)
    e = literal(false);
  else if (t.kind == Kind::kValue)
    e = load_of(in_.next());
  else if (t.kind == Kind::kName || t.kind == Kind::kQuotedName)
    e = named();
  else if (accept(in_, "-"))
    e = literal(true);
  else if (accept(in_, "("))
    e = parenthesised();
  else
    in_.fail_here("expected an expression");
  --depth_;
  return e;
}

Expr ExprParser::parenthesised() {
  std::string shared;
  if (in_.peek().kind == Kind::kName && !variables_.count(in_.peek().text) && !names_.symbols.count(in_.peek().text)) {
    // "(t0 = ...": the name is no operand, so that one token tells.
    DType type;
    const std::string& n = in_.peek().text;
    if (!function_op(n) && !reduce_kind(n) && !parse_dtype(n, type) && n != "true" && n != "false" && n != "inf" &&
        n != "nan" && !shared_.count(n)) {
      shared = in_.next().text;
      expect(in_, "=");
    }
  }
  Expr e = expression();
  expect(in_, ")");
  if (!shared.empty()) shared_[shared] = e;
  return e;
}

Expr ExprParser::named() {
  const Token t = in_.next();
  if (t.kind == Kind::kName) {
    if (const auto v = variables_.find(t.text); v != variables_.end()) return v->second;
    if (const auto s = shared_.find(t.text); s != shared_.end()) return s->second;
  }
  if (const auto s = names_.symbols.find(t.text); s != names_.symbols.end()) return s->second;
  if (t.kind == Kind::kQuotedName) in_.fail_here(fmt::format("the symbol '{}' is not defined", t.text));
  if (t.text == "true" || t.text == "false") return constant_bool(t.text == "true");
  DType type = DType::kFloat32;
  if (t.text == "inf" || t.text == "nan") {
    if (accept(in_, ":") && !(parse_dtype(in_.peek().text, type) && is_float(type)))
      in_.fail_here("expected a floating-point type");
    if (type != DType::kFloat32 || is_word(in_.peek(), "float32")) in_.next();
    return constant_float(t.text == "inf" ? INFINITY : std::nan(""), type);
  }
  if (parse_dtype(t.text, type)) return converted(type);
  if (reduce_kind(t.text) && is_word(in_.peek(), "{")) return reduction(t);
  if (function_op(t.text)) return function(t);
  in_.fail_here(fmt::format("'{}' is no variable, symbol or function", t.text));
}

Exprs ExprParser::arguments() {
  Exprs args;
  expect(in_, "(");
  if (accept(in_, ")")) return args;
  do args.push_back(expression());
  while (accept(in_, ","));
  expect(in_, ")");
  return args;
}

// "float16(x)", "float16:8(x)": a cast and its mode.
Expr ExprParser::converted(DType type) {
  const std::int64_t mode = accept(in_, ":") ? integer(in_) : 0;
  if (mode < 0 || mode > 31) in_.fail_here("a cast's mode is 0 to 31");
  const Exprs args = arguments();
  if (args.size() != 1) in_.fail_here("a cast takes one operand");
  return cast(args[0], type, static_cast<int>(mode));
}

Expr ExprParser::function(const Token& name) {
  const Op op = *function_op(name.text);
  if (op == Op::kBitCast) {
    expect(in_, ":");
    DType type;
    if (!parse_dtype(in_.peek().text, type)) in_.fail_here("expected a type");
    in_.next();
    const Exprs args = arguments();
    if (args.size() != 1 || size_of(args[0]->dtype) != size_of(type)) in_.fail_here("bitcast takes a type of one size");
    return bitcast(args[0], type);
  }
  const Exprs args = arguments();
  const std::size_t wanted = op == Op::kSelect ? 3 : op < Op::kAdd ? 1 : 2;
  if (args.size() != wanted) in_.fail_here(fmt::format("{} takes {} operands", name.text, wanted));
  if (op == Op::kSelect) {
    if (args[0]->dtype != DType::kBool || args[1]->dtype != args[2]->dtype)
      in_.fail_here("select takes a bool and two operands of one type");
    return select(args[0], args[1], args[2]);
  }
  if (op == Op::kRandom) {
    if (args[0]->dtype != DType::kUInt64 || args[1]->dtype != DType::kInt64)
      in_.fail_here("random takes a uint64 and an int64");
    return random_uniform(args[0], args[1]);
  }
  if (wanted == 2) return combine(op, args[0], args[1]);
  if (op == Op::kNot ? args[0]->dtype != DType::kBool : args[0]->dtype == DType::kBool)
    in_.fail_here(fmt::format("{} of {}", name.text, sardonyx::name(args[0]->dtype)));
  return unary(op, args[0]);
}

Expr ExprParser::reduction(const Token& name) {
  const ReduceKind kind = *reduce_kind(name.text);
  expect(in_, "{");
  Exprs vars = variables();
  expect(in_, "}");
  const Exprs args = arguments();
  const bool logical = kind == ReduceKind::kAny || kind == ReduceKind::kAll;
  if (args.size() != 1 || logical != (args[0]->dtype == DType::kBool))
    in_.fail_here(fmt::format("{} takes one operand, {}", name.text, logical ? "bool" : "a number"));
  return reduce(kind, std::move(vars), args[0]);
}

Expr ExprParser::load_of(const Token& t) {
  const auto it = names_.values.find(t.text);
  if (it == names_.values.end()) in_.fail_here(fmt::format("%{} is not defined", t.text));
  const Value* v = it->second;
  expect(in_, "[");
  Exprs index;
  if (!accept(in_, "]")) {
    do {
      index.push_back(expression());
      if (index.back()->dtype != DType::kInt64) in_.fail_here("an index must be an int64");
    } while (accept(in_, ","));
    expect(in_, "]");
  }
  if (index.size() != v->shape.size())
    in_.fail_here(fmt::format("%{} has rank {}, and is loaded with {} indices", t.text, v->rank(), index.size()));
  return load(v, v->dtype, std::move(index));
}

// A number, after its minus: an int64 without a point, a float32 with one, or of the type after a colon.
Expr ExprParser::literal(bool negative) {
  const Token t = in_.next();
  const bool special = t.kind == Kind::kName && (t.text == "inf" || t.text == "nan");
  if (t.kind != Kind::kNumber && !special) in_.fail_here("expected a number");
  const bool real = special || t.text.find_first_of(".eE") != std::string::npos;
  DType type = real ? DType::kFloat32 : DType::kInt64;
  if (accept(in_, ":")) {
    if (!parse_dtype(in_.peek().text, type)) in_.fail_here("expected a type");
    in_.next();
  }
  if (is_float(type)) {
    double v = t.text == "inf" ? INFINITY : std::nan("");
    if (!special) std::from_chars(t.text.data(), t.text.data() + t.text.size(), v);
    return constant_float(negative ? -v : v, type);
  }
  std::uint64_t v = 0;
  const auto [end, error] = std::from_chars(t.text.data(), t.text.data() + t.text.size(), v);
  const bool fits = type == DType::kUInt64 || v <= (std::uint64_t{1} << 63) - (negative ? 0 : 1);
  if (real || !is_integer(type) || error != std::errc() || end != t.text.data() + t.text.size() || !fits)
    in_.fail_here(fmt::format("'{}' is no number of {}", t.text, name(type)));
  return constant_int(static_cast<std::int64_t>(negative ? 0 - v : v), type);
}

Expr ExprParser::element(DType type) {
  const bool negative = accept(in_, "-");
  Expr e;
  if (!negative && (accept(in_, "true") || is_word(in_.peek(), "false")))
    e = constant_bool(!accept(in_, "false"));
  else
    e = literal(negative);
  if (e->dtype == type) return e;
  if (is_float(type)) return constant_float(is_float(e->dtype) ? e->f : static_cast<double>(e->i), type);
  if (!is_integer(type) || is_float(e->dtype) || e->dtype == DType::kBool)
    in_.fail_here(fmt::format("a number that is no {}", name(type)));
  return constant_int(e->i, type);
}

}  // namespace sardonyx::text
