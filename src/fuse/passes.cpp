#include "fuse/passes.h"

#include <atomic>

#include "fuse/append_sources.h"
#include "fuse/attention.h"
#include "fuse/channel_order.h"
#include "fuse/closed_forms.h"
#include "fuse/compute_views.h"
#include "fuse/conv_by_taps.h"
#include "fuse/fill_channels.h"
#include "fuse/float8_gemm.h"
#include "fuse/fold_pads.h"
#include "fuse/gated_gemm.h"
#include "fuse/groups_to_blocks.h"
#include "fuse/hoist_elementwise.h"
#include "fuse/inline_dequantization.h"
#include "fuse/inline_loops.h"
#include "fuse/integer_gemm.h"
#include "fuse/layouts.h"
#include "fuse/merge_convolutions.h"
#include "fuse/merge_equal.h"
#include "fuse/merge_groups.h"
#include "fuse/merge_matmuls.h"
#include "fuse/narrow_floats.h"
#include "fuse/pack_operands.h"
#include "fuse/pad_gemm_k.h"
#include "fuse/peel_reductions.h"
#include "fuse/quantize_attention.h"
#include "fuse/recompute_inputs.h"
#include "fuse/reduce_to_gemm.h"
#include "fuse/sampled_operands.h"
#include "fuse/separate_windows.h"
#include "fuse/shrink_repeats.h"
#include "fuse/split_reductions.h"
#include "fuse/subpixel_convolution.h"
#include "fuse/tile_as_loop.h"
#include "fuse/transpose_gemm.h"
#include "fuse/trim_rows.h"
#include "fuse/untranspose.h"
#include "fuse/widen_halves.h"
#include "graph/analysis.h"
#include "graph/verify.h"

