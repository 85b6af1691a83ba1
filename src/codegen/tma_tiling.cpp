// See tma_tiling.h.
#include "codegen/tma_tiling.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/contraction.h"
#include "codegen/loop_analysis.h"
#include "kernels/layout_gemm.h"

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 40;  // maps store strides in 40 bits
constexpr std::int64_t kAcrossLines = 64;                   // of 16 bits, copied at a time: 128 bytes
// Limits of im2col maps: strides up to 8, corners of windows from -128 to 127, offsets of taps up to 255.
constexpr std::int64_t kMostStride = 8, kMostReach = 120;
constexpr int kMostStages = 8;

bool fits(std::int64_t stride, std::int64_t vec) {
  return stride > 0 && stride < kMostBytes / 16 * vec && stride % vec == 0;
}

bool has_batches(const Expr& z) { return !is_const(z) && !is_const(z->args[0], 1); }

// The operand, if TMA supports its strides. `batched`: there are several matrices.
std::optional<CopiedOperand> finished(CopiedOperand o, bool batched, std::int64_t vec) {
  if (!batched) o.batch = 0;
  if (o.heads > 0 && (!fits(o.head, vec) || o.batch == 0)) return {};
  if (!fits(o.pitch, vec) || o.offset < 0 || o.offset % vec != 0 || (o.batch != 0 && !fits(o.batch, vec))) return {};
  return o;
}

// What the number of a batch is divided by in `offset`, if that is one number: heads, where they lie between tokens.
std::int64_t heads_in(const Expr& offset, const Expr& z) {
  std::int64_t heads = 0;
  bool one = true;
  visit(offset, [&](const Expr& x) {
    std::int64_t by = 0;
    if ((x->op != Op::kFloorDiv && x->op != Op::kMod) || !same(x->args[0], z) || !is_const_int(x->args[1], by)) return;
    one = one && by > 1 && (heads == 0 || heads == by);
    heads = by;
  });
  return one ? heads : 0;
}

// `at` is rest + step * `var`, with a step and, unless `var` is constant, without another `var` in the rest.
bool take_step(const Expr& var, Expr& at, std::int64_t& step) {
  Expr by = Expr(std::int64_t{0}), rest = at;
  if (!is_const(var) && !idx::split_affine(at, var, by, rest)) return false;
  at = rest;
  return is_const_int(by, step);
}

// Takes the steps from batch to batch out of `at`.
bool take_batches(const Expr& z, Expr& at, CopiedOperand& o) {
  o.heads = has_batches(z) ? heads_in(at, z) : 0;
  if (o.heads == 0) return take_step(z, at, o.batch);
  const Expr head = loop_var(o.heads), group = loop_var(idx::floordiv(z->args[0], o.heads));
  at = substitute(at, {{z, group * o.heads + head}});
  return take_step(head, at, o.head) && take_step(group, at, o.batch);
}

}  // namespace

std::optional<CopiedOperand> copied_operand(const Expr& offset, const Expr& z, const Expr& line, const Expr& index,
                                            std::int64_t vec, std::int64_t depth) {
  Expr rest = offset;
  std::int64_t along = 0;
  CopiedOperand o;
  if (!take_step(index, rest, along) || !take_step(line, rest, o.pitch) || !take_batches(z, rest, o) || along != vec ||
      !is_const_int(rest, o.offset) || o.pitch < depth)
    return {};
  return finished(o, has_batches(z), vec);
}

std::optional<CopiedOperand> copied_across(const Expr& offset, const Expr& z, const Expr& line, const Expr& index,
                                           const Expr& inner) {
  const bool batched = has_batches(z);
  CopiedOperand o;
  o.across = true;
  Expr at = offset, one = line, outer = z;
  if (inner) {
    if (batched || !is_const_int(inner, o.inner) || o.inner % kAcrossLines != 0) return {};
    one = loop_var(inner);
    outer = loop_var(idx::floordiv(line->args[0], inner));
    at = substitute(offset, {{line, outer * inner + one}});
  }
  std::int64_t along = 0;
  if (!take_step(one, at, along) || !take_step(index, at, o.pitch) ||
      !(inner ? take_step(outer, at, o.batch) : take_batches(z, at, o)) || along != 1 || !is_const_int(at, o.offset))
    return {};
  return finished(o, batched || o.inner > 0, 8);
}

