// fill_channels(): see fill_channels.h.
#include "fuse/fill_channels.h"

#include <algorithm>
#include <map>
#include <utility>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kMostChannels = 32;  // with more, pixels are not folded, and only channels added
constexpr std::int64_t kMostTaps = 64;      // taps and channels of an image that is copied for each tap
constexpr std::int64_t kMostWindow = 64;    // channels of a copy that has a whole window for each output
constexpr std::int64_t kCopied = 6;         // the copy engine's multiple adds at most a sixth of the channels
constexpr std::int64_t kLongSum = 128;      // terms from which few outputs are computed by matrix instructions
constexpr std::int64_t kMostFilled = 3;     // channels with padding, relative to without: zeros are multiplied too

class Filler {
 public:
  Filler(Graph& g, const FuseOptions& options) : g_(g), options_(options), constants_(constant_nodes(g)) {}

  void run() {
    const std::size_t count = g_.nodes.size();
    for (std::size_t k = 0; k < count; ++k) {
      Node& n = *g_.nodes[k];
      if (auto* c = n.as<ConvOp>()) convolution(n, *c);
    }
    g_.origin.clear();
    sort_nodes(g_);
  }

 private:
  void convolution(Node& n, ConvOp& c) {
    Value *x = n.inputs[0], *w = n.inputs[1];
    const Value* out = n.outputs[0];
    const std::size_t last = c.strides.size() - 1;
    std::int64_t channels = 0, taps = 0, outputs = 0;
    const bool bytes = x->dtype == DType::kInt8 || x->dtype == DType::kUInt8;
    if ((!is_float(x->dtype) && !bytes) || size_of(x->dtype) > 4 || !is_const_int(x->shape[1], channels)) return;
    const std::int64_t vec = 16 / static_cast<std::int64_t>(size_of(x->dtype)), step = c.strides[last];
    // Whole vectors may still be none that the copy engine loads.
    const bool whole = channels % vec == 0;
    const bool few = channels <= kMostChannels, folds = options_.fold_outputs && vec == 8;
    if (whole && (!options_.tensor_copy || (few && !folds) || channels % (4 * vec) == 0)) return;
    const auto reject = [&](const char* why) {
      remark(options_, "fill_channels", n.origin, [&] { return std::string(why); },
             {{"channels", std::to_string(channels)}});
    };
    if (!constants_.count(w->producer)) return reject("its weights are not constant");
    if (!is_const_int(w->shape[0], outputs) || (outputs < 8 && (vec != 8 || !long_sums(*w, channels))))
      return reject("it has fewer than 8 output channels");
    if (c.transposed || c.groups != 1) return reject("it is transposed or grouped");
    g_.origin = n.origin;
    if (!whole && patches(n, c)) return;
    if (!few) return add_channels(n, channels, outputs, vec);
    if (c.dilations[last] != 1) return reject("its last dim is dilated");
    if (!is_const_int(w->shape[last + 2], taps) || step > 64)
      return reject("its kernel size or stride is unknown or large");
    const std::int64_t outputs_of_window = outputs_together(n, c, channels, outputs, taps);
    if (whole && outputs_of_window == 1) return;
    const std::int64_t pace = step * outputs_of_window;
    std::int64_t filled = channels;
    while (pace * filled % vec != 0) ++filled;
    if (filled > kMostFilled * channels) {
      if (taps_become_channels(n, c, vec)) return;
      return reject("too many channels would be zeros");
    }
    // Without strides, where that leaves at most half of K (7 x 7: 24 instead of 56 for each line of taps), copying
    // pixels for several taps costs less than multiplying zeros.
    const std::int64_t terms = (channels * taps + vec - 1) / vec * vec;
    if (pace == 1 && windows_become_channels(n, c, vec)) return;
    if (pace == 1 && 2 * terms <= taps * filled && taps_become_channels(n, c, vec)) return;
    if (options_.short_vectors && folds_in_place(n, c, channels, taps)) return;
    const std::int64_t groups = (pace - step + taps + pace - 1) / pace;  // taps of the new last dim
    const Expr inner = pace * filled, width = idx::floordiv(out->shape[last + 2], outputs_of_window) + (groups - 1);

    // image[.., r * filled + c, .., j] = x[.., c, .., pace * j + r - pad]
    Exprs vars, at;
    for (const Expr& d : x->shape) vars.push_back(loop_var(d));
    vars[1] = loop_var(inner);
    vars[last + 2] = loop_var(width);
    at = vars;
    at[1] = idx::mod(vars[1], filled);
    at[last + 2] = vars[last + 2] * pace + idx::floordiv(vars[1], filled) - c.pads_begin[last];
    Expr inside = logical_and(compare(Op::kGe, at[last + 2], 0), compare(Op::kLt, at[last + 2], x->shape[last + 2]));
    if (filled != channels) inside = logical_and(inside, compare(Op::kLt, at[1], channels));
    Value* image = g_.add_loop(vars, select(inside, load(x, x->dtype, at), constant(c.padding, x->dtype)));

    // weights[o * outputs + k, r * filled + c, .., j] = w[k, c, .., pace * j + r - step * o]
    Exprs own;
    for (const Expr& d : w->shape) own.push_back(loop_var(d));
    own[0] = loop_var(outputs * outputs_of_window);
    own[1] = loop_var(inner);
    own[last + 2] = loop_var(groups);
    Exprs from = own;
    from[0] = idx::mod(own[0], outputs);
    from[1] = idx::mod(own[1], filled);
    from[last + 2] = own[last + 2] * pace + idx::floordiv(own[1], filled) - idx::floordiv(own[0], outputs) * Expr(step);
    inside = logical_and(compare(Op::kLt, from[last + 2], taps), compare(Op::kLt, from[1], channels));
    if (outputs_of_window > 1) inside = logical_and(compare(Op::kGe, from[last + 2], 0), inside);
    Value* weights = g_.add_loop(own, select(inside, load(w, w->dtype, from), constant(0, w->dtype)));

    c.strides[last] = 1;
    c.pads_begin[last] = c.pads_end[last] = 0;
    n.inputs[0] = image;
    n.inputs[1] = weights;
  }

