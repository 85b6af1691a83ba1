// BLAKE3.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace sardonyx {

using Hash = std::array<std::uint8_t, 32>;

Hash hash_of(std::string_view bytes);

/// Hashes `parts` with their lengths, so that {"ab", "c"} and {"a", "bc"} differ. The first part should be a tag that
/// is unique to the use.
Hash hash_of_parts(std::span<const std::string_view> parts);

}  // namespace sardonyx
