#include "support/data.h"

#include <cstdlib>
#include <cstring>

#include "support/error.h"

namespace sardonyx {

Data make_data(std::size_t bytes, std::byte** out) {
  const std::size_t rounded = (bytes + 127) / 64 * 64;
  void* p = std::aligned_alloc(64, rounded);
  if (!p) fail(ErrorKind::kDevice, "out of memory: {} bytes for a constant", bytes);
  std::memset(p, 0, rounded);
  *out = static_cast<std::byte*>(p);
  return {std::shared_ptr<const void>(p, [](const void* q) { std::free(const_cast<void*>(q)); }), *out, bytes};
}

}  // namespace sardonyx