  // Whether matrix instructions pay off for fewer than 8 outputs once the channels are whole vectors (codegen's
  // is_contraction() decides).
  static bool long_sums(const Value& w, std::int64_t channels) {
    std::int64_t taps = 0;
    return channels > kMostChannels || (is_const_int(idx::product({w.shape.begin() + 2, w.shape.end()}), taps) &&
                                        (channels + 7) / 8 * 8 * taps >= kLongSum);
  }

  // Adds channels of zeros up to the next vector, or to what the copy engine loads at a time where that is little more.
  // Where a window has one tap, element-wise loads cost less than copying the image unless the copy engine can load
  // it; others load each element once for each tap.
  void add_channels(Node& n, std::int64_t channels, std::int64_t outputs, std::int64_t vec) {
    const Value* w = n.inputs[1];
    const bool one_tap = is_const(idx::product(Exprs(w->shape.begin() + 2, w->shape.end())), 1);
    if (one_tap && (!options_.tensor_copy || outputs < kMostChannels || vec != 8)) return;
    const auto rounded = [&](std::int64_t to) { return (channels + to - 1) / to * to; };
    const bool copied =
        options_.tensor_copy && vec >= 8 && !one_tap && kCopied * rounded(4 * vec) <= (kCopied + 1) * channels;
    const std::int64_t filled = rounded(copied && outputs >= kMostChannels ? 4 * vec : vec);
    if (filled == channels) return;
    Value*& image = filled_[{n.inputs[0], filled}];
    if (!image) image = with_channels(n.inputs[0], filled);
    n.inputs[0] = image;
    n.inputs[1] = with_channels(n.inputs[1], filled);
  }

  Value* with_channels(Value* v, std::int64_t filled) {
    Exprs vars = vars_of(v->shape);
    vars[1] = loop_var(Expr(filled));
    return g_.add_loop(vars,
                       select(compare(Op::kLt, vars[1], v->shape[1]), load(v, v->dtype, vars), constant(0, v->dtype)));
  }

