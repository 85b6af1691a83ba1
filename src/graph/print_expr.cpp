#include "graph/print_expr.h"

#include <algorithm>
#include <cmath>

#include "graph/text_names.h"

namespace sardonyx::text {
namespace {

constexpr std::size_t kSmall = 12;  // nodes of an expression that may be printed more than once

// Digits that read back as the same number.
std::string digits(double v, DType t) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
  std::string s = t == DType::kFloat64 ? fmt::format("{}", v) : fmt::format("{}", static_cast<float>(v));
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return s;
}

}  // namespace

std::string ValueNames::define(const Value* v) {
  const int n = static_cast<int>(number_.size());
  number_.emplace(v, n);
  return of(v);
}

std::string ValueNames::of(const Value* v) const {
  const auto it = number_.find(v);
  return it == number_.end() ? fmt::format("%?{}", v->id) : fmt::format("%{}", it->second);
}

std::string number(const Expr& c, bool typed) {
  if (c->dtype == DType::kBool) return c->i ? "true" : "false";
  const std::string s = is_float(c->dtype)           ? digits(c->f, c->dtype)
                        : c->dtype == DType::kUInt64 ? std::to_string(static_cast<std::uint64_t>(c->i))
                                                     : std::to_string(c->i);
  if (!typed || c->dtype == DType::kInt64 || c->dtype == DType::kFloat32) return s;
  return fmt::format("{}:{}", s, name(c->dtype));
}

std::string symbol_text(const std::string& name) { return needs_quotes(name) ? quoted(name, '\'') : name; }

std::string ExprPrinter::declare(const Exprs& vars, char prefix) {
  std::string s;
  for (const Expr& v : vars) {
    s += s.empty() ? "" : ", ";
    if (v->op != Op::kVar) {  // a variable that was replaced by a constant
      s += text(v, 0);
      continue;
    }
    std::string& name = variables_[v->i];
    if (name.empty()) name = fmt::format("{}{}", prefix, named_[prefix]++);
    s += fmt::format("{} < {}", name, text(v->args[0], precedence(Op::kLt)));
  }
  return s;
}

std::string ExprPrinter::print(const Expr& e) {
  count(e);
  Sizes sizes;
  for (const auto& [x, n] : occurs_)
    if (n > 1 && !x->args.empty() && size(x, sizes) > kSmall) shared_.insert(x);
  return text(e, 0);
}

// How often each node occurs in a tree that is entered at most twice per node.
void ExprPrinter::count(const Expr& e) {
  if (++occurs_[e] > 1) return;
  for (const Expr& v : e->vars) count(v->args[0]);
  if (e->op != Op::kVar)
    for (const Expr& a : e->args) count(a);
}

// Nodes of the tree, with a limit.
std::size_t ExprPrinter::size(const Expr& e, Sizes& sizes) const {
  const auto [it, is_new] = sizes.emplace(e.get(), 1);
  if (!is_new) return it->second;
  std::size_t n = 1;
  if (e->op != Op::kVar)
    for (const Expr& a : e->args) n = std::min<std::size_t>(n + size(a, sizes), 2 * kSmall);
  return sizes[e.get()] = n;
}

std::string ExprPrinter::text(const Expr& e, int outer) {
  if (!shared_.count(e)) return operation(e, outer);
  if (const auto it = printed_.find(e); it != printed_.end()) return it->second;
  const std::string body = operation(e, 0);
  const std::string name = fmt::format("t{}", printed_.size());
  printed_[e] = name;
  return fmt::format("({} = {})", name, body);
}

std::string ExprPrinter::arguments(const Exprs& args) {
  std::string s;
  for (const Expr& a : args) s += (s.empty() ? "" : ", ") + text(a, 0);
  return s;
}

std::string ExprPrinter::operation(const Expr& e, int outer) {
  switch (e->op) {
    case Op::kConst:
      return number(e);
    case Op::kVar: {
      const auto it = variables_.find(e->i);
      return it == variables_.end() ? fmt::format("?{}", e->i) : it->second;
    }
    case Op::kSym:
      return symbol_text(e->name);
    case Op::kLoad:
      return fmt::format("{}[{}]", values_.of(e->value), arguments(e->args));
    case Op::kCast:
      return fmt::format("{}{}({})", name(e->dtype), e->i ? fmt::format(":{}", e->i) : "", text(e->args[0], 0));
    case Op::kBitCast:
      return fmt::format("bitcast:{}({})", name(e->dtype), text(e->args[0], 0));
    case Op::kReduce: {
      const std::string vars = declare(e->vars, 'r');
      return fmt::format("{}{{{}}}({})", reduce_name(static_cast<ReduceKind>(e->i)), vars, text(e->args[0], 0));
    }
    default:
      break;
  }
  const std::string_view between = infix(e->op);
  if (between.empty() || e->args.size() != 2) return fmt::format("{}({})", function_name(e->op), arguments(e->args));
  const int own = precedence(e->op);
  const std::string left = text(e->args[0], own - 1);  // left-associative: the left operand may bind as tightly
  const std::string s = fmt::format("{} {} {}", left, between, text(e->args[1], own));
  return own <= outer ? "(" + s + ")" : s;
}

}  // namespace sardonyx::text
