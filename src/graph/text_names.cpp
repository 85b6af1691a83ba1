#include "graph/text_names.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace sardonyx::text {
namespace {

struct Infix {
  Op op;
  std::string_view spelling;
  int precedence;
};

constexpr Infix kInfix[] = {
    {Op::kOr, "||", 1},    {Op::kAnd, "&&", 2},   {Op::kXor, "^^", 3}, {Op::kEq, "==", 4},  {Op::kNe, "!=", 4},
    {Op::kLe, "<=", 5},    {Op::kGe, ">=", 5},    {Op::kLt, "<", 5},   {Op::kGt, ">", 5},   {Op::kBitOr, "|", 6},
    {Op::kBitXor, "^", 7}, {Op::kBitAnd, "&", 8}, {Op::kShl, "<<", 9}, {Op::kShr, ">>", 9}, {Op::kAdd, "+", 10},
    {Op::kSub, "-", 10},   {Op::kMul, "*", 11},   {Op::kDiv, "/", 11},
};

constexpr std::pair<Op, std::string_view> kFunctions[] = {
    {Op::kNeg, "neg"},           {Op::kAbs, "abs"},         {Op::kSign, "sign"},     {Op::kNot, "not"},
    {Op::kBitNot, "bitnot"},     {Op::kExp, "exp"},         {Op::kExpm1, "expm1"},   {Op::kLog, "log"},
    {Op::kLog1p, "log1p"},       {Op::kSqrt, "sqrt"},       {Op::kRsqrt, "rsqrt"},   {Op::kReciprocal, "reciprocal"},
    {Op::kSin, "sin"},           {Op::kCos, "cos"},         {Op::kTan, "tan"},       {Op::kAsin, "asin"},
    {Op::kAcos, "acos"},         {Op::kAtan, "atan"},       {Op::kSinh, "sinh"},     {Op::kCosh, "cosh"},
    {Op::kTanh, "tanh"},         {Op::kAsinh, "asinh"},     {Op::kAcosh, "acosh"},   {Op::kAtanh, "atanh"},
    {Op::kErf, "erf"},           {Op::kSigmoid, "sigmoid"}, {Op::kFloor, "floor"},   {Op::kCeil, "ceil"},
    {Op::kRound, "round"},       {Op::kTrunc, "trunc"},     {Op::kIsNaN, "isnan"},   {Op::kIsInf, "isinf"},
    {Op::kFloorDiv, "floordiv"}, {Op::kMod, "mod"},         {Op::kFMod, "fmod"},     {Op::kPow, "pow"},
    {Op::kMin, "min"},           {Op::kMax, "max"},         {Op::kSelect, "select"}, {Op::kRandom, "random"},
    {Op::kBitCast, "bitcast"},
};

constexpr std::array<std::string_view, 10> kReductions = {"sum", "prod",   "min",    "max",         "any",
                                                          "all", "argmin", "argmax", "argmin_last", "argmax_last"};

constexpr std::string_view kKeywords[] = {"true",  "false", "inf",   "nan",     "return", "finally", "bind",
                                          "check", "dim",   "data",  "then",    "else",   "with",    "gives",
                                          "do",    "order", "reads", "content", "stack",  "carry",   "assumption"};

bool is_variable(std::string_view s) {  // i0, r1, t2: names that the printer gives
  if (s.size() < 2 || (s[0] != 'i' && s[0] != 'r' && s[0] != 't')) return false;
  for (const char c : s.substr(1))
    if (c < '0' || c > '9') return false;
  return true;
}

}  // namespace

std::string_view infix(Op op) {
  for (const Infix& i : kInfix)
    if (i.op == op) return i.spelling;
  return {};
}

std::optional<Op> infix_op(std::string_view spelling) {
  for (const Infix& i : kInfix)
    if (i.spelling == spelling) return i.op;
  return {};
}

int precedence(Op op) {
  for (const Infix& i : kInfix)
    if (i.op == op) return i.precedence;
  return 0;
}

std::string_view function_name(Op op) {
  for (const auto& [o, name] : kFunctions)
    if (o == op) return name;
  return {};
}

std::optional<Op> function_op(std::string_view name) {
  for (const auto& [op, n] : kFunctions)
    if (n == name) return op;
  return {};
}

std::string_view reduce_name(ReduceKind kind) { return kReductions[static_cast<std::size_t>(kind)]; }

std::optional<ReduceKind> reduce_kind(std::string_view name) {
  for (std::size_t k = 0; k < kReductions.size(); ++k)
    if (kReductions[k] == name) return static_cast<ReduceKind>(k);
  return {};
}

bool needs_quotes(std::string_view s) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  if (s.empty() || !letter(s[0])) return true;
  for (const char c : s)
    if (!letter(c) && !(c >= '0' && c <= '9') && c != '.' && c != '#') return true;
  DType t;
  if (function_op(s) || reduce_kind(s) || parse_dtype(s, t) || is_variable(s)) return true;
  for (const std::string_view k : kKeywords)
    if (k == s) return true;
  return false;
}

std::string quoted(std::string_view s, char quote) {
  std::string out(1, quote);
  for (const char c : s) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\')
      out += {'\\', c};
    else if (c == '\n')
      out += "\\n";
    else if (byte < 32 || byte > 126)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  return out + quote;
}

}  // namespace sardonyx::text
