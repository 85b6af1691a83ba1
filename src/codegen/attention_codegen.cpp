// See attention_codegen.h.
#include "codegen/attention_codegen.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "codegen/attention_source.h"
#include "codegen/attention_step.h"
#include "program/launch.h"
#include "target/chip.h"

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kMostScoredKeys = 512;  // if each score is computed, wgmma is not faster beyond
constexpr std::int64_t kLeastPaddedHead = 32;  // elements of a head that wgmma multiplies with zeros up to 64
constexpr std::int64_t kDecodeRows = 32;       // rows of a group of heads up to which the kernel for few rows pays
constexpr std::int64_t kDecodeTile = 16;       // rows of that kernel's tile
constexpr std::int64_t kFullBlocks = 64;       // workgroups that keep a card busy
constexpr std::int64_t kSmallRows = 64;        // rows of a small tile
constexpr std::int64_t kSplitKeys = 128;       // minimum keys of a workgroup
constexpr std::int64_t kSplitBlocks = 256;     // workgroups that fill a card
// Candidates for tuning: maximum number of splits of the keys, minimum keys of each, and maximum number of workgroups.
constexpr int kMostParts = 32;
constexpr const char *kFewRows = "few rows", *kOneQuery = "one query";  // with the number of splits that the rule gives
constexpr const char* kShort = "short";
// Elements of keys and values of a wave: up to which it is the fastest for any number of waves, and for many; on RDNA 3
// a lane has all elements of an operand's row.
constexpr std::int64_t kShortElements = 7000, kMostShortElements = 11000, kMostShortWhole = 10000;
constexpr std::int64_t kShortRegisters = 220;
// NVIDIA: registers of operands and sums up to which a warp takes the kernel for few keys, and up to which two thread
// blocks share a multiprocessor; warps that fill one.
constexpr std::int64_t kMostShortRegisters = 226, kHalfRegisters = 130, kFillingWarps = 16;
constexpr std::int64_t kFarRows = 1 << 20;  // between two rows whose offsets have 32 bits
constexpr const char* kTwoHeads = "two heads of 64 rows";
constexpr std::int64_t kMostOneQuery = 1 << 17;  // units: workgroups are counted in 32 bits
constexpr std::int64_t kFewestKeys = 32, kMostSplitBlocks = 2048;

class Generator : AttentionSource {
 public:
  Generator(const TileKernel& kernel, std::string_view arch, const TileSelection& selection)
      : AttentionSource(kernel, arch),
        selection_(selection),
        batch_(b_->args[0]),
        heads_(h_->args[0]),
        queries_(s_->args[0]),
        keys_(t_->args[0]) {}

