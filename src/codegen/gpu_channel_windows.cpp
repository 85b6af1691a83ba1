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

constexpr int kPack = 4;                // K of the instruction, and its rows: results of a lane
constexpr std::int64_t kChannels = 16;  // blocks of the instruction
constexpr std::int64_t kTogether = 32;  // channels of a wave, if they are last
constexpr int kEight = 8;               // that a lane loads and stores together
constexpr std::int64_t kLanes = 4;      // of a channel
constexpr std::int64_t kWaveLanes = kChannels * kLanes;
// Of a window; with fewer, vector arithmetic is as fast. Packs of one dim share loads there.
constexpr std::int64_t kLeastTaps = 16, kLeastTapsOfOneDim = 32;
constexpr std::int64_t kMostOperands = 64;                  // of taps, two registers each
constexpr std::int64_t kMostLoaded = 56;                    // of the image, two registers each
constexpr std::int64_t kMostGroups = 8;                     // packs of a lane: their sums take four registers each
constexpr std::int64_t kMostBytes = std::int64_t{1} << 31;  // of an image, whose offsets have 32 bits
constexpr int kBytes = 2;                                   // of an element
constexpr std::int64_t kUnknownImages = 4;
constexpr std::int64_t kMostPasses = 2;
constexpr std::int64_t kSlots = 16;  // groups of four pixels that a wave loads at a time
// Cycles of a SIMD for an instruction, and for a row of taps; for a load and an access to LDS beside those of the other
// SIMDs.
constexpr std::int64_t kMatrixCycles = 8, kTapCycles = 100, kLoadCycles = 64, kMoveCycles = 16;

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

// Whether bytes of a tensor are numbered with 32 bits. `range`: a copy, as a limit counts only where windows are taken.
bool has_short_offsets(const Value& v, IndexRange range) {
  std::int64_t n = 0;
  return is_const_int(v.elements(), n) ? n * kBytes < kMostBytes : range.narrow(v.elements() * Expr(kBytes));
}

// A product of extents; of an unknown number of images, a few.
std::int64_t assumed_product(const Exprs& vars) {
  std::int64_t all = 1, n = 0;
  for (const Expr& v : vars) all *= is_const_int(v->args[0], n) ? n : kUnknownImages;
  return all;
}

Expr product_of_extents(const Exprs& vars) {
  Expr n = 1;
  for (const Expr& v : vars) n = n * v->args[0];
  return n;
}

// Limits of positions along one dim: pad elements are before the first one.
struct Limits {
  std::int64_t pad = -1, extent = -1;
};

}  // namespace

// Finds the variables along which windows slide: a condition has one of the results and one of the taps.
void GpuGenerator::find_window_variables(const OutputLoop& p, const Expr& inside, ChannelWindows& c) {
  const Exprs& taps = c.reduction->vars;
  for (const Expr& v : p.vars) {
    bool of_x = false, of_y = false;
    visit(inside, [&](const Expr& x) {
      if (x->args.size() != 2 || x->op == Op::kAnd || !uses_var(x, v)) return;
      of_x |= uses_var(x, taps.back());
      of_y |= taps.size() == 2 && uses_var(x, taps[0]);
    });
    if (of_x && !of_y)
      c.x = v;
    else if (of_y && !of_x)
      c.y = v;
    else if (same(v, p.vars.back()))
      c.channel = v;
    else
      c.outer.push_back(v);
  }
}

