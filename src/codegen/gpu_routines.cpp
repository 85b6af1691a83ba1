// See gpu_routines.h. Inputs, outputs, params and floats of each routine are documented at its host form, in
// src/routines.
#include "codegen/gpu_routines.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "codegen/emit.h"
#include "codegen/fourier_form.h"
#include "codegen/gpu_routine_writer.h"
#include "codegen/loop_codegen.h"
#include "codegen/routine_types.h"
#include "graph/analysis.h"
#include "kernels/layout_routines.h"

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kSortedInShared = sdx::layout::kSortedInShared, kChunk = sdx::layout::kSortChunk,
                       kFlagsPerBlock = sdx::layout::kFlagsPerThread * kGpuThreads;

// Of running sums: fewer lines than this are divided, columns of at most so many elements and so many columns have a
// thread each.
constexpr std::int64_t kMostPartedLines = 256, kShortColumn = 64, kShortComputedColumn = 8, kManyColumns = 65536,
                       kManyStrips = 96;

class Routine : public RoutineWriter {
 public:
  using RoutineWriter::RoutineWriter;

  bool generate() {
    struct Kind {
      std::string_view name;
      const char* header;  // of src/kernels
      bool (Routine::*generate)();
    };
    static constexpr Kind kKinds[] = {
        {"scatter", "routines_scatter.h", &Routine::scatter},
        {"append", "routines_scatter.h", &Routine::append},
        {"append_rows", "routines_scatter.h", &Routine::append_rows},
        {"append_own_rows", "routines_scatter.h", &Routine::append_rows},
        {"group", "routines_scatter.h", &Routine::group},
        {"nonzero", "routines_scatter.h", &Routine::nonzero},
        {"scan", "routines_scan.h", &Routine::scan},
        {"topk", "routines_topk_ranks.h", &Routine::topk},
        {"unique", "routines_order.h", &Routine::unique},
        {"nms", "routines_boxes.h", &Routine::nms},
        {"det", "routines_boxes.h", &Routine::det},
        {"fourier", "routines_fourier.h", &Routine::fourier},
    };
    for (const Kind& k : kKinds)
      if (op_.name == k.name) {
        header_ = k.header;
        return (this->*k.generate)();
      }
    return false;
  }

 private:
  bool scatter() {
    if (!known(0)) return false;
    const std::int64_t reduction = param(0);
    const char* type = element(in(0).dtype);
    if (reduction != 0 && !type) return false;
    const Expr all = in(0).elements(), inner = op_.params[1], m = in(1).elements(), updates = in(2).elements();
    const Expr n = is_const(inner) && inner->i > 0 ? idx::floordiv(all, inner) : idx::floordiv(all, idx::max(inner, 1));
    r.limit = m;
    const char* t = bits(in(0).dtype);
    const auto size = static_cast<std::int64_t>(size_of(in(0).dtype));
    const Expr packs = idx::ceildiv(all * Expr(size), 16);
    std::int64_t width = 0;
    const Expr threads =
        is_const_int(inner, width) && width * size % 16 == 0 ? idx::floordiv(updates * size, 16) : updates;
    // A width that is known makes divisions shifts, and one of the kernel's two loops.
    const std::string columns = is_const_int(inner, width) ? fmt::format("i64({})", width) : "s2";
    if (reduction == 0) {
      const int last = workspace(DType::kUInt32, n);
      launch("routine_copy_and_clear(b0, b1, b2, s0, s1);", {0, output(0), last}, {t, t, "u32"}, {output(0), last},
             {all, n}, packs);
      launch("routine_scatter_last(b0, b1, s0, s1);", {1, last}, {"i64", "u32"}, {last}, {m, n}, m);
      launch("routine_scatter_store(b0, b1, b2, b3, s0, s1, " + columns + ");", {1, last, 2, output(0)},
             {"i64", "u32", t, t}, {output(0)}, {m, n, inner}, threads);
      return true;
    }
    if (const ComputedInput* data = computed(0))
      r.stored.push_back(*data);
    else
      launch("routine_copy(b0, b1, s0);", {0, output(0)}, {t, t}, {output(0)}, {all}, packs);
    launch(fmt::format("routine_scatter_combine<{}>(b0, b1, b2, s0, s1, {});", reduction, columns), {1, 2, output(0)},
           {"i64", type, type}, {output(0)}, {m, n, inner}, threads);
    return true;
  }

