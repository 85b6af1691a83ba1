// See conv_by_taps.h.
#include "fuse/conv_by_taps.h"

#include <algorithm>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kVector = 8;          // 16-bit elements of a 16-byte load
constexpr std::int64_t kMostColumns = 32;    // columns: output channels times taps
constexpr std::int64_t kLeastTaps = 4;       // with fewer, loading pixels again costs less than storing products
constexpr std::int64_t kLeastPixels = 8192;  // of an image: below, a second launch costs more than it saves

struct Sizes {
  std::int64_t channels = 0, outputs = 0, height = 0, width = 0, rows = 0, columns = 0;  // rows x columns: taps
  std::int64_t products() const { return outputs * rows * columns; }
  bool by_columns() const { return products() > kMostColumns; }  ///< the taps of a row; its column stays in K
  /// Of the convolution's result, if by columns: whole vectors.
  std::int64_t filled() const { return (outputs * columns + kVector - 1) / kVector * kVector; }
};

// Why the convolution stays; null if it is divided. An empty reason: it has nothing to do with this pass.
const char* obstacle(const Node& n, const ConvOp& c, const std::unordered_set<const Node*>& constants, Sizes& s) {
  const Value *x = n.inputs[0], *w = n.inputs[1];
  if (x->rank() != 4 || c.transposed || c.groups != 1 || !is_float(x->dtype) || size_of(x->dtype) != 2) return "";
  if (!is_const_int(w->shape[0], s.outputs) || !is_const_int(w->shape[2], s.rows) ||
      !is_const_int(w->shape[3], s.columns) || s.outputs * s.columns > kMostColumns || s.rows * s.columns < kLeastTaps)
    return "";
  if (s.by_columns() && s.columns < kLeastTaps) return "";
  if (!constants.count(w->producer)) return "its weights are not constant";
  if (std::any_of(c.strides.begin(), c.strides.end(), [](std::int64_t k) { return k != 1; })) return "it has strides";
  // Products are written and read in float32.
  if (!is_const_int(x->shape[1], s.channels) || s.channels % kVector != 0 ||
      s.channels < 4 * std::min(s.products(), s.filled()) / kVector || s.channels < 4 * kVector)
    return "it has few channels, or no whole vectors of them";
  if (!is_const_int(x->shape[2], s.height) || !is_const_int(x->shape[3], s.width) || s.height * s.width < kLeastPixels)
    return "its images are small, or their size is not known";
  return nullptr;
}

// For each image, tap and pixel the sum over the channels: float32 [images, outputs * taps, pixels].
Value* products(Graph& g, Value* x, Value* w, const Sizes& s) {
  const Expr n = loop_var(s.products()), c = loop_var(s.channels);
  const Exprs tap = idx::delinearize(n, {s.outputs, s.rows, s.columns});
  Value* taps = g.add_loop({n, c}, load(w, w->dtype, {tap[0], c, tap[1], tap[2]}));
  MatMulOp m;
  const Expr image = loop_var(x->shape[0]), row = loop_var(s.products()), pixel = loop_var(s.height * s.width);
  m.vars = {image, row, pixel};
  m.k = loop_var(s.channels);
  m.a = load(taps, taps->dtype, {row, m.k});
  m.b = load(x, x->dtype, {image, m.k, idx::floordiv(pixel, s.width), idx::mod(pixel, s.width)});
  const Exprs shape = {x->shape[0], s.products(), s.height * s.width};
  return g.add_node(m, {taps, x}, {{DType::kFloat32, shape}})->outputs[0];
}

