// UTF-8 checks of names (RFC 3629).
#include "onnx/text.h"

#include <cstddef>
#include <cstdint>

#include "support/error.h"

namespace sardonyx::onnx {

const std::string& checked(const std::string& s, std::string_view what) {
  for (std::size_t i = 0; i < s.size();) {
    const std::size_t n = utf8_length(s, i);
    if (n == 0 || s[i] == '\0') fail(ErrorKind::kInvalidModel, "{} {} is not UTF-8 text", what, quote(s));
    i += n;
  }
  return s;
}

}  // namespace sardonyx::onnx
