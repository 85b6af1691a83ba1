// Expressions as text, for errors and `sardonyx inspect`.
#include <fmt/format.h>

#include "expr/expr.h"

namespace sardonyx {
namespace {

const char* op_name(Op op) {
  static const char* names[] = {
      "const", "var",   "sym",   "load",  "neg",        "abs",   "sign", "!",       "~",      "exp",   "expm1",
      "log",   "log1p", "sqrt",  "rsqrt", "reciprocal", "sin",   "cos",  "tan",     "asin",   "acos",  "atan",
      "sinh",  "cosh",  "tanh",  "asinh", "acosh",      "atanh", "erf",  "sigmoid", "floor",  "ceil",  "round",
      "trunc", "isnan", "isinf", "cast",  "bitcast",    "+",     "-",    "*",       "/",      "//",    "%",
      "fmod",  "pow",   "min",   "max",   "&&",         "||",    "^^",   "&",       "|",      "^",     "<<",
      ">>",    "==",    "!=",    "<",     "<=",         ">",     ">=",   "select",  "reduce", "random"};
  return names[static_cast<int>(op)];
}

bool infix(Op op) { return (op >= Op::kAdd && op <= Op::kMod) || (op >= Op::kAnd && op <= Op::kGe); }

}  // namespace

std::string to_string(const Expr& a) {
  switch (a->op) {
    case Op::kConst:
      return is_float(a->dtype)         ? fmt::format("{:g}", a->f)
             : a->dtype == DType::kBool ? (a->i ? "true" : "false")
                                        : std::to_string(a->i);
    case Op::kVar:
      return fmt::format("i{}", a->i);
    case Op::kSym:
      return a->name;
    case Op::kLoad:
      return "x" + to_string(a->args);
    case Op::kCast:
      return fmt::format("{}({})", name(a->dtype), to_string(a->args[0]));
    case Op::kReduce: {
      static const char* kinds[] = {"sum", "prod",   "min",    "max",         "any",
                                    "all", "argmin", "argmax", "argmin_last", "argmax_last"};
      return fmt::format("{}({})", kinds[a->i], to_string(a->args[0]));
    }
    default:
      break;
  }
  if (infix(a->op) && a->args.size() == 2)
    return fmt::format("({} {} {})", to_string(a->args[0]), op_name(a->op), to_string(a->args[1]));
  std::string s = std::string(op_name(a->op)) + "(";
  for (std::size_t k = 0; k < a->args.size(); ++k) s += (k ? ", " : "") + to_string(a->args[k]);
  return s + ")";
}

std::string to_string(const Exprs& dims) {
  std::string s = "[";
  for (std::size_t k = 0; k < dims.size(); ++k) s += (k ? ", " : "") + to_string(dims[k]);
  return s + "]";
}

}  // namespace sardonyx