// The conditions are the limits of a position along x and y.
bool GpuGenerator::find_window_limits(const Expr& inside, ChannelWindows& c) {
  const Exprs& taps = c.reduction->vars;
  Exprs conditions;
  window::split_conditions(inside, conditions);
  Limits along_x, along_y;
  for (const Expr& b : conditions) {
    if (is_const(b, 1)) continue;
    const Expr e = window::not_negative(b);
    if (!e) return false;
    const bool of_y = c.y && uses_var(e, taps[0]);
    const Expr &v = of_y ? c.y : c.x, &tap = of_y ? taps[0] : taps.back();
    const std::int64_t step = step_of(e, v).value_or(0), tap_step = step_of(e, tap).value_or(0);
    std::int64_t rest = 0;
    if (!is_const_int(without(e, {v, tap}), rest) || step == 0 || tap_step == 0 || (step > 0) != (tap_step > 0))
      return false;
    (of_y ? c.step_y : c.step_x) = std::abs(step);
    if (of_y)
      c.tap_step_y = std::abs(tap_step);
    else if (std::abs(tap_step) != 1)
      return false;
    Limits& limits = of_y ? along_y : along_x;
    (step > 0 ? limits.pad : limits.extent) = step > 0 ? -rest : rest + 1;
  }
  // A condition that always holds is none.
  if (along_x.pad < 0 || along_x.extent < 0 || (c.y && (along_y.pad < 0 || along_y.extent < 0))) return false;
  c.pad_x = along_x.pad;
  c.width = along_x.extent - c.pad_x;
  if (!c.y) return true;
  c.pad_y = along_y.pad;
  c.height = along_y.extent - c.pad_y;
  return true;
}

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
  find_window_variables(p, product->inside, c);
  if (!c.x || (tap_y && !c.y) || !find_window_limits(product->inside, c)) return {};
  if (!is_const_int(c.x->args[0], c.results_x) || (c.y && !is_const_int(c.y->args[0], c.results_y)) ||
      (c.channel && !is_const_int(c.channel->args[0], c.channels)))
    return {};
  c.image = product->left, c.taps = product->right;
  if (uses_var(c.taps->args[0], c.x)) std::swap(c.image, c.taps);
  const DType t = c.image->dtype;
  if ((t != DType::kFloat16 && t != DType::kBFloat16) || c.taps->dtype != t || c.step_x > 2 || c.width < kPack ||
      c.results_x < kPack || c.taps_x * c.taps_y < (c.y || c.channel ? kLeastTaps : kLeastTapsOfOneDim))
    return {};
  return has_window_strides(p, c) && has_short_offsets(*c.image->value, range_) ? std::optional(c) : std::nullopt;
}

// Whether pixels, rows and taps lie as the kernel reads them.
bool GpuGenerator::has_window_strides(const OutputLoop& p, ChannelWindows& c) const {
  const Expr &image = c.image->args[0], &taps = c.taps->args[0];
  if (image->has_load || taps->has_load || uses_var(taps, c.x) || (c.y && uses_var(taps, c.y))) return false;
  const Expr tap_x = c.reduction->vars.back(), tap_y = c.y ? c.reduction->vars[0] : Expr();
  Exprs inner = {c.x, tap_x}, conditions;
  c.pixel = step_of(image, tap_x).value_or(0);
  c.tap = step_of(taps, tap_x).value_or(0);
  if (c.pixel < 1 || step_of(image, c.x) != c.pixel * c.step_x) return false;
  if (c.y) {
    inner.push_back(c.y);
    inner.push_back(tap_y);
    const std::int64_t down = step_of(image, tap_y).value_or(0);
    c.row = down / c.tap_step_y;
    if (c.row * c.tap_step_y != down || step_of(image, c.y) != c.row * c.step_y || c.row < c.width * c.pixel ||
        step_of(taps, tap_y) != c.taps_x * c.tap)
      return false;
  }
  c.at = without(image, inner) + Expr(c.pad_x * c.pixel + c.pad_y * c.row);
  c.taps_at = without(taps, inner);
  const Expr& last = c.channel ? c.channel : c.x;
  for (const OutputLoop::Output& o : p.outputs)
    if (step_of(o.offset, last) != 1) return false;
  if (c.channel) {
    const Expr at = substitute(c.at, {{c.channel, loop_var(c.channels / kEight) * Expr(kEight)}});
    if (c.channels % kEight != 0 || c.pixel % kEight != 0 || c.row % kEight != 0 || step_of(image, c.channel) != 1 ||
        step_of(taps, c.channel) != 1 || !multiple_of(at, kEight, conditions) || !conditions.empty())
      return false;
  } else if (c.pixel != 1 || c.tap != 1 || c.outer.empty() ||
             (c.width % kPack == 0 &&
              (c.row % kPack != 0 || !multiple_of(c.at, kPack, conditions) || !conditions.empty()))) {
    return false;
  }
  plan_channel_windows(c);
  return c.groups > 0;
}

