// GPU kernels of windows whose channels are not mixed (depthwise convolutions) by CDNA's matrix instructions: see
// kernels/window_mfma.h. A wave has 16 channels, and of each four lanes with packs of four results; a lane computes the
// same packs of several rows, or several packs of a row if the image has one dim.
#include <algorithm>
#include <array>
#include <limits>

#include "codegen/gpu_generator.h"
#include "codegen/window_costs.h"

namespace sardonyx::codegen {
namespace {

using window::Assignments;

constexpr int kPack = 4;                     // K of the instruction, and its rows: results of a lane
constexpr std::int64_t kChannels = 16;       // blocks of the instruction
constexpr std::int64_t kLanes = 4;           // of a channel
constexpr std::int64_t kWaveLanes = kChannels * kLanes;
constexpr std::int64_t kLeastTaps = 16;      // of a window; smaller ones wait for memory anyway
constexpr std::int64_t kMostOperands = 64;   // of taps, two registers each
constexpr std::int64_t kMostLoaded = 56;     // of the image, two registers each
constexpr std::int64_t kMostGroups = 8;      // packs of a lane: their sums take four registers each
constexpr std::int64_t kMostBytes = std::int64_t{1} << 31;  // of an image, whose offsets have 32 bits
constexpr std::int64_t kMatrixCycles = 8, kLoadCycles = 64, kTapCycles = 100;  // of a SIMD: for an instruction, a load
                                                                               // beside those of the others, a row of taps

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// The coefficient of `v` in an offset, which must be known.
std::optional<std::int64_t> step_of(const Expr& offset, const Expr& v) {
  Expr c, rest;
  std::int64_t n = 0;
  if (!uses_var(offset, v)) return 0;
  if (!idx::split_affine(offset, v, c, rest) || !is_const_int(c, n)) return {};
  return n;
}

// The offset where these variables are 0.
Expr without(const Expr& offset, const Exprs& vars) {
  Assignments zero;
  for (const Expr& v : vars) zero.emplace_back(v, Expr(0));
  return substitute(offset, zero);
}

// A product of an element and a weight, and when it counts; otherwise the term is 0.
struct Product {
  Expr left, right, inside;
};
std::optional<Product> product_of(const Expr& term) {
  const auto zero = [](const Expr& e) { return is_const(e) && e->f == 0 && e->i == 0; };
  Expr e = term;
  Product p;
  if (e->op == Op::kSelect && zero(e->args[2])) {
    p.inside = e->args[0];
    e = e->args[1];
  }
  if (e->op != Op::kMul) return {};
  std::array<Expr, 2> of = {e->args[0], e->args[1]};
  for (Expr& f : of)
    if (!p.inside && f->op == Op::kSelect && zero(f->args[2])) {
      p.inside = f->args[0];
      f = f->args[1];
    }
  p.left = bare_load(of[0]);
  p.right = bare_load(of[1]);
  if (!p.left || !p.right || !p.inside) return {};
  return p;
}

// Limits of positions along one dim: pad elements are before the first one.
struct Limits {
  std::int64_t pad = -1, extent = -1;
};

}  // namespace

std::optional<GpuGenerator::ChannelWindows> GpuGenerator::channel_windows_of(const OutputLoop& p,
                                                                             const Exprs& reductions) const {
  if (!matrix_windows_ || reductions.size() != 1) return {};
  ChannelWindows c;
  const Expr& r = c.reduction = reductions[0];
  if (static_cast<ReduceKind>(r->i) != ReduceKind::kSum || r->dtype != DType::kFloat32 || r->vars.empty() ||
      r->vars.size() > 2 || r->args[0]->has_reduce)
    return {};
  const std::optional<Product> product = product_of(r->args[0]);
  if (!product || product->inside->has_load) return {};
  const Expr tap_x = r->vars.back(), tap_y = r->vars.size() == 2 ? r->vars[0] : Expr();
  if (!is_const_int(tap_x->args[0], c.taps_x) || (tap_y && !is_const_int(tap_y->args[0], c.taps_y))) return {};
  c.image = product->left, c.taps = product->right;
  c.x = p.vars.back();
  if (uses_var(c.taps->args[0], c.x)) std::swap(c.image, c.taps);
  const Expr &image = c.image->args[0], &taps = c.taps->args[0];
  const DType t = c.image->dtype;
  if ((t != DType::kFloat16 && t != DType::kBFloat16) || c.taps->dtype != t || image->has_load || taps->has_load)
    return {};

  // Results along x read neighbouring elements, those along y (if there are two dims) rows.
  if (step_of(image, tap_x) != 1 || step_of(taps, tap_x) != 1) return {};
  c.step_x = step_of(image, c.x).value_or(0);
  if (c.step_x < 1 || c.step_x > 2 || uses_var(taps, c.x)) return {};
  Exprs inner = {c.x, tap_x};
  std::int64_t n = 0;
  if (tap_y) {
    const std::int64_t down = step_of(image, tap_y).value_or(0);
    if (down < 1 || step_of(taps, tap_y) != c.taps_x) return {};
    for (const Expr& v : p.vars) {
      if (same(v, c.x)) continue;
      bool bound = false;
      visit(product->inside, [&](const Expr& x) {
        bound |= x->args.size() == 2 && uses_var(x, v) && uses_var(x, tap_y) && x->op != Op::kAnd;
      });
      if (bound) c.y = v;
    }
    if (!c.y || uses_var(taps, c.y)) return {};
    inner.push_back(c.y);
    inner.push_back(tap_y);
  }
  for (const Expr& v : p.vars) {
    if (!is_const_int(v->args[0], n)) return {};
    if (!same(v, c.x) && !(c.y && same(v, c.y))) c.outer.push_back(v);
  }
  if (c.outer.empty()) return {};
  is_const_int(c.x->args[0], c.results_x);
  if (c.y) is_const_int(c.y->args[0], c.results_y);

  // The conditions are the limits of a position along x and y.
  Exprs conditions;
  window::split_conditions(product->inside, conditions);
  Limits along_x, along_y;
  for (const Expr& b : conditions) {
    if (is_const(b, 1)) continue;
    const Expr e = window::not_negative(b);
    if (!e) return {};
    const bool of_y = c.y && uses_var(e, tap_y);
    const Expr &v = of_y ? c.y : c.x, &tap = of_y ? tap_y : tap_x;
    const std::int64_t step = step_of(e, v).value_or(0), tap_step = step_of(e, tap).value_or(0);
    std::int64_t rest = 0;
    if (!is_const_int(without(e, {v, tap}), rest) || step == 0 || (step > 0) != (tap_step > 0) || tap_step == 0)
      return {};
    if (of_y) {
      c.step_y = std::abs(step);
      c.tap_step_y = std::abs(tap_step);
    } else if (std::abs(step) != c.step_x || std::abs(tap_step) != 1) {
      return {};
    }
    Limits& limits = of_y ? along_y : along_x;
    (step > 0 ? limits.pad : limits.extent) = step > 0 ? -rest : rest + 1;
  }
  // A condition that always holds is none.
  if (along_x.pad < 0 || along_x.extent < 0 || (c.y && (along_y.pad < 0 || along_y.extent < 0))) return {};
  c.pad_x = along_x.pad;
  c.width = along_x.extent - c.pad_x;
  if (c.y) {
    c.pad_y = along_y.pad;
    c.height = along_y.extent - c.pad_y;
    const std::int64_t down = step_of(image, tap_y).value_or(0);
    c.row = down / c.tap_step_y;
    if (c.row * c.tap_step_y != down || step_of(image, c.y) != c.row * c.step_y || c.row < c.width) return {};
  }
  c.at = without(image, inner) + Expr(c.pad_x + c.pad_y * c.row);
  c.taps_at = without(taps, inner);
  if (!is_const_int(c.image->value->elements(), n) || n * 2 >= kMostBytes || c.width < kPack || c.results_x < kPack ||
      c.taps_x * c.taps_y < kLeastTaps)
    return {};
  for (const OutputLoop::Output& o : p.outputs)
    if (step_of(o.offset, c.x) != 1) return {};
  Exprs multiples;
  if (c.width % kPack == 0 && (c.row % kPack != 0 || !multiple_of(c.at, kPack, multiples) || !multiples.empty()))
    return {};
  plan_channel_windows(c);
  if (c.groups == 0) return {};
  return c;
}

// How many packs a lane has: loads are shared by neighbouring ones, but every SIMD should have a wave.
void GpuGenerator::plan_channel_windows(ChannelWindows& c) const {
  c.first = (kPack - c.pad_x % kPack) % kPack;
  const std::int64_t taps = ceil_div(c.first + (kPack - 1) * c.step_x + c.taps_x, kPack);
  const std::int64_t channels = window::known_product(c.outer), packs = ceil_div(c.results_x, kPack);
  const auto simds = static_cast<double>(std::max<std::int64_t>(1, least_threads_ / kWaveLanes));
  double least = std::numeric_limits<double>::infinity();
  c.groups = 0;
  if (c.taps_y * taps > kMostOperands) return;
  for (std::int64_t rows = 1; rows <= std::min(kMostGroups, c.results_y); ++rows)
    for (std::int64_t groups = 1; groups <= std::min(kMostGroups, packs) && groups * rows <= 2 * kMostGroups; ++groups) {
      const std::int64_t fours = (groups - 1) * c.step_x + taps, lead = (c.pad_x + c.first) / kPack;
      const std::int64_t lines = (rows - 1) * c.step_y + (c.taps_y - 1) * c.tap_step_y + 1;
      if (fours * lines > kMostLoaded) continue;
      const std::int64_t paired = c.width % kPack == 0 ? std::max<std::int64_t>(fours - lead, 0) / 2 : 0;
      const double waves = static_cast<double>(ceil_div(channels, kChannels) * ceil_div(ceil_div(packs, groups), kLanes) *
                                               ceil_div(c.results_y, rows)) /
                           simds;
      const auto loads = static_cast<double>(lines * (fours - paired) * kLoadCycles);
      const auto products =
          static_cast<double>(c.taps_y * taps * groups * rows * kMatrixCycles + c.taps_y * kTapCycles);
      const double cost = waves * loads + std::max(1.0, waves) * products;
      if (cost >= least) continue;
      least = cost;
      c.groups = groups;
      c.rows = rows;
    }
}

// Declares the sums of a lane's packs, vectors of four; returns the name of their array.
std::string GpuGenerator::channel_sums(const ChannelWindows& c, const std::string& unit, const std::string& first_row) {
  const std::string taps = emit_.fresh("w"), image = emit_.fresh("m"), sums = emit_.fresh("a");
  const char* type = storage_name(c.image->dtype);
  const bool whole = c.width % kPack == 0;
  emit_.line(fmt::format("WindowTaps<{}, {}, {}, {}> {};", c.taps_y, c.taps_x, c.step_x, c.first, taps));
  emit_.line(fmt::format("{}.load({} + {});", taps, emit_.buffer(c.taps->value), emit_.value(c.taps_at)));
  std::int64_t elements = 0;
  is_const_int(c.image->value->elements(), elements);
  emit_.line(fmt::format("const WindowImage<{}, {}, {}u> {} = {{{}, u32({}) * 2}};", type, whole, elements * 2, image,
                         emit_.buffer(c.image->value), emit_.value(c.at)));
  emit_.line(fmt::format("vec<f32, 4> {}[{}][{}] = {{}};", sums, c.rows, c.groups));
  emit_.line(fmt::format("add_windows<{}, {}, {}>({}, {}, {} * {} - {}, {}, {} * {} - {}, {}, {}, {});", c.step_y,
                         c.tap_step_y, (c.pad_x + c.first) / kPack, taps, image, unit, kPack * c.step_x,
                         c.pad_x + c.first, c.width, first_row, c.step_y, c.pad_y, c.height, c.row * 2, sums));
  return sums;
}

void GpuGenerator::channel_windows(const OutputLoop& p, const ChannelWindows& c) {
  const std::int64_t channels = window::known_product(c.outer), packs = ceil_div(c.results_x, kPack);
  const std::int64_t units = ceil_div(packs, c.groups);
  const std::int64_t quads = ceil_div(units, kLanes), tiles = ceil_div(c.results_y, c.rows);
  const std::int64_t items = ceil_div(channels, kChannels) * quads * tiles * kWaveLanes;
  threads_ = Expr(items);
  work_ = 0;
  for (const OutputLoop::Output& o : p.outputs) work_ = work_ + cost_of(o.body) * Expr(kPack * c.groups * c.rows);
  const std::string n = emit_.fresh("p"), q = emit_.fresh("q"), quad = emit_.fresh("o"), lane = emit_.fresh("o");
  const std::string row = emit_.fresh("i"), channel = emit_.fresh("q"), unit = emit_.fresh("i"), there = emit_.fresh("e");
  // Neighbouring workgroups read the same rows.
  emit_.open(fmt::format("for (u32 {0} = first_thread(); {0} < {1}u; {0} += thread_step<{1}>())",
                         n, items));
  emit_.line(fmt::format("i32 {} = i32(uniform({} / kWave));", q, n));
  emit_.line(fmt::format("const i32 {} = take_digit({}, {}), {} = thread_id() % kWave;", quad, q, quads, lane));
  emit_.line(fmt::format("const i32 {} = min(i32(take_digit({}, {})) * {}, {});", row, q, tiles, c.rows,
                         c.results_y - c.rows));
  emit_.line(fmt::format("i32 {} = min({} * {} + {} / 4, {});", channel, q, kChannels, lane, channels - 1));
  emit_.line(fmt::format("const i32 {}_of = min({} * {}, {}) + {} % 4;", unit, quad, kLanes,
                         std::max<std::int64_t>(units - kLanes, 0), lane));
  emit_.line(fmt::format("const bool {} = {} * {} + {} / 4 < {} && {}_of < {};", there, q, kChannels, lane, channels, unit, units));
  // The number of the lane's first pack; those of the last lane overlap with the ones before.
  emit_.line(fmt::format("const i32 {0} = min(min({0}_of, {1}) * {2}, {3});", unit, units - 1, c.groups,
                         packs - c.groups));
  decode(c.outer, channel, true);
  const std::string sums = channel_sums(c, unit, row);

  // Results where the row's end is no multiple of a pack.
  const std::int64_t odd = c.results_x % kPack;
  if (odd != 0) {
    const std::int64_t shared = kPack - odd;
    for (std::int64_t v = 0; v < c.rows; ++v) {
      const std::string own = fmt::format("{}[{}][{}]", sums, v, c.groups - 1);
      const std::string before = c.groups > 1 ? fmt::format("{}[{}][{}]", sums, v, c.groups - 2)
                                              : fmt::format("from_lane_before({})", own);
      emit_.line(fmt::format("{0} = moved_back<{1}>({0}, {2}, {3} == {4});", own, shared, before, unit,
                             packs - c.groups));
    }
  }
  emit_.open(fmt::format("if ({})", there));
  WindowTile w;
  w.length = kPack;
  w.inner = c.x;
  w.lane = loop_var(kPack);
  w.group = loop_var(packs - c.groups + 1);
  emit_.bind(w.group, unit);
  const Expr first_row = c.y ? loop_var(c.results_y - c.rows + 1) : Expr();
  if (c.y) emit_.bind(first_row, row);
  for (std::int64_t u = 0; u < c.groups; ++u) {
    const Expr pack = w.group + Expr(u);
    Expr x = pack * Expr(kPack);
    if (odd != 0 && u + 1 == c.groups) {
      const std::string name = emit_.fresh("i"), text = emit_.value(x);
      x = loop_var(c.results_x - kPack + 1);
      emit_.line(fmt::format("const i32 {} = min({}, {});", name, text, c.results_x - kPack));
      emit_.bind(x, name);
    }
    for (std::int64_t v = 0; v < c.rows; ++v) {
      Assignments at = {{c.x, x + w.lane}};
      if (c.y) at.emplace_back(c.y, first_row + Expr(v));
      window_outputs(p, at, w, {{substitute(c.reduction, at), fmt::format("{}[{}][{}][l]", sums, v, u)}});
    }
  }
  emit_.close();
  emit_.close();
  clear(p.vars);
}

}  // namespace sardonyx::codegen
