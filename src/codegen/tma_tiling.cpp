// See tma_tiling.h.
#include "codegen/tma_tiling.h"

#include <fmt/format.h>

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kStep = 64;                                // k's of a stage
constexpr std::int64_t kMostPitch = (std::int64_t{1} << 40) / 2;  // in elements: maps count bytes in 40 bits
constexpr std::int64_t kVector = 8;                               // elements of 16 bytes
constexpr int kMostSums = 128 * 128;                              // of a group
constexpr std::int64_t kStore = 8 * 16 * (64 + 4) * 4;            // bytes of LDS by which eight waves store their sums

bool fits(std::int64_t stride) { return stride > 0 && stride < kMostPitch && stride % kVector == 0; }

}  // namespace

std::optional<CopiedOperand> copied_operand(const Expr& offset, const Expr& z, const Expr& line, const Expr& index,
                                            std::int64_t vec, std::int64_t depth) {
  Expr along, pitch, batch, rest = offset;
  for (const auto& [var, step] : {std::pair(&index, &along), std::pair(&line, &pitch), std::pair(&z, &batch)}) {
    Expr before = rest;
    if (is_const(*var))
      *step = Expr(std::int64_t{0});
    else if (!idx::split_affine(before, *var, *step, rest))
      return {};
  }
  CopiedOperand o;
  if (!is_const(along, vec) || !is_const_int(pitch, o.pitch) || !is_const_int(batch, o.batch) ||
      !is_const_int(rest, o.offset))
    return {};
  const bool batched = !is_const(z) && !is_const(z->args[0], 1);
  if (!fits(o.pitch) || o.pitch < depth || o.offset < 0 || o.offset % kVector != 0 || (batched && !fits(o.batch)))
    return {};
  if (!batched) o.batch = 0;
  return o;
}

std::vector<TmaCandidate> tma_candidates(std::int64_t depth) {
  std::vector<TmaCandidate> all;
  const std::int64_t steps = (depth + kStep - 1) / kStep;
  struct Shape {
    int m, n;
    bool turns;
    int stages, shares;
    float alone_start, alone, busy_start, busy;
  };
  // Fitted as those of tile_codegen.cpp, to 20 products of BERT-Base, ViT-B/16, Whisper and Llama.
  constexpr Shape kShapes[] = {
      {128, 192, true, 4, 1, 6000, 6.1f, 2280, 7.95f}, {128, 128, true, 5, 1, 6990, 1.2f, 2180, 5.2f},
      {64, 192, true, 5, 1, 7090, 0.1f, 1010, 5.05f},  {64, 128, false, 7, 1, 3340, 2.9f, 1680, 3.05f},
      {64, 64, false, 8, 1, 3000, 2.6f, 820, 2.65f},   {64, 64, false, 8, 2, 3330, 1.5f, 2820, 1.55f},
      {64, 64, false, 8, 4, 3930, 1.0f, 3590, 0.8f},
  };
  for (const Shape& s : kShapes) {
    // Workgroups that share the k's each have some of them.
    if (steps < s.shares) continue;
    TmaCandidate c;
    c.kernel = fmt::format("gemm_tma<TmaTiling<{}, {}, {}, {}, {}>>", s.m, s.n, s.turns, s.stages, s.shares);
    c.tiling = {s.m, s.n, s.alone_start, s.alone, s.busy_start, s.busy};
    c.tiling.copies = true;
    c.tiling.cluster = s.shares;
    // As in kernels/gemm_tma.h: of more sums, those who copy must give up registers, which four waves do.
    const int sums = s.turns ? s.m * s.n : s.m * s.n / 2;
    c.tiling.threads = sums > kMostSums ? 384 : 288;
    c.shared = static_cast<std::uint32_t>((s.stages * ((s.m + s.n) * kStep * 2 + 16) + 127) / 128 * 128 + kStore);
    c.bounds = fmt::format(".maxntid {}", c.tiling.threads);
    if (s.shares > 1) c.bounds += fmt::format(" .explicitcluster .reqnctapercluster {}, 1, 1", s.shares);
    all.push_back(std::move(c));
  }
  return all;
}

}  // namespace sardonyx::codegen
