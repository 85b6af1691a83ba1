// See tile_codegen.h.
#include "codegen/tile_codegen.h"

#include <algorithm>

#include "codegen/attention_codegen.h"
#include "codegen/contraction.h"
#include "codegen/contraction_source.h"
#include "codegen/emit.h"
#include "codegen/gpu_computed_input.h"
#include "codegen/kernel_family.h"
#include "codegen/loop_codegen.h"
#include "codegen/row_prologue.h"
#include "codegen/tile_operand.h"
#include "program/launch.h"
#include "support/error.h"
#include "target/chip.h"

namespace sardonyx::codegen {
namespace {

constexpr std::size_t kMaxEpilogueNodes = 400;  // larger ones spill registers
constexpr std::size_t kMaxBuffers = 48;         // of an epilogue; the runtime passes 64 pointers to a kernel at most

constexpr int kGroupColumns = 16;  // columns of a workgroup that reduces whole ones
constexpr int kManyUnits = 100;    // CDNA's: so many such workgroups leave most of them idle,
constexpr int kFewColumnGroups = 66;
constexpr int kFewOfUnits = 4;                // and on others as many as a quarter of the units
constexpr std::int64_t kMostOfColumn = 2048;  // elements that a team of threads keeps in registers (gpu_columns.cpp)

constexpr int kMostSplits = 8;
constexpr std::int64_t kLeastDepth = 256;  // elements along K per workgroup
// Elements along K, if workgroups divide it: the kernels count their steps of at least 16 elements in 24 bits.
constexpr std::int64_t kMostDivided = std::int64_t{1} << 27;

// The maximum number of workgroups that may divide the K of a tile; 1 without split-K.
int most_splits(const Contraction& c) {
  std::int64_t k = 0;
  if (!is_const_int(c.k(), k) || k > kMostDivided) return 1;
  const std::int64_t most = std::clamp<std::int64_t>(k / kLeastDepth, 1, kMostSplits);
  std::int64_t sums = 1;
  for (const Expr& e : {c.batches(), c.m(), c.n()}) {
    const std::int64_t least = smallest(e);
    if (least <= 0 || least > kMostPartialSums / sums) return 1;
    sums *= least;
  }
  return static_cast<int>(std::min(most, kMostPartialSums / sums));
}

// Elements of the partial sums of all splits, where split-K is possible.
Expr partial_sums(const Contraction& c, int most) {
  const Expr sums = c.batches() * c.m() * c.n();
  return select(compare(Op::kGt, sums * Expr(2), Expr(kMostPartialSums)), Expr(std::int64_t{0}),
                idx::min(sums * Expr(std::int64_t{most}), Expr(kMostPartialSums)));
}

// Numbers of splits for split-K in one launch.
constexpr int kTreeSplits[] = {2, 3, 4, 6, 8, 12, 16};
constexpr std::int64_t kLeastTreeDepth = 128;  // elements along K per workgroup
constexpr int kMostTreeRounds = 4;             // workgroups of such a launch for each compute unit

// Whether as many workgroups may divide the K of each tile: there are few tiles, at least for small symbols.
bool may_use_tree(const Contraction& c, const GpuTiling& t, int units) {
  std::int64_t k = 0;
  if (!is_const_int(c.k(), k) || k > kMostDivided || k / t.splits < kLeastTreeDepth) return false;
  const std::int64_t batches = smallest(c.batches()), m = smallest(c.m()), n = smallest(c.n());
  return batches > 0 && m > 0 && n > 0 && can_compute(t, batches, m, n) &&
         workgroups(t, batches, m, n) <= kMostTreeRounds * units;
}

// Elements of the sums of all workgroups, for sizes that this tiling supports.
Expr tree_workspace(const Contraction& c, const GpuTiling& t) {
  const Expr tiles = c.batches() * idx::ceildiv(c.m(), t.rows) * idx::ceildiv(c.n(), t.cols);
  const std::int64_t most = std::min(kMostTreeGroups, kMostTreeAcc / t.tree_acc) / t.splits;
  return select(compare(Op::kGt, tiles, Expr(most)), Expr(std::int64_t{0}),
                tiles * Expr(std::int64_t{t.tree_acc} * t.splits));
}

// Everything but sizes that affects a candidate's speed: types, how elements are loaded, how much the epilogue reads. A
// key of the tuning database.
std::string problem_of(const Contraction& c, const ContractionSource& s) {
  constexpr const char* kAccess[] = {"vector", "across", "elements"};
  const ContractionProblem& p = s.problem;
  return fmt::format("{} {} a={} b={} {} buffers={}",
                     c.end                              ? "groups"
                     : c.inside || c.reduced.size() > 1 ? "conv"
                                                        : "product",
                     name(c.type), kAccess[static_cast<int>(p.a)],
                     p.quantized ? fmt::format("{}bits", p.bits) : kAccess[static_cast<int>(p.b)],
                     p.full_columns ? "whole" : "ragged", s.buffers.size());
}

// Swaps rows and columns of a tall, thin result: kernels for few rows require a small M.
void turn(Contraction& c) {
  std::int64_t m = smallest(c.m()), n = 0;
  if (c.inside || c.pair || c.end || c.type == DType::kUInt8 || !is_const_int(c.n(), n) || n > 8 || m <= n) return;
  std::swap(c.a, c.b);
  std::swap(c.row, c.col);
  c.row_dims = {c.row->args[0]};
}

// Of an H200 in float32: 33 T operations and 4.8 TB a second. AMD's cards do more.
constexpr std::int64_t kOperationsPerByte = 7;

}  // namespace

namespace {

constexpr std::int64_t kShortSum = 1024;  // terms

// Whether a GEMM has one column of results: short sums, each of a row. A loop divides a wave among several rows, and
// fuses with the loops around it.
bool sums_rows(const Node& n) {
  const auto* m = n.as<MatMulOp>();
  std::int64_t terms = 0;
  return m && !m->end && is_float(n.outputs[0]->dtype) && is_const(m->vars.back()->args[0], 1) &&
         !is_const(m->vars[m->vars.size() - 2]->args[0], 1) && is_const_int(m->k->args[0], terms) && terms <= kShortSum;
}

}  // namespace

bool gpu_takes_tile(const TileKernel& kernel, std::string& why) {
  if (sums_rows(*kernel.node)) {
    why = "with one column of results it is a sum of each row";
    return false;
  }
  if (!is_contraction(*kernel.node, why)) return false;
  if (!kernel.epilogue) return true;
  std::size_t nodes = 0;
  visit(kernel.epilogue, [&](const Expr&) { ++nodes; });
  if (kernel.epilogue->has_reduce || nodes > kMaxEpilogueNodes || loads_of(kernel.epilogue).size() > kMaxBuffers)
    why = "the epilogue is too large for one kernel";
  return why.empty();
}

DType float8_products_of(std::string_view arch) {
  for (const DType t : {DType::kFloat8E4M3FNUZ, DType::kFloat8E4M3FN})
    if (chip_of(arch).matrix(t)) return t;
  return DType::kFloat32;
}

FuseOptions gpu_fuse_options(std::string_view arch) {
  FuseOptions o;
  o.float8_tiles = float8_products_of(arch);
  o.attention_expressions = true;
  o.accepts_epilogue = [](const TileKernel& k, std::string& why) {
    if (k.node->as<AttentionOp>()) return gpu_takes_attention(k, why);
    return gpu_takes_tile(k, why);
  };
  o.accepts_tile = [](const Node& n, std::string& why) {
    if (n.outputs.empty()) return false;
    TileKernel t;
    t.node = const_cast<Node*>(&n);
    t.out = n.outputs[0];
    if (n.as<AttentionOp>()) return gpu_takes_attention(t, why);
    return gpu_takes_tile(t, why);
  };
  o.computes_input = gpu_computes_input;
  o.integer_tiles = true;
  o.integer_unsigned = chip_of(arch).policy.unsigned_int8;
  o.prologues = true;
  o.gated_gemm = true;
  o.contiguous_k = true;
  o.epilogues_in_any_order = true;
  o.operands_in_any_order = true;
  o.lazy_selections = true;
  o.operations_per_byte = kOperationsPerByte;
  o.split_reductions = true;
  o.long_rows = chip_of(arch).policy.long_rows;
  o.row_bytes = std::int64_t{kGpuThreads} * chip_of(arch).policy.row_bytes;
  o.column_length = chip_of(arch).policy.any_address ? kMostOfColumn : 0;
  const Chip& chip = chip_of(arch);
  if (chip.policy.any_address) {
    const int units = driver_units(chip);
    o.few_columns_length = kMostOfColumn;
    o.few_columns = kGroupColumns * (units >= kManyUnits ? kFewColumnGroups : units / kFewOfUnits);
  }
  o.cache_bytes = last_cache_bytes(chip_of(arch));
  o.fill_channels = true;
  o.fold_outputs = chip_of(arch).has(Feature::kTensorCopy);
  o.tensor_copy = o.fold_outputs;
  o.short_vectors = chip_of(arch).policy.short_vectors;
  o.merge_groups = true;
  o.sampled_operands = true;
  o.pad_gemm_k = true;
  o.hoist_elementwise = true;
  o.separate_windows = 64;
  o.conv_by_taps = true;
  o.channel_order = true;
  o.subpixel_convolution = chip_of(arch).policy.subpixel_convolution;
  o.row_groups = true;
  o.transpose_gemm = true;
  o.untranspose = true;
  o.shrink_repeats = true;
  return o;
}

namespace {

struct Offer {
  const ContractionFamily* family;
  KernelCandidate candidate;
};

std::vector<Offer> offers(const Contraction& c, const ContractionProblem& p, int most_splits) {
  std::vector<Offer> all;
  for (const ContractionFamily* f : contraction_families())
    if (f->supports(p) && (!p.groups || f->has_groups()))
      for (KernelCandidate& x : f->candidates(p)) all.push_back({f, std::move(x)});
  if (p.groups) {  // workgroups do not divide K
    all.erase(std::remove_if(all.begin(), all.end(), [](const Offer& o) { return o.candidate.tiling.cluster > 1; }),
              all.end());
    for (Offer& o : all) o.candidate.tiling.groups = true;
    return all;
  }
  for (std::size_t k = 0, plain = all.size(); k < plain; ++k) {
    if (all[k].candidate.tree_acc > 0) {
      for (const int splits : kTreeSplits) {
        Offer o = all[k];
        o.candidate.tiling.splits = splits;
        o.candidate.tiling.tree_acc = o.candidate.tree_acc;
        if (o.candidate.may_split && may_use_tree(c, o.candidate.tiling, driver_units(p.chip)))
          all.push_back(std::move(o));
      }
      continue;
    }
    for (int splits = 2; splits <= most_splits && all[k].candidate.may_split; splits *= 2) {
      all.push_back(all[k]);
      all.back().candidate.tiling.splits = splits;
      all.back().candidate.tiling.finish = p.chip.policy.finish;
    }
  }
  return all;
}

// If a tile's kernel for split-K in one launch is compiled anyway, it also computes whole tiles: one kernel less.
void reuse_tree_kernels(std::vector<Offer>& all, const std::vector<bool>& wanted) {
  for (Offer& o : all) {
    KernelCandidate& c = o.candidate;
    if (c.tree_acc == 0 || c.tiling.splits > 1) continue;
    for (std::size_t k = 0; k < all.size(); ++k)
      if (wanted[k] && all[k].candidate.tiling.tree_acc > 0 && all[k].candidate.kernel == c.kernel)
        c.tiling.tree_acc = c.tree_acc;
  }
}

// For split-K: the launch that adds up the partial sums.
GpuChoice::Launch finish_launch(GpuTileSource& g, const ContractionSource& s, const Contraction& c, int most,
                                std::size_t& kernel) {
  if (!g.partial) {
    g.partial = partial_sums(c, most);
    kernel = g.kernels.size();
    g.kernels.push_back(gemm_spec(s.text.begin_split_k() + "gemm_finish(p, parts, u32(splits));\n}\n"));
  }
  return {kernel, c.batches() * c.m() * idx::ceildiv(c.n(), kGpuFinish), {}, true};
}

GpuTileSource choice_of(const Contraction& c, ContractionSource&& s, std::string_view arch,
                        const TileSelection& selection) {
  GpuTileSource g;
  g.buffers = s.buffers;
  g.symbols = s.symbols;
  const std::size_t sizes = g.symbols.size();
  for (const Expr& x : size_arguments(c)) g.symbols.push_back(x);
  g.copied = s.copied;
  g.type = c.type;
  g.work = 2 * (c.end ? Expr(1) : c.batches()) * c.m() * c.n() * c.k();
  const int most = most_splits(c);
  std::vector<Offer> all = offers(c, s.problem, most);
  Choice choice{problem_of(c, s), c.batches(), c.m(), c.n(), c.k(), {}, {}};
  for (const Offer& o : all) choice.candidates.push_back({o.candidate.name(), {}, {}, {o.candidate.tiling}});
  std::vector<bool> wanted;
  if (s.problem.computed_rows > 0) {  // the kernel supports so many rows only
    Choice known = choice;
    known.m = Expr(std::int64_t{s.problem.computed_rows});
    wanted = select_candidates(known, {}, arch);
  } else {
    wanted = select_candidates(choice, selection, arch);
  }
  // If the number of rows is unknown, at least one candidate must support any number.
  const auto general = [](const Candidate& x) { return !x.tiling[0].few_rows && x.tiling[0].splits == 1; };
  bool any = is_const(c.m()) || s.problem.computed_rows > 0;
  for (std::size_t k = 0; k < all.size(); ++k) any = any || (wanted[k] && general(choice.candidates[k]));
  if (!any) wanted[0] = true;
  reuse_tree_kernels(all, wanted);
  std::size_t finish = 0;
  std::vector<Candidate> candidates;
  for (std::size_t k = 0; k < all.size(); ++k) {
    if (!wanted[k]) continue;
    const GpuTiling& tiling = all[k].candidate.tiling;
    const std::int32_t splits = tiling.splits;
    std::vector<GpuChoice::Launch>& launches = g.launches.emplace_back();
    launches.push_back({g.kernels.size(), {}, {}, splits > 1 || tiling.tree_acc > 0});
    g.kernels.push_back(all[k].family->emit(s.text, all[k].candidate));
    if (tiling.tree_acc > 0) {
      if (splits > 1) {
        const Expr sums = tree_workspace(c, tiling);
        g.partial = g.partial ? idx::max(g.partial, sums) : sums;
      }
      launches.back().symbols = g.symbols;
      launches.back().symbols[sizes] = c.m() + Expr(std::int64_t{splits} << 32);
    } else if (splits > 1) {
      launches.push_back(finish_launch(g, s, c, most, finish));
      for (GpuChoice::Launch& l : launches) l.more = {Expr(std::int64_t{splits})};
    }
    candidates.push_back(std::move(choice.candidates[k]));
    candidates.back().tiling = {tiling};
  }
  choice.candidates = std::move(candidates);
  g.choice = std::move(choice);
  g.unpack = std::move(s.unpack);
  return g;
}

}  // namespace

GpuTileSource generate_gpu_tile(const TileKernel& kernel, std::string_view arch, const TileSelection& selection) {
  Value accumulator;
  Contraction c = contraction_of(kernel, accumulator);
  turn(c);
  return choice_of(c, contraction_source(c, accumulator, arch, selection), arch, selection);
}

std::optional<GpuRowTile> generate_gpu_row_tile(const TileKernel& kernel, const LoopKernel& rows, std::string_view arch,
                                                const TileSelection& selection) {
  Value accumulator;
  const Contraction c = contraction_of(kernel, accumulator);
  std::int64_t depth = 0;
  if (!skinny_supports(chip_of(arch), c.type) || c.inside || c.end || !is_const(c.batches(), 1)) return {};
  const auto prologue = row_prologue(c, rows);
  if (!prologue || !is_const_int(c.k(), depth) || !is_const(c.n())) return {};
  // More rows would cost every workgroup more than the saved launch (measured on an H200).
  constexpr int height = 1;
  if (height * depth * 2 > sdx::layout::kSkinnyRowBytes) return {};
  ContractionSource source = contraction_source(c, accumulator, arch, selection, &*prologue, height);
  GpuRowTile out{choice_of(c, std::move(source), arch, {}), c.m(), height};
  if (out.source.kernels.size() != 1) return {};
  // The step runs for so many rows only, so no candidate for more is needed.
  out.source.choice.candidates[0].tiling[0].few_rows = false;
  return out;
}

std::optional<GpuUnpackedTile> generate_gpu_unpacked_tile(const TileKernel& kernel, std::string_view arch,
                                                          const TileSelection& selection) {
  Value accumulator;
  Contraction c = contraction_of(kernel, accumulator);
  std::int64_t m = 0, n = 0, k = 0;
  if (c.end || !quantized_operand(c) || Operand(c, false).access() != Access::kElements ||
      Operand(c, true).access() != Access::kVector || !is_const(c.batches(), 1) || !is_const_int(c.n(), n) ||
      !is_const_int(c.k(), k))
    return {};
  GpuUnpackedTile out;
  out.kept = selection.unpacked && selection.loaded;
  visit(c.b, [&](const Expr& x) { out.kept = out.kept && (x->op != Op::kLoad || selection.loaded(x->value)); });
  ContractionSource direct = contraction_source(c, accumulator, arch, {});
  // With fewer rows, dequantising the weights in each tile of rows takes less time.
  const std::int64_t above = packed_supports(direct.problem) && !out.kept ? 128 : 64;
  if (is_const_int(c.m(), m) && m <= above) return {};
  out.unpack = std::move(direct.unpack);
  const int each = direct.problem.chip.policy.unpacked_each;
  out.threads = Expr((n * k / 8 + each - 1) / each);
  out.buffers = std::move(direct.buffers);
  out.symbols = std::move(direct.symbols);
  for (const Expr& x : size_arguments(c)) out.symbols.push_back(x);
  out.rows = c.m();
  out.unpacked = std::make_shared<Value>();
  out.unpacked->dtype = c.type;
  out.unpacked->shape = {c.n(), c.k()};
  out.above = above;
  TileSelection own = selection;
  if (out.kept) {
    Stage& s = out.elements.stages.emplace_back();
    s.out = out.unpacked.get();
    s.index = s.inner = {c.col, c.reduced[0]};
    s.body = c.b;
    own.loaded = [&](const Value* v) { return v == out.unpacked.get() || selection.loaded(v); };
  }
  c.b = load(out.unpacked.get(), c.type, {c.col, c.reduced[0]});
  out.source = choice_of(c, contraction_source(c, accumulator, arch, own), arch, own);
  return out;
}

}  // namespace sardonyx::codegen
