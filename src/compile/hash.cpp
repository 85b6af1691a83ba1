#include "compile/hash.h"

#include <llvm-c/blake3.h>

namespace sardonyx {
namespace {

Hash result(const llvm_blake3_hasher& hasher) {
  Hash out;
  llvm_blake3_hasher_finalize(&hasher, out.data(), out.size());
  return out;
}

}  // namespace

Hash hash_of(std::string_view bytes) {
  llvm_blake3_hasher hasher;
  llvm_blake3_hasher_init(&hasher);
  llvm_blake3_hasher_update(&hasher, bytes.data(), bytes.size());
  return result(hasher);
}

Hash hash_of_parts(std::span<const std::string_view> parts) {
  llvm_blake3_hasher hasher;
  llvm_blake3_hasher_init(&hasher);
  for (const std::string_view part : parts) {
    char length[8];
    for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(std::uint64_t{part.size()} >> (8 * i));
    llvm_blake3_hasher_update(&hasher, length, sizeof length);
    llvm_blake3_hasher_update(&hasher, part.data(), part.size());
  }
  return result(hasher);
}

}  // namespace sardonyx
