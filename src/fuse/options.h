// What fusion may do for a device, and what it reports.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace sardonyx {

struct TileKernel;
struct Pass;

/// Why a pass considered a transformation and did not apply it.
struct Remark {
  std::string pass;    ///< name of the pass (fuse/passes.h), or "groups" for the grouping into kernels
  std::string node;    ///< origin of the node: "conv1 (Conv)"
  std::string reason;  ///< one sentence without a full stop
  std::vector<std::pair<std::string, std::string>> values;  ///< what decided, by name: {"uses", "3"}
};

/// Receives remarks as they are made, with repetitions.
using RemarkSink = std::function<void(Remark)>;

struct FuseOptions {
  /// Whether this tile kernel can run with this epilogue, which grows by one loop at a time. If not, the reason.
  std::function<bool(const TileKernel&, std::string& why)> accepts_epilogue;
  /// Whether this tile kernel can run with this epilogue in the storage orders that its tensors got; if not, the
  /// reason, and the epilogue becomes loops of its own. Unset: always.
  std::function<bool(const TileKernel&, std::string& why)> accepts_layout;
  /// Whether this node runs as a tile kernel at all; others become loop kernels. If not, the reason.
  std::function<bool(const Node&, std::string& why)> accepts_tile;
  /// Whether the kernels of this routine can compute this input, by this loop, instead of reading it
  /// (fuse/routine_inputs.h). If not, the reason. Unset: never.
  std::function<bool(const Node& routine, std::size_t input, const Node& loop, std::string& why)> computes_input;
  /// float16 or bfloat16: weights and activations are stored in it (fuse/narrow_floats.h). float32: as in the model.
  DType precision = DType::kFloat32;
  /// Largest absolute values by the model's names of values, for float16; null: unknown.
  std::shared_ptr<const std::map<std::string, float, std::less<>>> ranges;
  /// No 16-bit float arithmetic: such values are stored in float32 (fuse/widen_halves.h).
  bool widen_halves = false;
  /// 8-bit integer GEMM and convolution are tile kernels rather than routines (fuse/integer_gemm.h).
  bool integer_tiles = false;
  /// The type of the left operand, or image, of those: int8 or uint8. The right one is int8.
  DType integer_left = DType::kInt8;
  /// The left operand may be uint8 too: it is where that makes its zero point 0 (of what is never negative).
  bool integer_unsigned = false;
  /// GEMM and convolution of dequantised floats of this 8-bit type are tile kernels of it; float32: none
  /// (fuse/float8_gemm.h).
  DType float8_tiles = DType::kFloat32;
  /// Gated layers are one GEMM with an epilogue over pairs of columns (fuse/gated_gemm.h).
  bool gated_gemm = false;
  /// Operands of a GEMM may be any expression (fuse/inline_dequantization.h).
  bool prologues = false;
  /// GEMMs pack constant right operands themselves, from [K, N] or [N, K]: transposes of these are not computed.
  bool transposed_constants = false;
  /// Constant operands of tile kernels are stored with K innermost (fuse/pack_operands.h).
  bool contiguous_k = false;
  /// Attention takes masks, limits and biases as expressions, a softcap, a sink, and grouped heads.
  bool attention_expressions = false;
  /// Attention takes limits of the keys, a softcap, a sink and grouped heads, as tensors in memory.
  bool attention_limits = false;
  /// Epilogues of a GEMM load tensors in whatever storage order these have.
  bool epilogues_in_any_order = false;
  /// Operands of a GEMM may have any storage order.
  bool operands_in_any_order = false;
  /// A select evaluates only the side that it selects, so both sides may repeat an expression at no cost.
  bool lazy_selections = false;
  /// Operations that take the time of a byte from memory: what takes less than storing and loading it is computed again
  /// where it is read. 0: only a few operations are (a CPU, whose caches hold most tensors).
  std::int64_t operations_per_byte = 0;
  /// Long reductions with few results are split (fuse/split_reductions.h).
  bool split_reductions = false;
  /// With split_reductions: the device runs some threads, each of which reduces in vectors (a CPU), instead of
  /// thousands.
  bool few_threads = false;
  /// With split_reductions: a kernel may combine the partial results of a row and use them in a long row, which several
  /// workgroups divide; each combines the partial results itself (codegen/gpu_long_rows.cpp).
  bool long_rows = false;
  /// With split_reductions: a workgroup keeps a row of so many bytes in registers. Unless the rows are very few, they
  /// are not split if together they have more than cache_bytes: the second kernel would read them from memory again.
  std::int64_t row_bytes = 0, cache_bytes = 0;
  /// A team of threads keeps columns of so many elements in registers (codegen/gpu_columns.cpp); 0: of a few.
  std::int64_t column_length = 0;
  /// With split_reductions: few columns are split if they have more elements than this; 0: if they have as many as
  /// others. Few are those that leave most units of a card idle: at most few_columns.
  std::int64_t few_columns_length = 0, few_columns = 0;
  /// GEMMs of groups of rows (MatMulOp::end) are tile kernels (fuse/groups_to_blocks.h).
  bool row_groups = false;
  /// Convolutions with few input channels get more of them (fuse/fill_channels.h).
  bool fill_channels = false;
  /// Such convolutions compute several neighbouring outputs in one window.
  bool fold_outputs = false;
  /// A copy engine loads tiles of operands, 64 bytes of channels at a time (Hopper).
  bool tensor_copy = false;
  /// Convolutions may read vectors of 16 bytes of which memory has the first 12 (ConvOp::zeros).
  bool short_vectors = false;
  /// Samples of images that GEMMs multiply have channels innermost (fuse/sampled_operands.h).
  bool sampled_operands = false;
  /// K of GEMMs is padded with zeros to whole vectors (fuse/pad_gemm_k.h).
  bool pad_gemm_k = false;
  /// Groups of few channels of a convolution are merged (fuse/merge_groups.h).
  bool merge_groups = false;
  /// Convolutions of large images to few channels become GEMMs and sums (fuse/conv_by_taps.h).
  bool conv_by_taps = false;
  /// Transposed convolutions become convolutions without strides (fuse/subpixel_convolution.h).
  bool subpixel_convolution = false;
  /// Without subpixel_convolution, only those to at most so many channels: the phases together fill vectors.
  std::int64_t subpixel_outputs = 0;
  /// Convolutions with constant weights take the order in which a loop reads their channels (fuse/channel_order.h).
  bool channel_order = false;
  /// Loops whose result is read in another shape take that shape (fuse/compute_views.h).
  bool compute_views = false;
  /// Element-wise work after a transpose of a window's result is done before it (fuse/hoist_elementwise.h).
  bool hoist_elementwise = false;
  /// GEMMs whose result is read transposed exchange their operands (fuse/transpose_gemm.h).
  bool transpose_gemm = false;
  /// Loops that transpose a GEMM's result take the GEMM's order (fuse/untranspose.h).
  bool untranspose = false;
  /// Windows of at least so many terms are reduced along one dim after the other (fuse/separate_windows.h); 0: none.
  std::int64_t separate_windows = 0;
  /// Dims along which a loop's output is constant become 1 (fuse/shrink_repeats.h).
  bool shrink_repeats = false;
  /// Sums of convolutions of one image become one convolution (fuse/merge_convolutions.h).
  bool merge_convolutions = false;
  /// Results of convolutions have their channels last even where matmul or attention reads a view of them, which then
  /// is a copy (fuse/layouts.h).
  bool copy_viewed_images = false;
  /// No fusion: every value in memory, one kernel each (to locate a fault).
  bool disabled = false;

  /// Verify the graph (graph/verify.h) before the first pass and after each. See also verify_every_pass().
  bool verify_passes = false;
  /// Called after each pass that ran, nested graphs included. Empty: not called.
  std::function<void(const Pass&, const Graph&)> after_pass;
  /// Takes remarks; empty: none are made.
  RemarkSink remarks;
};

/// Makes a remark if there is a sink. `reason` is called only then, so that it may format: [&] { return
/// fmt::format(...);
/// }
template <typename Reason>
void remark(const FuseOptions& options, std::string_view pass, const std::string& node, Reason&& reason,
            std::vector<std::pair<std::string, std::string>> values = {}) {
  if (options.remarks) options.remarks({std::string(pass), node, reason(), std::move(values)});
}

}  // namespace sardonyx
