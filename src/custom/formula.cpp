// A recursive descent parser; each level of precedence is a function.
#include "custom/formula.h"

#include <array>
#include <cctype>
#include <charconv>

#include "support/error.h"

namespace sardonyx::custom {
namespace {

constexpr int kMaxDepth = 64;                // nested parentheses and operators, so that no text exhausts the stack
constexpr std::size_t kMaxLength = 1 << 14;  // of a formula

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {
    if (text.size() > kMaxLength) fault("it is longer than {} characters", kMaxLength);
    next();
  }

  Formula run() {
    Formula f = choice();
    if (!token_.empty()) fault("unexpected '{}'", token_);
    return f;
  }

 private:
  template <typename... A>
  [[noreturn]] void fault(fmt::format_string<A...> format, A&&... a) const {
    fail(ErrorKind::kInvalidArgument, "formula \"{}\": {} at character {}", text_.substr(0, 200),
         fmt::format(format, std::forward<A>(a)...), start_ + 1);
  }

  void next() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) ++at_;
    start_ = at_;
    if (at_ == text_.size()) {
      token_ = {};
      return;
    }
    const char c = text_[at_];
    if (is_letter(c)) {
      while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
    } else if (is_digit(c) || (c == '.' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1]))) {
      number();
    } else if (c == '"' || c == '\'') {
      const std::size_t end = text_.find(c, at_ + 1);
      if (end == std::string_view::npos) fault("a text without its closing quote");
      at_ = end + 1;
    } else {
      static constexpr std::array<std::string_view, 6> kPairs = {"//", "<=", ">=", "==", "!=", "**"};
      at_ += 1;
      for (const std::string_view pair : kPairs)
        if (text_.substr(start_).starts_with(pair)) at_ = start_ + 2;
    }
    token_ = text_.substr(start_, at_ - start_);
  }

  void number() {
    while (at_ < text_.size() && (is_digit(text_[at_]) || text_[at_] == '.')) ++at_;
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      ++at_;
      if (at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '+')) ++at_;
      while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    }
  }

  bool take(std::string_view token) {
    if (token_ != token) return false;
    next();
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) fault("'{}' is missing", token);
  }

  struct Level {
    explicit Level(Parser& p) : p_(p) {
      if (++p_.depth_ > kMaxDepth) p_.fault("it is nested more than {} times", kMaxDepth);
    }
    ~Level() { --p_.depth_; }
    Parser& p_;
  };

  static Formula node(Formula::Kind kind, std::string_view text, std::vector<Formula> args) {
    Formula f;
    f.kind = kind;
    f.text = text;
    f.args = std::move(args);
    return f;
  }

  Formula choice() {
    const Level level(*this);
    Formula then = either();
    if (!take("if")) return then;
    Formula condition = either();
    expect("else");
    Formula otherwise = choice();
    return node(Formula::Kind::kChoice, "", {std::move(condition), std::move(then), std::move(otherwise)});
  }

  // Operators of one precedence, from the left.
  template <std::size_t N>
  Formula left(const std::array<std::string_view, N>& operators, Formula (Parser::*operand)()) {
    Formula a = (this->*operand)();
    for (int count = 0;;) {
      std::string_view found;
      for (const std::string_view o : operators)
        if (token_ == o) found = o;
      if (found.empty()) return a;
      if (++count > kMaxDepth) fault("more than {} operators in a row", kMaxDepth);
      next();
      Formula b = (this->*operand)();
      a = node(Formula::Kind::kBinary, found, {std::move(a), std::move(b)});
    }
  }

  Formula either() { return left(std::array<std::string_view, 1>{"or"}, &Parser::both); }
  Formula both() { return left(std::array<std::string_view, 1>{"and"}, &Parser::negation); }
  Formula negation() {
    const Level level(*this);
    if (take("not")) return node(Formula::Kind::kUnary, "not", {negation()});
    return comparison();
  }
  Formula comparison() {
    Formula a = sum();
    for (const std::string_view o : {"==", "!=", "<=", ">=", "<", ">"})
      if (take(o)) return node(Formula::Kind::kBinary, o, {std::move(a), sum()});
    return a;
  }
  Formula sum() { return left(std::array<std::string_view, 2>{"+", "-"}, &Parser::product); }
  Formula product() { return left(std::array<std::string_view, 4>{"*", "/", "//", "%"}, &Parser::sign); }
  Formula sign() {
    const Level level(*this);
    if (take("-")) return node(Formula::Kind::kUnary, "-", {sign()});
    if (take("+")) return sign();
    Formula base = indexed();
    if (take("**")) return node(Formula::Kind::kBinary, "**", {std::move(base), sign()});
    return base;
  }
  Formula indexed() {
    Formula f = primary();
    while (take("[")) {
      Formula index = choice();
      expect("]");
      f = node(Formula::Kind::kIndex, "", {std::move(f), std::move(index)});
    }
    return f;
  }

  Formula primary() {
    const Level level(*this);
    if (take("(")) {
      Formula f = choice();
      expect(")");
      return f;
    }
    if (token_.empty()) fault("it ends too early");
    const std::string_view token = token_;
    if (is_letter(token[0])) {
      for (const std::string_view word : {"if", "else", "and", "or", "not"})
        if (token == word) fault("unexpected '{}'", token);
      next();
      return take("(") ? call(token) : node(Formula::Kind::kName, token, {});
    }
    if (token[0] == '"' || token[0] == '\'') {
      next();
      return node(Formula::Kind::kText, token.substr(1, token.size() - 2), {});
    }
    return literal();
  }

  Formula call(std::string_view function) {
    std::vector<Formula> args;
    if (!take(")")) {
      do args.push_back(choice());
      while (take(","));
      expect(")");
    }
    return node(Formula::Kind::kCall, function, std::move(args));
  }

  Formula literal() {
    Formula f;
    const char* const end = token_.data() + token_.size();
    if (token_.find_first_of(".eE") == std::string_view::npos) {
      const auto r = std::from_chars(token_.data(), end, f.whole);
      if (r.ec != std::errc() || r.ptr != end) fault("'{}' is not a number", token_);
    } else {
      f.kind = Formula::Kind::kReal;
      const auto r = std::from_chars(token_.data(), end, f.real);
      if (r.ec != std::errc() || r.ptr != end) fault("'{}' is not a number", token_);
    }
    next();
    return f;
  }

  std::string_view text_, token_;
  std::size_t at_ = 0, start_ = 0;
  int depth_ = 0;
};

}  // namespace

Formula parse_formula(std::string_view text) { return Parser(text).run(); }

bool is_identifier(std::string_view text) {
  if (text.empty() || !is_letter(text[0])) return false;
  for (const char c : text)
    if (!is_letter(c) && !is_digit(c)) return false;
  return true;
}

}  // namespace sardonyx::custom
