// See subpixel_convolution.h.
#include "fuse/subpixel_convolution.h"

#include <algorithm>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

// One dim of the image. Phase r of output h * stride + r is the sum over j in [first, first + taps) of input h + j
// times the weight r + pad - stride * j, if there is one.
struct Dim {
  std::int64_t stride = 1, kernel = 1, pad = 0;
  bool single = false;  // the image has one element
  std::int64_t first = 0, taps = 1;
  Expr size;  // of the result of the convolution
  std::int64_t pad_end = 0;
};

struct Phases {
  std::vector<Dim> dims;
  std::int64_t channels = 0, outputs = 0, count = 1;
};

bool find_taps(Dim& d) {
  bool any = false;
  std::int64_t last = 0;
  for (std::int64_t r = 0; r < d.stride; ++r)
    for (std::int64_t t = 0; t < d.kernel; ++t) {
      const std::int64_t from = r + d.pad - t;
      if (from % d.stride != 0) continue;
      const std::int64_t j = from / d.stride;
      if (d.single && j != 0) continue;
      d.first = any ? std::min(d.first, j) : j;
      last = any ? std::max(last, j) : j;
      any = true;
    }
  d.taps = last - d.first + 1;
  return any && d.first <= 0;
}

// Whether phases, which share the taps that any of them has, multiply by so many zeros that the host's kernel for
// images, which adds up the products of single taps, is faster (host/transposed_columns.h). Vectors of 16 channels.
// Where windows have three taps along each axis, Winograd's transforms make up for about as many (measured on a Xeon,
// with AVX-512 and AVX2).
bool wastes_products(const Phases& p, std::int64_t before, std::int64_t after) {
  constexpr std::int64_t kVector = 16;
  const std::int64_t filled = (p.count * p.outputs + kVector - 1) / kVector * kVector;
  const bool winograd = std::all_of(p.dims.begin(), p.dims.end(), [](const Dim& d) { return d.taps != 2; });
  return after > 1 && 2 * after * filled > (winograd ? 5 : 3) * before * p.outputs;
}

// Why the convolution stays; null if it is replaced. An empty reason: it has nothing to do with this pass.
const char* obstacle(const Node& n, const ConvOp& c, const std::unordered_set<const Node*>& constants,
                     const FuseOptions& options, Phases& p) {
  const Value *x = n.inputs[0], *w = n.inputs[1], *out = n.outputs[0];
  if (!c.transposed || !is_float(x->dtype)) return "";
  if (c.groups != 1 || c.zeros != 0 || c.padding != 0) return "it has groups";
  if (!constants.count(w->producer)) return "its weights are not constant";
  if (!is_const_int(w->shape[0], p.channels) || !is_const_int(w->shape[1], p.outputs)) return "its sizes are unknown";
  const bool all = options.subpixel_convolution || p.outputs <= options.subpixel_outputs;
  std::int64_t before = 1, after = 1;
  for (std::size_t k = 0; k < c.strides.size(); ++k) {
    Dim d;
    d.stride = c.strides[k];
    if (c.dilations[k] != 1) return "it has dilations";
    if (!is_const_int(w->shape[k + 2], d.kernel) || !is_const_int(c.pads_begin[k], d.pad))
      return "its sizes are unknown";
    // The windows of an image of one element do not overlap, whatever its stride: each result is a phase.
    std::int64_t results = 0;
    d.single = is_const(x->shape[k + 2], 1) && is_const_int(out->shape[k + 2], results) && results > 0;
    if (d.single) d.stride = results;
    if (!all && !d.single) return "";  // images of several pixels
    d.size = idx::ceildiv(out->shape[k + 2], d.stride);
    if (!find_taps(d) || !is_const_int(d.size - x->shape[k + 2] + Expr(d.first + d.taps - 1), d.pad_end) ||
        d.pad_end < 0)
      return "it cuts off elements of the image, or its sizes are unknown";
    before *= d.kernel;
    after *= d.taps;
    p.count *= d.stride;
    p.dims.push_back(std::move(d));
  }
  if (p.count == 1 || after >= before)
    return "its windows overlap everywhere: it has not more taps than its strides skip";
  const bool single = std::all_of(p.dims.begin(), p.dims.end(), [](const Dim& d) { return d.single; });
  if (!options.subpixel_convolution && p.dims.size() <= 2 && !single && wastes_products(p, before, after))
    return "its phases would multiply by many zeros";
  return nullptr;
}

