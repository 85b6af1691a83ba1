// Operators that change a tensor's shape or repeat it: Squeeze, Unsqueeze, Flatten, Expand, Tile, DepthToSpace ...
#include <algorithm>

#include "graph/analysis.h"
#include "ops/families.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

// Axes from the attribute (before opset 13) or input 1; `given` is false if neither is there.
std::vector<int> axes_of(OpContext& c, int rank, bool& given) {
  given = c.opset() >= 13 ? c.has(1) : c.has_attr("axes");
  std::vector<int> axes;
  if (!given) return axes;
  for (std::int64_t a : c.opset() >= 13 ? c.const_ints(c.in(1), "axes") : c.attr_ints("axes"))
    axes.push_back(c.axis(a, rank));
  std::sort(axes.begin(), axes.end());
  c.require(std::adjacent_find(axes.begin(), axes.end()) == axes.end(), "axes name an axis twice");
  return axes;
}

// Without axes all dims of 1 go. The rank must be known when compiling: a symbolic dim is taken not to be 1, and this
// is checked.
void squeeze_op(OpContext& c) {
  Value* x = c.in(0);
  bool given;
  std::vector<int> axes = axes_of(c, x->rank(), given);
  if (!given)
    for (int k = 0; k < x->rank(); ++k) {
      const Expr& d = x->shape[static_cast<std::size_t>(k)];
      if (is_const(d, 1))
        axes.push_back(k);
      else
        c.graph().add_check(compare(Op::kNe, d, 1),
                            fmt::format("Squeeze without axes, but dim {} ({}) is 1: name the axes", k, to_string(d)));
    }
  c.out(0, tensor::squeeze(c.graph(), x, axes));
}

void unsqueeze_op(OpContext& c) {
  Value* x = c.in(0);
  // Axes count dims of the result, whose rank depends on how many there are.
  const std::size_t added = c.opset() >= 13 ? c.const_ints(c.in(1), "axes").size() : c.attr_ints("axes").size();
  bool given;
  const std::vector<int> axes = axes_of(c, x->rank() + static_cast<int>(added), given);
  c.require(given, "no axes");
  c.out(0, tensor::unsqueeze(c.graph(), x, axes));
}

void flatten_op(OpContext& c) {
  Value* x = c.in(0);
  const int r = x->rank();
  std::int64_t axis = c.attr("axis", 1);
  c.require(axis >= -r && axis <= r, "axis {} is outside a tensor of rank {}", axis, r);
  if (axis < 0) axis += r;
  const auto middle = x->shape.begin() + axis;
  const Exprs outer(x->shape.begin(), middle), inner(middle, x->shape.end());
  c.out(0, tensor::reshape(c.graph(), x, {idx::product(outer), idx::product(inner)}));
}

// A target dim that is read at run time may be 1 and leave the input's; unlike for dims of inputs, no other program can
// be made for it.
void expand_op(OpContext& c) {
  Graph& g = c.graph();
  Value* x = c.in(0);
  const Exprs target = c.ints(c.in(1), true);
  if (c.in(1)->content) return c.out(0, tensor::expand(g, x, target));
  const std::size_t rank = std::max(target.size(), x->shape.size());
  Exprs shape(rank, Expr(1));
  for (std::size_t k = 0; k < rank; ++k) {
    const Expr d = k + x->shape.size() < rank ? Expr(1) : x->shape[k + x->shape.size() - rank];
    const Expr t = k + target.size() < rank ? Expr(1) : target[k + target.size() - rank];
    const Expr keeps = compare(Op::kEq, t, 1), fits = logical_or(keeps, compare(Op::kEq, d, t));
    g.add_check(logical_or(fits, compare(Op::kEq, d, 1)),
                fmt::format("dim {} can't be expanded to {}", to_string(d), to_string(t)));
    shape[k] = is_const(d, 1) || is_const(t) ? (is_const(t, 1) ? d : t) : is_const(d) ? d : select(keeps, d, t);
  }
  c.out(0, tensor::generate(g, shape, [&](const Exprs& i) { return tensor::at_broadcast(x, i, shape); }));
}

