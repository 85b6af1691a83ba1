#include "graph_text/lexer.h"

#include <algorithm>

#include "support/error.h"

namespace sardonyx::text {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The length of the number at the start of s: digits with a fraction and an exponent.
std::size_t number_length(std::string_view s) {
  std::size_t n = 0;
  const auto digits = [&] {
    while (n < s.size() && is_digit(s[n])) ++n;
  };
  digits();
  if (n < s.size() && s[n] == '.') {
    ++n;
    digits();
  }
  if (n + 1 < s.size() && (s[n] == 'e' || s[n] == 'E')) {
    const std::size_t sign = s[n + 1] == '+' || s[n + 1] == '-' ? 1 : 0;
    if (n + 1 + sign < s.size() && is_digit(s[n + 1 + sign])) {
      n += 1 + sign;
      digits();
    }
  }
  return n;
}

}  // namespace

void Lexer::fail_here(const std::string& message) const {
  fail(ErrorKind::kInvalidArgument, "graph text, line {}, column {}: {}", token_.line, token_.column, message);
}

Token Lexer::next() {
  Token t = std::move(token_);
  advance();
  return t;
}

void Lexer::take(std::size_t count) {
  for (std::size_t k = 0; k < count; ++k) {
    ++column_;
    if (rest_[k] != '\n') continue;
    ++line_;
    column_ = 1;
  }
  rest_.remove_prefix(count);
}

void Lexer::skip_space() {
  while (!rest_.empty()) {
    std::size_t n = 0;
    if (rest_.starts_with("//"))
      n = std::min(rest_.find('\n'), rest_.size());
    else if (rest_[0] == ' ' || rest_[0] == '\t' || rest_[0] == '\n' || rest_[0] == '\r')
      n = 1;
    else
      return;
    take(n);
  }
}

std::string Lexer::string_of(char quote) {
  std::string s;
  std::size_t n = 1;
  for (;; ++n) {
    if (n >= rest_.size()) fail_here("a string without its closing quote");
    if (rest_[n] == quote) break;
    if (rest_[n] != '\\') {
      s += rest_[n];
      continue;
    }
    const char c = n + 1 < rest_.size() ? rest_[n + 1] : '\0';
    ++n;
    if (c == 'n') {
      s += '\n';
    } else if (c == 'x') {
      int byte = 0;
      for (int k = 0; k < 2; ++k) {
        ++n;
        const char h = n < rest_.size() ? rest_[n] : '\0';
        if (!is_digit(h) && !(h >= 'a' && h <= 'f')) fail_here("\\x in a string needs two hexadecimal digits");
        byte = byte * 16 + (is_digit(h) ? h - '0' : h - 'a' + 10);
      }
      s += static_cast<char>(byte);
    } else if (c == '\\' || c == '"' || c == '\'') {
      s += c;
    } else {
      fail_here("an unknown escape in a string");
    }
  }
  take(n + 1);
  return s;
}

void Lexer::advance() {
  using Kind = Token::Kind;
  skip_space();
  token_ = {};
  token_.line = line_;
  token_.column = column_;
  if (rest_.empty()) return;
  const char c = rest_[0];
  const auto name_length = [&](std::size_t from) {
    std::size_t n = from;
    while (n < rest_.size() && (is_letter(rest_[n]) || is_digit(rest_[n]) || rest_[n] == '.' || rest_[n] == '#')) ++n;
    return n;
  };
  const auto token = [&](Kind kind, std::size_t skip, std::size_t n) {
    token_.kind = kind;
    token_.text = rest_.substr(skip, n - skip);
    take(n);
  };
  if (is_letter(c)) return token(Kind::kName, 0, name_length(0));
  if (is_digit(c)) return token(Kind::kNumber, 0, number_length(rest_));
  if (c == '%' && name_length(1) > 1) return token(Kind::kValue, 1, name_length(1));
  if (c == '"' || c == '\'') {
    token_.text = string_of(c);
    token_.kind = c == '"' ? Kind::kString : Kind::kQuotedName;
    return;
  }
  for (const std::string_view p :
       {"...", "||", "&&", "^^", "==", "!=", "<=", ">=", "<<", ">>", "+", "-", "*", "/", "<",
        ">",   "|",  "^",  "&",  "=",  ",",  ":",  ";",  "(",  ")",  "[", "]", "{", "}", "@"})
    if (rest_.starts_with(p)) return token(Kind::kPunctuation, 0, p.size());
  fail_here("an unexpected character");
}

}  // namespace sardonyx::text