  // One launch for keys and values. It has enough threads for a step of few tokens and for copying at full speed,
  // because whether there is anything to copy is known only at run time.
  bool append() {
    const Exprs& shape = out(0).shape;
    const bool past = inputs_ > 3;
    const char* t = bits(out(0).dtype);
    std::string call;
    for (const int which : {0, 1})
      call += fmt::format("routine_append<{}>(b0, b{}, {}, b{}, s0, s1, s2, s3, s4, s5, s{}, s{});\n  ", t, 1 + which,
                          past ? fmt::format("b{}", 5 + which) : "nullptr", 3 + which, 6 + 2 * which, 7 + 2 * which);
    std::vector<int> tensors = {0, 1, 2, output(0), output(1)};
    std::vector<const char*> types = {"i64", t, t, t, t};
    if (past) {
      tensors.insert(tensors.end(), {3, 4});
      types.insert(types.end(), {t, t});
    }
    Exprs values = {shape[0], shape[1], shape[2], shape[3]};
    values.insert(values.end(), op_.params.begin(), op_.params.end());
    // 16 bytes at a time, as rows mostly allow.
    const Expr packs =
        shape[0] * shape[1] * idx::ceildiv(shape[3] * Expr(static_cast<std::int64_t>(size_of(out(0).dtype))), 16);
    launch(call, tensors, types, {output(0), output(1)}, values,
           idx::max(packs * op_.params[0], idx::min(packs * shape[2], Expr(1 << 16))));
    r.launches.back().kernel.appends_in_place = true;
    return true;
  }

  // One launch, as for append(): where the results' memory is not the caches', it copies these too.
  bool append_rows() {
    const Expr size = op_.params[1], rows = out(0).shape[0] * out(0).shape[1];
    const char* t = bits(out(0).dtype);
    Exprs values = {op_.params[0], size, rows};
    values.insert(values.end(), op_.params.begin() + 2, op_.params.end());
    std::string call;
    for (const int which : {0, 1})
      call += fmt::format("routine_append_rows<{}>(b0, b{}, b{}, b{}, s0, s1, s2, s{}, s{});\n  ", t, 1 + which,
                          5 + which, 3 + which, 3 + 2 * which, 4 + 2 * which);
    const Expr packs = idx::ceildiv(size * Expr(static_cast<std::int64_t>(size_of(out(0).dtype))), 16);
    launch(call, {0, 1, 2, output(0), output(1), 3, 4}, {"i64", t, t, t, t, t, t}, {output(0), output(1)}, values,
           idx::max(op_.params[0] * packs, idx::min(rows * packs, Expr(1 << 14))));
    r.launches.back().kernel.appends_in_place = true;
    return true;
  }

  bool group() {
    if (!known(0) || param(0) > sdx::layout::kMostOwners) return false;
    launch("routine_group(b0, b1, b2, b3, s0, s1, s2, s3);", {0, output(0), output(1), output(2)},
           {"i64", "i64", "i64", "i64"}, {output(0), output(1), output(2)},
           {in(0).elements(), op_.params[0], op_.params[1], out(2).elements()}, kWorkgroup);
    return true;
  }

  bool nonzero() {
    const Expr n = in(0).elements(), chunks = idx::ceildiv(n, kFlagsPerBlock);
    const int counts = workspace(DType::kInt64, chunks);
    launch("routine_count(b0, b1, s0, s1);", {0, counts}, {"u8", "i64"}, {counts}, {n, chunks}, chunks * kWorkgroup);
    launch("routine_offsets(b0, b1, s0);", {counts, output(1)}, {"i64", "i64"}, {counts, output(1)}, {chunks},
           kWorkgroup);
    launch("routine_positions(b0, b1, b2, s0, s1);", {0, counts, output(0)}, {"u8", "i64", "i64"}, {output(0)},
           {n, chunks}, chunks * kWorkgroup);
    return true;
  }

