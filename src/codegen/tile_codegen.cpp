// See tile_codegen.h.
#include "codegen/tile_codegen.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "codegen/attention_codegen.h"
#include "codegen/contraction.h"
#include "codegen/emit.h"
#include "codegen/loop_analysis.h"
#include "codegen/loop_codegen.h"
#include "codegen/quantized_operand.h"
#include "codegen/row_prologue.h"
#include "support/error.h"

namespace sardonyx::codegen {
namespace {

constexpr std::size_t kMaxEpilogueNodes = 400;  // larger ones spill registers
constexpr std::size_t kMaxBuffers = 48;
// Bytes that an epilogue reads for a result before it has the sum. A thread has up to 32 results at a time, mostly of
// the same eight columns.
constexpr std::size_t kMostRead = 4, kMostColumnsRead = 8;

bool divisible(const Expr& e, std::int64_t by) { return divisor_of(e) % by == 0; }

bool has_var(const Expr& e, const Expr& var) {
  if (!e) return false;
  bool found = false;
  visit(e, [&](const Expr& x) { found |= x->op == Op::kVar && x->i == var->i; });
  return found;
}

enum class Access { kVector, kAcross, kElements };
const char* name_of(Access a) {
  return a == Access::kVector ? "Access::kVector" : a == Access::kAcross ? "Access::kAcross" : "Access::kElements";
}

// One operand as its functions in the struct.
class Operand {
 public:
  Operand(const Contraction& c, bool is_a)
      : c_(c), is_a_(is_a), line_(is_a ? c.row : c.col), e_(is_a ? c.a : c.b), inside_(is_a ? c.inside : Expr()) {
    vec_ = 16 / static_cast<std::int64_t>(size_of(c.type));
    if (try_vector())
      access_ = Access::kVector;
    else if (try_across())
      access_ = Access::kAcross;
    else if (!is_a)
      quantized_ = quantized_operand(c);
  }
  Access access() const { return access_; }
  /// Weights of few bits in blocks; access() is kElements then.
  const std::optional<QuantizedOperand>& quantized() const { return quantized_; }

  /// In memory, if that is all it is and it is such as the copy engine of Hopper takes.
  std::optional<CopiedOperand> copied() const {
    std::int64_t depth = 0;
    if (access_ != Access::kVector || where_ || size_of(c_.type) != 2 || !is_const_int(c_.k(), depth)) return {};
    return copied_operand(offset_, c_.z, line_, index_, vec_, depth);
  }
  const Value* in_memory() const { return e_->value; }

  void emit(Emitter& e) const {
    const char* f = is_a_ ? "a" : "b";
    if (quantized_) return blocks(e, *quantized_);
    if (access_ == Access::kElements) return elements(e);
    e.open(fmt::format("SDX_FN const T* {}(u32 z, u32 line, u32 at, bool& inside) const", f));
    bind(e, c_.z, "z");
    bind(e, line_, "line");
    if (access_ == Access::kVector)
      bind(e, index_, fmt::format("at / {}", vec_));
    else
      bind(e, index_, "at");
    const std::string offset = e.value(offset_);
    if (where_) {
      const std::string in = e.value(where_);
      e.line(fmt::format("inside = inside && {};", in));
      e.line(fmt::format("return (const T*){} + (inside ? {} : 0);", e.buffer(e_->value), offset));
    } else {
      e.line(fmt::format("return (const T*){} + {};", e.buffer(e_->value), offset));
    }
    e.close();
  }

 private:
  static void bind(Emitter& e, const Expr& var, const std::string& value) {
    if (is_const(var)) return;
    const std::string i = e.fresh("i");
    e.line(fmt::format("const i64 {} = {};", i, value));
    e.bind(var, i);
  }

  bool plain() const { return e_->op == Op::kLoad && e_->dtype == c_.type && !e_->args.empty(); }

  // 16 bytes along k: the innermost reduced variable is vec_ * outer + j.
  bool try_vector() {
    if (!plain()) return false;
    const Expr& last = c_.reduced.back();
    std::int64_t extent = 0;
    if (!is_const_int(last->args[0], extent) || extent % vec_ != 0) return false;
    Exprs dims;
    for (const Expr& v : c_.reduced) dims.push_back(v->args[0]);
    dims.back() = extent / vec_;
    index_ = loop_var(idx::product(dims));
    const Expr j = loop_var(vec_);
    const Exprs parts = idx::delinearize(index_, dims);
    std::vector<std::pair<Expr, Expr>> r;
    for (std::size_t k = 0; k < parts.size(); ++k) r.emplace_back(c_.reduced[k], parts[k]);
    r.back().second = parts.back() * vec_ + j;
    return contiguous(r, j);
  }

