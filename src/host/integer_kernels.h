// Kernels for GEMMs of 8-bit integers with exact sums, chosen once by the CPU's instructions.
#pragma once
#include <cstdint>

namespace sardonyx::host {

/// What corrects the sums of one row of a, where its elements are packed with their zero point (IntegerKernels::bytes).
struct IntegerRow {
  std::int32_t zero = 0;  ///< packed_zero()
  std::int32_t sum = 0;   ///< of the row's packed elements
};

/// Rows of a in memory. A row has `segments` segments of `depth` elements each, `step` elements apart (a window's lines
/// in an image), a multiple of the kernels' group each. Kernels with a large group take one segment only.
struct IntegerRows {
  const void* data = nullptr;
  std::int64_t row = 0;  ///< elements from one row to the next
  std::int64_t depth = 0, segments = 1, step = 0;
};

/// Packed operands. a: rows of `depth` elements. b: panels of `columns` columns.
///
/// bytes: elements are 8 bits, unsigned in a and signed in b (an int8 a is stored plus 128, a uint8 b minus 128), with
/// their zero points. A panel ends with two int32 per column, from which the kernel corrects its sums:
/// sum_k (a - za) (b - zb) = sum_k a b - za (sum_k b - K zb) - zb sum_k a. All modulo 2^32.
/// Otherwise elements are 16 bits and have their zero points subtracted.
struct IntegerKernels {
  const char* name;
  bool bytes;
  int columns;             ///< of a panel
  int group, large_group;  ///< K is padded to a multiple of `large_group`, if it is not less, or else of `group`
  void (*pack_row)(const void* in, bool is_signed, std::int64_t count, int zero, void* out, std::int64_t padded);
  std::int32_t (*row_sum)(const void* row, std::int64_t count);  ///< of a packed row; 0 if not `bytes`
  /// One panel of b[count][columns]; element (l, j) is at l * row + j * column. `padded`: the depth.
  void (*pack_columns)(const void* in, bool is_signed, std::int64_t row, std::int64_t column, std::int64_t count,
                       std::int64_t padded, int columns, const int* zeros, void* out);
  /// c[rows][columns] = a * panel. Reads whole groups of a's elements.
  void (*product)(std::int64_t rows, const IntegerRows& a, const IntegerRow* corrections, const void* panel,
                  std::int32_t* c, std::int64_t c_row, int columns);

  std::int64_t element() const { return bytes ? 1 : 2; }
  std::int64_t depth(std::int64_t k) const {
    const std::int64_t to = k >= large_group ? large_group : group;
    return (k + to - 1) / to * to;
  }
  std::int64_t panel_bytes(std::int64_t k) const {
    return columns * (depth(k) * element() + (bytes ? 2 * static_cast<std::int64_t>(sizeof(std::int32_t)) : 0));
  }
  /// The zero point of a in packed elements.
  int packed_zero(int zero, bool is_signed) const { return !bytes ? 0 : is_signed ? zero + 128 : zero; }
};

extern const IntegerKernels kIntegerBaseline, kIntegerAvx2, kIntegerAvx512;  ///< pmaddwd
extern const IntegerKernels kIntegerAvxVnni, kIntegerAvx512Vnni;             ///< vpdpbusd
extern const IntegerKernels kIntegerAmx;                                     ///< tdpbusd; vpdpbusd for rests of rows

/// The best kernels for this CPU, with the same limit as oneDNN's (ONEDNN_MAX_CPU_ISA).
const IntegerKernels& integer_kernels();

}  // namespace sardonyx::host
