// See conv_by_taps.h.
#include "fuse/conv_by_taps.h"

#include <algorithm>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kVector = 8;             // 16-bit elements of a 16-byte load
constexpr std::int64_t kMostColumns = 32;       // columns: output channels times taps
constexpr std::int64_t kLeastTaps = 4;          // with fewer, loading pixels again costs less than storing products
constexpr std::int64_t kLeastPixels = 8192;     // of an image: below, a second launch costs more than it saves
constexpr std::int64_t kLeastChannels = 32;     // fewer, but no less than half of them, for this much work:
constexpr std::int64_t kLeastWork = 6'000'000;  // multiplications of an image for each output

std::int64_t product_from(const std::vector<std::int64_t>& sizes, std::size_t first) {
  std::int64_t product = 1;
  for (std::size_t d = first; d < sizes.size(); ++d) product *= sizes[d];
  return product;
}

struct Sizes {
  std::int64_t channels = 0, outputs = 0;
  std::vector<std::int64_t> image, window;
  std::size_t first = 0;  ///< dims of the window from this one on are divided into taps; those before stay in K
  std::int64_t taps() const { return product_from(window, first); }
  std::int64_t columns() const { return outputs * taps(); }
  /// Of a convolution's result: whole vectors.
  std::int64_t filled() const { return (columns() + kVector - 1) / kVector * kVector; }
};

bool known(const Value& v, std::vector<std::int64_t>& sizes) {
  sizes.resize(v.rank() - 2);
  for (std::size_t d = 0; d < sizes.size(); ++d)
    if (!is_const_int(v.shape[d + 2], sizes[d])) return false;
  return true;
}

Exprs constants_of(const std::vector<std::int64_t>& sizes) { return {sizes.begin(), sizes.end()}; }

// Why the convolution stays; null if it is divided. An empty reason: it has nothing to do with this pass.
const char* obstacle(const Node& n, const ConvOp& c, const std::unordered_set<const Node*>& constants, Sizes& s) {
  const Value *x = n.inputs[0], *w = n.inputs[1];
  if (x->rank() < 4 || c.transposed || c.groups != 1 || !is_float(x->dtype) || size_of(x->dtype) != 2) return "";
  if (!is_const_int(w->shape[0], s.outputs) || !known(*w, s.window)) return "";
  while (s.first < s.window.size() && s.columns() > kMostColumns) ++s.first;
  if (s.first == s.window.size() || s.taps() < kLeastTaps) return "";
  if (!constants.count(w->producer)) return "its weights are not constant";
  if (std::any_of(c.strides.begin(), c.strides.end(), [](std::int64_t k) { return k != 1; })) return "it has strides";
  // Products are written and read in float32.
  if (!is_const_int(x->shape[1], s.channels) || s.channels % kVector != 0 ||
      s.channels < 4 * std::min(s.columns(), s.filled()) / kVector || s.channels < kLeastChannels / 2)
    return "it has few channels, or no whole vectors of them";
  if (!known(*x, s.image) || product_from(s.image, 0) < kLeastPixels)
    return "its images are small, or their size is not known";
  if (s.channels < kLeastChannels && product_from(s.image, 0) * s.channels * product_from(s.window, 0) < kLeastWork)
    return "it has few channels and its images are small";
  return nullptr;
}

// For each image, tap and pixel the sum over the channels: float32 [images, outputs * taps, pixels].
Value* products(Graph& g, Value* x, Value* w, const Sizes& s) {
  const Expr n = loop_var(s.columns()), c = loop_var(s.channels);
  Exprs parts = constants_of(s.window);
  parts.insert(parts.begin(), s.outputs);
  Exprs tap = idx::delinearize(n, parts);
  tap.insert(tap.begin() + 1, c);
  Value* taps = g.add_loop({n, c}, load(w, w->dtype, tap));
  MatMulOp m;
  const Expr image = loop_var(x->shape[0]), row = loop_var(s.columns());
  const Expr pixels = product_from(s.image, 0), pixel = loop_var(pixels);
  m.vars = {image, row, pixel};
  m.k = loop_var(s.channels);
  m.a = load(taps, taps->dtype, {row, m.k});
  Exprs at = idx::delinearize(pixel, constants_of(s.image));
  at.insert(at.begin(), {image, m.k});
  m.b = load(x, x->dtype, at);
  return g.add_node(m, {taps, x}, {{DType::kFloat32, {x->shape[0], s.columns(), pixels}}})->outputs[0];
}

