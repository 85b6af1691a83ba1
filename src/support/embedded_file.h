// A source text that is embedded in the library (see sardonyx_embed in cmake/components.cmake).
#pragma once
#include <cstddef>
#include <string_view>

namespace sardonyx {

struct EmbeddedFile {
  const char* name;
  const char* data;
  std::size_t size;
  constexpr std::string_view text() const { return {data, size}; }
};

}  // namespace sardonyx
