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

/// `bytes` zeros at a multiple of 64 bytes, for the caller to fill through `out`. At least 64 more bytes may be read,
/// as vector code does. Throws Error(kDevice) when there is no memory.
Data make_data(std::size_t bytes, std::byte** out);

}  // namespace sardonyx
