// Square tiles of bytes and of int32 that are transposed in vector registers.
#pragma once
#include <cstdint>
#include <cstring>

namespace sardonyx::host {

typedef std::uint8_t ByteTileRow __attribute__((vector_size(16)));
typedef std::int32_t IntTileRow __attribute__((vector_size(16)));

/// Alternating elements of the lower halves of two rows, and of their upper halves.
inline void interleave(ByteTileRow a, ByteTileRow b, ByteTileRow& low, ByteTileRow& high) {
  low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  high = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
inline void interleave(IntTileRow a, IntTileRow b, IntTileRow& low, IntTileRow& high) {
  low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
}

/// Transposes N rows of N elements: each round interleaves rows whose numbers differ in the highest bit, which rotates
/// the bits of an element's position (row, column) by one.
template <typename Row, int N>
void transpose_tile(Row (&rows)[N]) {
  for (int round = 1; round < N; round *= 2) {
    Row next[N];
    for (int k = 0; k < N / 2; ++k) interleave(rows[k], rows[k + N / 2], next[2 * k], next[2 * k + 1]);
    std::memcpy(rows, next, sizeof(next));
  }
}

}  // namespace sardonyx::host