void tile_op(OpContext& c) {
  Value* x = c.in(0);
  const Exprs repeats = c.ints(c.in(1), true);
  c.require(static_cast<int>(repeats.size()) == x->rank(), "{} repeats for rank {}", repeats.size(), x->rank());
  Exprs shape;
  bool identity = true;
  for (std::size_t k = 0; k < repeats.size(); ++k) {
    shape.push_back(x->shape[k] * repeats[k]);
    identity &= is_const(repeats[k], 1);
  }
  if (identity) return c.out(0, x);
  c.out(0, tensor::generate(c.graph(), shape, [&](const Exprs& i) {
          Exprs j;
          for (std::size_t k = 0; k < i.size(); ++k)
            j.push_back(is_const(repeats[k], 1)    ? i[k]
                        : is_const(x->shape[k], 1) ? Expr(0)
                                                   : idx::mod(i[k], x->shape[k]));
          return tensor::at(x, j);
        }));
}

// A dim split in two, with a check that it divides.
Expr quotient(OpContext& c, const Expr& d, std::int64_t by) {
  c.graph().add_check(compare(Op::kEq, idx::mod(d, by), 0),
                      fmt::format("dim {} is not a multiple of {}", to_string(d), by));
  return idx::floordiv(d, by);
}

std::int64_t block_size(OpContext& c) {
  const std::int64_t b = c.attr("blocksize", 0);
  c.require(b > 0 && b < (1 << 15), "blocksize is {}", b);
  c.require(c.in(0)->rank() == 4, "an input of rank {}, not 4", c.in(0)->rank());
  return b;
}

// [n, c, h, w] -> [n, c / b², h b, w b]. DCR: the channels are [block row, block column, depth], CRD: [depth, row,
// column].
void depth_to_space_op(OpContext& c) {
  const std::int64_t b = block_size(c);
  const std::string mode = c.attr_s("mode", "DCR");
  c.require(mode == "DCR" || mode == "CRD", "mode is '{}'", mode);
  Graph& g = c.graph();
  const Exprs s = c.in(0)->shape;
  const Expr depth = quotient(c, s[1], b * b);
  Value* x = c.in(0);
  if (mode == "CRD") {
    // Channels in the other mode's order: a convolution before takes it over (fuse/channel_order.h), and a pixel's
    // channels are then contiguous in the result.
    const Exprs vars = vars_of(s);
    Exprs at = vars;
    at[1] = idx::mod(vars[1], depth) * Expr(b * b) + idx::floordiv(vars[1], depth);
    x = g.add_loop(vars, load(x, x->dtype, at));
  }
  Value* v = tensor::reshape(g, x, {s[0], b, b, depth, s[2], s[3]});
  v = tensor::transpose(g, v, {0, 3, 4, 1, 5, 2});
  c.out(0, tensor::reshape(g, v, {s[0], depth, s[2] * b, s[3] * b}));
}

// The inverse of DepthToSpace.
void space_to_depth_op(OpContext& c) {
  const std::int64_t b = block_size(c);
  const std::string mode = c.attr_s("mode", "DCR");
  c.require(mode == "DCR" || mode == "CRD", "mode is '{}'", mode);
  Graph& g = c.graph();
  const Exprs s = c.in(0)->shape;
  const Expr h = quotient(c, s[2], b), w = quotient(c, s[3], b);
  Value* v = tensor::reshape(g, c.in(0), {s[0], s[1], h, b, w, b});
  v = tensor::transpose(g, v, mode == "DCR" ? std::vector<int>{0, 3, 5, 1, 2, 4} : std::vector<int>{0, 1, 3, 5, 2, 4});
  c.out(0, tensor::reshape(g, v, {s[0], s[1] * (b * b), h, w}));
}

}  // namespace

void register_rearrange(OpRegistry& r) {
  r.add({.name = "Squeeze",
         .lower = squeeze_op,
         .notes = "axes must be known when compiling; without axes, a symbolic dim must not be 1 at run time"});
  r.add({.name = "Unsqueeze", .lower = unsqueeze_op, .notes = "axes must be known when compiling"});
  r.add({.name = "Flatten", .lower = flatten_op});
  r.add({.name = "Expand", .lower = expand_op});
  r.add({.name = "Tile", .lower = tile_op});
  r.add({.name = "DepthToSpace", .lower = depth_to_space_op});
  r.add({.name = "SpaceToDepth", .lower = space_to_depth_op});
}

}  // namespace sardonyx
