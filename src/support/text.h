// Text from untrusted files.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace sardonyx {

/// Length of the well-formed UTF-8 character that starts at `i`; 0 if there is none.
std::size_t utf8_length(std::string_view s, std::size_t i);

/// For messages: in quotes, control characters and broken UTF-8 escaped, cut after about 120 characters.
std::string quote(std::string_view name);

}  // namespace sardonyx
