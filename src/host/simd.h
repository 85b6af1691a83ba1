// Own vector kernels, compiled for several instruction sets (simd_*.cpp) and chosen once at run time.
#pragma once
#include <cstdint>

#include "epilogue/post_op.h"

namespace sardonyx::host {

/// Query rows that share their keys and values, at most kMaxRows of them. Distances are in elements.
struct AttentionRows {
  static constexpr int kMaxRows = 64;
  int rows = 0;
  const float* q[kMaxRows];        ///< each row's head_dim elements
  const void* mask[kMaxRows];      ///< of key 0, or null
  std::int64_t visible[kMaxRows];  ///< the row sees keys [hidden, visible)
  std::int64_t hidden[kMaxRows];
  float sink[kMaxRows];  ///< a further score that takes part in the softmax, with has_sink
  float* out[kMaxRows];  ///< each row's value_dim results
  const float* k = nullptr;
  const float* v = nullptr;
  std::int64_t k_row = 0, k_element = 0, v_row = 0, mask_element = 0;
  std::int64_t keys = 0, head_dim = 0, value_dim = 0;
  float scale = 1;
  bool mask_is_bool = false;
  bool has_sink = false;
  float softcap = 0;        ///< scores become softcap * tanh(scores / softcap); 0: no cap
  bool zero_empty = false;  ///< a row that sees no key gives zeros rather than NaN
};

/// One step of an epilogue on an image that is stored channels last.
struct EpilogueStep {
  enum class Extent : std::uint8_t { kScalar, kChannels, kWhole };  ///< the operand's: as the output's, or 1 elsewhere
  PostOp::Kind kind;
  Extent extent = Extent::kScalar;
  float alpha = 0, beta = 0;
  const float* operand = nullptr;
};

/// The points, beside 0 and infinity, at which Winograd's polynomials are taken: + and - each. Errors of results are a
/// third of those of the usual 1 and 2, and 2 to 3 times those of a direct sum.
inline constexpr float kWinogradNear = 0.75f, kWinogradFar = 1.5f;
/// With stride 2, beside infinity: errors are those of a direct sum.
inline constexpr float kWinogradStridedNear = 0.5f, kWinogradStridedFar = 1.25f;

/// How many results of a convolution with so many taps are computed from how many products along an axis, and how far
/// their patches are apart: stride pixels for each result.
struct WinogradAxis {
  int results, taps, products, stride;
};
/// Tiles of results: rows and columns, of 3 taps (k3x3: of 4) along an axis that has more than one result.
enum class WinogradForm : std::uint8_t { k4x4, k4x4Stride2, k2x2Stride2, k1x4, k1x4Stride2, k4x4Squares, k3x3Squares };
inline constexpr WinogradAxis kWinogradAxes[][2] = {{{4, 3, 6, 1}, {4, 3, 6, 1}}, {{4, 3, 9, 2}, {4, 3, 9, 2}},
                                                    {{2, 3, 5, 2}, {2, 3, 5, 2}}, {{1, 1, 1, 1}, {4, 3, 6, 1}},
                                                    {{1, 1, 1, 1}, {4, 3, 9, 2}}, {{4, 3, 6, 1}, {4, 3, 6, 1}},
                                                    {{3, 4, 6, 1}, {3, 4, 6, 1}}};
inline constexpr int kWinogradForms = 7, kMaxWinogradProducts = 81, kMaxWinogradResults = 16;
/// A square of so many pixels a side may stand for a pixel: it is in so many places, its rows, each of at most so many
/// channels.
inline constexpr int kSquareSide = 2, kMaxSquareRow = 8;

/// A tile of results.
struct WinogradTile {
  const float* products = nullptr;  ///< the form's number of them, at a distance of `step`
  std::int64_t step = 0;
  std::int64_t first = 0, last = 0;  ///< channels to compute; products begin at the first one
  const float* bias = nullptr;       ///< or none
  const EpilogueStep* steps = nullptr;
  int step_count = 0;
  float* out = nullptr;
  const std::int64_t* pixels = nullptr;  ///< where in `out` each one's channels begin; -1: outside
};

struct WinogradTransforms {
  /// Of a patch of the form's products in number of pixels, given by where each one's channels begin, into runs at a
  /// distance of `step` floats, of which whole vectors are written. The next patch's pixels are prefetched. With
  /// squares for pixels, each of their rows is given, and `channels` are a row's.
  void (*input)(const float* const* pixels, const float* const* next, std::int64_t channels, float* out,
                std::int64_t step);
  void (*output)(const WinogradTile& tile);
};

/// Rows [first, first + rows) of c = a * b + bias with an epilogue, in the columns of one panel. b is
/// [taps][depth][64]; row i of a is `depth` elements at each of sources[tap * source_step + i - first], or, without
/// sources and with one tap, at a + i * a_row.
struct PanelProduct {
  std::int64_t first = 0, rows = 0, depth = 0, taps = 1;
  const float* const* sources = nullptr;
  std::int64_t source_step = 0;
  const float* a = nullptr;
  std::int64_t a_row = 0, c_row = 0;  ///< distances of rows
  std::int64_t column = 0;            ///< the panel's first one
  int columns = 0;                    ///< at most 64
  const float* b = nullptr;
  const float* next = nullptr;  ///< the panel to prefetch, or null
  const char* later = nullptr;  ///< and further memory, or null
  std::int64_t later_bytes = 0;
  const float* bias = nullptr;  ///< of the panel's first column, or null
  const EpilogueStep* steps = nullptr;
  int step_count = 0;
  float* c = nullptr;
};

/// Bytes that panel_product() can prefetch of PanelProduct::later in all of a product: a line for each row of a panel
/// that 6 rows are multiplied with.
inline std::int64_t panel_prefetches(std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  if (rows <= 3 * 6) return 0;  // the next panel takes all that few rows can
  return rows * columns / (6 * 64) * depth * 64;
}

struct SimdKernels {
  const char* name;
  void (*float16_to_float32)(const std::uint16_t* in, float* out, std::int64_t count);
  void (*bfloat16_to_float32)(const std::uint16_t* in, float* out, std::int64_t count);
  void (*float32_to_float16)(const float* in, std::uint16_t* out, std::int64_t count);
  void (*float32_to_bfloat16)(const float* in, std::uint16_t* out, std::int64_t count);
  int attention_rows;   ///< rows that one call of `attention` does best, and at most
  int attention_lanes;  ///< what it rounds rows up to
  /// Floats of working memory, at a multiple of 64 bytes, for these extents.
  std::int64_t (*attention_scratch)(std::int64_t head_dim, std::int64_t value_dim);
  void (*attention)(const AttentionRows& rows, float* scratch);
  /// c[rows][columns] = a[rows][depth] * b[depth][64] + bias; rows <= 4, columns <= 64, bias may be null. Null where
  /// oneDNN's own kernel is as fast.
  void (*few_rows)(int rows, std::int64_t depth, const float* a, std::int64_t a_row, const float* b, const float* bias,
                   float* c, std::int64_t c_row, int columns);
  /// Null where oneDNN's own kernel is as fast.
  void (*panel_product)(const PanelProduct& product);
  int integer_columns;  ///< columns of one panel of a packed right matrix; see simd_integer.inc
  void (*pack_row)(const void* in, bool is_signed, std::int64_t count, int zero, std::int16_t* out,
                   std::int64_t padded);
  void (*pack_columns)(const void* in, bool is_signed, std::int64_t row, std::int64_t column, std::int64_t depth,
                       int columns, const int* zeros, std::int16_t* out);
  void (*integer_product)(std::int64_t rows, std::int64_t pairs, const std::int16_t* a, std::int64_t a_row,
                          const std::int16_t* b, std::int32_t* c, std::int64_t c_row, int columns);
  int winograd_columns, winograd_rows;  ///< of one panel of weights, and those rows that it is best multiplied with
  /// c[rows][columns] = a[rows][depth] * panel[depth][columns], while the panel `next` is prefetched. There are
  /// winograd_columns columns, or half as many.
  void (*winograd_product)(std::int64_t rows, std::int64_t depth, const float* a, std::int64_t a_row,
                           const float* panel, int columns, const float* next, float* c);
  WinogradTransforms winograd[kWinogradForms];  ///< by WinogradForm
  /// In place, within 3 units in the last place; a sigmoid below 2^-126 may be 0.
  void (*sigmoid)(float* x, std::int64_t count);
  void (*tanh)(float* x, std::int64_t count);
};

extern const SimdKernels kSimdBaseline;
extern const SimdKernels kSimdAvx2;    ///< with FMA and F16C
extern const SimdKernels kSimdAvx512;  ///< F, BW, DQ and VL

/// The best kernels for this CPU, within the same limit as oneDNN's (ONEDNN_MAX_CPU_ISA).
const SimdKernels& simd();

}  // namespace sardonyx::host