// How many packs a lane has: loads are shared by neighbouring ones, but every SIMD should have a wave.
void GpuGenerator::plan_channel_windows(ChannelWindows& c) const {
  const std::int64_t each = c.channel ? 2 : 1;  // channels of a lane
  if (!c.channel) c.first = (kPack - c.pad_x % kPack) % kPack;
  const std::int64_t taps = ceil_div(c.first + (kPack - 1) * c.step_x + c.taps_x, kPack);
  const std::int64_t packs = ceil_div(c.results_x, kPack), most = kMostGroups / each;
  const std::int64_t blocks = c.channel ? assumed_product(c.outer) * ceil_div(c.channels, kTogether)
                                        : ceil_div(assumed_product(c.outer), kChannels);
  const auto simds = static_cast<double>(std::max<std::int64_t>(1, least_threads_ / kWaveLanes));
  double least = std::numeric_limits<double>::infinity();
  c.groups = 0;
  if (each * c.taps_y * taps > kMostOperands) return;
  for (std::int64_t rows = 1; rows <= std::min(most, c.results_y); ++rows)
    for (std::int64_t groups = 1; groups <= std::min(most, packs) && groups * rows <= 2 * most / each; ++groups) {
      const std::int64_t fours = (groups - 1) * c.step_x + taps, lead = (c.pad_x + c.first) / kPack;
      const std::int64_t lines = (rows - 1) * c.step_y + (c.taps_y - 1) * c.tap_step_y + 1;
      const double waves =
          static_cast<double>(blocks * ceil_div(ceil_div(packs, groups), kLanes) * ceil_div(c.results_y, rows)) / simds;
      std::int64_t loads = 0, moves = 0;  // of 8 or 16 bytes a lane; to and from LDS
      if (c.channel) {
        const std::int64_t across = (kLanes - 1) * groups * c.step_x + fours;
        if (across > kSlots * (lines == 1 && (kLanes - 1) * c.step_x + taps > kSlots ? kMostPasses : 1)) continue;
        loads = kPack * (across > kSlots ? ceil_div(across, kSlots) : ceil_div(lines, kSlots / across));
        moves = 2 * loads + 2 * lines * fours;
        if (2 * loads > kMostLoaded) continue;
      } else {
        if (fours * lines > kMostLoaded) continue;
        loads = lines * (fours - (c.width % kPack == 0 ? std::max<std::int64_t>(fours - lead, 0) / 2 : 0));
      }
      const auto products = static_cast<double>(each * c.taps_y * (taps * groups * rows * kMatrixCycles + kTapCycles));
      const double cost =
          waves * static_cast<double>(loads * kLoadCycles + moves * kMoveCycles) + std::max(1.0, waves) * products;
      if (cost >= least) continue;
      least = cost;
      c.groups = groups;
      c.rows = rows;
    }
}

// Declares the sums of a lane, packs of its channel or of a pixel; returns the name of their array.
std::string GpuGenerator::channel_sums(const ChannelWindows& c, const std::string& unit, const std::string& first_row) {
  const std::string taps = emit_.fresh("w"), image = emit_.fresh("m"), sums = emit_.fresh("a");
  const char* type = storage_name(c.image->dtype);
  const std::string bytes = fmt::format("u32({})", emit_.value(c.image->value->elements() * Expr(kBytes)));
  const std::string at = emit_.value(c.at), buffer = emit_.buffer(c.image->value);
  const std::string taps_at = emit_.buffer(c.taps->value) + " + " + emit_.value(c.taps_at);
  const std::string array = fmt::format("[{}][{}]", c.rows, c.groups);
  const std::string place = fmt::format("{} * {} - {}, {}, {} * {} - {}, {}, {}", unit, kPack * c.step_x,
                                        c.pad_x + c.first, c.width, first_row, c.step_y, c.pad_y, c.height, c.row * 2);
  if (!c.channel) {
    emit_.line(fmt::format("WindowTaps<{}, {}, {}, {}> {};", c.taps_y, c.taps_x, c.step_x, c.first, taps));
    emit_.line(fmt::format("{}.load({});", taps, taps_at));
    emit_.line(fmt::format("const WindowImage<{}, {}> {} = {{{}, u32({}) * 2, {}}};", type, c.width % kPack == 0, image,
                           buffer, at, bytes));
    emit_.line(fmt::format("vec<f32, 4> {}{} = {{}};", sums, array));
    emit_.line(fmt::format("add_windows<{}, {}, {}>({}, {}, {}, {});", c.step_y, c.tap_step_y,
                           (c.pad_x + c.first) / kPack, taps, image, place, sums));
    return sums;
  }
  const std::int64_t taps_along = ceil_div((kPack - 1) * c.step_x + c.taps_x, kPack);
  const std::int64_t passes = ceil_div(((kLanes - 1) * c.groups + c.groups - 1) * c.step_x + taps_along, kSlots);
  emit_.line(fmt::format("ChannelsLast<{}, {}, {}, {}, {}, {}> {}({}, {} - {});", c.tap, passes, type, c.taps_y,
                         c.taps_x, c.step_x, taps, taps_at, c.channels, emit_.value(c.channel)));
  emit_.line(fmt::format("vec<f32, 4> {}_of[2]{} = {{}};", sums, array));
  emit_.line(fmt::format("{}.add_windows<{}, {}, {}>({}, {}, u32({}) * 2, {}, {}_of);", taps, c.step_y, c.tap_step_y,
                         c.pixel * 2, buffer, bytes, at, place, sums));
  emit_.line(fmt::format("f32 {}{}[8];", sums, array));
  emit_.line(fmt::format("{0}.exchange({1}_of, {1});", taps, sums));
  return sums;
}