  GpuChoice run() {
    write();
    set_sizes();
    if (!one_query_text_.empty()) add_one_query();
    if (takes_short()) short_ = prefers_short(), add_short();
    if (takes_short_mma()) short_ = compare(Op::kLt, 0, 1), add_short_mma();
    if (takes_wgmma()) add_wgmma();
    if (takes_small_tiles()) add_small_tiles();
    if (!always_wgmma()) add_tiles();
    add_few_rows();
    add_parts();
    const std::vector<bool> wanted = select_candidates(g_.choice, selection_, arch_);
    std::vector<Candidate> taken;
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      if (!wanted[k]) continue;
      g_.launches.push_back(launches_[k]());
      taken.push_back(std::move(g_.choice.candidates[k]));
    }
    g_.choice.candidates = std::move(taken);
    return std::move(g_);
  }

 private:
  using Launches = std::vector<GpuChoice::Launch>;

  // Sizes, and the rule that depends on them. With few rows for many keys, heads that share keys are processed
  // together, and keys are split over workgroups.
  void set_sizes() {
    units_ = batch_ * idx::floordiv(heads_, group_);
    all_rows_ = batch_ * heads_ * queries_;
    one_ = logical_and(one_query_text_.empty() ? compare(Op::kLt, 1, 0) : compare(Op::kEq, queries_, 1),
                       compare(Op::kLe, units_, kMostOneQuery));
    few_ = logical_and(compare(Op::kLe, queries_ * group_, kDecodeRows), logical_not(one_));
    decode_blocks_ = units_ * idx::ceildiv(queries_ * group_, kDecodeTile);
    g_.buffers = emit_.buffers;
    g_.symbols = emit_.symbols;
    for (const Expr& x : {batch_, queries_, keys_, heads_}) g_.symbols.push_back(x);
    g_.limit = idx::max(keys_, all_rows_);
    g_.type = type_;
    g_.work = operations();
    g_.choice.problem = problem_name();
    g_.choice.batches = batch_ * heads_;
    g_.choice.m = queries_;
    g_.choice.n = keys_;
    g_.choice.k = d_->args[0];
  }

  // Adds a candidate. The rule takes the first candidate whose `by_rule` holds.
  void add(const std::string& name, const Expr& by_rule, const Expr& applies, std::function<Launches()> launches) {
    const Expr taken = short_ && name != kShort ? logical_and(by_rule, logical_not(short_)) : by_rule;
    g_.choice.candidates.push_back({name, applies, select(taken, 0, 1), {}});
    launches_.push_back(std::move(launches));
  }

  std::size_t kernel_of(const std::string& problem, bool partial, const std::string& call, const LaunchBounds& bounds,
                        std::uint32_t lds) {
    const std::string text =
        fmt::format("({}{}{}{}{}}}\n", head_, partial ? "f32* __restrict partial, " : "", sizes_, problem, call);
    g_.kernels.push_back(attention_spec(text, arch_, bounds, lds));
    return g_.kernels.size() - 1;
  }
  std::size_t kernel(bool partial, const std::string& call, const LaunchBounds& bounds = {}, std::uint32_t lds = 0) {
    return kernel_of(problem_, partial, call, bounds, lds);
  }
  static GpuChoice::Launch launch(std::size_t kernel, const Expr& blocks, const Expr& parts, bool partial) {
    return {kernel, blocks * kGpuThreads, {parts}, partial};
  }

  // Two thread blocks per multiprocessor, if heads are short enough for the registers.
  static LaunchBounds two_blocks() { return {.threads = kGpuThreads, .min_blocks = 2}; }
  LaunchBounds bounds_of_tiles() const {
    const std::int64_t longest = size_of(type_) == 2 ? std::max(extent(d_), extent(e_)) : 1024;
    // On an H200 with 4096 heads of 24 and 100 tokens: 83 us with two blocks, 65 with three, 73 with four. With a bias
    // for each score, three are slower: 23 and 30 us (8 x 4 heads of 36, 333 tokens).
    if (plain_ && longest <= 32) return {.threads = kGpuThreads, .min_blocks = 3};
    return longest <= 64 ? two_blocks() : LaunchBounds{};
  }

  // Reserves workspace for the partial results of `parts` splits of the keys.
  void need_partial(const Expr& when, const Expr& parts) {
    const std::int64_t value = (extent(e_) + 15) / 16 * 16;
    const Expr elements = select(when, all_rows_ * parts * (value + 2), 1);
    g_.partial = g_.partial ? idx::max(g_.partial, elements) : elements;
  }
  // Adds the launch that merges the splits, if there may be several.
  Launches merged(Launches launches, const Expr& parts) {
    if (is_const(parts, 1)) return launches;
    if (!merge_)
      merge_ =
          kernel(true, fmt::format("attention_merge(p, {{{}, {}, u32(splits), partial}}, batch * heads * queries);\n",
                                   kNumbers, group_));
    launches.push_back(launch(*merge_, select(compare(Op::kGt, parts, 1), all_rows_, 0), parts, true));
    return launches;
  }
  Launches in_parts(const Expr& parts) {
    if (!decode_)
      decode_ = kernel(
          true, fmt::format("attention<P, true>(p, {{{}, {}, u32(splits), partial}}, u32(batch));\n", kNumbers, group_),
          bounds_of_tiles());
    return merged({launch(*decode_, decode_blocks_ * parts, parts, true)}, parts);
  }

  void add_one_query() {
    add(kOneQuery, one_, one_, [this] {
      const Expr parts = step_parts(units_, keys_);
      need_partial(logical_and(one_, compare(Op::kGt, parts, 1)), parts);
      const std::string p = fmt::format(
          "struct P {{\n  using T = {0};\n  using Out = {1};\n  using Stored = {12};\n  enum : int {{ kDim = {2}, "
          "kValueDim = {2}, kGroup = {3}, kPlain = {4}, kBounds = {5}, kSink = {6}, kZeroEmpty = {7}, kAppends = 0, "
          "kKeyStride = {13}, kValueStride = {14} }};\n{8}{9}  SDX_FN void "
          "wait() "
          "{{\nwait_for_launch();\n{10}}}\n}};\nP p{{{11}}};\n",
          storage_name(type_), storage_name(kernel_.out->dtype), extent(d_), group_, int(plain_),
          int(a_.begin || a_.end), int(bool(a_.sink)), int(a_.zero_empty), members_, one_query_text_, after_wait_,
          values_, storage_name(a_.k->dtype), key_stride_, value_stride_);
      Launches launches;
      for (const auto& [cluster, when] : step_clusters(units_, keys_, extent(d_))) {
        const Expr blocks = select(when, units_ * (cluster == kStepCluster ? parts * cluster : Expr(cluster)), 0);
        if (is_const(blocks, 0)) continue;
        const std::uint32_t lds = step_mma_bytes(extent(d_), group_, cluster, false, page_rows_ != 0);
        const std::size_t number =
            kernel_of(p, true,
                      fmt::format("attention_step_mma<P, {}, {}>(p, {{u32(keys), u32(heads), u32(splits), "
                                  "p.past_rows(), p.past_rows(), partial}}, u32(batch));\n",
                                  cluster, lds),
                      {.cluster = bound_of_cluster(cluster)}, lds);
        launches.push_back(launch(number, blocks, cluster == kStepCluster ? parts : Expr(1), true));
      }
      return merged(std::move(launches), parts);
    });
  }

  // See kernels/attention_wgmma.h.
  void add_wgmma() {
    const bool narrow = extent(d_) <= 64;  // so that two thread blocks run per multiprocessor
    const auto form = [&](int tile, int slices, bool two, const Expr& by_rule, const Expr& blocks, int heads = 1) {
      std::string name = heads == 1 ? tiles_name(128 / slices) : kTwoHeads;
      if (narrow && tile == 128 && heads == 1) name += " and 128 keys";
      add(always_wgmma() ? name : "wgmma, " + name, by_rule, 1, [=, this] {
        const std::size_t number = kernel(false,
                                          fmt::format("attention_wgmma<P, {}, {}, {}, {}>(p, {}, u32(batch));\n", tile,
                                                      slices, two ? 2 : 1, heads, kNumbers),
                                          two ? two_blocks() : LaunchBounds{}, wgmma_bytes(tile, slices));
        return Launches{launch(number, blocks, 1, false)};
      });
    };
    const Expr wide = batch_ * heads_ * idx::ceildiv(queries_, 128),
               small = batch_ * heads_ * idx::ceildiv(queries_, 64);
    // If every multiprocessor has a thread block of 128 rows, smaller ones don't pay.
    const std::int64_t units = driver_units(chip_);
    const Expr never = compare(Op::kLt, 1, 0);
    const Expr one_block = narrow && row_bias_ ? prefers_one_block(wide, units) : never;
    const Expr few_not = logical_not(logical_or(few_, one_block));
    // Half of a tile of 128 rows would be empty.
    const Expr full = logical_and(compare(Op::kGe, wide, narrow ? units : units / 2), compare(Op::kGt, queries_, 64));
    Expr large = always_wgmma() || wgmma_if_full() ? logical_and(few_not, full) : never;
    // On an H200 with 12 heads of 64 and 4 x 1024 rows: 173 us, 133 with the other form. With 256 rows they are equal.
    if (!always_wgmma()) large = logical_and(large, compare(Op::kLe, keys_, kMostScoredKeys));
    form(narrow ? 64 : 128, 1, narrow, large, wide);
    Expr rest = always_wgmma() ? logical_and(few_not, logical_not(full)) : never;
    if (always_wgmma() && takes_two_heads()) {
      // Two heads that share keys read them once. On an H200 with 7 x 64 rows of 32 heads after 512 to 896 others:
      // heads of 128 22.0 us, one head each 26.7; heads of 64 16.8 and 18.2. With fewer blocks half of the card would
      // be idle.
      const Expr pairs = logical_and(compare(Op::kLe, queries_, 64), compare(Op::kGt, small, units));
      form(128, 1, false, logical_and(rest, pairs), idx::floordiv(small, 2), 2);
      rest = logical_and(rest, logical_not(pairs));
    }
    form(64, 2, narrow && !row_bias_, rest, small);
    if (narrow && row_bias_) form(128, 1, false, logical_and(logical_not(few_), one_block), wide);
  }
  bool takes_two_heads() const { return group_ % 2 == 0 && !column_ && !row_bias_; }
  // With a bias of scores, two thread blocks of a multiprocessor lack registers and take 1.65 times as long as one with
  // larger tiles (H200, heads of 64). So one per multiprocessor is faster if all thread blocks run in one round or in
  // three. With fewer thread blocks than half of the multiprocessors, tiles of 64 rows are faster.
  static Expr prefers_one_block(const Expr& blocks, std::int64_t units) {
    const auto within = [&](std::int64_t low, std::int64_t high) {
      return logical_and(compare(Op::kGt, blocks, low), compare(Op::kLe, blocks, high));
    };
    return logical_or(within(units / 2, units), within(2 * units, 3 * units));
  }

  // See kernels/attention_short.h: few keys, all of which fit the registers of a wave.
  bool takes_short() const {
    const MatrixLayout layout = chip_.layout();
    const bool whole = layout == MatrixLayout::kWmma11;
    std::int64_t keys = 0;
    if ((layout != MatrixLayout::kMfma && layout != MatrixLayout::kWmma12 && !whole) || size_of(type_) != 2 ||
        !is_const_int(keys_, keys) || keys < 1 || keys > kMostShortKeys)
      return false;
    return is_near(k_) && is_near(v_) && short_elements() <= (whole ? kMostShortWhole : kMostShortElements);
  }
  // Whether offsets between rows have 32 bits, and elements are read as they are.
  static bool is_near(const Operand& o) {
    std::int64_t distance = 0;
    return !o.gathered && !o.numbers &&
           (!(o.direct || o.loose || o.unit != 0) ||
            (is_const_int(o.distance, distance) && distance >= 0 && distance <= kFarRows));
  }
  // Tiles of 16 keys, in whole steps of the second GEMM.
  std::int64_t short_tiles() const {
    const std::int64_t step = step_bytes(chip_.layout()) / 2;
    return (keys_->i + step - 1) / step * step / 16;
  }
  // CDNA: registers of a lane for keys, values, queries (also the next ones), weights, scores and results of `each`
  // tiles of queries.
  std::int64_t short_registers(std::int64_t each) const {
    const auto steps = [](std::int64_t n) { return (n + 31) / 32; };
    const std::int64_t tiles = short_tiles(), results = (extent(e_) + 15) / 16;
    const std::int64_t operands =
        tiles * steps(extent(d_)) + results * tiles / 2 + each * (2 * steps(extent(d_)) + tiles / 2);
    return 4 * operands + 4 * each * (tiles + 2) + (row_bias_ ? 2 * each * tiles : 0) + (column_ ? 4 * tiles : 0);
  }
  // Elements of keys and values that a wave has.
  std::int64_t short_elements() const { return keys_->i * (extent(d_) + extent(e_)); }
  // With many elements, a wave's loads take long: few rows are faster if a workgroup divides them.
  Expr prefers_short() const {
    const Expr tiles = batch_ * heads_ * idx::ceildiv(queries_, 16);
    return short_elements() <= kShortElements ? compare(Op::kLt, 0, 1) : compare(Op::kGe, tiles, chip_.product().units);
  }
  void add_short() {
    const std::int64_t heads = column_ ? 1 : group_, keys = keys_->i;
    const Expr units = batch_ * idx::floordiv(heads_, heads), tiles = idx::ceildiv(queries_ * heads, 16);
    // On RDNA a wave has one tile of queries, because its registers hold few operands; with 64 keys RDNA 3 has enough
    // for two, which share the loads. On CDNA it may have several after one another, if each SIMD has a wave; with half
    // as many more, CDNA 2 and 3 are faster, while on CDNA 4 L1 is the limit.
    const bool wave32 = chip_.wave == 32;
    const bool pair = !wave32 || (chip_.layout() == MatrixLayout::kWmma11 && short_tiles() == 4 && extent(d_) <= 80);
    const std::int64_t each = pair && !is_const(tiles, 1) ? 2 : 1;
    const bool once = wave32 || short_registers(each) > kShortRegisters;
    const Expr passes = idx::ceildiv(tiles, each);
    const std::int64_t simds = std::int64_t{chip_.product().units} * chip_.simds;
    const Expr fill =
        idx::ceildiv(operations_per_clock(chip_, type_) > 2048 ? simds : simds * 3 / 2, idx::max(units, 1));
    const Expr parts = once ? passes : idx::max(1, idx::min(passes, fill));
    add(kShort, short_, 1, [=, this] {
      const auto number = [](const Expr& size, const char* name) {
        return is_const(size) ? fmt::format("{}u", size->i) : fmt::format("u32({})", name);
      };
      const std::size_t k =
          kernel(false, fmt::format("attention_short<P, {}, {}, {}>(p, {{{}, {}, {}, {}, {}, nullptr}}, {});\n", keys,
                                    each, once, number(queries_, "queries"), keys, number(heads_, "heads"), heads,
                                    number(parts, "splits"), number(batch_, "batch")));
      return Launches{launch(k, idx::ceildiv(units * parts, kGpuThreads / chip_.wave), parts, false)};
    });
  }

  // See kernels/attention_short_mma.h.
  bool takes_short_mma() const {
    return few_keys_by_mma() && is_near(k_) && is_near(v_) && short_mma_registers() <= kMostShortRegisters;
  }
  // Registers of a lane for keys, values, scores, results, and two rows of queries and the next ones.
  std::int64_t short_mma_registers() const {
    const auto pairs = [](const Expr& d, std::int64_t unit) {
      return 2 * std::int64_t{sdx::layout::ShortRow{static_cast<int>(extent(d)), static_cast<int>(unit)}.steps()};
    };
    const std::int64_t unit = q_.unit == 0 ? k_.unit : k_.unit == 0 ? q_.unit : std::min(q_.unit, k_.unit);
    const std::int64_t tiles = (keys_->i + 15) / 16 * 2, head = pairs(d_, unit), value = pairs(e_, v_.unit);
    return tiles * (head + value + 4) + 4 * value + 4 * head + (column_ ? 2 * tiles : 0);
  }
  void add_short_mma() {
    const std::int64_t heads = column_ ? 1 : group_, keys = keys_->i;
    const Expr units = batch_ * idx::floordiv(heads_, heads), tiles = idx::ceildiv(queries_ * heads, 16);
    const Expr fill = idx::ceildiv(driver_units(chip_) * kFillingWarps, idx::max(units, 1));
    const Expr parts = idx::max(1, idx::min(tiles, fill));
    add(kShort, short_, 1, [=, this] {
      const std::size_t k =
          kernel(false,
                 fmt::format("attention_short_mma<P, {}>(p, {{{}, {}, u32(splits), nullptr}}, u32(batch));\n", keys,
                             kNumbers, heads),
                 short_mma_registers() <= kHalfRegisters ? two_blocks() : LaunchBounds{});
      return Launches{launch(k, idx::ceildiv(units * parts, kGpuThreads / chip_.wave), parts, false)};
    });
  }

  // CDNA: small tiles are faster where others would leave compute units without work. They read keys and values from
  // LDS for half as many rows, which CDNA 2's matrix units hide. Causal limits give workgroups different amounts of
  // work, which more workgroups balance; with heads beyond 64 elements CDNA 4's LDS is too slow for that.
  bool takes_small_tiles() const {
    return chip_.has(Feature::kUnifiedRegisters) && plain_ && size_of(type_) == 2 && rows_of_tile() > kSmallRows;
  }
  Expr prefers_small_tiles() const {
    const auto units = chip_.product().units, rate = static_cast<int>(operations_per_clock(chip_, type_));
    const bool balances = (a_.begin || a_.end) && std::max(extent(d_), extent(e_)) * rate <= 128 * 2048;
    const Expr most = rate <= 1024 ? 3 * units : balances ? units : units / 2;
    const Expr blocks = batch_ * heads_ * idx::ceildiv(queries_, rows_of_tile());
    return logical_and(compare(Op::kLe, blocks, most), logical_not(prefers_few_rows()));
  }
  void add_small_tiles() {
    add(tiles_name(kSmallRows), prefers_small_tiles(), 1, [this] {
      const std::size_t number =
          kernel(false, fmt::format("attention<P, kSmallTiles>(p, {{{}, 1, 1, nullptr}}, u32(batch));\n", kNumbers));
      return Launches{launch(number, batch_ * heads_ * idx::ceildiv(queries_, kSmallRows), 1, false)};
    });
  }

  // The kernel for few rows has more and smaller workgroups, which is better if the others would not fill the card.
  Expr prefers_few_rows() const {
    if (always_wgmma()) return few_;
    const Expr blocks = batch_ * heads_ * idx::ceildiv(queries_, rows_of_tile());
    return logical_or(few_, compare(Op::kLt, blocks, kFullBlocks));
  }

  void add_tiles() {
    const Expr others =
        takes_small_tiles() ? logical_or(prefers_few_rows(), prefers_small_tiles()) : prefers_few_rows();
    add(tiles_name(rows_of_tile()), logical_not(others), 1, [this] {
      const std::size_t number =
          kernel(false, fmt::format("attention<P, false>(p, {{{}, 1, 1, nullptr}}, u32(batch));\n", kNumbers),
                 bounds_of_tiles());
      return Launches{launch(number, batch_ * heads_ * idx::ceildiv(queries_, rows_of_tile()), 1, false)};
    });
  }

  // Few rows, with as many splits of the keys as fill the card.
  void add_few_rows() {
    add(kFewRows, prefers_few_rows(), 1, [this] {
      const Expr split =
          idx::max(1, idx::min(idx::ceildiv(kSplitBlocks, idx::max(units_, 1)), idx::ceildiv(keys_, kSplitKeys)));
      const Expr parts = select(few_, split, 1);
      need_partial(compare(Op::kGt, parts, 1), parts);
      return in_parts(parts);
    });
  }

  // Few rows with fixed numbers of splits, which only tuning takes.
  void add_parts() {
    for (int parts = 1; parts <= kMostParts; parts *= 2) {
      const Expr fits = logical_and(compare(Op::kLe, decode_blocks_ * parts, kMostSplitBlocks),
                                    compare(Op::kGe, keys_, parts * kFewestKeys));
      add(in_parts_name(parts), compare(Op::kLt, 1, 0), parts == 1 ? Expr(1) : select(fits, 1, 0), [=, this] {
        if (parts > 1) need_partial(fits, parts);
        return in_parts(parts);
      });
    }
  }

  // Everything but sizes that affects which form is the fastest: a key of the tuning database.
  std::string problem_name() const {
    std::string text = fmt::format("attention {} to {}, heads of {} and {}", name(type_), name(kernel_.out->dtype),
                                   extent(d_), extent(e_));
    if (group_ > 1) text += fmt::format(", {} share keys", group_);
    if (column_) text += ", a bias of keys";
    if (row_bias_) text += ", a bias of scores";
    if (!plain_ && !column_ && !row_bias_) text += ", scores computed";
    if (a_.begin || a_.end) text += ", limits";
    if (q_.direct && k_.gathered && v_.gathered)
      text += ", keys in pages";
    else if (q_.direct && k_.numbers && v_.numbers)
      text += fmt::format(", keys of {}{}", name(k_.numbers->dtype), is_const(k_.scale) ? "" : " in pages");
    else if (!(q_.direct && k_.direct && v_.direct))
      text += ", operands computed";
    return text;
  }
  static std::string tiles_name(std::int64_t rows) { return fmt::format("tiles of {} rows", rows); }
  static std::string in_parts_name(int parts) { return fmt::format("few rows, keys in {} parts", parts); }

  // Rows per workgroup of the kernel for many rows.
  std::int64_t rows_of_tile() const {
    const std::int64_t longest = std::max((extent(d_) + 31) / 32 * 32, (extent(e_) + 15) / 16 * 16);
    const bool wave64 = chip_.wave == 64;
    return wave64 && longest * static_cast<std::int64_t>(size_of(type_)) > 256 ? 64 : 128;
  }

  // See kernels/attention_wgmma.h.
  bool takes_wgmma() const {
    const std::int64_t d = extent(d_);
    return chip_.has(Feature::kWgmma) && size_of(type_) == 2 && d == extent(e_) && d >= kLeastPaddedHead && d <= 128 &&
           d % 8 == 0 && q_.direct && ((k_.direct && v_.direct) || (k_.gathered && v_.gathered));
  }
  // Whether it is the fastest form for any number of workgroups, or only if these fill the card: computing each score
  // takes time that more and smaller workgroups hide better.
  bool always_wgmma() const { return takes_wgmma() && (plain_ || column_ || row_bias_); }
  bool wgmma_if_full() const { return extent(d_) == 64; }
  std::uint32_t wgmma_bytes(int keys, int slices) const {
    return static_cast<std::uint32_t>(sdx::layout::WgmmaAttentionLayout{
        sdx::layout::padded_head(static_cast<int>(extent(d_))), keys, slices, bool(column_), bool(row_bias_)}
                                          .bytes());
  }

  static constexpr const char* kNumbers = "u32(queries), u32(keys), u32(heads)";

  const TileSelection& selection_;
  const Expr batch_, heads_, queries_, keys_;
  Expr units_, all_rows_, decode_blocks_;
  Expr short_;      ///< bool: sizes for which the kernel for few keys is taken; empty: none
  Expr one_, few_;  ///< bool: sizes have one query per sequence, or few
  std::optional<std::size_t> decode_, merge_;
  GpuChoice g_;
  std::vector<std::function<Launches()>> launches_;  ///< by candidate
};

}  // namespace

GpuChoice generate_gpu_attention(const TileKernel& kernel, std::string_view arch, const TileSelection& selection) {
  return Generator(kernel, arch, selection).run();
}

}  // namespace sardonyx::codegen