  // Rows of a part of columns where `strips` workgroups would leave most of the device idle; 0: they are not divided.
  std::int64_t rows_of_part(const Expr& rows, const Expr& strips, int lanes) const {
    std::int64_t n = 0, count = 0, all = 0;
    if (!chip_.policy.long_rows || !is_const_int(rows, n) || !is_const_int(strips, count)) return 0;
    if (!is_const_int(in(0).elements(), all) || all >= std::int64_t{1} << 31) return 0;  // indices have 32 bits
    const std::int64_t round = kWorkgroup / lanes * sdx::layout::kScanSegment;
    const std::int64_t parts = std::min(chip_.product().units / std::max<std::int64_t>(count, 1), n / round);
    return parts < 2 ? 0 : round_up((n + parts - 1) / parts, round);
  }

  // Lines whose elements are next to each other, or whose neighbours are. Of few long ones, parts are summed first.
  bool scan() {
    using namespace sdx::layout;
    const char* t = element(in(0).dtype);
    if (!t || !known(0) || !known(1) || !known(2)) return false;
    const auto& d = in(0).shape;
    const Expr &n = d[1], &inner = d[2], lines = d[0] * inner;
    const char *product = param(0) != 0 ? "true" : "false", *reverse = param(2) != 0 ? "true" : "false";
    const std::string how = fmt::format("{}, {}, {}", product, param(1) != 0, reverse);
    const Expr columns = compare(Op::kGe, inner, Expr(kScanNeighbours)), none = 0;
    const Expr parted = logical_and(
        logical_and(compare(Op::kGt, n, Expr(2 * kScanPart)), compare(Op::kLt, lines, Expr(kMostPartedLines))),
        compare(Op::kLt, inner, Expr(kScanNeighbours)));
    const Expr part = select(parted, Expr(kScanPart), idx::max(n, 1)), parts = idx::ceildiv(n, part);
    const int totals = workspace(DType::kUInt64, select(parted, lines * parts, Expr(1)));
    if (!is_const(parted, 0))
      launch(fmt::format("routine_scan_totals<{}, {}>(b0, b1, s0, s1, s2, s3);", product, reverse), {0, totals},
             {t, "u64"}, {totals}, {d[0], n, inner, part}, select(parted, lines * parts * Expr(kWorkgroup), none));
    const bool never = is_const(parted, 0);
    std::vector<int> tensors = {0, output(0)};
    std::vector<const char*> types = {t, t};
    if (!never) tensors.push_back(totals), types.push_back("u64");
    std::int64_t length = 0, of_many = 0, either = 0;
    const bool length_known = is_const_int(n, length);
    if (!is_const(columns, 1))
      launch(
          fmt::format("routine_scan_lines<{}, {}, {}>(b0, b1, {}, s0, s1, s2, s3);",
                      !length_known || length <= kScanInWave, !length_known || length > kScanInWave, how,
                      never ? "(const u64*)nullptr" : "b2"),
          tensors, types, {output(0)}, {d[0], n, inner, part},
          select(columns, none,
                 select(compare(Op::kLe, n, Expr(kScanInWave)), lines * Expr(64), lines * parts * Expr(kWorkgroup))));
    if (is_const(columns, 0)) return true;
    const auto strips_of = [&](int lanes) {
      return d[0] * idx::ceildiv(inner, lanes * 8 / static_cast<std::int64_t>(size_of(in(0).dtype)));
    };
    // What is computed costs more than the scan: more threads share it.
    const Expr divided = logical_and(compare(Op::kGt, n, Expr(computed(0) ? kShortComputedColumn : kShortColumn)),
                                     compare(Op::kLt, lines, Expr(kManyColumns)));
    const bool many = !computed(0) && is_const_int(strips_of(kMoreScanLanes), of_many) && of_many >= kManyStrips;
    const int lanes = is_const(divided, 0) ? 0 : many ? kMoreScanLanes : kScanLanes;
    const Expr groups = lanes > 0 ? strips_of(lanes) * Expr(kWorkgroup) : lines;
    // Parts are read twice.
    const std::int64_t rows =
        lanes > 0 && is_const(divided, 1) && !computed(0) ? rows_of_part(n, strips_of(lanes), lanes) : 0;
    if (rows > 0) {
      const Expr count = idx::ceildiv(n, rows);
      const int sums = workspace(DType::kUInt64, lines * count);
      launch(fmt::format("routine_scan_column_totals<{}, {}, {}>(b0, b1, s0, s1, s2, s3);", lanes, product, reverse),
             {0, sums}, {t, "u64"}, {sums}, {d[0], n, inner, rows}, groups * count);
      launch(fmt::format("routine_scan_column_parts<{}, {}>(b0, b1, b2, s0, s1, s2, s3);", lanes, how),
             {0, output(0), sums}, {t, t, "u64"}, {output(0)}, {d[0], n, inner, rows}, groups * count);
      return true;
    }
    // Few rows are divided among all threads.
    const std::int64_t segments = kWorkgroup / std::max(lanes, 1);
    std::int64_t of_thread = 1;
    while (of_thread < kScanSegment && (!length_known || of_thread * segments < length)) of_thread *= 2;
    launch(fmt::format("routine_scan_columns<{}, {}, {}, {}>(b0, b1, s0, s1, s2, s3);", lanes, of_thread,
                       !is_const_int(divided, either), how),
           {0, output(0)}, {t, t}, {output(0)}, {d[0], n, inner, select(divided, Expr(1), none)},
           select(columns, select(divided, groups, lines), none));
    return true;
  }

