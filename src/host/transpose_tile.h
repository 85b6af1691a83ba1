// Square tiles of bytes and of int32 that are transposed in vector registers.
#pragma once
#include <algorithm>
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

/// out[column][row] = in[row][column] for `rows` rows of `columns` elements; rows of `out` are `pitch` elements apart.
inline void store_transposed(const std::int32_t* in, std::int64_t rows, std::int64_t columns, std::int64_t pitch,
                             std::int32_t* out) {
  constexpr std::int64_t kInts = 4, kLine = 16;  // a tile's side; elements of a cache line
  const std::int64_t whole = rows / kInts * kInts;
  for (std::int64_t line = 0; line < columns; line += kLine) {
    const std::int64_t end = std::min(columns, line + kLine), tiles = line + (end - line) / kInts * kInts;
    for (std::int64_t r = 0; r < whole; r += kInts)
      for (std::int64_t c = line; c < tiles; c += kInts) {
        IntTileRow tile[kInts];
        for (int k = 0; k < kInts; ++k) std::memcpy(&tile[k], in + (r + k) * columns + c, sizeof(tile[k]));
        transpose_tile(tile);
        for (int k = 0; k < kInts; ++k) std::memcpy(out + (c + k) * pitch + r, &tile[k], sizeof(tile[k]));
      }
    for (std::int64_t c = line; c < end; ++c)
      for (std::int64_t r = c < tiles ? whole : 0; r < rows; ++r) out[c * pitch + r] = in[r * columns + c];
  }
}

}  // namespace sardonyx::host