  // One or two channels would be mostly zeros in a vector: all taps along the last dim become channels of a kernel
  // that is one wide. Returns whether at most two thirds of these are zeros.
  bool taps_become_channels(Node& n, ConvOp& c, std::int64_t vec) {
    Value *x = n.inputs[0], *w = n.inputs[1];
    const std::size_t last = c.strides.size() - 1;
    std::int64_t channels = 0, taps = 0;
    if (!is_const_int(x->shape[1], channels) || !is_const_int(w->shape[last + 2], taps)) return false;
    const std::int64_t terms = channels * taps, filled = (terms + vec - 1) / vec * vec;
    if (filled > kMostFilled * terms || filled > kMostTaps) return false;

    // image[.., r * channels + c, .., j] = x[.., c, .., stride * j + dilation * r - pad], zero outside
    Exprs vars = vars_of(x->shape);
    vars[1] = loop_var(Expr(filled));
    vars[last + 2] = loop_var(n.outputs[0]->shape[last + 2]);
    Exprs at = vars;
    at[1] = idx::mod(vars[1], channels);
    at[last + 2] = vars[last + 2] * c.strides[last] + idx::floordiv(vars[1], channels) * Expr(c.dilations[last]) -
                   c.pads_begin[last];
    Expr inside = logical_and(compare(Op::kGe, at[last + 2], 0), compare(Op::kLt, at[last + 2], x->shape[last + 2]));
    inside = logical_and(inside, compare(Op::kLt, vars[1], terms));
    n.inputs[0] = g_.add_loop(vars, select(inside, load(x, x->dtype, at), constant(c.padding, x->dtype)));

    // weights[k, r * channels + c, .., 0] = w[k, c, .., r]
    Exprs own = vars_of(w->shape);
    own[1] = loop_var(Expr(filled));
    own[last + 2] = loop_var(1);
    Exprs from = own;
    from[1] = idx::mod(own[1], channels);
    from[last + 2] = idx::floordiv(own[1], channels);
    n.inputs[1] =
        g_.add_loop(own, select(compare(Op::kLt, own[1], terms), load(w, w->dtype, from), constant(0, w->dtype)));
    c.strides[last] = c.dilations[last] = 1;
    c.pads_begin[last] = c.pads_end[last] = 0;
    return true;
  }

  // Small windows of few channels (3 x 3 of an RGB image: 27) become the channels of a 1 x 1 kernel, a GEMM whose
  // operands the copy engine loads: the image has to be copied anyway. Returns whether it is so.
  bool windows_become_channels(Node& n, ConvOp& c, std::int64_t vec) {
    Value *x = n.inputs[0], *w = n.inputs[1];
    const Value* out = n.outputs[0];
    Exprs parts = {x->shape[1]};
    parts.insert(parts.begin(), w->shape.begin() + 2, w->shape.end());
    std::int64_t terms = 0;
    if (!options_.tensor_copy || vec != 8 || !is_const_int(idx::product(parts), terms) || terms > kMostWindow)
      return false;
    const Expr filled = (terms + vec - 1) / vec * vec;

    // image[.., (r.., c), j..] = x[.., c, stride * j + dilation * r - pad ..], zero outside
    Exprs vars = vars_of(out->shape), own = vars_of(w->shape);
    vars[1] = loop_var(filled);
    own[1] = loop_var(filled);
    const Exprs of_image = idx::delinearize(vars[1], parts), of_weights = idx::delinearize(own[1], parts);
    Exprs at = {vars[0], of_image.back()}, from = {own[0], of_weights.back()};
    Expr inside = compare(Op::kLt, vars[1], terms);
    for (std::size_t d = 0; d < c.strides.size(); ++d) {
      const Expr i = vars[d + 2] * c.strides[d] + of_image[d] * Expr(c.dilations[d]) - c.pads_begin[d];
      inside = logical_and(inside, logical_and(compare(Op::kGe, i, 0), compare(Op::kLt, i, x->shape[d + 2])));
      at.push_back(i);
      from.push_back(of_weights[d]);
      own[d + 2] = loop_var(1);
      c.strides[d] = c.dilations[d] = 1;
      c.pads_begin[d] = c.pads_end[d] = 0;
    }
    n.inputs[0] = g_.add_loop(vars, select(inside, load(x, x->dtype, at), constant(c.padding, x->dtype)));
    n.inputs[1] =
        g_.add_loop(own, select(compare(Op::kLt, own[1], terms), load(w, w->dtype, from), constant(0, w->dtype)));
    return true;
  }