  // 16 bytes along rows (columns), where their innermost dim and the sum are whole vectors.
  bool try_across() {
    if (!plain()) return false;
    std::int64_t k = 0, inner = 0;
    const Exprs dims = is_a_ ? c_.row_dims : Exprs{line_->args[0]};
    if (!is_const_int(c_.k(), k) || k % vec_ != 0 || !is_const_int(dims.back(), inner) || inner % vec_ != 0)
      return false;
    // line = inner * outer + vec_ * part + j, in terms of which the offset moves by one with j
    const Expr j = loop_var(vec_), part = loop_var(inner / vec_),
               outer = loop_var(idx::floordiv(line_->args[0], inner));
    index_ = loop_var(k);
    const auto reduced = split_k();
    std::vector<std::pair<Expr, Expr>> r = reduced;
    r.emplace_back(line_, outer * inner + part * vec_ + j);
    if (!contiguous(r, j)) return false;
    // What is emitted takes the line as it comes.
    offset_ = flatten_loads(substitute(e_, reduced))->args[0];
    where_ = inside_ ? substitute(inside_, reduced) : Expr();
    if (where_ && is_const(where_)) where_ = Expr();
    return true;
  }

  std::vector<std::pair<Expr, Expr>> split_k() const {
    Exprs dims;
    for (const Expr& v : c_.reduced) dims.push_back(v->args[0]);
    const Exprs parts = idx::delinearize(index_, dims);
    std::vector<std::pair<Expr, Expr>> r;
    for (std::size_t k = 0; k < parts.size(); ++k) r.emplace_back(c_.reduced[k], parts[k]);
    return r;
  }

  bool contiguous(const std::vector<std::pair<Expr, Expr>>& r, const Expr& j) {
    const Expr at = flatten_loads(substitute(e_, r))->args[0];
    Expr step, rest;
    if (at->has_load || !idx::split_affine(at, j, step, rest) || !is_const(step, 1) || has_var(rest, j) ||
        !divisible(rest, vec_))
      return false;
    where_ = inside_ ? substitute(inside_, r) : Expr();
    if (has_var(where_, j)) return false;
    if (where_ && is_const(where_)) where_ = Expr();  // true
    offset_ = rest;
    return true;
  }

  void blocks(Emitter& e, const QuantizedOperand& q) const {
    const std::int64_t length = 128 / q.bits;
    const auto begin = [&](std::string_view head) {
      e.open(fmt::format("SDX_FN {} const", head));
      bind(e, c_.z, "z");
      bind(e, line_, "line");
      bind(e, q.run, fmt::format("at / {}", length));
    };
    begin("const u8* b_packed(u32 z, u32 line, u32 at)");
    const std::string offset = e.value(q.packed->args[0]);
    e.line(fmt::format("return (const u8*){} + {};", e.buffer(q.packed->value), offset));
    e.close();
    begin("void b_block(u32 z, u32 line, u32 at, f32& scale, f32& zero)");
    e.line(fmt::format("scale = {};", e.value(q.scale)));
    e.line(fmt::format("zero = {};", e.value(q.zero)));
    e.close();
    e.line("SDX_FN void b_elements(u32 z, u32 line, u32 at, T* x) const { block_elements(*this, z, line, at, x); }");
  }

  // Element by element: any expression.
  void elements(Emitter& e) const {
    e.open(fmt::format("SDX_FN void {}_elements(u32 z, u32 line, u32 at, T* x) const", is_a_ ? "a" : "b"));
    bind(e, c_.z, "z");
    bind(e, line_, "line");
    std::int64_t last = 0;
    const bool together = is_const_int(c_.reduced.back()->args[0], last) && last % vec_ == 0;
    Exprs dims;
    for (const Expr& v : c_.reduced) dims.push_back(v->args[0]);
    if (together) dims.back() = last / vec_;
    const Expr index = loop_var(idx::product(dims));
    const Exprs parts = idx::delinearize(index, dims);
    if (together) bind(e, index, fmt::format("at / {}", vec_));
    for (std::int64_t j = 0; j < vec_; ++j) {
      e.open(together ? "" : fmt::format("if (at + {} < this->k)", j));
      if (!together) bind(e, index, fmt::format("at + {}", j));
      std::vector<std::pair<Expr, Expr>> r;
      for (std::size_t k = 0; k < parts.size(); ++k) r.emplace_back(c_.reduced[k], parts[k]);
      if (together) r.back().second = parts.back() * vec_ + Expr(j);
      Expr x = flatten_loads(widen_halves_of(substitute(e_, r)));
      if (inside_) x = select(substitute(inside_, r), cast(x, sum_type()), constant(0, sum_type()));
      const std::string value = e.value(cast(x, c_.type));
      e.line(fmt::format("x[{}] = {};", j, value));
      e.close();
    }
    e.close();
  }