  // Whether few rows are so long, and k so large, that counting the elements before each one takes less time than
  // sorting a row in one workgroup: in shared memory, or, far slower, in a workspace. By the clock, 2^26 comparisons
  // take 22 us on gfx942 and 55 on gfx1100; sorting 2000 elements takes 25 and 12, sorting 8192 340 and 240.
  static Expr places_are_counted(const Expr& rows, const Expr& n, const Expr& k) {
    using namespace sdx::layout;
    constexpr std::int64_t kLeast = 1024, kMost = 16384, kMostRows = 16, kFew = 1 << 23, kMany = 1 << 28;
    const auto within = [&](std::int64_t low, std::int64_t high, const Expr& least_k, std::int64_t comparisons) {
      const Expr size = logical_and(compare(Op::kGt, n, low), compare(Op::kLe, n, high));
      return logical_and(size, logical_and(compare(Op::kGe, k, least_k), compare(Op::kLe, rows * n * n, comparisons)));
    };
    return logical_and(compare(Op::kLe, rows, kMostRows),
                       logical_or(within(kLeast, kTopkHeld, idx::ceildiv(n, 4), kFew),
                                  within(kTopkHeld, kMost, Expr(kSortedInShared + 1), kMany)));
  }

  // Long rows are divided: a launch finds the first k of each part, another one those of the row among them.
  bool topk() {
    using namespace sdx::layout;
    const char* t = element(in(0).dtype);
    if (!t || !known(0)) return false;
    const auto& d = in(0).shape;
    const char* largest = param(0) != 0 ? "true" : "false";
    const Expr k = out(0).shape[1], n = d[1], rows = d[0] * d[2];
    Expr any = compare(Op::kGt, k, Expr(0));
    r.limit = n;
    std::int64_t few = 0, size = 0;
    const bool n_known = is_const_int(n, size), k_known = is_const_int(k, few);
    if (k_known && few <= kTopkInWave && n_known && size <= kTopkRow && size_of(in(0).dtype) < 8) {
      // A power of two: LLVM 22 fails to compile five items a lane for gfx942.
      const auto most = std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(size, 64)));
      launch(fmt::format("routine_topk_waves<{}, {}>(b0, b1, b2, s0, s1, s2, s3);", largest, most),
             {0, output(0), output(1)}, {t, t, "i64"}, {output(0), output(1)}, {rows, n, d[2], k},
             select(any, rows * Expr(64), Expr(0)));
      r.launches.back().kernel.bounds = {.threads = kGpuThreads, .min_blocks = 3};  // else NVIDIA takes all registers
      return true;
    }
    if (const Expr ranked = logical_and(any, places_are_counted(rows, n, k)); !is_const(ranked, 0)) {
      launch(fmt::format("routine_topk_ranks<{}>(b0, b1, b2, s0, s1, s2, s3);", largest), {0, output(0), output(1)},
             {t, t, "i64"}, {output(0), output(1)}, {rows, n, d[2], k},
             select(ranked, rows * idx::ceildiv(n, kRankedItems) * Expr(kWorkgroup), Expr(0)));
      if (is_const(ranked)) return true;
      any = logical_and(any, logical_not(ranked));
    }
    const bool few_sorted = (n_known && size <= kSortedInShared) || (k_known && few <= kSortedInShared);
    const bool held = n_known && size <= kTopkHeld, all_sorted = held && !few_sorted && size_of(in(0).dtype) < 8;
    const int fits = k_known && few <= kGpuThreads ? kGpuThreads : all_sorted ? kTopkHeld : kSortedInShared;
    if (held && (few_sorted || all_sorted)) {
      launch(fmt::format("routine_topk_rows<{}, {}, {}>(b0, b1, b2, s0, s1, s2, s3);", largest,
                         round_up(size, 2048) / kGpuThreads, fits),
             {0, output(0), output(1)}, {t, t, "i64"}, {output(0), output(1)}, {rows, n, d[2], k},
             select(any, rows * Expr(kWorkgroup), Expr(0)));
      return true;
    }
    const Expr wide = Expr(kTopkPart) * idx::max(idx::ceildiv(k, 512), 1);
    const Expr divided = logical_and(compare(Op::kGt, n, wide * 2), compare(Op::kLe, k, Expr(kSortedInShared)));
    const Expr part = select(divided, wide, idx::max(n, 1)), parts = idx::ceildiv(n, part);
    const Expr words(size_of(in(0).dtype) == 8 ? 2 : 1);
    const int items = workspace(DType::kUInt64, select(logical_or(divided, compare(Op::kGt, k, Expr(kSortedInShared))),
                                                       rows * parts * k * words, Expr(1)));
    std::int64_t count = 0, width = 0;
    const bool parts_known = is_const_int(parts, count);
    if (!parts_known || count > 1)
      launch(fmt::format("routine_topk_parts<{}, {}, {}>(b0, b1, s0, s1, s2, s3, s4);", largest,
                         is_const_int(wide, width) && width <= kTopkHeld ? kTopkHeld / kGpuThreads : 0, fits),
             {0, items}, {t, "u64"}, {items}, {rows, n, d[2], k, part},
             select(logical_and(any, divided), rows * parts * Expr(kWorkgroup), Expr(0)));
    const bool few_found = parts_known && count > 1 && k_known && count * few <= 8 * kGpuThreads;
    launch(fmt::format("routine_topk<{}, {}, {}, {}>(b0, b1, b2, b3, s0, s1, s2, s3, s4);", largest, fits, few_found,
                       !k_known || few > kSortedInShared),
           {0, output(0), output(1), items}, {t, t, "i64", "u64"}, {output(0), output(1), items},
           {rows, n, d[2], k, part}, select(any, rows * Expr(kWorkgroup), Expr(0)));
    return true;
  }

  bool unique() {
    const char* t = element(in(0).dtype);
    if (!t || !known(0)) return false;
    const Expr n = in(0).shape[0], m = in(0).shape[1];
    const int order = workspace(DType::kUInt32, n), number = workspace(DType::kInt64, n * Expr(2) + Expr(1));
    r.limit = n;
    launch("routine_sort_chunks(b0, b1, s0, s1);", {0, order}, {t, "u32"}, {order}, {n, m},
           idx::ceildiv(n, kChunk) * Expr(kWorkgroup));
    // Sizes 2 kChunk, 4 kChunk, ...: the k-th has k steps and one for all short distances.
    Expr steps = 21 * 22 / 2 + 21;
    for (std::int64_t k = 20; k >= 0; --k)
      steps = select(compare(Op::kLe, n, Expr(kChunk << k)), Expr(k * (k + 1) / 2 + k), steps);
    launch("routine_sort_merge(b0, b1, s0, s1, number);", {0, order}, {t, "u32"}, {order}, {n, m}, n, steps);
    launch(fmt::format("routine_kinds<{}>(b0, b1, b2, b3, b4, b5, b6, s0, s1);", param(0) != 0),
           {0, order, output(0), output(1), output(2), output(3), number},
           {t, "u32", "i64", "i64", "i64", "i64", "i64"}, {output(0), output(1), output(2), output(3), number}, {n, m},
           kWorkgroup);
    return true;
  }

  bool nms() {
    if (!known(0)) return false;
    const auto& d = in(1).shape;
    const Expr all = d[0] * d[1], n = d[2], most = op_.params[1];
    const int order = workspace(DType::kUInt64, select(compare(Op::kGt, n, Expr(kSortedInShared)), all * n, Expr(1)));
    const int kept = workspace(DType::kInt64, all * most), found = workspace(DType::kInt64, all);
    r.limit = n;
    launch(fmt::format("routine_nms<{}>(b0, b1, b2, b3, b4, b5, b6, s0, s1, s2, s3);", param(0) != 0),
           {0, 1, 2, 3, order, kept, found}, {"f32", "f32", "f32", "f32", "u64", "i64", "i64"}, {order, kept, found},
           {d[0], d[1], n, most}, all * Expr(kWorkgroup));
    launch("routine_nms_rows(b0, b1, b2, b3, s0, s1, s2);", {kept, found, output(0), output(1)},
           {"i64", "i64", "i64", "i64"}, {output(0), output(1)}, {all, d[1], most}, kWorkgroup);
    return true;
  }

  bool det() {
    const char* t = element(in(0).dtype);
    if (!t || !is_float(in(0).dtype)) return false;
    const auto& d = in(0).shape;
    const int matrix = workspace(DType::kFloat64, in(0).elements());
    launch("routine_determinant(b0, b1, b2, s0, s1);", {0, output(0), matrix}, {t, t, "f64"}, {output(0), matrix},
           {d[0], d[1]}, d[0] * Expr(kWorkgroup));
    return true;
  }

  bool fourier() {
    const auto form = fourier_form(op_, in(0), chip_.product().units);
    if (!form) return false;
    const char* t = storage_name(in(0).dtype);
    launch(form->call, {0, output(0)}, {t, t}, {output(0)}, form->values, form->threads);
    r.launches.back().kernel.bounds = {.threads = static_cast<std::uint32_t>(kWorkgroup), .min_blocks = 2};
    return true;
  }
};

}  // namespace

std::optional<GpuRoutine> generate_gpu_routine(const NodeStep& step, const Chip& chip, DType precision,
                                               const IsLoaded& loaded,
                                               const std::function<bool(std::int64_t symbol)>& from_inputs) {
  const auto* op = step.node->as<RoutineOp>();
  if (!op) return std::nullopt;
  const RoutineContext context{step, chip, precision, loaded, from_inputs};
  if (op->name == "recurrent") {
    GpuRoutine made;
    if (!generate_recurrent(context, made)) return std::nullopt;
    return made;
  }
  Routine routine(context);
  if (!routine.generate()) return std::nullopt;
  return std::move(routine.r);
}

}  // namespace sardonyx::codegen
