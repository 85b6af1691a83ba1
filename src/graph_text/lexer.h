// Internal to graph/: tokens of the text form.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace sardonyx::text {

struct Token {
  enum class Kind { kEnd, kName, kQuotedName, kString, kValue, kNumber, kPunctuation };
  Kind kind = Kind::kEnd;
  /// A name, a string without quotes and escapes, a value's name without '%', digits, or one operator.
  std::string text;
  int line = 1, column = 1;
};

/// Divides a text into tokens. Comments run from // to the end of the line.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : rest_(text) { advance(); }
  const Token& peek() const { return token_; }
  /// The current token, after which the next is read. Throws Error(kInvalidArgument) at characters that begin none.
  Token next();
  /// Throws Error(kInvalidArgument) with this message and the current token's line and column.
  [[noreturn]] void fail_here(const std::string& message) const;

 private:
  void advance();
  void skip_space();
  void take(std::size_t count);
  std::string string_of(char quote);

  std::string_view rest_;
  int line_ = 1, column_ = 1;
  Token token_;
};

}  // namespace sardonyx::text
