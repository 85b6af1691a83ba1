// Files of custom operators of any bytes: refused with Error, or their definitions are read.
#include <cstdint>
#include <cstdlib>

#include "custom/definition.h"
#include "custom/toml_file.h"
#include "support/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    for (const sardonyx::CustomOperator& op : sardonyx::custom::parse_toml(text, "/nowhere/ops.toml")) {
      const auto d = sardonyx::custom::parse_definition(op);
      if (d.domain.empty() || (d.launches.empty() && !d.expression)) std::abort();
    }
  } catch (const sardonyx::Error& e) {
    if (e.kind() != sardonyx::ErrorKind::kInvalidArgument) std::abort();
  }
  return 0;
}
