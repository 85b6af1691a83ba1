// UTF-8 checks (RFC 3629) and quoting of names.
#include "support/text.h"

#include <cstdint>

#include "support/error.h"

namespace sardonyx {

std::size_t utf8_length(std::string_view s, std::size_t i) {
  const auto byte = [&](std::size_t k) { return i + k < s.size() ? static_cast<std::uint8_t>(s[i + k]) : 0; };
  const auto tail = [&](std::size_t k) { return (byte(k) & 0xC0) == 0x80; };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return tail(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if (!tail(1) || !tail(2)) return 0;
    if (first == 0xE0 && byte(1) < 0xA0) return 0;   // overlong
    if (first == 0xED && byte(1) >= 0xA0) return 0;  // surrogate
    return 3;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (!tail(1) || !tail(2) || !tail(3)) return 0;
    if (first == 0xF0 && byte(1) < 0x90) return 0;   // overlong
    if (first == 0xF4 && byte(1) >= 0x90) return 0;  // beyond U+10FFFF
    return 4;
  }
  return 0;
}

std::string quote(std::string_view name) {
  constexpr std::size_t kMaxQuoted = 120;  // characters: one line of a message
  std::string out = "'";
  std::size_t i = 0;
  while (i < name.size()) {
    if (out.size() > kMaxQuoted) return out + "...'";
    const std::size_t n = utf8_length(name, i);
    const auto c = static_cast<std::uint8_t>(name[i]);
    if (n == 0 || c < 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02x}", c);
      i += 1;
    } else {
      out += name.substr(i, n);
      i += n;
    }
  }
  return out + "'";
}

}  // namespace sardonyx
