// Internal to fuse/: which orders of dims loops and tile kernels profit from.
#pragma once
#include <unordered_set>
#include <vector>

#include "fuse/epilogues.h"

namespace sardonyx {

/// The order of dims [0, 2, ..., rank - 1, 1].
std::vector<int> channels_last(int rank);
/// The order of `v` that matches channels last of `image`; v may lack dims of 1. Empty if v does not correspond to it.
std::vector<int> same_order(const Value* image, const Value* v);
/// Whether all dims but the first two are 1.
bool only_channels(const Value* v);

/// Whether the loop loads v at its own variables, dim by dim (dims that it reduces to 1 included): it profits from v's
/// order.
bool in_place_order(const LoopOp& l, const Value* v);
/// Whether a load has all of `vars` (except those of dims of 1) as its indices, in another order.
bool is_permuted(const Expr& load, const Exprs& vars);
/// Whether a load of a row-major tensor reads contiguous memory along vars[1], the channels.
bool vectors_of_channels(const Expr& load, const Exprs& vars);
/// Where the element is in v's memory, in elements.
Expr memory_offset(const Value& v, const Exprs& indices);

/// Whether the columns of a product are v's channels wherever its epilogue loads v.
bool along_channels(const TileKernel& k, const Value* v);
/// Whether a GEMM's operands load v along K in v's channels and nowhere else: rows are contiguous if channels are last.
bool sums_channels(const MatMulOp& m, const Value* v);

/// Whether a loop's body reduces over several variables, as windows do, or over one along which windows overlap.
bool reduces_windows(const Expr& body);
/// Whether a loop's body reduces windows that overlap along at least one dim.
bool has_overlapping_windows(const Expr& body);
/// Windows (pooling, depthwise convolutions as loops) that read vectors of channels, or whose results are read along
/// their channels, as by the norms of ConvNeXt, and what such windows read in place. Also copies of images whose
/// channels are last as a shape, if GEMMs or loops read them along the channels.
std::unordered_set<const Value*> windows_read_along_channels(const Graph& g);

/// The order of the dims that a reduction of an image with channels last leaves, if it removes some: neighbouring
/// results are computed from neighbouring elements. Empty if that is row-major, or if it reads several orders.
std::vector<int> order_of_remaining(const LoopOp& l);

/// Images with channels last that a loop stacks along a dim of its own are stored one after the other, as they are.
/// Empty if it reads none, or in several orders.
std::vector<int> order_of_stack(const LoopOp& l);
/// The order in which all loops that transpose v read it, where all others reduce along what is the last dim then.
/// Empty if there is none.
std::vector<int> order_of_transposes(const std::vector<Node*>& users, const Value* v);
/// Whether most elements that a loop loads in its own order are contiguous along dim `d` and not along the last one.
bool most_along(const LoopOp& l, int d);

}  // namespace sardonyx
