// Values of options as text, and names that are nearly right.
#pragma once
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/error.h"

namespace sardonyx {

/// Each function throws Error(kInvalidArgument) for a text that does not fit. `who` begins the message: "--threads",
/// "option threads".
bool parse_bool(std::string_view who, std::string_view text);
/// Decimal, or hexadecimal after "0x".
template <typename T>
T parse_number(std::string_view who, std::string_view text) {
  T n{};
  const bool hex = text.starts_with("0x");
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data() + (hex ? 2 : 0), end, n, hex ? 16 : 10);
  if (error != std::errc() || at != end)
    fail(ErrorKind::kInvalidArgument, "{}: '{}' is not a number that fits", who, text);
  return n;
}
/// Words between commas, semicolons or spaces.
std::vector<std::string> parse_words(std::string_view text);

/// The name with the smallest edit distance from `wrong`; empty for no names.
std::string_view nearest_name(std::string_view wrong, const std::vector<std::string_view>& names);

std::string lower_case(std::string_view text);

}  // namespace sardonyx
