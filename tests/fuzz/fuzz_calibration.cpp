// Calibration tables of any bytes: refused with Error, or read.
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "import/calibration.h"
#include "support/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto table = sardonyx::parse_calibration({reinterpret_cast<const std::byte*>(data), size}, "input");
    for (const auto& [name, largest] : table.largest)
      if (name.empty() || !std::isfinite(largest) || largest <= 0) std::abort();
  } catch (const sardonyx::Error& e) {
    if (e.kind() != sardonyx::ErrorKind::kInvalidArgument) std::abort();
  }
  return 0;
}
