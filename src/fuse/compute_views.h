// Internal to fuse/: views, which read a tensor in another shape, and the loops before them.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// A load of a view as a load of what it views; other loads as they are.
Expr through_views(const Expr& load);

/// Makes `view`, a view of a loop's result, the loop itself, over the view's shape. The loop before it stays; if
/// nothing else reads its result, it is dead.
void compute_view(Node& view);

/// A loop that reads views of tensors, and whose result is read only through a view, takes the view's shape if that
/// leaves fewer quotients of indices: a group norm, which models compute in the shape [n, groups, rest], is then over
/// the image again, and its result may have its channels last.
void compute_views(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
