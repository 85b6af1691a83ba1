// The kernels of integer_kernels.h for AMX: tiles of 16 rows and 64 bytes, whose product adds 64 products of bytes to
// each of 16 x 16 sums. Rows that do not fill a tile take AVX512-VNNI.
#include <immintrin.h>

#include <cstddef>

#include "host/integer_kernels.h"

namespace sardonyx::host {
namespace amx {
namespace {
#include "host/integer_avx512_vnni.inc"

constexpr int kTileRows = 16, kTileBytes = 64;
static_assert(kByteColumns == 2 * kTileRows, "a panel is two tiles wide");
constexpr long kPanelRow = kByteColumns * 4, kSumsRow = kByteColumns * sizeof(std::int32_t);  // bytes

// As ldtilecfg reads it: palette 1, eight tiles of 16 rows and 64 bytes.
struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1, start = 0, reserved[14] = {};
  std::uint16_t bytes[16] = {kTileBytes, kTileBytes, kTileBytes, kTileBytes,
                             kTileBytes, kTileBytes, kTileBytes, kTileBytes};
  std::uint8_t rows[16] = {kTileRows, kTileRows, kTileRows, kTileRows, kTileRows, kTileRows, kTileRows, kTileRows};
};
// Static, because the intrinsic does not tell the compiler that it reads all of it.
const TileConfiguration kConfiguration;

/// sums[Tiles * 16][32] = a * b. Prefetch: the next panel, which follows this one in memory.
template <int Tiles, bool Prefetch>
void multiply_tiles(std::int64_t depth, const std::uint8_t* a, long a_row, const std::int8_t* b, std::int32_t* sums) {
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (Tiles == 2) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (std::int64_t k = 0; k < depth; k += kTileBytes) {
    const std::int8_t* here = b + k * kByteColumns;
    if constexpr (Prefetch) {
      const std::int8_t* next = b + (depth + 8) * kByteColumns + k * kByteColumns;
      for (int line = 0; line < kTileBytes * kByteColumns; line += 64) _mm_prefetch(next + line, _MM_HINT_T1);
    }
    _tile_loadd(4, a + k, a_row);
    _tile_loadd(6, here, kPanelRow);
    _tile_loadd(7, here + kTileBytes, kPanelRow);
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
    if constexpr (Tiles == 2) {
      _tile_loadd(5, a + kTileRows * a_row + k, a_row);
      _tile_dpbusd(2, 5, 6);
      _tile_dpbusd(3, 5, 7);
    }
  }
  _tile_stored(0, sums, kSumsRow);
  _tile_stored(1, sums + kTileRows, kSumsRow);
  if constexpr (Tiles == 2) {
    _tile_stored(2, sums + kTileRows * kByteColumns, kSumsRow);
    _tile_stored(3, sums + kTileRows * kByteColumns + kTileRows, kSumsRow);
  }
}

void tile_gemm(std::int64_t rows, const IntegerRows& left, const IntegerRow* corrections, const void* panel,
               std::int32_t* c, std::int64_t c_row, int columns) {
  const auto* a = static_cast<const std::uint8_t*>(left.data);
  const std::int64_t depth = left.depth, a_row = left.row;
  const auto* b = static_cast<const std::int8_t*>(panel);
  std::int64_t row = 0;
  if (rows >= kTileRows && depth % kTileBytes == 0) {
    alignas(64) std::int32_t sums[2 * kTileRows * kByteColumns];
    Corrector corrector(b, depth);
    _tile_loadconfig(&kConfiguration);
    while (rows - row >= kTileRows) {
      const std::int64_t here = rows - row >= 2 * kTileRows ? 2 * kTileRows : kTileRows;
      if (here == kTileRows)
        multiply_tiles<1, false>(depth, a + row * a_row, a_row, b, sums);
      else if (row == 0)
        multiply_tiles<2, true>(depth, a, a_row, b, sums);
      else
        multiply_tiles<2, false>(depth, a + row * a_row, a_row, b, sums);
      for (std::int64_t i = 0; i < here; ++i, ++row) {
        std::int32_t* whole = sums + i * kByteColumns;
        corrector.store(load_ints(whole), load_ints(whole + kByteLanes), corrections[row], whole);
        __builtin_memcpy(c + row * c_row, whole, static_cast<std::size_t>(columns) * sizeof(std::int32_t));
      }
    }
    _tile_release();
  }
  if (row < rows)
    byte_gemm(rows - row, {a + row * a_row, a_row, depth}, corrections + row, b, c + row * c_row, c_row, columns);
}

}  // namespace
}  // namespace amx

using namespace amx;
const IntegerKernels kIntegerAmx = {"AMX",         true,         kByteColumns,      4,        kTileBytes,
                                    pack_byte_row, byte_row_sum, pack_byte_columns, tile_gemm};

}  // namespace sardonyx::host