Exprs phase_extents(const Phases& p) {
  Exprs out;
  for (const Dim& d : p.dims) out.push_back(d.stride);
  return out;
}

// The weights [phases * outputs, channels, taps...]; outputs are innermost, as in the result.
Value* weights(Graph& g, const Value* w, const Phases& p) {
  const Expr o = loop_var(p.count * p.outputs), c = loop_var(p.channels);
  const Exprs phase = idx::delinearize(idx::floordiv(o, p.outputs), phase_extents(p));
  Exprs vars = {o, c}, at = {c, idx::mod(o, p.outputs)};
  Expr exists;
  for (std::size_t k = 0; k < p.dims.size(); ++k) {
    const Dim& d = p.dims[k];
    vars.push_back(loop_var(d.taps));
    const Expr t = phase[k] + Expr(d.pad - d.stride * d.first) - vars.back() * Expr(d.stride);
    const Expr inside = logical_and(compare(Op::kGe, t, 0), compare(Op::kLt, t, d.kernel));
    exists = exists ? logical_and(exists, inside) : inside;
    at.push_back(t);
  }
  return g.add_loop(vars, select(exists, load(w, w->dtype, at), constant(0, w->dtype)));
}

Value* convolution(Graph& g, const Node& n, const ConvOp& old, const Phases& p) {
  const Value* x = n.inputs[0];
  ConvOp c;
  c.exact = old.exact;
  c.has_bias = old.has_bias;
  Exprs shape = {x->shape[0], p.count * p.outputs};
  for (const Dim& d : p.dims) {
    c.strides.push_back(1);
    c.dilations.push_back(1);
    c.pads_begin.push_back(-d.first);
    c.pads_end.push_back(d.pad_end);
    shape.push_back(d.size);
  }
  std::vector<Value*> inputs = {n.inputs[0], weights(g, n.inputs[1], p)};
  if (old.has_bias) {
    const Expr o = loop_var(p.count * p.outputs);
    inputs.push_back(g.add_loop({o}, load(n.inputs[2], n.inputs[2]->dtype, {idx::mod(o, p.outputs)})));
  }
  return g.add_node(c, inputs, {{n.outputs[0]->dtype, shape}})->outputs[0];
}

// Puts the phases side by side.
LoopOp interleaved(const Value* out, const Value* phases, const Phases& p) {
  const Exprs vars = vars_of(out->shape);
  Exprs phase, at = {vars[0], 0};
  for (std::size_t k = 0; k < p.dims.size(); ++k) {
    phase.push_back(idx::mod(vars[k + 2], p.dims[k].stride));
    at.push_back(idx::floordiv(vars[k + 2], p.dims[k].stride));
  }
  at[1] = idx::linearize(phase, phase_extents(p)) * Expr(p.outputs) + vars[1];
  return {vars, load(phases, phases->dtype, at)};
}

}  // namespace

void subpixel_convolution(Graph& g, const FuseOptions& options) {
  const auto constants = constant_nodes(g);
  const std::size_t count = g.nodes.size();
  for (std::size_t at = 0; at < count; ++at) {
    Node& n = *g.nodes[at];
    const auto* c = n.as<ConvOp>();
    if (!c || constants.count(&n)) continue;
    Phases p;
    if (const char* why = obstacle(n, *c, constants, options, p)) {
      if (*why) remark(options, "subpixel_convolution", n.origin, [&] { return std::string(why); });
      continue;
    }
    g.origin = n.origin;
    const Value* phases = convolution(g, n, *c, p);
    n.op = interleaved(n.outputs[0], phases, p);
    refresh_inputs(n);
  }
  g.origin.clear();
  sort_nodes(g);
}

}  // namespace sardonyx