  // A type of which there are constants, as there are none of 8-bit floats.
  DType sum_type() const { return size_of(c_.type) == 1 && is_float(c_.type) ? DType::kFloat32 : e_->dtype; }

  const Contraction& c_;
  bool is_a_;
  Expr line_, e_, inside_;
  std::int64_t vec_;
  Access access_ = Access::kElements;
  std::optional<QuantizedOperand> quantized_;
  Expr index_, offset_, where_;  // of kVector (index: k / vec_) and kAcross (index: k)
};

// What becomes of a sum. What that reads is read by a function of its own, as far as it fits into registers; returns
// the declaration of the struct that holds it.
std::string epilogue(Emitter& e, const Contraction& c, const Value& accumulator) {
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

// A tiling and the kernel of kernels/gemm.h that has it.
struct Candidate {
  std::string kernel;
  GpuTiling tiling;
  std::uint32_t shared = 0;  // bytes of dynamic LDS
  bool may_share = false;    // its k's among workgroups
  std::string bounds;        // directives of its launch, for kernels/gemm_tma.h
  std::string name() const { return tiling.shares > 1 ? fmt::format("{} / {}", kernel, tiling.shares) : kernel; }
};

constexpr std::int64_t kWgmmaStore = 8 * 16 * (64 + 4) * 4;  // bytes of LDS by which eight waves store their sums

// Kernels of kernels/skinny.h: by columns (in units of the 16 that an instruction takes), and by how many spans of k
// are on their way, which is no more than a wave has. `bits`: of an element of b; `width`: rows that an instruction
// takes.
void add_skinny(std::vector<Candidate>& t, std::string_view arch, int bits, std::int64_t depth, int width, int rows,
                bool makes_rows) {
  const bool wave64 = arch.starts_with("gfx9"), wmma = arch.starts_with("gfx11");
  const int lanes = wmma ? 1 : arch.starts_with("gfx12") ? 2 : 4, waves = wave64 ? 4 : 8;
  const std::int64_t span = std::max(128 / bits, wmma ? 16 : 8) * lanes, spans = (depth + span - 1) / span;
  for (int tiles : {1, 2, 4}) {
    // Registers; and with 4 bits workgroups of 64 columns pay only where each makes its rows (measured on an H200).
    if (tiles == 4 && (width == 16 || bits == 8 || (bits == 4 && !makes_rows))) continue;
    const int most = bits == 16 && tiles == 1 ? 8 : bits == 4 && tiles == 4 ? 2 : 4 / tiles;  // more spill registers
    const auto ahead = std::clamp<std::int64_t>((spans + waves - 1) / waves, 1, most);
    t.push_back({fmt::format("skinny<{}, {}, {}>", width, tiles, ahead), {rows, 16 * tiles, 0, 0, 0, 0, true}});
  }
}

// Times are what an H200 takes. Those of gemm_wgmma were fitted to 117 products of 16-bit floats (ResNet-50's
// convolutions for 1 to 64 images, BERT-Base's and ViT-B/16's products with 128 to 4096 rows), each with every tiling
// one launch after another, so that the tilings chosen are the fastest: by them they are 0.6 % behind on average. Those
// of AMD's chips follow from areas, with smaller tiles reading more for each product. `skinny_bits`: of an element of b
// where kernels/skinny.h takes it, else 0. `depth`: the number of k's, 0 if it isn't known.
std::vector<Candidate> candidates_for(std::string_view arch, DType type, bool vectors, bool may_gemv, int skinny_bits,
                                      bool pairs, std::int64_t depth) {
  const std::int64_t steps = (depth + 63) / 64;
  const bool nvidia = arch.starts_with("sm_"), wave64 = arch.starts_with("gfx9"),
             half_type = type != DType::kFloat32;  // or int8
  const int stages = nvidia ? 3 : 2;
  std::vector<Candidate> t;
  if (arch == "sm_90a" && size_of(type) == 2 && vectors) {
    auto wgmma = [&](int n, int shares, int stages, std::array<float, 4> ns) {
      const int rows = 128 / shares, step = shares * (rows + n) * 128;
      const std::int64_t used = std::min<std::int64_t>(stages, steps > 0 ? (steps + shares - 1) / shares : stages);
      t.push_back({fmt::format("gemm_wgmma<{}, {}, {}>", n, stages, shares),
                   {rows, n, ns[0], ns[1], ns[2], ns[3]},
                   static_cast<std::uint32_t>(std::max<std::int64_t>(used * step, kWgmmaStore)),
                   shares > 1 && stages > 4});
    };
    wgmma(256, 1, 4, {5110, 11.5f, 6100, 8.4f});
    wgmma(192, 1, 4, {4670, 9.4f, 4050, 8.8f});
    wgmma(128, 1, 3, {4090, 7.8f, 2060, 11.9f});
    wgmma(128, 1, 6, {3990, 6.6f, 2720, 6.7f});
    wgmma(64, 1, 4, {2150, 5.5f, 1800, 4.5f});
    wgmma(64, 2, 6, {3530, 2.05f, 1060, 3.55f});
    wgmma(32, 1, 4, {3530, 2.8f, 720, 4.9f});
    wgmma(32, 2, 4, {2420, 3.0f, 530, 2.7f});
    wgmma(32, 2, 8, {2460, 2.7f, 390, 3.6f});
  } else {
    auto gemm = [&](int m, int n, std::string_view waves, int row, std::array<float, 4> ns) {
      t.push_back({fmt::format("gemm<Tiling<{}, {}, {}, {}, {}>>", m, n, waves, row, stages),
                   {m, n, ns[0], ns[1], ns[2], ns[3]},
                   0,
                   true});
    };
    using Times = std::array<float, 4>;
    gemm(32, 32, wave64 ? "1, 1, 4" : "2, 1, 4", 256,
         half_type ? Times{3120, 2.9f, 560, 2.1f} : Times{3380, 13.2f, 2300, 9.0f});
    gemm(64, 64, wave64 ? "2, 2, 1" : "2, 2, 2", 128,
         half_type ? Times{2030, 8.7f, 1300, 6.5f} : Times{9370, 36.6f, 8040, 31.4f});
    gemm(128, 128, wave64 ? "2, 2, 1" : "4, 2, 1", 64,
         half_type ? Times{3570, 19.1f, 2310, 15.8f} : Times{32500, 127.0f, 32800, 128.0f});
  }
  if (may_gemv) {
    const int waves = wave64 ? 4 : 8;
    t.push_back({"gemv<1, 2, 1>", {1, 2 * waves, 0, 0, 0, 0, true}});
    t.push_back({"gemv<1, 2, 4>", {1, 2 * waves / 4, 0, 0, 0, 0, true}});
    const int each = pairs ? 2 : 1;  // columns of a wave
    if (skinny_bits == 0) t.push_back({fmt::format("gemv<4, {}, 1>", each), {4, each * waves, 0, 0, 0, 0, true}});
  }
  if (skinny_bits)
    for (int rows : {8, 16}) add_skinny(t, arch, skinny_bits, depth, rows, rows, false);
  return t;
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

int typical_units(std::string_view arch) {
  if (arch == "gfx90a") return 104;
  if (arch == "gfx942") return 304;
  if (arch == "gfx950") return 256;
  if (arch.starts_with("sm_")) return arch == "sm_80" ? 108 : 132;
  return 64;
}

constexpr std::int64_t kRowBytes = 32768;  // as in kernels/skinny.h

// Whether chip and types have kernels/skinny.h.
bool has_skinny(std::string_view arch, const Contraction& c) {
  return size_of(c.type) == 2 && !arch.starts_with("gfx10") && !c.inside;
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
  if (arch == "gfx942") return DType::kFloat8E4M3FNUZ;
  if (arch == "gfx950" || arch.starts_with("gfx12")) return DType::kFloat8E4M3FN;
  return DType::kFloat32;
}

FuseOptions gpu_fuse_options(std::string_view arch) {
  FuseOptions o;
  o.float8_tiles = float8_products_of(arch);
  o.attention_expressions = true;
  o.accepts_epilogue = [](const TileKernel& k) {
    std::string why;
    if (k.node->as<AttentionOp>()) return gpu_takes_attention(k, why);
    return gpu_takes_tile(k, why);
  };
  o.accepts_tile = [](const Node& n) {
    if (n.outputs.empty()) return false;
    TileKernel t;
    t.node = const_cast<Node*>(&n);
    t.out = n.outputs[0];
    std::string why;
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
  const std::string reads = epilogue(e, c, accumulator);

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
      static_cast<bool>(c.pair), row_height, members, reads, text, values);
  sizes += "i64 batches, i64 m, i64 n, i64 k";
  const std::string body = fmt::format("{}{}) {{\n{}", head, sizes, problem),
                    shared = fmt::format("{}void* __restrict parts, {}, i64 shares) {{\n{}", head, sizes, problem);
  g.buffers = e.buffers;
  g.symbols = e.symbols;
  if (b.quantized())
    g.unpack = fmt::format("{}{}* __restrict unpacked, {}) {{\n{}unpack_columns(p, unpacked);\n}}\n", head,
                           type_name(c.type), sizes, problem);
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
  const std::optional<CopiedOperand> copied_a = a.copied(), copied_b = b.copied();
  // Convolutions of one pixel would do as well, but their short sums with much to read behind them were not measured.
  if (arch == "sm_90a" && copied_a && copied_b && !rows && !c.inside) {
    const auto number = [&](const Value* v) {
      return static_cast<std::int32_t>(std::find(g.buffers.begin(), g.buffers.end(), v) - g.buffers.begin());
    };
    g.copied_a = {number(a.in_memory()), *copied_a};
    g.copied_b = {number(b.in_memory()), *copied_b};
    for (TmaCandidate& t : tma_candidates(depth))
      candidates.push_back({std::move(t.kernel), t.tiling, t.shared, false, std::move(t.bounds)});
  }
  const int most = most_shares(c);
  for (std::size_t k = 0, all = candidates.size(); k < all; ++k)
    for (int shares = 2; shares <= most && candidates[k].may_share; shares *= 2) {
      candidates.push_back(candidates[k]);
      candidates.back().tiling.shares = shares;
      candidates.back().tiling.finish = arch.starts_with("sm_") ? kFinishOnNvidia : kFinishElsewhere;
    }
  if (rows) {
    candidates.clear();
    if (b.access() == Access::kVector || b.quantized())
      add_skinny(candidates, arch, q.bits, depth, 8, row_height, true);
  }
  for (const Candidate& x : candidates) g.tilings.push_back(x.tiling);
  // Known sizes need one tiling; for others those stay that some size prefers.
  std::vector<bool> wanted(candidates.size(), false);
  if (rows && !candidates.empty() && is_const_int(g.n, n))
    wanted[choose_tiling(g.tilings, 1, 1, n, depth, typical_units(arch))] = true;
  for (std::int64_t scale = 1; scale <= (1 << 20) && !rows; scale *= 2) {
    SymbolValues s;
    for (const Expr* x : {&g.batches, &g.m, &g.n, &g.k})
      visit(*x, [&](const Expr& y) {
        if (y->op == Op::kSym) s.set(static_cast<int>(y->i), scale);
      });
    try {
      wanted[choose_tiling(g.tilings, evaluate(g.batches, s), evaluate(g.m, s), evaluate(g.n, s), evaluate(g.k, s),
                           typical_units(arch))] = true;
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
  for (std::size_t k = 0; k < candidates.size(); ++k) {
    if (!wanted[k]) continue;
    const Candidate& x = candidates[k];
    g.tilings.push_back(x.tiling);
    if (x.tiling.copies) {
      g.kernels.push_back({fmt::format("(TensorMap, TensorMap, {}SDX_LAUNCH_BOUNDS(\"{}\");\n{}(p);\n}}\n",
                                       body.substr(1), x.bounds, x.kernel),
                           x.shared, x.name()});
      continue;
    }
    if (x.tiling.shares == 1) {
      g.kernels.push_back({body + x.kernel + "(p);\n}\n", x.shared, x.name()});
      continue;
    }
    g.kernels.push_back({shared + "share_k(p, parts, u32(shares), [](const auto& q) { " + x.kernel + "(q); });\n}\n",
                         x.shared, x.name()});
    g.partial = partial_sums(c, most);
    g.finish =
        fmt::format("{}static_assert(kFinish == {});\ngemm_finish(p, parts, u32(shares));\n}}\n", shared, kGpuFinish);
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

std::optional<GpuRowTile> generate_gpu_row_tile(const TileKernel& kernel, const LoopKernel& rows,
                                                std::string_view arch) {
  Value accumulator;
  const Contraction c = contraction_of(kernel, accumulator);
  std::int64_t depth = 0;
  if (!has_skinny(arch, c) || !is_const(c.batches(), 1)) return {};
  const auto prologue = row_prologue(c, rows);
  if (!prologue || !is_const_int(c.k(), depth)) return {};
  // More rows at a time cost every workgroup more than the launch that they save (measured on an H200).
  constexpr int height = 1;
  if (height * depth * 2 > kRowBytes) return {};
  GpuRowTile out{generate(c, accumulator, arch, {}, &*prologue, height), height};
  if (out.source.kernels.size() != 1) return {};
  // It is right for any number of rows, only slow.
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