  // How many neighbouring outputs one window computes.
  std::int64_t outputs_together(const Node& n, const ConvOp& c, std::int64_t channels, std::int64_t outputs,
                                std::int64_t taps) const {
    std::int64_t width = 0;
    if (!options_.fold_outputs || c.strides.size() != 2 || c.strides.back() >= taps || outputs % 8 != 0 ||
        !is_const_int(n.outputs[0]->shape.back(), width))
      return 1;
    const auto size = static_cast<std::int64_t>(size_of(n.inputs[0]->dtype));
    return size == 1   ? bytes_together(c, channels, outputs, taps, width)
           : size == 2 ? columns_together(c, channels, outputs, taps, width)
                       : 1;
  }

  // Along the last dim, a window of several outputs: channels of a wide pixel, and of all its wide pixels.
  struct Line {
    std::int64_t pixel, all;
  };
  static Line line_of(const ConvOp& c, std::int64_t channels, std::int64_t taps, std::int64_t together,
                      std::int64_t vec) {
    const std::int64_t step = c.strides.back(), pace = step * together;
    std::int64_t filled = channels;
    while (pace * filled % vec != 0) ++filled;
    return {pace * filled, (pace - step + taps + pace - 1) / pace * pace * filled};
  }

  // With one, the copy engine is the limit where windows overlap: on an H200 64 bytes of a line of taps took 5.6
  // cycles. With four, ResNet-50's first convolution in 8 bits takes 77 instead of 134 us. In 16 bits lines would be
  // twice as long, half of them zeros, which was no faster.
  static std::int64_t bytes_together(const ConvOp& c, std::int64_t channels, std::int64_t outputs, std::int64_t taps,
                                     std::int64_t width) {
    constexpr std::int64_t kMostColumns = 256, kLine = 64;
    std::int64_t best = 1;
    for (std::int64_t together = 2; together * outputs <= kMostColumns; together *= 2)
      if (width % together == 0 && line_of(c, channels, taps, together, 16).all == kLine) best = together;
    return best;
  }

  // In 16 bits, where few channels of results leave most columns of a tile empty. Wide pixels must be what the copy
  // engine loads, and have to save enough for the copy of the image.
  static std::int64_t columns_together(const ConvOp& c, std::int64_t channels, std::int64_t outputs, std::int64_t taps,
                                       std::int64_t width) {
    constexpr std::int64_t kTile = 64, kMostColumns = 128, kMostPixel = 64, kLeastPixel = 32, kGain = 2;
    const auto cost = [&](std::int64_t together) {
      return line_of(c, channels, taps, together, 8).all * std::max(together * outputs, kTile);
    };
    std::int64_t best = 1;
    for (std::int64_t together = 2; together * outputs <= kMostColumns; together *= 2) {
      const std::int64_t pixel = line_of(c, channels, taps, together, 8).pixel;
      if (width % together == 0 && pixel % kLeastPixel == 0 && pixel <= kMostPixel &&
          cost(together) * best <= cost(best) * together && cost(together) * kGain <= cost(1) * together)
        best = together;
    }
    return best;
  }

  // Views the image as one of wide pixels, without a copy, so that only the weights are filled. Returns whether that is
  // possible: s pixels must be 12 contiguous bytes, and windows must begin at multiples of s pixels (with taps of zeros
  // before the kernel's first).
  bool folds_in_place(Node& n, ConvOp& c, std::int64_t channels, std::int64_t taps) {
    constexpr std::int64_t kBytes = 12;  // what kernels load of a vector of 16 (kShortA in kernels/gemm_problem.h)
    Value *x = n.inputs[0], *w = n.inputs[1];
    const std::size_t last = c.strides.size() - 1;
    const std::int64_t step = c.strides[last], inner = step * channels;
    std::int64_t width = 0, pad = 0;
    if (!is_float(x->dtype) || size_of(x->dtype) != 2 || inner * 2 != kBytes || !has_channels_last(*x) ||
        !is_const_int(x->shape[last + 2], width) || width % step != 0 || !is_const_int(c.pads_begin[last], pad))
      return false;
    const std::int64_t before = (step - pad % step) % step, groups = (before + taps + step - 1) / step;
    if (groups > (taps + step - 1) / step) return false;  // zeros would take longer than a copy of the image

    // image[.., r * channels + c, .., j] = x[.., c, .., step * j + r]
    Exprs vars;
    for (const Expr& d : x->shape) vars.push_back(loop_var(d));
    vars[1] = loop_var(Expr(inner));
    vars[last + 2] = loop_var(Expr(width / step));
    Exprs at = vars;
    at[1] = idx::mod(vars[1], channels);
    at[last + 2] = vars[last + 2] * step + idx::floordiv(vars[1], channels);
    Value* image = g_.add_loop(vars, load(x, x->dtype, at));

    // weights[k, r * channels + c, .., j] = w[k, c, .., step * j + r - before]
    const std::int64_t filled = 16 / 2;
    Exprs own;
    for (const Expr& d : w->shape) own.push_back(loop_var(d));
    own[1] = loop_var(Expr(filled));
    own[last + 2] = loop_var(Expr(groups));
    Exprs from = own;
    from[1] = idx::mod(own[1], channels);
    from[last + 2] = own[last + 2] * step + idx::floordiv(own[1], channels) - before;
    const Expr inside =
        logical_and(compare(Op::kLt, own[1], inner),
                    logical_and(compare(Op::kGe, from[last + 2], 0), compare(Op::kLt, from[last + 2], taps)));
    n.inputs[1] = g_.add_loop(own, select(inside, load(w, w->dtype, from), constant(0, w->dtype)));
    n.inputs[0] = image;
    c.strides[last] = 1;
    c.zeros = filled - inner;
    c.pads_begin[last] = (pad + before) / step;
    c.pads_end[last] = n.outputs[0]->shape[last + 2] + (groups - 1 - width / step) - c.pads_begin[last];
    return true;
  }