void GpuGenerator::channel_windows(const OutputLoop& p, const ChannelWindows& c) {
  const std::int64_t units = ceil_div(ceil_div(c.results_x, kPack), c.groups);
  const std::int64_t quads = ceil_div(units, kLanes), tiles = ceil_div(c.results_y, c.rows);
  const std::int64_t blocks = c.channel ? ceil_div(c.channels, kTogether) : 1;
  const Expr outer = product_of_extents(c.outer);
  const Expr items =
      Expr(blocks * quads * tiles * kWaveLanes) * (c.channel ? outer : idx::ceildiv(outer, Expr(kChannels)));
  threads_ = items;
  range_.narrow(c.image->value->elements() * Expr(kBytes));
  work_ = 0;
  for (const OutputLoop::Output& o : p.outputs) work_ = work_ + cost_of(o.body) * Expr(kPack * c.groups * c.rows);
  const std::string n = emit_.fresh("p"), q = emit_.fresh("q"), lane = emit_.fresh("o"), quad = emit_.fresh("o");
  const std::string row = emit_.fresh("i"), block = emit_.fresh("o");
  std::int64_t known = 0;
  const bool sizes = is_const_int(items, known);
  const std::string step = sizes ? fmt::format("thread_step<{}>()", known) : "all_threads()";
  const std::string first =
      c.channel && sizes ? fmt::format("block_of_die<{}>() * kThreads + thread_id()", ceil_div(known, kGpuThreads))
                         : std::string("first_thread()");
  emit_.open(
      fmt::format("for (u32 {0} = u32({2}); {0} < u32({1}); {0} += u32({3}))", n, emit_.value(items), first, step));
  emit_.line(fmt::format("const i32 {} = i32({} % kWave);", lane, n));
  emit_.line(fmt::format("i32 {} = i32(uniform({} / kWave));", q, n));
  // Neighbouring waves have what shares lines of memory.
  emit_.line(fmt::format("const i32 {} = take_digit({}, {});", block, q, blocks));
  emit_.line(fmt::format("const i32 {} = take_digit({}, {});", quad, q, quads));
  emit_.line(
      fmt::format("const i32 {} = min(take_digit({}, {}) * {}, {});", row, q, tiles, c.rows, c.results_y - c.rows));
  if (c.channel) {
    decode(c.outer, q, true);
    pixel_windows(p, c, block, quad, row, lane);
  } else {
    row_windows(p, c, q, quad, row, lane);
  }
  emit_.close();
  clear(p.vars);
}

std::vector<GpuGenerator::Fetched> GpuGenerator::fetch_of_channels(const OutputLoop& p, const ChannelWindows& c,
                                                                   const WindowTile& w, const Assignments& at) {
  std::vector<Fetched> fetched;
  for (const OutputLoop::Output& o : p.outputs)
    certain_loads(o.body, [&](const Expr& l) {
      if (!l->args[0]->has_load && !uses_var(l, c.x) && !(c.y && uses_var(l, c.y)))
        fetch(substitute(l, at), nullptr, w, fetched);
    });
  return fetched;
}