std::optional<CopiedWindows> copied_windows(const Windows& w, std::int64_t vec) {
  const std::int64_t least = 4 * vec;  // channels: 64 bytes are loaded at a time, if not 128
  CopiedWindows o;
  Expr along, rest = w.offset;
  if (!is_const_int(w.channel->args[0], o.channels)) return {};
  for (const auto& [var, step] : {std::pair(&w.channel, &along), std::pair(&w.x, &o.pitches[0]),
                                  std::pair(&w.y, &o.pitches[1]), std::pair(&w.image, &o.pitch)}) {
    const Expr before = rest;
    if (!idx::split_affine(before, *var, *step, rest)) return {};
  }
  if (!is_const(along, 1)) return {};
  o.offset = rest;
  o.images = w.image->args[0];
  for (const std::size_t k : {0, 1}) {  // x, y of pairs of y and x
    const std::size_t of = 1 - k;
    o.sizes[k] = (k == 0 ? w.x : w.y)->args[0];
    o.out[k] = w.out[of];
    o.pads[k] = w.pads[of];
    o.strides[k] = w.strides[of];
    o.taps[k] = w.taps[of];
    const std::int64_t reach = (w.taps[of] - 1) * w.dilations[of];
    for (const Expr& e : {w.pads[of], w.pads_end[of]})
      if (std::int64_t pad = 0; !is_const_int(e, pad) || pad < 0 || pad > kMostReach) return {};
    if (o.strides[k] < 1 || o.strides[k] > kMostStride || reach + o.strides[k] > kMostReach) return {};
  }
  // Few channels: if neighbouring taps are contiguous, and a line has no padding, a line of taps becomes one tap.
  if (o.channels % least != 0 && is_const(o.pitches[0], o.channels) && w.dilations[1] == 1 && is_const(w.pads[1], 0) &&
      is_const(w.pads_end[1], 0)) {
    o.channels *= o.taps[0];
    o.taps[0] = 1;
    o.sizes[0] = (o.out[0] - Expr(1)) * Expr(o.strides[0]) + Expr(1);
  }
  if (o.channels % least != 0) return {};
  for (const Expr& e : o.pitches)
    if (divisor_of(e) % vec != 0) return {};
  if (divisor_of(o.pitch) % vec != 0 || divisor_of(o.offset) % vec != 0) return {};
  return o;
}