  // Whether the channels of a pixel are contiguous in memory: the tensor that is read is row-major, with channels last.
  static bool has_channels_last(const Value& x) {
    const auto* l = x.producer ? x.producer->as<LoopOp>() : nullptr;
    if (!l || l->body->op != Op::kLoad || l->body->value->dtype != x.dtype || l->vars.size() != l->body->args.size())
      return false;
    for (std::size_t d = 0; d < l->vars.size(); ++d)
      if (!same(l->body->args[d == 0 ? 0 : d == 1 ? l->vars.size() - 1 : d - 1], l->vars[d])) return false;
    return true;
  }

  // A convolution whose windows neither overlap nor leave gaps (the patches of a vision transformer) becomes a GEMM:
  // all pixels of a patch are channels. Returns whether it is one, of whole vectors.
  bool patches(Node& n, ConvOp& c) {
    Value *x = n.inputs[0], *w = n.inputs[1];
    const Value* out = n.outputs[0];
    const std::size_t rank = c.strides.size();
    Exprs folded = {x->shape[1]};
    std::int64_t terms = 0;
    for (std::size_t d = 0; d < rank; ++d) {
      if (!is_const(w->shape[d + 2], c.strides[d]) || c.dilations[d] != 1 || !is_const(c.pads_begin[d], 0) ||
          !is_const(c.pads_end[d], 0))  // padded pixels are not in memory
        return false;
      folded.push_back(w->shape[d + 2]);
    }
    if (!is_const_int(idx::product(folded), terms) || terms % (16 / static_cast<std::int64_t>(size_of(x->dtype))) != 0)
      return false;

    // image[b, (c, r..), j..] = x[b, c, stride * j + r ..], with the last dim's pixels innermost, as in memory
    const Expr batch = loop_var(x->shape[0]), inner = loop_var(Expr(terms));
    const Exprs parts = idx::delinearize(inner, folded);
    Exprs vars = {batch, inner}, at = {batch, parts[0]};
    for (std::size_t d = 0; d < rank; ++d) {
      vars.push_back(loop_var(out->shape[d + 2]));
      at.push_back(vars.back() * c.strides[d] + parts[d + 1]);
    }
    n.inputs[0] = g_.add_loop(vars, load(x, x->dtype, at));
    const Expr output = loop_var(w->shape[0]), term = loop_var(Expr(terms));
    Exprs own = {output, term}, from = idx::delinearize(term, folded);
    from.insert(from.begin(), output);
    for (std::size_t d = 0; d < rank; ++d) own.push_back(loop_var(1));
    n.inputs[1] = g_.add_loop(own, load(w, w->dtype, from));
    std::fill(c.strides.begin(), c.strides.end(), 1);
    return true;
  }

  Graph& g_;
  const FuseOptions& options_;
  std::unordered_set<const Node*> constants_;
  std::map<std::pair<const Value*, std::int64_t>, Value*> filled_;  // images with more channels
};

}  // namespace

void fill_channels(Graph& g, const FuseOptions& options) { Filler(g, options).run(); }

}  // namespace sardonyx