namespace sardonyx {
namespace {

bool always(const FuseOptions&) { return true; }
bool fusing(const FuseOptions& o) { return !o.disabled; }

constexpr Pass kPasses[] = {
    {"remove_dead", "always", "Removes nodes that no output, check or symbol needs.",
     "First: later passes count uses, and dead nodes would count as users.", always,
     [](PassState& s) { remove_dead_nodes(s.graph); }},
    {"merge_equal", "unless fusion is off", "Merges nodes that compute the same function of the same inputs.",
     "Before patterns are matched: a value with several equal copies looks like several values with one use each.",
     fusing, [](PassState& s) { merge_equal_nodes(s.graph); }},
    {"closed_forms", "unless fusion is off",
     "Computes positions, and masks made of them, from their indices instead of storing them.",
     "Before inlining, which keeps constants and results of routines in memory.", fusing,
     [](PassState& s) { find_closed_forms(s.graph); }},
    {"reduce_to_gemm", "unless fusion is off", "Turns sums of products of broadcast tensors into GEMMs.",
     "After closed_forms, so that masks are no longer tensors; before narrow_floats, which keeps long sums in float32 "
     "but lets GEMMs run in 16 bits.",
     fusing, [](PassState& s) { reduce_to_gemm(s.graph, s.options); }},
    {"integer_gemm", "integer_tiles; on the host unless fusion is off",
     "Turns 8-bit integer routines into int8 GEMM and convolution.",
     "Before all passes that match GEMMs or convolutions, so that they see these too.",
     [](const FuseOptions& o) { return o.integer_tiles && !(o.disabled && o.integer_left == DType::kUInt8); },
     [](PassState& s) { lower_integer_gemm(s.graph, s.options); }},
    {"float8_gemm", "float8_tiles", "Multiplies 8-bit floats directly and applies their scales to the accumulators.",
     "While dequantisation is still a separate loop for each operand: inlining and narrowing would hide it.",
     [](const FuseOptions& o) { return o.float8_tiles != DType::kFloat32; },
     [](PassState& s) { lower_float8_gemm(s.graph, s.options); }},
    {"fold_pads", "unless fusion is off", "Lets convolutions pad images that a loop has padded.",
     "After integer_gemm, which makes convolutions; before inlining, which fuses the padding with what computes the "
     "image.",
     fusing, [](PassState& s) { fold_pads(s.graph, s.options); }},
    {"narrow_floats", "precision", "Stores weights and activations in float16 or bfloat16.",
     "Before inlining, which removes values that would be stored in 16 bits, and before tiles are accepted by type.",
     [](const FuseOptions& o) { return o.precision != DType::kFloat32; },
     [](PassState& s) { narrow_floats(s.graph, s.options); }},
    {"fill_channels", "fill_channels, unless fusion is off",
     "Folds neighbouring pixels or small windows into channels and pads with zeros for vector loads and TMA.",
     "After types are final, since a vector's length depends on them; before inlining, which may fuse the copy.",
     [](const FuseOptions& o) { return o.fill_channels && !o.disabled; },
     [](PassState& s) { fill_channels(s.graph, s.options); }},
    {"merge_groups", "merge_groups, unless fusion is off",
     "Merges groups of a convolution that have few channels, and pads its weights with zeros.",
     "After types are final: only 16-bit types have matrix instructions to spare; before tiles are accepted by the "
     "number of channels.",
     [](const FuseOptions& o) { return o.merge_groups && !o.disabled; },
     [](PassState& s) { merge_groups(s.graph, s.options); }},
    {"channel_order", "channel_order, unless fusion is off",
     "Rearranges a convolution's weights instead of the channels of its result.",
     "After types are final, which decide whether the weights are constants of their own; before conv_by_taps, after "
     "which the result is no convolution's, and before inlining, which fuses the loop into its readers.",
     [](const FuseOptions& o) { return o.channel_order && !o.disabled; },
     [](PassState& s) { channel_order(s.graph, s.options); }},
    {"conv_by_taps", "conv_by_taps, unless fusion is off",
     "Computes a convolution of large images to few channels as a GEMM of pixels and all taps, and adds up its "
     "results.",
     "After types are final: the result of its GEMM is float32; before inlining, which fuses later operations into the "
     "additions.",
     [](const FuseOptions& o) { return o.conv_by_taps && !o.disabled; },
     [](PassState& s) { conv_by_taps(s.graph, s.options); }},
    {"subpixel_convolution", "unless fusion is off",
     "Computes a transposed convolution of one pixel or to few channels (subpixel_outputs), and with "
     "subpixel_convolution others too, as a convolution of all phases, which a loop puts side by side.",
     "After types are final, which decide whether the weights are constants of their own; before inlining, which fuses "
     "later operations into the loop.",
     [](const FuseOptions& o) { return !o.disabled; }, [](PassState& s) { subpixel_convolution(s.graph, s.options); }},
    {"widen_halves", "widen_halves, unless fusion is off", "Stores 16-bit floats in float32.",
     "Before tiles are accepted, so that GEMMs of the model's 16-bit floats are seen in float32.",
     [](const FuseOptions& o) { return o.widen_halves && !o.disabled; }, [](PassState& s) { widen_halves(s.graph); }},
    {"groups_to_blocks", "always",
     "Divides rows that are sorted by group (tokens by expert) into blocks, where the device cannot multiply them as "
     "they "
     "are.",
     "After types are final, which decide what the device multiplies; before tiles_to_loops, so that the blocks' "
     "products "
     "may be tiles.",
     always, [](PassState& s) { groups_to_blocks(s.graph, s.options); }},
    {"tiles_to_loops", "always", "Turns GEMMs and convolutions that the device does not support into loops.",
     "Before inlining, so that these loops are fused like any other.", always,
     [](PassState& s) { lower_refused_tiles(s.graph, s.options); }},
    {"merge_matmuls", "unless fusion is off", "Merges GEMMs that share their left operand and have constant weights.",
     "Before inlining: the bias additions that it merges are still separate loops.", fusing,
     [](PassState& s) { merge_matmuls(s.graph, s.options); }},
    {"compute_views", "compute_views, unless fusion is off",
     "Gives loops whose result is read in another shape (group norms) that shape.",
     "Before inlining, which looks through views and would leave such a loop in its own shape.",
     [](const FuseOptions& o) { return o.compute_views && !o.disabled; },
     [](PassState& s) { compute_views(s.graph, s.options); }},
    {"inline_loops", "unless fusion is off", "Inlines loops and views into the loops and GEMMs that read them.",
     "Before all patterns over loop bodies, which then need no knowledge of how a model spells its operators.", fusing,
     [](PassState& s) { inline_loops(s.graph, s.options); }},
    {"peel_reductions", "unless fusion is off",
     "Takes terms that are all the same out of reductions over concatenations and padding.",
     "After inlining, which composes these into the reductions that read them; before attention, which knows softmax "
     "with one more score.",
     fusing, [](PassState& s) { peel_reductions(s.graph); }},
    {"recompute_inputs", "computes_input, unless fusion is off",
     "Computes an input of a routine again in loops that read it too, so that the routine computes it by itself.",
     "After inlining, which leaves one loop between tensors in memory and the routine.",
     [](const FuseOptions& o) { return o.computes_input && !o.disabled; },
     [](PassState& s) { recompute_routine_inputs(s.graph, s.options); }},
    {"merge_convolutions", "merge_convolutions, unless fusion is off",
     "Merges convolutions of one image whose results are added, and a multiple of the image, into one.",
     "After inlining, which composes the additions and batch norms in between into one sum; before epilogues, which "
     "would take the sum.",
     [](const FuseOptions& o) { return o.merge_convolutions && !o.disabled; },
     [](PassState& s) { merge_convolutions(s.graph, s.options); }},
    {"separate_windows", "separate_windows, unless fusion is off",
     "Reduces large windows (pooling) along one dim after the other.",
     "After inlining, which would compute the first of the two reductions inside the other; before layouts, which give "
     "both the image's order.",
     [](const FuseOptions& o) { return o.separate_windows > 0 && !o.disabled; },
     [](PassState& s) { separate_windows(s.graph, s.options); }},
    {"hoist_elementwise", "hoist_elementwise, unless fusion is off",
     "Where a loop transposes a depthwise convolution's result, computes its element-wise part in the convolution's "
     "order.",
     "After inlining, which composes the reshapes and transposes in between; before grouping, which fuses the two into "
     "one kernel.",
     [](const FuseOptions& o) { return o.hoist_elementwise && !o.disabled; },
     [](PassState& s) { hoist_elementwise(s.graph, s.options); }},
    {"append_sources", "unless fusion is off",
     "Makes the append to the KV cache read new rows directly from a GEMM's result.",
     "After inlining, which composes the slices and transposes in between into one load.", fusing,
     [](PassState& s) { append_from_source(s.graph, s.options); }},
    {"trim_rows", "unless fusion is off", "Computes only the row of a GEMM that is used (the last token's logits).",
     "After inlining, which moves the slice of the row next to the GEMM.", fusing,
     [](PassState& s) { trim_rows(s.graph, s.options); }},
    {"inline_dequantization", "prologues, unless fusion is off", "Lets GEMMs dequantise an operand as they read it.",
     "After merge_matmuls and inlining, which need the weights as tensors; before gated_gemm, which reorders their "
     "columns inside the expression.",
     [](const FuseOptions& o) { return o.prologues && !o.disabled; },
     [](PassState& s) { inline_dequantization(s.graph, s.options); }},
    {"gated_gemm", "gated_gemm, unless fusion is off",
     "Merges the two GEMMs of a gated layer into one, with an epilogue over pairs of columns.",
     "After merge_matmuls, whose merged halves it recognises; before packing, which fixes the weights' order.",
     [](const FuseOptions& o) { return o.gated_gemm && !o.disabled; },
     [](PassState& s) { gated_gemm(s.graph, s.options); }},
    {"attention", "unless fusion is off", "Replaces softmax(Q K^T) V by attention.",
     "After inlining, which leaves one form of softmax however it was written, and before epilogues, which would take "
     "parts of it.",
     fusing, [](PassState& s) { find_attention(s.graph, s.options); }},
    {"quantize_attention", "attention_expressions, unless fusion is off",
     "Computes the 8-bit form of attention's result in attention's order, before it is transposed.",
     "After attention; before epilogues, one of which it becomes, and layouts, which give attention's result the order "
     "of the transpose.",
     [](const FuseOptions& o) { return o.attention_expressions && !o.disabled; },
     [](PassState& s) { quantize_attention(s.graph, s.options); }},
    {"shrink_repeats", "shrink_repeats, unless fusion is off",
     "Sets dims along which a tensor is constant (expanded masks, products that heads share) to size 1.",
     "After attention, which has taken over masks as expressions where it can.",
     [](const FuseOptions& o) { return o.shrink_repeats && !o.disabled; },
     [](PassState& s) { shrink_repeats(s.graph); }},
    {"sampled_operands", "sampled_operands, unless fusion is off",
     "Makes channels the innermost part of K where a GEMM's operand samples an image.",
     "When loops are final, so that one loop samples; before pad_gemm_k, which would copy the operand as it is.",
     [](const FuseOptions& o) { return o.sampled_operands && !o.disabled; },
     [](PassState& s) { sampled_operands(s.graph); }},
    {"pad_gemm_k", "pad_gemm_k, unless fusion is off",
     "Copies operands of GEMMs that cannot be loaded in vectors: pads K with zeros, or makes it contiguous.",
     "After attention, which pads heads itself; when loops are final, so that those that compute an operand write the "
     "zeros.",
     [](const FuseOptions& o) { return o.pad_gemm_k && !o.disabled; },
     [](PassState& s) { pad_gemm_k(s.graph, s.options); }},
    {"tiles_to_loops", "always", "Turns GEMMs and convolutions that the device does not support into loops.",
     "Again: inlining may have changed operands into something that the device does not support.", always,
     [](PassState& s) { lower_refused_tiles(s.graph, s.options); }},
    {"transpose_gemm", "transpose_gemm, unless fusion is off",
     "Swaps the operands of a GEMM, (A B)^T = B^T A^T, where a loop reads its result transposed and another tensor in "
     "order.",
     "After attention and padding, which match operands; before untranspose, which would give the readers the GEMM's "
     "order instead.",
     [](const FuseOptions& o) { return o.transpose_gemm && !o.disabled; },
     [](PassState& s) { transpose_gemm(s.graph, s.options); }},
    {"untranspose", "untranspose, unless fusion is off",
     "Makes loops that transpose a GEMM's result write it in the GEMM's order.",
     "After attention, which reads transposed operands by itself; before epilogues, which such loops become.",
     [](const FuseOptions& o) { return o.untranspose && !o.disabled; },
     [](PassState& s) { untranspose(s.graph, s.options); }},
    {"epilogues", "unless fusion is off", "Finds the element-wise loops that become epilogues of tile kernels.",
     "When all tile kernels are final, and before layouts, which depend on which loops are part of a tile kernel.",
     fusing, [](PassState& s) { s.epilogues = find_epilogues(s.graph, s.options); }},
    {"layouts", "unless fusion is off", "Chooses storage orders: channels last around convolutions.",
     "After the last pass that makes or removes tile kernels; later passes only copy operands.", fusing,
     [](PassState& s) { choose_layouts(s.graph, s.epilogues, s.options); }},
    {"pack_operands", "contiguous_k",
     "Stores constant operands of tile kernels with K innermost, and constants that loops gather from in the order of "
     "their results.",
     "After layouts: operands that have a storage order of their own are left alone.",
     [](const FuseOptions& o) { return o.contiguous_k; }, [](PassState& s) { pack_operands(s.graph); }},
    {"split_reductions", "split_reductions, unless fusion is off",
     "Splits long reductions with few results into partial reductions and their sum.",
     "After layouts: which dim is contiguous decides how a reduction is split; last, since other passes match whole "
     "reductions.",
     [](const FuseOptions& o) { return o.split_reductions && !o.disabled; },
     [](PassState& s) { split_reductions(s.graph, s.epilogues, s.options); }},
    {"remove_dead", "always", "Removes nodes that no output, check or symbol needs.",
     "Last: copies and packed weights have replaced values that nothing reads now.", always,
     [](PassState& s) { remove_dead_nodes(s.graph); }},
};

std::atomic<bool> g_verify_every_pass{false};

void verify_or_throw(const PassState& s, std::string_view when) {
  std::unordered_set<const Node*> fused;
  for (const Epilogue& e : s.epilogues) fused.insert(e.loops.begin(), e.loops.end());
  const std::string fault = verify(s.graph, fused);
  check(fault.empty(), "the graph is invalid {}: {}", when, fault);
}

}  // namespace

std::span<const Pass> passes() { return kPasses; }

const Pass& pass_named(std::string_view name) {
  for (const Pass& p : kPasses)
    if (p.name == name) return p;
  fail(ErrorKind::kInvalidArgument, "there is no pass '{}'", name);
}

void verify_every_pass(bool on) { g_verify_every_pass = on; }

void run_passes(PassState& s) {
  const bool verifies = s.options.verify_passes || g_verify_every_pass;
  if (verifies) verify_or_throw(s, "before the first pass");
  for (const Pass& p : kPasses) {
    if (!p.enabled(s.options)) continue;
    p.run(s);
    if (verifies) verify_or_throw(s, fmt::format("after pass {}", p.name));
    if (s.options.after_pass) s.options.after_pass(p, s.graph);
  }
}

}  // namespace sardonyx
