// The formulas in definitions of operators: Python's notation for arithmetic, comparisons, and `a if c else b`.
//
//   ceildiv(seq, 256)     x * sigmoid(1.702 * x)     4 * heads if causal else 0     mode == "nearest"
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sardonyx::custom {

struct Formula {
  enum class Kind : std::uint8_t { kWhole, kReal, kText, kName, kCall, kIndex, kUnary, kBinary, kChoice };
  Kind kind = Kind::kWhole;
  std::int64_t whole = 0;
  double real = 0;
  /// A name or a text; of a call its function, of kUnary ("-", "not") and kBinary ("+", "//", "<=", "and") its
  /// operator.
  std::string text;
  /// kIndex: the list and the index. kChoice: condition, then, else.
  std::vector<Formula> args;

  bool is_name(std::string_view name) const { return kind == Kind::kName && text == name; }
};

/// Throws Error(kInvalidArgument) with the place in `text`.
Formula parse_formula(std::string_view text);

/// Whether a text is a name: a letter or _, then letters, digits and _.
bool is_identifier(std::string_view text);

}  // namespace sardonyx::custom
