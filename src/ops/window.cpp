// Reading window attributes. Formulas: the documentation of Conv, AveragePool and MaxPool in the ONNX standard.
#include "ops/window.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kMaxStep = std::int64_t{1} << 30;  // larger ones can only come from a broken file

}  // namespace

Exprs Window::position(const Exprs& o, const Exprs& k) const {
  Exprs p;
  for (std::size_t d = 0; d < dims(); ++d) p.push_back(o[d] * Expr(strides[d]) + k[d] * Expr(dilations[d]) - begin[d]);
  return p;
}

Expr Window::inside(const Exprs& p) const {
  Expr ok = constant_bool(true);
  for (std::size_t d = 0; d < dims(); ++d) {
    // Without padding on a side, positions are in range there by the choice of `output`.
    if (!is_const(begin[d], 0)) ok = logical_and(ok, compare(Op::kGe, p[d], 0));
    if (ceil_mode || !is_const(end[d], 0)) ok = logical_and(ok, compare(Op::kLt, p[d], input[d]));
  }
  return ok;
}

std::vector<std::int64_t> window_steps(OpContext& c, std::string_view name, std::size_t dims) {
  std::vector<std::int64_t> v = c.attr_ints(name);
  if (v.empty()) v.assign(dims, 1);
  c.require(v.size() == dims, "{} has {} entries for {} spatial dims", name, v.size(), dims);
  for (std::int64_t s : v) c.require(s > 0 && s < kMaxStep, "{} holds {}", name, s);
  return v;
}

std::vector<std::int64_t> window_pads(OpContext& c, std::size_t dims) {
  std::vector<std::int64_t> v = c.attr_ints("pads");
  if (v.empty()) v.assign(2 * dims, 0);
  c.require(v.size() == 2 * dims, "pads has {} entries for {} spatial dims", v.size(), dims);
  for (std::int64_t p : v) c.require(p >= 0 && p < kMaxStep, "pads holds {}", p);
  return v;
}

std::string auto_pad_of(OpContext& c) {
  const std::string a = c.attr_s("auto_pad", "NOTSET");
  c.require(a.empty() || a == "NOTSET" || a == "VALID" || a == "SAME_UPPER" || a == "SAME_LOWER", "auto_pad is '{}'",
            a);
  return a.empty() ? "NOTSET" : a;
}

Window window_of(OpContext& c, const Value* x, const Exprs& kernel, bool ceil_mode) {
  c.require(x->rank() >= 3, "an input of rank {}; batch, channels and at least one spatial dim are needed", x->rank());
  Window w;
  w.input.assign(x->shape.begin() + 2, x->shape.end());
  const std::size_t n = w.dims();
  const std::vector<std::int64_t> declared = c.attr_ints("kernel_shape");
  c.require(declared.size() == n || (declared.empty() && !kernel.empty()),
            "kernel_shape has {} entries for {} spatial dims", declared.size(), n);
  c.require(kernel.empty() || kernel.size() == n, "weights with {} spatial dims for an input with {}", kernel.size(),
            n);
  for (std::size_t d = 0; d < n; ++d) {
    if (!declared.empty()) c.require(declared[d] > 0 && declared[d] < kMaxStep, "kernel_shape holds {}", declared[d]);
    if (kernel.empty()) {
      w.kernel.push_back(declared[d]);
      continue;
    }
    w.kernel.push_back(kernel[d]);
    if (!declared.empty())
      c.graph().add_check(compare(Op::kEq, kernel[d], declared[d]),
                          "kernel_shape differs from the shape of the weights");
  }
  w.strides = window_steps(c, "strides", n);
  w.dilations = window_steps(c, "dilations", n);
  const std::string auto_pad = auto_pad_of(c);
  const std::vector<std::int64_t> pads = auto_pad == "NOTSET" ? window_pads(c, n) : std::vector<std::int64_t>(2 * n, 0);
  w.ceil_mode = ceil_mode && auto_pad == "NOTSET";  // the formulas of auto_pad come to the same sizes in both modes
  for (std::size_t d = 0; d < n; ++d) {
    const Expr stride = w.strides[d];
    if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
      const Expr out = idx::ceildiv(w.input[d], stride);
      const Expr total = idx::max((out - 1) * stride + w.extent(d) - w.input[d], 0);
      const Expr half = idx::floordiv(total, 2);
      w.begin.push_back(auto_pad == "SAME_UPPER" ? half : total - half);
      w.end.push_back(total - w.begin.back());
      w.output.push_back(out);
      continue;
    }
    w.begin.push_back(pads[d]);
    w.end.push_back(pads[n + d]);
    const Expr room = w.input[d] + w.begin[d] + w.end[d] - w.extent(d);
    if (w.ceil_mode)  // the last window must start inside the input or the padding before it
      w.output.push_back(idx::min(idx::ceildiv(room, stride), idx::floordiv(w.input[d] + w.begin[d] - 1, stride)) + 1);
    else
      w.output.push_back(idx::floordiv(room, stride) + 1);
  }
  return w;
}

}  // namespace sardonyx