std::vector<KernelCandidate> tma_candidates(const Chip& chip, std::int64_t depth, bool full, bool whole, bool across,
                                            int bytes) {
  std::vector<KernelCandidate> all;
  const std::int64_t stage = sdx::layout::stage_depth(bytes), steps = (depth + stage - 1) / stage;
  if (!whole && depth < stage) return all;  // see kernels/gemm_tma.h
  struct Shape {
    int m, n;
    bool pingpong;
    int splits;
    float alone_start, alone, busy_start, busy;
  };
  // Fitted like those of gemm_families.cpp, to 80 problems (GEMMs of BERT-Base, ViT-B/16, Whisper and Llama, and
  // convolutions of ResNet-50): the chosen tilings are 0.6 % slower than the best on average, and at most 7 %. The
  // sixteenth was fitted to 60 GEMMs of 64 to 1024 rows and K up to 14336. There the choice is 3.6 % slower than the
  // best on average, and at most 23 % (without it 5.4 and 60 %). The last four were fitted to 15 GEMMs of 128 to 4096
  // rows, each with other weights in each launch, by the choices that they change. Among these, tiles of 256 rows and
  // clusters of more than 4 were never the best by more than 1 %, and multicast of b's tiles to two thread blocks was
  // slower.
  constexpr Shape kShapes[] = {
      {128, 128, true, 1, 4910, 8.59f, 2100, 3.96f},   {64, 256, true, 1, 4800, 4.84f, 2460, 4.79f},
      {64, 128, true, 1, 5630, 2.09f, 1270, 2.83f},    {64, 128, false, 1, 2300, 3.36f, 1630, 3.21f},
      {128, 64, true, 1, 4390, 2.93f, 1230, 4.03f},    {64, 64, true, 1, 2990, 1.57f, 589, 3.28f},
      {64, 64, false, 1, 5930, 1.29f, 490, 3.01f},     {64, 64, false, 2, 4020, 1.81f, 3700, 0.944f},
      {64, 64, false, 4, 1250, 1.75f, 3600, 0.901f},   {64, 128, false, 2, 5130, 0.713f, 3310, 1.6f},
      {128, 192, true, 1, 5320, 7.65f, 2920, 5.88f},   {64, 192, true, 1, 7450, 2.12f, 1500, 4.21f},
      {128, 192, false, 1, 4090, 1.43f, 3350, 7.21f},  {64, 256, false, 1, 2230, 4.65f, 3140, 4.48f},
      {128, 128, false, 1, 3290, 4.68f, 2730, 5.11f},  {64, 128, false, 4, 5780, 0.542f, 3290, 1.19f},
      {128, 128, false, 2, 5310, 0.844f, 6000, 1.99f}, {128, 128, false, 3, 5500, 0.9f, 5700, 1.33f},
      {128, 128, false, 4, 5520, 1.02f, 5650, 0.951f}, {128, 256, false, 1, 9000, 7.49f, 5680, 7.72f},
  };
  for (const Shape& s : kShapes) {
    // Each workgroup of a cluster needs a part of K.
    if (steps < s.splits || (s.splits > 1 && !whole)) continue;
    sdx::layout::TmaLayout l{s.m, s.n, s.pingpong, 0, s.splits};
    if (across && l.group_n() % kAcrossLines != 0) continue;  // 64 columns are the span of the swizzle
    // As many stages as fit, with 128 bytes to spare for alignment.
    l.stages = std::min(kMostStages, (chip.lds.per_workgroup - l.bytes(full) - 128) / l.step_bytes());
    if (s.splits > 1 && l.exchanged_bytes() > l.stages * l.stage_bytes()) continue;
    KernelCandidate& c = all.emplace_back();
    c.kernel = fmt::format("gemm_tma<TmaTiling<{}, {}, {}, {}, {}>>", s.m, s.n, s.pingpong, l.stages, s.splits);
    // Instructions multiply 32 bytes of K in the same time, whatever the type.
    const float each = static_cast<float>(bytes) / 2;
    c.tiling = {s.m, s.n, s.alone_start, each * s.alone, s.busy_start, each * s.busy};
    c.tiling.tma = true;
    c.tiling.cluster = s.splits;
    c.tiling.threads = l.threads();
    c.shared = static_cast<std::uint32_t>(l.bytes(full));
    c.bounds.threads = static_cast<std::uint32_t>(c.tiling.threads);
    if (s.splits > 1) c.bounds.cluster = static_cast<std::uint32_t>(s.splits);
  }
  return all;
}

namespace {

class TmaFamily : public ContractionFamily {
 public:
  // Copies of rows that are shorter than what is copied at a time take as long as whole ones: with K of 16 to 40 and
  // 40,000 to 172,000 rows of 16-bit values, gemm_wgmma took 0.73 to 0.92 of the best tiling's time on an H200, where
  // it loads vectors. Bytes stay here: only these kernels exchange rounded results packed.
  bool supports(const ContractionProblem& p) const override {
    const auto stage = static_cast<std::int64_t>(sdx::layout::stage_depth(static_cast<int>(size_of(p.type))));
    return p.tma && (p.depth == 0 || p.depth >= stage || size_of(p.type) == 1 || !p.vectors());
  }
  bool has_groups() const override { return true; }
  std::vector<KernelCandidate> candidates(const ContractionProblem& p) const override {
    return tma_candidates(p.chip, p.depth, p.full_columns, p.whole_stages, p.b == Access::kAcross,
                          static_cast<int>(size_of(p.type)));
  }
  KernelSpec emit(const ContractionText& text, const KernelCandidate& c) const override {
    return gemm_spec(fmt::format("{}{}(p, map_a, map_b);\n}}\n",
                                 text.begin("const TensorMap map_a, const TensorMap map_b, "), c.kernel),
                     c.bounds, c.shared);
  }
};

}  // namespace

const ContractionFamily& tma_family() {
  static const TmaFamily family;
  return family;
}

}  // namespace sardonyx::codegen