// For each image, output and tap of a row, the sum over the channels and the taps of the column: float32
// [images, filled, rows of the result, pixels of a row].
Value* columns(Graph& g, const Node& n, const ConvOp& old, const Sizes& s) {
  Value *x = n.inputs[0], *w = n.inputs[1];
  const Expr k = loop_var(s.filled()), c = loop_var(s.channels), r = loop_var(s.rows), one = loop_var(1);
  const Expr output = idx::floordiv(k, s.columns), tap = idx::mod(k, s.columns);
  Value* taps = g.add_loop({k, c, r, one}, select(compare(Op::kLt, k, s.outputs * s.columns),
                                                  load(w, w->dtype, {output, c, r, tap}), constant(0, w->dtype)));
  ConvOp conv;
  conv.exact = old.exact;
  conv.strides = {1, 1};
  conv.dilations = {old.dilations[0], 1};
  conv.pads_begin = {old.pads_begin[0], 0};
  conv.pads_end = {old.pads_end[0], 0};
  const Exprs shape = {x->shape[0], s.filled(), n.outputs[0]->shape[2], x->shape[3]};
  return g.add_node(conv, {x, taps}, {{DType::kFloat32, shape}})->outputs[0];
}

// Adds up what the taps of a row gave.
LoopOp sums_of_columns(const Node& n, const ConvOp& c, const Value* columns, const Sizes& s) {
  const Value* out = n.outputs[0];
  const Exprs vars = vars_of(out->shape);
  const Expr k = loop_var(s.columns), x = vars[3] + k * c.dilations[1] - c.pads_begin[1];
  const Expr one = load(columns, DType::kFloat32, {vars[0], vars[1] * Expr(s.columns) + k, vars[2], x});
  const Expr within = logical_and(compare(Op::kGe, x, 0), compare(Op::kLt, x, s.width));
  Expr sum = reduce(ReduceKind::kSum, {k}, select(within, one, constant(0, DType::kFloat32)));
  if (c.has_bias) sum = binary(Op::kAdd, sum, cast(load(n.inputs[2], n.inputs[2]->dtype, {vars[1]}), DType::kFloat32));
  return {vars, cast(sum, out->dtype)};
}

// Adds up what the taps under each output gave.
LoopOp sums(const Node& n, const ConvOp& c, const Value* products, const Sizes& s) {
  const Value* out = n.outputs[0];
  const Exprs vars = vars_of(out->shape);
  const Expr r = loop_var(s.rows), k = loop_var(s.columns);
  const Expr y = vars[2] + r * c.dilations[0] - c.pads_begin[0], x = vars[3] + k * c.dilations[1] - c.pads_begin[1];
  const auto within = [](const Expr& at, std::int64_t size) {
    return logical_and(compare(Op::kGe, at, 0), compare(Op::kLt, at, size));
  };
  const Expr one = load(products, DType::kFloat32,
                        {vars[0], idx::linearize({vars[1], r, k}, {s.outputs, s.rows, s.columns}), y * s.width + x});
  Expr sum = reduce(ReduceKind::kSum, {r, k},
                    select(logical_and(within(y, s.height), within(x, s.width)), one, constant(0, DType::kFloat32)));
  if (c.has_bias) sum = binary(Op::kAdd, sum, cast(load(n.inputs[2], n.inputs[2]->dtype, {vars[1]}), DType::kFloat32));
  return {vars, cast(sum, out->dtype)};
}

}  // namespace

void conv_by_taps(Graph& g, const FuseOptions& options) {
  const auto constants = constant_nodes(g);
  const std::size_t count = g.nodes.size();
  for (std::size_t at = 0; at < count; ++at) {
    Node& n = *g.nodes[at];
    const auto* c = n.as<ConvOp>();
    if (!c || constants.count(&n)) continue;
    Sizes s;
    if (const char* why = obstacle(n, *c, constants, s)) {
      if (*why) remark(options, "conv_by_taps", n.origin, [&] { return std::string(why); });
      continue;
    }
    g.origin = n.origin;
    n.op = s.by_columns() ? sums_of_columns(n, *c, columns(g, n, *c, s), s)
                          : sums(n, *c, products(g, n.inputs[0], n.inputs[1], s), s);
    refresh_inputs(n);
  }
  g.origin.clear();
  sort_nodes(g);
}

}  // namespace sardonyx
