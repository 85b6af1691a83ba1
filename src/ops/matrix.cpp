// Det and Col2Im.
#include <numeric>

#include "ops/families.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

void det_op(OpContext& c) {
  Graph& g = c.graph();
  Value* x = c.in(0);
  c.require(x->rank() >= 2 && is_float(x->dtype), "an input of rank {} and dtype {}", x->rank(), name(x->dtype));
  const Expr n = x->shape.back();
  g.add_check(compare(Op::kEq, n, x->shape[x->shape.size() - 2]), "the matrices are not square");
  const Exprs batch(x->shape.begin(), x->shape.end() - 2);
  Value* flat = tensor::reshape(g, x, {idx::product(batch), n, n});
  c.out(0, tensor::reshape(g, tensor::routine(g, "det", {flat}, {}, {}, {{x->dtype, {flat->shape[0]}}})[0], batch));
}

// The sum of all blocks that cover a pixel: the adjoint of cutting an image into blocks.
// The x for which a x = 1 modulo n; both have no common divisor.
std::int64_t inverse(std::int64_t a, std::int64_t n) {
  for (std::int64_t x = 1; x < n; ++x)
    if (a % n * x % n == 1) return x;
  return 0;  // modulo 1
}

// One of the blocks that cover a place along an axis: a variable that counts them, the element of the block, the block,
// and whether there is such an element and the block does not begin before the image.
struct Covering {
  Expr turn, within, block, covers;
};

// Elements w of blocks at `at`, where w dilation = at modulo stride: every `step`th one.
Covering covering(const Expr& at, std::int64_t stride, std::int64_t dilation, const Expr& block) {
  const std::int64_t common = std::gcd(stride, dilation), step = stride / common;
  Covering c;
  c.turn = loop_var(idx::floordiv(block + (step - 1), step));
  c.within = idx::mod(idx::floordiv(at, common) * inverse(dilation / common, step), step) + c.turn * step;
  const Expr from = at - c.within * dilation;
  c.block = idx::floordiv(from, stride);
  c.covers = logical_and(compare(Op::kLt, c.within, block), compare(Op::kGe, from, 0));
  if (common > 1) c.covers = logical_and(c.covers, compare(Op::kEq, idx::mod(at, common), 0));
  return c;
}

void col2im_op(OpContext& c) {
  Graph& g = c.graph();
  Value* x = c.in(0);
  c.require(x->rank() == 3, "an input of rank {}, not 3", x->rank());
  const Exprs image = c.ints(c.in(1), true), block = c.ints(c.in(2), true);
  const std::size_t r = image.size();
  const auto dilations = c.attr_ints("dilations", std::vector<std::int64_t>(r, 1)),
             strides = c.attr_ints("strides", std::vector<std::int64_t>(r, 1)),
             pads = c.attr_ints("pads", std::vector<std::int64_t>(2 * r, 0));
  c.require(r > 0 && block.size() == r && dilations.size() == r && strides.size() == r && pads.size() == 2 * r,
            "image_shape, block_shape and attributes differ in length");
  Exprs blocks;  // along each axis
  for (std::size_t k = 0; k < r; ++k) {
    c.require(strides[k] > 0 && dilations[k] > 0, "a stride or dilation below 1");
    const Expr room = image[k] + (pads[k] + pads[r + k] - 1) - (block[k] - 1) * dilations[k];
    blocks.push_back(idx::max(idx::floordiv(room, strides[k]) + 1, 0));
  }
  const Expr block_size = idx::product(block);
  g.add_check(compare(Op::kGt, block_size, 0), "an empty block");
  g.add_check(compare(Op::kEq, idx::product(blocks), x->shape[2]),
              fmt::format("{} blocks for an input of {}", to_string(idx::product(blocks)), to_string(x->shape[2])));
  g.add_check(compare(Op::kEq, idx::mod(x->shape[1], block_size), 0),
              "the channels are not a multiple of the block's size");
  Exprs shape = {x->shape[0], idx::floordiv(x->shape[1], block_size)};
  shape.insert(shape.end(), image.begin(), image.end());
  const DType w = tensor::accumulator(x->dtype);
  c.out(0, tensor::generate(g, shape, [&](const Exprs& i) {
          Expr covered = constant_bool(true);
          Exprs turns, within, at;
          for (std::size_t k = 0; k < r; ++k) {
            const Covering c = covering(i[2 + k] + pads[k], strides[k], dilations[k], block[k]);
            covered = logical_and(covered, logical_and(c.covers, compare(Op::kLt, c.block, blocks[k])));
            turns.push_back(c.turn);
            within.push_back(c.within);
            at.push_back(c.block);
          }
          const Expr e =
              tensor::at(x, {i[0], i[1] * block_size + idx::linearize(within, block), idx::linearize(at, blocks)});
          return cast(reduce(ReduceKind::kSum, turns, select(covered, cast(e, w), constant(0, w))), x->dtype);
        }));
}

}  // namespace

void register_matrix(OpRegistry& r) {
  r.add({.name = "Det", .lower = det_op, .dtypes = "floats"});
  r.add({.name = "Col2Im", .lower = col2im_op, .dtypes = "numbers"});
}

}  // namespace sardonyx
