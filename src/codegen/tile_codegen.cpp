// See tile_codegen.h.
#include "codegen/tile_codegen.h"

#include <algorithm>
#include <unordered_set>

#include "codegen/attention_codegen.h"
#include "codegen/contraction.h"
#include "codegen/emit.h"
#include "codegen/loop_analysis.h"
#include "codegen/loop_codegen.h"
#include "codegen/row_prologue.h"
#include "codegen/stream_tiling.h"
#include "codegen/tile_candidates.h"
#include "codegen/tile_operand.h"
#include "kernels/layout_gemm.h"
#include "support/error.h"
#include "target/chip.h"

namespace sardonyx::codegen {
namespace {

constexpr std::size_t kMaxEpilogueNodes = 400;  // larger ones spill registers
constexpr std::size_t kMaxBuffers = 48;
// Bytes that an epilogue reads for a result before it has the sum. A thread has up to 32 results at a time, mostly of
// the same eight columns.
constexpr std::size_t kMostRead = 4, kMostColumnsRead = 8;

bool has_var(const Expr& e, const Expr& var) {
  if (!e) return false;
  bool found = false;
  visit(e, [&](const Expr& x) { found |= x->op == Op::kVar && x->i == var->i; });
  return found;
}

// What becomes of a sum. What that reads is read by a function of its own, as far as it fits into registers; returns
// the declaration of the struct that holds it. `fetches`: for kernels/gemm_tma.h, which asks before for what is in
// rows.
std::string epilogue(Emitter& e, const Contraction& c, const Value& accumulator, bool fetches) {
  const auto begin = [&](const std::string& head) {
    e.open(head);
    for (const auto& [var, n] :
         {std::pair(c.z, "z"), std::pair(c.row, "row"), std::pair(c.pair ? c.pair : c.col, "col")}) {
      if (is_const(var)) continue;
      const std::string i = e.fresh("i");
      e.line(fmt::format("const i64 {} = {};", i, n));
      e.bind(var, i);
    }
  };
  const Expr result = flatten_loads(c.result);
  Exprs loads;
  std::size_t room = kMostRead, columns_room = kMostColumnsRead;
  std::unordered_set<Expr, ExprHash, ExprSame> seen;
  if (!c.pair)
    certain_parts(result, [&](const Expr& x) {
      if (!seen.insert(x).second) return false;
      if (x->op != Op::kLoad || x->value == &accumulator || x->args[0]->has_load || !has_var(x->args[0], c.col))
        return true;
      std::size_t& left = has_var(x->args[0], c.row) ? room : columns_room;
      if (size_of(x->dtype) > left) return true;
      left -= size_of(x->dtype);
      loads.push_back(x);
      return true;
    });
  const auto by_row = [&](const Expr& x) { return has_var(x->args[0], c.row); };
  if (fetches && std::any_of(loads.begin(), loads.end(), by_row)) {
    begin("SDX_FN void fetch_early(u32 z, u32 row, u32 col) const");
    for (const Expr& x : loads) {
      if (!by_row(x)) continue;
      const std::string at = e.value(x->args[0]);
      e.line(fmt::format("fetch_to_l2({} + {});", e.buffer(x->value), at));
    }
    e.close();
  }
  const std::string sum = type_name(accumulator.dtype);
  std::string members;
  if (!loads.empty()) {
    begin("SDX_FN void read(u32 z, u32 row, u32 col, Read& r) const");
    for (std::size_t k = 0; k < loads.size(); ++k) {
      const std::string x = e.value(loads[k]);
      e.line(fmt::format("r.r{} = {};", k, x));
      members += fmt::format(" {} r{};", e.type_of(loads[k]), k);
    }
    e.close();
    e.open(fmt::format("SDX_FN void element(u32 z, u32 row, u32 col, {} sum) const", sum));
    e.line("Read r;");
    e.line("read(z, row, col, r);");
    e.line("element(z, row, col, sum, r);");
    e.close();
  }
  begin(c.pair ? fmt::format("SDX_FN void pair(u32 z, u32 row, u32 col, {0} sum, {0} next) const", sum)
               : fmt::format("SDX_FN void element(u32 z, u32 row, u32 col, {} sum{}) const", sum,
                             loads.empty() ? "" : ", const Read& r"));
  for (std::size_t k = 0; k < loads.size(); ++k) e.bind_value(loads[k], fmt::format("r.r{}", k));
  e.bind_local(&accumulator, "sum");
  if (c.second) e.bind_local(c.second.get(), "next");
  const std::string x = e.value(result), at = e.value(storage_offset(*c.out, c.out_index));
  e.line(fmt::format("{}[{}] = {};", e.buffer(c.out), at, x));
  e.close();
  return loads.empty() ? "" : fmt::format("  struct Read {{{} }};\n", members);
}

// Where in its image the window of a row begins, and how the k's go through the taps: see kernels/gemm_tma.h.
void emit_windows(Emitter& e, const Contraction& c, const CopiedWindows& copied) {
  const Windows& w = *c.windows;
  e.line(fmt::format("enum : u32 {{ kChannels = {}, kTapsX = {}, kTapsY = {}, kTapX = {}, kTapY = {} }};",
                     copied.channels, copied.taps[0], copied.taps[1], w.dilations[1], w.dilations[0]));
  e.open("SDX_FN void window(u32 row, i32& image, i32& y, i32& x) const");
  if (!is_const(c.row)) {
    const std::string i = e.fresh("i");
    e.line(fmt::format("const i64 {} = row;", i));
    e.bind(c.row, i);
  }
  const Exprs at = idx::delinearize(c.row, {w.image->args[0], w.out[0], w.out[1]});
  e.line(fmt::format("image = i32({});", e.value(at[0])));
  e.line(fmt::format("y = i32({});", e.value(at[1] * w.strides[0] - w.pads[0])));
  e.line(fmt::format("x = i32({});", e.value(at[2] * w.strides[1] - w.pads[1])));
  e.close();
}

std::int64_t smallest(const Expr& e) {
  // Sizes that are symbols may be as small as 1.
  SymbolValues one;
  visit(e, [&](const Expr& x) {
    if (x->op == Op::kSym) one.set(static_cast<int>(x->i), 1);
  });
  try {
    return evaluate(e, one);
  } catch (const Error&) {
    return 1;
  }
}

// Nanoseconds that the launch takes that adds up what workgroups have shared, but for its sums (AMD's launches are
// taken to be slower).
constexpr float kFinishOnNvidia = 3400, kFinishElsewhere = 6000;
constexpr int kMostShares = 8;
constexpr std::int64_t kLeastShare = 256;  // k's

// The most workgroups that may share the k's of a tile; 1 where nothing is shared.
int most_shares(const Contraction& c) {
  std::int64_t k = 0;
  if (!is_const_int(c.k(), k)) return 1;
  const std::int64_t most = std::clamp<std::int64_t>(k / kLeastShare, 1, kMostShares);
  std::int64_t sums = 1;
  for (const Expr& e : {c.batches(), c.m(), c.n()}) {
    const std::int64_t least = smallest(e);
    if (least <= 0 || least > kMostPartialSums / sums) return 1;
    sums *= least;
  }
  return static_cast<int>(std::min(most, kMostPartialSums / sums));
}

// Room for the sums of all shares where sharing is possible.
Expr partial_sums(const Contraction& c, int most) {
  const Expr sums = c.batches() * c.m() * c.n();
  return select(compare(Op::kGt, sums * Expr(2), Expr(kMostPartialSums)), Expr(std::int64_t{0}),
                idx::min(sums * Expr(std::int64_t{most}), Expr(kMostPartialSums)));
}

// Whether kernels/skinny.h supports this target and data type.
bool has_skinny(std::string_view arch, const Contraction& c) {
  return size_of(c.type) == 2 && chip_of(arch).matrix(c.type) && !c.inside;
}

// What decides about the speed of a candidate besides sizes: types, how elements are fetched, how much the epilogue
// reads.
std::string problem_of(const Contraction& c, Access a, Access b, int bits, bool full, std::size_t buffers) {
  constexpr const char* kAccess[] = {"vector", "across", "elements"};
  return fmt::format("{} {} a={} b={} {} buffers={}", c.inside || c.reduced.size() > 1 ? "conv" : "product",
                     name(c.type), kAccess[static_cast<int>(a)],
                     bits ? fmt::format("{}bits", bits) : kAccess[static_cast<int>(b)], full ? "whole" : "ragged",
                     buffers);
}

// Of what was measured, what can be of use: sizes that these can be, by candidates there are. These are wanted; if the
// sizes are known and one of them is it, nothing else is.
std::vector<TunedSize> tuned_sizes(const GpuTileSource& g, const std::vector<Candidate>& candidates,
                                   const std::vector<TunedSize>& measured, std::vector<bool>& wanted) {
  const auto may_be = [](const Expr& e, std::int64_t size) {
    std::int64_t known = 0;
    return !is_const_int(e, known) || known == size;
  };
  std::vector<TunedSize> out;
  for (const TunedSize& t : measured) {
    if (!may_be(g.batches, t.batches) || !may_be(g.m, t.m) || !may_be(g.n, t.n) || !may_be(g.k, t.k)) continue;
    const auto faster = [&](const TunedSize& x) {
      return x.batches == t.batches && x.m == t.m && x.n == t.n && x.k == t.k;
    };
    if (std::any_of(out.begin(), out.end(), faster)) continue;
    for (std::size_t k = 0; k < candidates.size(); ++k) {
      const GpuTiling& tiling = candidates[k].tiling;
      if (candidates[k].name() != t.candidate || !can_compute(tiling, t.batches, t.m, t.n)) continue;
      std::int64_t known = 0;
      if (is_const_int(g.batches, known) && is_const_int(g.m, known) && is_const_int(g.n, known) &&
          is_const_int(g.k, known))
        wanted.assign(wanted.size(), false);
      wanted[k] = true;
      out.push_back(t);
    }
  }
  return out;
}

// A tall thin result is a flat one turned: rows are what there are few of.
void turn(Contraction& c) {
  std::int64_t m = smallest(c.m()), n = 0;
  if (c.inside || c.pair || !is_const_int(c.n(), n) || n > 8 || m <= n) return;
  std::swap(c.a, c.b);
  std::swap(c.row, c.col);
  c.row_dims = {c.row->args[0]};
}

}  // namespace

bool gpu_takes_tile(const TileKernel& kernel, std::string& why) {
  if (!is_contraction(*kernel.node, why)) return false;
  if (!kernel.epilogue) return true;
  std::size_t nodes = 0;
  visit(kernel.epilogue, [&](const Expr&) { ++nodes; });
  if (kernel.epilogue->has_reduce || nodes > kMaxEpilogueNodes || loads_of(kernel.epilogue).size() > kMaxBuffers)
    why = "too much behind a product for one kernel";
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
  o.integer_tiles = true;
  o.prologues = true;
  o.pair_products = true;
  o.contiguous_sums = true;
  o.epilogues_in_any_order = true;
  o.lazy_selections = true;
  o.split_reductions = true;
  o.fill_channels = true;
  o.shrink_repeats = true;
  return o;
}

namespace {

KernelSpec gemm_spec(std::string body, const LaunchBounds& bounds = {}, std::uint32_t shared_bytes = 0) {
  KernelSpec s;
  s.family = KernelFamily::kGemm;
  s.body = std::move(body);
  s.bounds = bounds;
  s.shared_bytes = shared_bytes;
  return s;
}

// With `rows`, only what has its rows made in the kernel, so many for a workgroup.
GpuTileSource generate(const Contraction& c, const Value& accumulator, std::string_view arch,
                       const TileSelection& selection, const RowPrologue* rows, int row_height) {
  std::string text;
  Emitter e(text);
  e.plain_reductions = true;
  e.for_halves = c.out->dtype == DType::kFloat16 || c.out->dtype == DType::kBFloat16;
  const Operand a(c, true), b(c, false);
  if (rows)
    emit_row_prologue(e, c, *rows);
  else
    a.emit(e);
  b.emit(e);
  std::int64_t columns = 0, deep = 0;
  const Chip& chip = chip_of(arch);
  const bool streams = chip.has(Feature::kTensorCopy) && size_of(c.type) == 2 && is_const(c.batches(), 1) &&
                       !c.inside && is_const_int(c.n(), columns) && is_const_int(c.k(), deep) &&
                       a.access() != Access::kAcross && smallest(c.m()) <= 1 && b.streams(selection.loaded);
  if (streams) b.emit_stream(e);
  const std::string row = streams && rows ? emit_streamed_row(e, c, *rows, selection.loaded) : "";
  const bool copy_engine = chip.has(Feature::kTensorCopy) && !rows;
  const std::string reads = epilogue(e, c, accumulator, copy_engine);
  const std::optional<CopiedOperand> copied_a = copy_engine ? a.copied() : std::nullopt,
                                     copied_b = copy_engine ? b.copied() : std::nullopt;
  std::optional<CopiedWindows> windows;
  if (copied_b && !copied_a && a.access() == Access::kVector && c.windows) windows = copied_windows(*c.windows);
  if (windows) emit_windows(e, c, *windows);

  std::string head = "(", sizes, members, values;
  for (std::size_t k = 0; k < e.buffers.size(); ++k) {
    const Value* v = e.buffers[k];
    const std::string type = fmt::format("{}{}*", v == c.out ? "" : "const ", storage_name(v->dtype));
    head += fmt::format("{} __restrict b{}, ", type, k);
    members += fmt::format("  {} b{};\n", type, k);
    values += fmt::format(", ({})__builtin_assume_aligned(b{}, 16)", type, k);
  }
  for (std::size_t k = 0; k < e.symbols.size(); ++k) {
    sizes += fmt::format("i64 s{}, ", k);
    members += fmt::format("  i64 s{};\n", k);
    values += fmt::format(", s{}", k);
  }
  if (streams) {
    std::string behind;
    for (std::size_t k = 0; k < e.buffers.size(); ++k) behind += fmt::format("p.b{0} = after_wait(b{0}); ", k);
    text += fmt::format("SDX_FN P behind_wait() const {{ P p = *this; {}return p; }}\n", behind);
  }
  GpuTileSource g;
  std::int64_t n = 0;
  const bool full = is_const_int(c.n(), n) && n % 8 == 0;
  std::int64_t depth = 0;
  if (!is_const_int(c.k(), depth)) depth = 0;
  const QuantizedOperand plain{.bits = 16}, &q = b.quantized() ? *b.quantized() : plain;
  const std::string problem = fmt::format(
      "struct P : Problem<{}, {}, {}, {}, {}, {}, {}, {}, {}> {{\n{}{}{}}};\n"
      "const P p{{{{u32(batches), u32(m), u32(n), u32(k)}}{}}};\n",
      type_name(c.type), name_of(a.access()), name_of(b.access()), full, q.bits, q.is_signed, q.float_zeros,
      static_cast<bool>(c.pair), row_height, members, reads + row, text, values);
  sizes += "i64 batches, i64 m, i64 n, i64 k";
  const std::string body = fmt::format("{}{}) {{\n{}", head, sizes, problem),
                    shared = fmt::format("{}void* __restrict parts, {}, i64 shares) {{\n{}", head, sizes, problem);
  g.buffers = e.buffers;
  g.symbols = e.symbols;
  if (b.quantized())
    g.unpack = gemm_spec(fmt::format("{}{}* __restrict unpacked, {}) {{\n{}unpack_columns(p, unpacked);\n}}\n", head,
                                     type_name(c.type), sizes, problem));
  g.batches = c.batches();
  g.m = c.m();
  g.n = c.n();
  g.k = c.k();
  const bool gemv = a.access() != Access::kAcross && b.access() != Access::kAcross && smallest(g.m) <= 4 && !c.inside;
  // Columns enough for a wave, of 16-bit floats or what becomes them.
  const bool skinny = a.access() != Access::kAcross && (b.access() == Access::kVector || b.quantized()) &&
                      has_skinny(arch, c) && smallest(g.m) <= 16;
  std::vector<Candidate> candidates =
      candidates_for(arch, c.type, a.access() == Access::kVector && b.access() == Access::kVector,
                     gemv && !b.quantized(), skinny ? q.bits : 0, static_cast<bool>(c.pair), depth);
  if (copied_b && (copied_a || windows)) {
    const auto number = [&](const Value* v) {
      return static_cast<std::int32_t>(std::find(g.buffers.begin(), g.buffers.end(), v) - g.buffers.begin());
    };
    g.copied_a = {number(a.in_memory()), copied_a.value_or(CopiedOperand{})};
    g.copied_b = {number(b.in_memory()), *copied_b};
    g.windows = windows;
    const bool whole = !windows || windows->channels % 64 == 0 || depth % 64 == 0;
    for (TmaCandidate& t : tma_candidates(depth, full, whole))
      candidates.push_back({std::move(t.kernel), t.tiling, t.shared, false, t.bounds});
  }
  const int most = most_shares(c);
  for (std::size_t k = 0, all = candidates.size(); k < all; ++k)
    for (int shares = 2; shares <= most && candidates[k].may_share; shares *= 2) {
      candidates.push_back(candidates[k]);
      candidates.back().tiling.shares = shares;
      candidates.back().tiling.finish = chip.is_nvidia() ? kFinishOnNvidia : kFinishElsewhere;
    }
  std::optional<StreamCandidate> streamed;
  if (streams && (!rows || (row_height == 1 && !row.empty())))
    streamed =
        stream_candidate({q.bits, c.type == DType::kFloat16, b.runs_of_scale(), columns, deep, b.scales_follow()});
  if (rows) {
    candidates.clear();
    if (!streamed && (b.access() == Access::kVector || b.quantized()))
      add_skinny(candidates, arch, q.bits, depth, 8, row_height, true);
  }
  if (streamed) candidates.push_back({streamed->kernel, streamed->tiling, streamed->shared, false, streamed->bounds});
  for (const Candidate& x : candidates) g.tilings.push_back(x.tiling);
  // Known sizes need one tiling; for others those stay that some size prefers.
  std::vector<bool> wanted(candidates.size(), false);
  if (rows && !candidates.empty() && is_const_int(g.n, n))
    wanted[choose_tiling(g.tilings, 1, 1, n, depth, driver_units(chip))] = true;
  for (std::int64_t scale = 1; scale <= (1 << 20) && !rows; scale *= 2) {
    SymbolValues s;
    for (const Expr* x : {&g.batches, &g.m, &g.n, &g.k})
      visit(*x, [&](const Expr& y) {
        if (y->op == Op::kSym) s.set(static_cast<int>(y->i), scale);
      });
    try {
      wanted[choose_tiling(g.tilings, evaluate(g.batches, s), evaluate(g.m, s), evaluate(g.n, s), evaluate(g.k, s),
                           driver_units(chip))] = true;
    } catch (const Error&) {
      break;  // sizes beyond what can be counted
    }
  }
  g.problem = problem_of(c, a.access(), b.access(), b.quantized() ? b.quantized()->bits : 0, full, g.buffers.size());
  if (selection.choices) g.tuned = tuned_sizes(g, candidates, selection.choices->find(arch, g.problem), wanted);
  if (selection.all) wanted.assign(candidates.size(), true);
  std::int64_t m = 0;
  const bool any_rows = !is_const_int(g.m, m);
  bool general = false;
  for (std::size_t k = 0; k < candidates.size(); ++k)
    general |= wanted[k] && !candidates[k].tiling.few_rows && candidates[k].tiling.shares == 1;
  if (any_rows && !general && !rows) wanted[0] = true;
  g.tilings.clear();
  const auto add = [&](const Candidate& x, std::string text) {
    g.kernels.push_back({gemm_spec(std::move(text), x.bounds, x.shared), x.name()});
  };
  for (std::size_t k = 0; k < candidates.size(); ++k) {
    if (!wanted[k]) continue;
    const Candidate& x = candidates[k];
    g.tilings.push_back(x.tiling);
    if (x.tiling.copies) {
      add(x, fmt::format("(const TensorMap map_a, const TensorMap map_b, {}{}(p, map_a, map_b);\n}}\n", body.substr(1),
                         x.kernel));
      continue;
    }
    if (x.tiling.shares == 1) {
      add(x, body + x.kernel + "(p);\n}\n");
      continue;
    }
    add(x, shared + "share_k(p, parts, u32(shares), [](const auto& q) { " + x.kernel + "(q); });\n}\n");
    g.partial = partial_sums(c, most);
    g.finish = gemm_spec(shared + "gemm_finish(p, parts, u32(shares));\n}\n");
  }
  return g;
}

}  // namespace

GpuTileSource generate_gpu_tile(const TileKernel& kernel, std::string_view arch, const TileSelection& selection) {
  Value accumulator;
  Contraction c = contraction_of(kernel, accumulator);
  turn(c);
  return generate(c, accumulator, arch, selection, nullptr, 0);
}

std::optional<GpuRowTile> generate_gpu_row_tile(const TileKernel& kernel, const LoopKernel& rows, std::string_view arch,
                                                const TileSelection& selection) {
  Value accumulator;
  const Contraction c = contraction_of(kernel, accumulator);
  std::int64_t depth = 0;
  if (!has_skinny(arch, c) || !is_const(c.batches(), 1)) return {};
  const auto prologue = row_prologue(c, rows);
  if (!prologue || !is_const_int(c.k(), depth)) return {};
  // More rows at a time cost every workgroup more than the launch that they save (measured on an H200).
  constexpr int height = 1;
  if (height * depth * 2 > sdx::layout::kSkinnyRowBytes) return {};
  TileSelection own;
  own.loaded = selection.loaded;
  GpuRowTile out{generate(c, accumulator, arch, own, &*prologue, height), height};
  if (out.source.kernels.size() != 1) return {};
  // It is launched for so many rows only; what counts as a tiling of few rows needs another beside it.
  out.source.tilings[0].few_rows = false;
  return out;
}

std::optional<GpuUnpackedTile> generate_gpu_unpacked_tile(const TileKernel& kernel, std::string_view arch,
                                                          const TileSelection& selection) {
  // With fewer rows, reading the weights as they are and unpacking them once for each tile of rows takes less time.
  constexpr std::int64_t kAbove = 64;
  Value accumulator;
  Contraction c = contraction_of(kernel, accumulator);
  std::int64_t m = 0, n = 0, k = 0;
  if (!quantized_operand(c) || Operand(c, false).access() != Access::kElements ||
      Operand(c, true).access() != Access::kVector || !is_const(c.batches(), 1) || !is_const_int(c.n(), n) ||
      !is_const_int(c.k(), k) || (is_const_int(c.m(), m) && m <= kAbove))
    return {};
  GpuTileSource direct = generate(c, accumulator, arch, {}, nullptr, 0);
  GpuUnpackedTile out;
  out.unpack = std::move(direct.unpack);
  out.threads = Expr(n * k / 8);
  out.buffers = std::move(direct.buffers);
  out.symbols = std::move(direct.symbols);
  for (const Expr& x : {direct.batches, direct.m, direct.n, direct.k}) out.symbols.push_back(x);
  out.unpacked = std::make_shared<Value>();
  out.unpacked->dtype = c.type;
  out.unpacked->shape = {c.n(), c.k()};
  out.above = kAbove;
  c.b = load(out.unpacked.get(), c.type, {c.col, c.reduced[0]});
  out.source = generate(c, accumulator, arch, selection, nullptr, 0);
  return out;
}

}  // namespace sardonyx::codegen
