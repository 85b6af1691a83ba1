// A description serialised to bytes, as the key of a cache.
#pragma once
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "epilogue/post_op.h"

namespace sardonyx::host {

class DescKey {
 public:
  void add(std::int64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value)); }
  void add(const std::vector<std::int64_t>& values) {
    add(static_cast<std::int64_t>(values.size()));
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(std::int64_t));
  }
  void add(const PostOp& op) {
    add(static_cast<std::int64_t>(op.kind) << 8 | static_cast<std::int64_t>(op.dtype));
    add(static_cast<std::int64_t>(std::bit_cast<std::uint32_t>(op.alpha)) << 32 |
        std::bit_cast<std::uint32_t>(op.beta));
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace sardonyx::host