// Lanes with packs along a row.
void GpuGenerator::row_windows(const OutputLoop& p, const ChannelWindows& c, const std::string& q,
                               const std::string& quad, const std::string& row, const std::string& lane) {
  const std::int64_t packs = ceil_div(c.results_x, kPack), units = ceil_div(packs, c.groups);
  const std::int64_t odd = c.results_x % kPack;
  const std::string outer = fmt::format("i32({})", emit_.value(product_of_extents(c.outer)));
  const std::string there = emit_.fresh("e"), unit = emit_.fresh("i");
  emit_.line(fmt::format("const i32 {}_of = min({} * {}, {}) + {} % 4;", unit, quad, kLanes,
                         std::max<std::int64_t>(units - kLanes, 0), lane));
  emit_.line(fmt::format("{0} = {0} * {1} + {2} / 4;", q, kChannels, lane));
  emit_.line(fmt::format("const bool {} = {} < {} && {}_of < {};", there, q, outer, unit, units));
  emit_.line(fmt::format("{0} = min({0}, {1} - 1);", q, outer));
  // The number of the lane's first pack; those of the last lane overlap with the ones before.
  emit_.line(
      fmt::format("const i32 {0} = min(min({0}_of, {1}) * {2}, {3});", unit, units - 1, c.groups, packs - c.groups));
  decode(c.outer, q, true);
  WindowTile w;
  w.length = kPack;
  w.inner = c.x;
  w.lane = loop_var(kPack);
  const std::vector<Fetched> fetched = fetch_of_channels(p, c, w, {});
  const std::string sums = channel_sums(c, unit, row);
  // Results where the row's end is no multiple of a pack.
  for (std::int64_t v = 0; odd != 0 && v < c.rows; ++v) {
    const std::string own = fmt::format("{}[{}][{}]", sums, v, c.groups - 1);
    const std::string before =
        c.groups > 1 ? fmt::format("{}[{}][{}]", sums, v, c.groups - 2) : fmt::format("from_lane_before({})", own);
    emit_.line(
        fmt::format("{0} = moved_back<{1}>({0}, {2}, {3} == {4});", own, kPack - odd, before, unit, packs - c.groups));
  }
  emit_.open(fmt::format("if ({})", there));
  const Expr first = loop_var(packs - c.groups + 1), first_row = c.y ? loop_var(c.results_y - c.rows + 1) : Expr();
  emit_.bind(first, unit);
  if (c.y) emit_.bind(first_row, row);
  for (std::int64_t u = 0; u < c.groups; ++u) {
    Expr x = (first + Expr(u)) * Expr(kPack);
    if (odd != 0 && u + 1 == c.groups) {
      const std::string name = emit_.fresh("i"), text = emit_.value(x);
      x = loop_var(c.results_x - kPack + 1);
      emit_.line(fmt::format("const i32 {} = min({}, {});", name, text, c.results_x - kPack));
      emit_.bind(x, name);
    }
    for (std::int64_t v = 0; v < c.rows; ++v) {
      Assignments at = {{c.x, x + w.lane}};
      if (c.y) at.emplace_back(c.y, first_row + Expr(v));
      window_outputs(p, at, w, {{substitute(c.reduction, at), fmt::format("{}[{}][{}][l]", sums, v, u)}}, fetched);
    }
  }
  emit_.close();
}

// Lanes with eight channels of pixels.
void GpuGenerator::pixel_windows(const OutputLoop& p, const ChannelWindows& c, const std::string& block,
                                 const std::string& quad, const std::string& row, const std::string& lane) {
  const std::string channel = emit_.fresh("i"), name = emit_.fresh("i"), unit = emit_.fresh("i");
  emit_.line(
      fmt::format("const i32 {} = {} * {}, {} = {} * {};", channel, block, kTogether, unit, quad, kLanes * c.groups));
  // The last lanes of an image with few channels repeat others, and store nothing.
  emit_.line(fmt::format("const i32 {0}_of = {1} / {2} + {3} % 4, {0} = min({0}_of, {4});", name, channel, kEight, lane,
                         c.channels / kEight - 1));
  WindowTile w;
  w.length = kEight;
  w.inner = c.channel;
  w.lane = loop_var(kEight);
  const Expr eight = loop_var(c.channels / kEight), first_row = c.y ? loop_var(c.results_y - c.rows + 1) : Expr();
  emit_.bind(eight, name);
  emit_.bind(c.channel, channel);
  if (c.y) emit_.bind(first_row, row);
  const Assignments to = {{c.channel, eight * Expr(kEight) + w.lane}};
  const std::vector<Fetched> fetched = fetch_of_channels(p, c, w, to);
  const std::string sums = channel_sums(c, unit, row);
  for (std::int64_t u = 0; u < c.groups; ++u) {
    const Expr x = loop_var(c.results_x);
    const std::string pixel = emit_.fresh("i");
    emit_.line(
        fmt::format("const i32 {} = ({} + {} / 16 * {} + {}) * 4 + {} / 4 % 4;", pixel, unit, lane, c.groups, u, lane));
    emit_.bind(x, pixel);
    emit_.open(fmt::format("if ({0}_of == {0} && {1} < {2})", name, pixel, c.results_x));
    for (std::int64_t v = 0; v < c.rows; ++v) {
      Assignments at = to;
      at.emplace_back(c.x, x);
      if (c.y) at.emplace_back(c.y, first_row + Expr(v));
      window_outputs(p, at, w, {{substitute(c.reduction, at), fmt::format("{}[{}][{}][l]", sums, v, u)}}, fetched);
    }
    emit_.close();
  }
}

}  // namespace sardonyx::codegen