// The same where dims of the window stay, with sums over these too: float32 [images, filled, pixels...].
Value* partial_sums(Graph& g, const Node& n, const ConvOp& old, const Sizes& s) {
  Value *x = n.inputs[0], *w = n.inputs[1];
  const std::size_t rank = s.window.size();
  const Expr k = loop_var(s.filled()), c = loop_var(s.channels);
  const std::vector<std::int64_t> divided(s.window.begin() + static_cast<std::ptrdiff_t>(s.first), s.window.end());
  Exprs parts = constants_of(divided), vars = {k, c};
  parts.insert(parts.begin(), s.outputs);
  const Exprs of_tap = idx::delinearize(k, parts);
  Exprs at = {of_tap[0], c}, shape = {x->shape[0], s.filled()};
  ConvOp conv;
  conv.exact = old.exact;
  conv.strides.assign(rank, 1);
  conv.dilations.assign(rank, 1);
  conv.pads_begin.assign(rank, 0);
  conv.pads_end.assign(rank, 0);
  for (std::size_t d = 0; d < rank; ++d) {
    const bool kept = d < s.first;
    vars.push_back(loop_var(kept ? s.window[d] : 1));
    at.push_back(kept ? vars.back() : of_tap[d - s.first + 1]);
    shape.push_back(kept ? n.outputs[0]->shape[d + 2] : x->shape[d + 2]);
    if (!kept) continue;
    conv.dilations[d] = old.dilations[d];
    conv.pads_begin[d] = old.pads_begin[d];
    conv.pads_end[d] = old.pads_end[d];
  }
  const Expr weight = load(w, w->dtype, at);
  Value* taps = g.add_loop(vars, select(compare(Op::kLt, k, s.columns()), weight, constant(0, w->dtype)));
  return g.add_node(conv, {x, taps}, {{DType::kFloat32, shape}})->outputs[0];
}

// Adds up what the taps under each output gave.
LoopOp sums(const Node& n, const ConvOp& c, const Value* found, const Sizes& s) {
  const Value* out = n.outputs[0];
  const Exprs vars = vars_of(out->shape);
  Exprs taps = {vars[1]}, parts = {s.outputs},
        pixel(vars.begin() + 2, vars.begin() + 2 + static_cast<std::ptrdiff_t>(s.first));
  Expr inside = constant_bool(true);
  for (std::size_t d = s.first; d < s.window.size(); ++d) {
    taps.push_back(loop_var(s.window[d]));
    const Expr at = vars[d + 2] + taps.back() * c.dilations[d] - c.pads_begin[d];
    inside = logical_and(inside, logical_and(compare(Op::kGe, at, 0), compare(Op::kLt, at, s.image[d])));
    parts.push_back(s.window[d]);
    pixel.push_back(at);
  }
  if (s.first == 0) pixel = {idx::linearize(pixel, constants_of(s.image))};
  pixel.insert(pixel.begin(), {vars[0], idx::linearize(taps, parts)});
  taps.erase(taps.begin());
  const Expr one = load(found, DType::kFloat32, pixel);
  Expr sum = reduce(ReduceKind::kSum, taps, select(inside, one, constant(0, DType::kFloat32)));
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
    n.op = sums(n, *c, s.first > 0 ? partial_sums(g, n, *c, s) : products(g, n.inputs[0], n.inputs[1], s), s);
    refresh_inputs(n);
  }
  g.origin.clear();
  sort_nodes(g);
}

}  // namespace sardonyx
