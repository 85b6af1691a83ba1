// Immutable bytes with shared ownership: the elements of constants.
#pragma once
#include <cstddef>
#include <memory>

namespace sardonyx {

struct Data {
  std::shared_ptr<const void> owner;
  const std::byte* bytes = nullptr;
  std::size_t size = 0;
};

/// `bytes` zeros, aligned to 64 bytes, for the caller to fill through `out`. At least 64 more bytes are readable, for
/// vector code. Throws Error(kDevice) if memory is exhausted.
Data make_data(std::size_t bytes, std::byte** out);

}  // namespace sardonyx
