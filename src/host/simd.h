// Our own vector kernels, compiled for several instruction sets (simd_*.cpp) and selected once at run time.
#pragma once
#include <cstdint>

#include "epilogue/post_op.h"

namespace sardonyx::host {

/// Query rows that share their keys and values, at most kMaxRows of them. Strides are in elements.
struct AttentionRows {
  static constexpr int kMaxRows = 64;
  int rows = 0;
  const float* q[kMaxRows];        ///< each row's head_dim elements
  const void* mask[kMaxRows];      ///< of key 0, or null
  std::int64_t visible[kMaxRows];  ///< the row attends to keys [hidden, visible)
  std::int64_t hidden[kMaxRows];
  float sink[kMaxRows];  ///< one more score that takes part in the softmax, if has_sink
  float* out[kMaxRows];  ///< each row's value_dim results
  const float* k = nullptr;
  const float* v = nullptr;
  /// Numbers of the pages of page_rows keys, k_page and v_page elements apart, in which keys and values lie; or null.
  const std::int64_t* pages = nullptr;
  std::int64_t page_rows = 0, k_page = 0, v_page = 0;
  /// If not null, keys and values are these in pages, times a scale for each row; k and v are null. `decoded`: what
  /// each of the 256 codes stands for; null: they are int8.
  const std::int8_t *k_numbers = nullptr, *v_numbers = nullptr;
  const float* decoded = nullptr;
  const float *k_scale = nullptr, *v_scale = nullptr;  ///< of row 0 of page 0
  std::int64_t k_scale_row = 0, v_scale_row = 0, k_scale_page = 0, v_scale_page = 0;
  std::int64_t k_row = 0, k_element = 0, v_row = 0, mask_element = 0;
  std::int64_t keys = 0, head_dim = 0, value_dim = 0;
  float scale = 1;
  bool mask_is_bool = false;
  bool has_sink = false;
  float softcap = 0;        ///< scores become softcap * tanh(scores / softcap); 0: no cap
  bool zero_empty = false;  ///< a row without keys gives zeros rather than NaN
};

/// One step of an epilogue on an image that is stored channels last.
struct EpilogueStep {
  enum class Extent : std::uint8_t { kScalar, kChannels, kWhole };  ///< the operand's: as the output's, or 1 elsewhere
  PostOp::Kind kind;
  Extent extent = Extent::kScalar;
  float alpha = 0, beta = 0;
  const float* operand = nullptr;
};

/// Winograd's interpolation points are 0, infinity, and + and - each of these. Rounding errors are a third of those of
/// the usual points 1 and 2, and 2 to 3 times those of a direct sum.
inline constexpr float kWinogradNear = 0.75f, kWinogradFar = 1.5f;
/// With stride 2, beside infinity. Rounding errors are those of a direct sum.
inline constexpr float kWinogradStridedNear = 0.5f, kWinogradStridedFar = 1.25f;

/// Minimal filtering along one axis: `results` outputs of a filter of `taps` from `products` multiplications. The input
/// patches of neighbouring tiles are stride * results pixels apart.
struct WinogradAxis {
  int results, taps, products, stride;
};
/// Tiles of results: rows x columns. Filters have 3 taps (k3x3: 4) along each axis with more than one result. Folded:
/// on an image whose 2 x 2 blocks of pixels are folded into channels (space-to-depth).
enum class WinogradForm : std::uint8_t {
  k4x4,
  k4x4Stride2,
  k2x2Stride2,
  k1x4,
  k1x4Stride2,
  k4x4Folded,
  k3x3Folded,
  k4x1
};
inline constexpr WinogradAxis kWinogradAxes[][2] = {{{4, 3, 6, 1}, {4, 3, 6, 1}}, {{4, 3, 9, 2}, {4, 3, 9, 2}},
                                                    {{2, 3, 5, 2}, {2, 3, 5, 2}}, {{1, 1, 1, 1}, {4, 3, 6, 1}},
                                                    {{1, 1, 1, 1}, {4, 3, 9, 2}}, {{4, 3, 6, 1}, {4, 3, 6, 1}},
                                                    {{3, 4, 6, 1}, {3, 4, 6, 1}}, {{4, 3, 6, 1}, {1, 1, 1, 1}}};
inline constexpr int kWinogradForms = 8, kMaxWinogradProducts = 81, kMaxWinogradResults = 16;
/// Blocks of kFoldedSide x kFoldedSide pixels may stand for a pixel. Their rows lie apart in memory, and have at most
/// kMaxFoldedRow channels each.
inline constexpr int kFoldedSide = 2, kMaxFoldedRow = 8;

/// A tile of results.
struct WinogradTile {
  const float* products = nullptr;  ///< the form's number of products, with stride `step`
  std::int64_t step = 0;
  std::int64_t first = 0, last = 0;  ///< channels to compute; products begin at the first one
  const float* bias = nullptr;       ///< or null
  const EpilogueStep* steps = nullptr;
  int step_count = 0;
  float* out = nullptr;
  const std::int64_t* pixels = nullptr;  ///< offsets in `out` of each pixel's channels; -1: outside
};

struct WinogradTransforms {
  /// Transforms a patch. `pixels` holds the address of each pixel's channels; results have stride `step` floats, and
  /// are written in whole vectors. The pixels of the next patch are prefetched. For folded pixels, the address of each
  /// of their rows is given, and `channels` are those of a row.
  void (*input)(const float* const* pixels, const float* const* next, std::int64_t channels, float* out,
                std::int64_t step);
  void (*output)(const WinogradTile& tile);
};

/// Rows [first, first + rows) of c = a * b + bias with an epilogue, in the columns of one panel. b is
/// blocks of [taps][depth][SimdKernels::panel_block]. Row i of a consists of `depth` elements at each of sources[tap *
/// source_step + i - first] or, if there are no sources and one tap, at a + i * a_row.
struct PanelGemm {
  std::int64_t first = 0, rows = 0, depth = 0, taps = 1;
  const float* const* sources = nullptr;
  std::int64_t source_step = 0;
  const float* a = nullptr;
  std::int64_t a_row = 0, c_row = 0;  ///< strides of rows
  std::int64_t column = 0;            ///< first column of the panel
  int columns = 0;                    ///< at most 64
  const float* b = nullptr;
  std::int64_t block = 0;       ///< elements from one block of b to the next
  const float* next = nullptr;  ///< panel to prefetch, or null
  const char* later = nullptr;  ///< further memory to prefetch, or null
  std::int64_t later_bytes = 0;
  const float* bias = nullptr;  ///< starts at the panel's first column; or null
  const EpilogueStep* steps = nullptr;
  int step_count = 0;
  float* c = nullptr;
  std::int64_t element = 0;  ///< of each row of a, where the product begins
  bool accumulate = false;   ///< adds to c instead of `bias`
};

/// Pixels of a depthwise convolution with an epilogue: out[pixel + c] = bias[c] + sum of sources[k][c] * weights[k][c],
/// and the same for each further pixel, `step` behind in `out`.
struct DepthwisePixels {
  std::int64_t channels = 0, pixels = 1;
  int taps = 0;
  const float* const* sources = nullptr;  ///< of the first pixel
  std::int64_t advance = 0;               ///< of the sources, from pixel to pixel
  const float* const* weights = nullptr;
  const float* bias = nullptr;  ///< or null
  const EpilogueStep* steps = nullptr;
  int step_count = 0;
  float* out = nullptr;
  std::int64_t pixel = 0;  ///< offset in `out` of the first pixel
  std::int64_t step = 0;   ///< from pixel to pixel in `out`
};

/// A row of pixels of a depthwise convolution with an epilogue, for filters of an odd number of taps along it, 3 to
/// SimdKernels::depthwise_row_taps, and a stride of 1 or 2. At least a vector of channels.
struct DepthwiseRow {
  std::int64_t channels = 0, pixels = 0;        ///< of `out`
  std::int64_t from = 0, to = 0;                ///< channels to compute
  std::int64_t source_step = 0;                 ///< from a pixel of the image to the next one
  std::int64_t weight_step = 0;                 ///< from a tap to the next one
  int taps = 0, stride = 1;                     ///< along the row
  int most_pixels = 0;                          ///< side by side; at least 7
  int rows = 0;                                 ///< of the filter that are inside of the image
  const float* const* sources = nullptr;        ///< each row's first tap of the first pixel, inside or not
  std::int64_t inside_from = 0, inside_to = 0;  ///< columns of the image, from there on
  const float* const* weights = nullptr;        ///< of each row, of channel 0
  const float* bias = nullptr;                  ///< or null
  const EpilogueStep* steps = nullptr;
  int step_count = 0;
  float* out = nullptr;
  std::int64_t pixel = 0;  ///< offset in `out` of the first pixel
};

/// Sums of segments: out[i * length + j] = start[j] + the sum over k of sources[k][i * step + j], for i below `count`
/// and j below `length`; of the last `cut` sources only for j below `cut_length`. Up to kSlack elements behind `out`
/// are written, and as many behind what is read of `start` and of sources that are not cut may be read.
struct SegmentSums {
  static constexpr std::int64_t kSlack = 16;
  std::int64_t count = 0, length = 0, step = 0;
  const float* start = nullptr;
  const float* const* sources = nullptr;
  int source_count = 0, cut = 0;
  std::int64_t cut_length = 0;
  float* out = nullptr;
};

/// Pixels whose sums are in memory, one behind the other, and an epilogue that they get on the way to `out`.
struct FinishedPixels {
  std::int64_t pixels = 0, channels = 0;
  const float* sums = nullptr;
  const EpilogueStep* steps = nullptr;
  int step_count = 0;
  float* out = nullptr;
  std::int64_t pixel = 0;  ///< offset in `out` of the first pixel
};

/// Bytes of PanelGemm::later that panel_gemm() can prefetch during a whole GEMM: a cache line per row of a panel
/// and tile of 6 rows.
inline std::int64_t panel_prefetches(std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  if (rows <= 3 * 6) return 0;  // few rows leave only time to prefetch the next panel
  return rows * columns / (6 * 64) * depth * 64;
}

struct SimdKernels {
  const char* name;
  void (*float16_to_float32)(const std::uint16_t* in, float* out, std::int64_t count);
  void (*bfloat16_to_float32)(const std::uint16_t* in, float* out, std::int64_t count);
  void (*float32_to_float16)(const float* in, std::uint16_t* out, std::int64_t count);
  void (*float32_to_bfloat16)(const float* in, std::uint16_t* out, std::int64_t count);
  int attention_rows;   ///< rows that one call of `attention` takes: fastest, and at most
  int attention_lanes;  ///< rows are rounded up to a multiple of it
  /// Floats of scratch memory, aligned to 64 bytes, for these extents.
  std::int64_t (*attention_scratch)(std::int64_t head_dim, std::int64_t value_dim);
  void (*attention)(const AttentionRows& rows, float* scratch);
  /// c[rows][columns] = a[rows][depth] * b + bias; b is a panel of 64 columns in blocks as PanelGemm's, rows <= 4,
  /// columns <= 64, bias may be null. Null without AVX2.
  void (*few_rows)(int rows, std::int64_t depth, const float* a, std::int64_t a_row, const float* b, std::int64_t block,
                   const float* bias, float* c, std::int64_t c_row, int columns);
  int panel_block;  ///< columns of a block of a panel: 64 or 16; 0 without AVX2
  /// Null without AVX2.
  void (*panel_gemm)(const PanelGemm& product);
  int winograd_columns, winograd_rows;  ///< of a panel of weights; rows that are multiplied with it best
  /// c[rows][columns] = a[rows][depth] * panel[depth][columns], while the panel `next` is prefetched. `columns` is
  /// winograd_columns, or a half or quarter of it that is whole vectors.
  void (*winograd_product)(std::int64_t rows, std::int64_t depth, const float* a, std::int64_t a_row,
                           const float* panel, int columns, const float* next, float* c);
  WinogradTransforms winograd[kWinogradForms];  ///< by WinogradForm
  void (*depthwise)(const DepthwisePixels& pixels);
  int depthwise_row_pixels, depthwise_row_taps;    ///< most pixels that are computed side by side, most taps
  void (*depthwise_row)(const DepthwiseRow& row);  ///< null without AVX2
  /// `count` vectors that are `step` apart, one behind the other; those `ahead` behind them are prefetched. Null
  /// without AVX2.
  void (*pack_vectors)(const float* from, std::int64_t step, std::int64_t count, std::int64_t ahead, float* to);
  /// In place, within 3 ulp; a sigmoid below 2^-126 may become 0.
  void (*sigmoid)(float* x, std::int64_t count);
  void (*tanh)(float* x, std::int64_t count);
  void (*sum_segments)(const SegmentSums& sums);
  void (*finish_pixels)(const FinishedPixels& pixels);
};

extern const SimdKernels kSimdBaseline;
extern const SimdKernels kSimdAvx2;    ///< with FMA and F16C
extern const SimdKernels kSimdAvx512;  ///< F, BW, DQ and VL

enum class VectorLevel { kBaseline, kAvx2, kAvx512 };

/// The widest vectors that this CPU has and oneDNN's limit (ONEDNN_MAX_CPU_ISA) allows; kBaseline where it is not x86.
VectorLevel vector_level();

/// Size of a core's L1 cache for data; 32 KiB if the system does not say.
std::int64_t l1_cache_bytes();

/// Size of a core's L2 cache; 1 MiB if the system does not say.
std::int64_t l2_cache_bytes();

/// The best kernels for this CPU, with the same limit as oneDNN's (ONEDNN_MAX_CPU_ISA).
const SimdKernels& simd();

}  // namespace sardonyx::host
