// UTF-8 checks (RFC 3629) and quoting of names.
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

std::string describe_node(std::int64_t index, std::string_view name, std::string_view domain,
                          std::string_view op_type) {
  std::string out = fmt::format("node {} ", index);
  if (!name.empty()) out += quote(name) + " ";
  const std::string op = quote(op_type), space = domain.empty() ? "" : quote(domain);
  out += "(" + (space.empty() ? "" : space.substr(1, space.size() - 2) + "::") + op.substr(1, op.size() - 2) + ")";
  return out;
}

}  // namespace sardonyx::onnx
