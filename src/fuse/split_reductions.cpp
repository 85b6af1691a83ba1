// See split_reductions.h.
#include "fuse/split_reductions.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <unordered_set>
#include <utility>

#include "fuse/merge_equal.h"
#include "fuse/reduction_digits.h"
#include "fuse/windows.h"
#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kWorkgroups = 1024;   // that keep a card busy: about eight on each SM of an H200
constexpr std::int64_t kFewResults = 64;     // few enough that a reduction of any length is worth two kernels
constexpr std::int64_t kLeastRow = 32768;    // elements: one workgroup reduces shorter rows faster
constexpr std::int64_t kLeastOfFew = 16384;  // the same for rows so few that most of a card would be idle
constexpr std::int64_t kVeryFewRows = 16;
constexpr std::int64_t kManyWholeRows = 128;      // a workgroup for each keeps a card's memory busy
constexpr std::int64_t kLeastPart = 4096;         // elements of a part of a row
constexpr std::int64_t kLeastColumn = 512;        // elements of a part of a column, which up to 128 threads divide
constexpr std::int64_t kLeastOfFewColumns = 256;  // the same where columns are few (FuseOptions::few_columns)
constexpr std::int64_t kColumnGroups = 264;       // workgroups that saturate a card's memory: two on each SM of an H200
constexpr std::int64_t kGroupColumns = 16;        // columns of a workgroup, at least
constexpr std::int64_t kMultiple = 16;            // of each part's elements: aligns vector loads
constexpr std::int64_t kMostPartsOfUnknown = 16;  // of a row, if the number of rows is unknown
constexpr std::int64_t kMostPartsOfArg = 64;      // comparisons take many instructions, which more workgroups divide
constexpr std::int64_t kMostPartsOfColumn = 256;  // the second kernel reads all parts of a column: more cost it time
constexpr std::int64_t kTeamColumn = 6144;        // shorter columns are not worth a second kernel,
                                                  // unless they are few (FuseOptions::few_columns)
constexpr std::int64_t kLeastMixed = 8192;        // elements that are contiguous in runs, with gaps between the runs
constexpr std::int64_t kLongRun = 512;            // contiguous elements that a team of threads reduces
constexpr std::int64_t kManyRuns = 64;            // shorter runs, whose elements become columns
constexpr std::int64_t kEnoughWindows = 4096;     // results of windows from which on a second kernel does not pay

// On a CPU.
constexpr std::int64_t kThreads = 64;          // with work for so many, a reduction is not divided further
constexpr std::int64_t kVectorRun = 32;        // contiguous elements that the innermost loop reduces in vectors
constexpr std::int64_t kLeastRuns = 8;         // of shorter runs: fewer are not worth a second kernel
constexpr std::int64_t kColumns = 256;         // columns of a work item
constexpr std::int64_t kLeastOfItem = 16384;   // elements of a work item
constexpr std::int64_t kLeastDivided = 65536;  // elements that are divided among threads

// Reductions of `e` that are always evaluated.
void certain_reductions(const Expr& e, Exprs& out) {
  if (!e->has_reduce) return;
  if (e->op == Op::kReduce) {
    if (std::none_of(out.begin(), out.end(), [&](const Expr& r) { return same(r, e); })) out.push_back(e);
    return;
  }
  if (e->op == Op::kSelect) return certain_reductions(e->args[0], out);
  for (const Expr& a : e->args) certain_reductions(a, out);
}

// Whether a reduction has so many elements that a remark says why it is not split.
bool is_long(const Expr& r) {
  std::int64_t all = 1, n = 0;
  for (const Expr& v : r->vars)
    if (is_const_int(v->args[0], n)) all = std::min(all, kLeastRow) * n;
  return all >= kLeastOfFew;
}

class Splitter {
 public:
  Splitter(Graph& g, const FuseOptions& options)
      : g_(g),
        few_threads_(options.few_threads),
        row_bytes_(options.row_bytes),
        cache_bytes_(options.cache_bytes),
        few_columns_length_(options.few_columns_length),
        few_columns_(options.few_columns),
        long_rows_(options.long_rows) {}

  // `r` as a reduction of partial results; empty if r stays as it is, with the reason in `why`.
  Expr split(const Expr& r, const Exprs& vars, const char*& why) {
    const auto kind = static_cast<ReduceKind>(r->i);
    const bool arg = kind >= ReduceKind::kArgMin;
    if (few_threads_ && arg) return {};
    why = "it reduces what is itself a reduction";
    if (r->args[0]->has_reduce) return {};
    why = "it searches several dims";
    if (arg && r->vars.size() != 1) return {};
    why = "its length differs between results";
    for (const Expr& v : r->vars)
      if (v->args[0]->has_var || v->args[0]->has_load) return {};
    const std::optional<ReducedDigits> d = arg ? ReducedDigits{r->vars, r->args[0], r->vars} : digits_of(r);
    why = "it does not go through memory in order";
    if (!d) return {};
    Parts p;
    p.body = d->body;
    p.reduced = d->vars;
    for (const Expr& v : vars) {
      if (!mentions(r, v)) continue;
      if (few_threads_ && is_const(v->args[0], 1))
        p.body = substitute(p.body, {{v, Expr(0)}});
      else
        p.kept.push_back(v);
    }
    why = "it is a window, and there are many";
    if (is_window(r, extent_of(p.kept), extent_of(p.reduced))) return {};
    why = "there are enough results, or parts would be too short";
    if (!(few_threads_ ? plan_vectors(p) : plan(p, arg))) return arg ? Expr() : in_memory_order(r, *d);
    if (arg) return split_arg(r, p);
    if (const Expr e = few_threads_ ? Expr() : of_exponentials(r, p)) return e;
    if (const Expr e = of_squares(r, p)) return e;
    const Value* partial = loop(p, [&](const Index& i) { return reduce(kind, {i.at}, i.of(p.body)); });
    const Index whole = combined(p);
    return reduce(kind, whole.over, load(partial, partial->dtype, whole.outer));
  }

 private:
  // How a reduction is split: all reduced variables except `extra` are divided into parts.
  struct Parts {
    Exprs kept, reduced, extra;
    Expr body;
    bool columns = false;
    bool even = false;
    std::int64_t count = 0;
    Expr length;  // of a part; the last ones may be shorter unless it is even
  };
  // The variables of a loop over parts, or over partial results, and the replacements of the reduction's variables.
  struct Index {
    Exprs outer;  // of partial results: indices
    Exprs over;   // variables of their reduction
    Expr at, begin, terms;
    std::vector<std::pair<Expr, Expr>> replace;
    Expr of(const Expr& e) const { return substitute(e, replace); }
  };

  static Expr extent_of(const Exprs& vars) {
    Expr n = 1;
    for (const Expr& v : vars) n = n * v->args[0];
    return n;
  }
  static Exprs extents_of(const Exprs& vars) {
    Exprs out;
    for (const Expr& v : vars) out.push_back(v->args[0]);
    return out;
  }

  // Decides whether, and how, the reduction is split.
  bool plan(Parts& p, bool arg) const {
    p.columns =
        std::any_of(p.kept.begin(), p.kept.end(), [&](const Expr& v) { return unit_loads(p.body, v, p.reduced) > 0; });
    const Exprs results = extents_of(p.kept);
    const Expr count = extent_of(p.reduced);
    if (p.columns) {
      p.count = parts_of_columns(results, count, least_column(results));
    } else if (is_one_run(p)) {
      p.count = better_in_registers(p, results, count) ? 0 : parts_of_rows(results, count);
      if (long_rows_ && p.count > 1 && is_const(count)) p.count = whole_shares(count->i, p.count);
      // A part without elements has no position.
      if (arg && p.count > 1 && is_const(count) && !(long_rows_ && all_have_elements(count->i, p.count)))
        p.count = even_parts(count->i);
    } else if (!arg) {
      return plan_runs(p);
    }
    if (p.count < 2) return false;
    set_length(p, count);
    std::int64_t n = 0, part = 0;
    // Lengths are rounded up, so that fewer parts may have all elements; one without any would have no position.
    if (arg && long_rows_ && is_const_int(count, n) && is_const_int(p.length, part))
      p.count = std::min(p.count, (n + part - 1) / part);
    return !arg || p.even || (long_rows_ && is_const(count) && all_have_elements(count->i, p.count));
  }

  // Whether a workgroup keeps each row in registers, and a second kernel would find little of them in the caches.
  bool better_in_registers(const Parts& p, const Exprs& results, const Expr& count) const {
    std::int64_t rows = 0, length = 0, bytes = 1;
    if (!is_const_int(idx::product(results), rows) || !is_const_int(count, length) || rows < kManyWholeRows)
      return false;
    visit(p.body, [&](const Expr& x) {
      if (x->op == Op::kLoad) bytes = std::max(bytes, static_cast<std::int64_t>(size_of(x->dtype)));
    });
    return length * bytes <= row_bytes_ && rows * length * bytes > cache_bytes_;
  }

  // For contiguous runs with gaps between them. Each long run becomes a row (an image's pixels in the sum over a
  // batch). Each element of short runs (the channels of a group) becomes a column, and neighbouring threads read a run
  // together.
  bool plan_runs(Parts& p) const {
    const auto unit = std::find_if(p.reduced.begin(), p.reduced.end(),
                                   [&](const Expr& v) { return unit_loads(p.body, v, p.reduced) > 0; });
    std::int64_t all = 0, run = 0, runs = 0;
    if (unit == p.reduced.end() || (is_const_int(extent_of(p.reduced), all) && all < kLeastMixed)) return false;
    const Expr inner = *unit;  // NOLINT(performance-unnecessary-copy-initialization): erased next
    p.reduced.erase(unit);
    const Expr others = extent_of(p.reduced);
    if (!is_const_int(inner->args[0], run)) return false;
    p.extra = {inner};
    Exprs results = extents_of(p.kept);
    if (run >= kLongRun) {
      std::swap(p.extra, p.reduced);
      results.push_back(others);
      p.count = std::max<std::int64_t>(1, parts_of_rows(results, inner->args[0]));
    } else {
      if (is_const_int(others, runs) && runs < kManyRuns) return false;
      p.columns = true;
      results.push_back(inner->args[0]);
      p.count = std::max<std::int64_t>(1, parts_of_columns(results, others, 0));
    }
    set_length(p, extent_of(p.reduced));
    return true;
  }

  // On a CPU: divides among threads what is long, and makes columns of the elements of runs shorter than a vector.
  static bool plan_vectors(Parts& p) {
    const auto reads_along = [&](const Expr& v) { return unit_loads(p.body, v, p.reduced) > 0; };
    p.columns = std::any_of(p.kept.begin(), p.kept.end(), reads_along);
    Exprs results = extents_of(p.kept);
    const auto run = std::find_if(p.reduced.begin(), p.reduced.end(), reads_along);
    std::int64_t length = 0, runs = 0;
    if (!p.columns && run != p.reduced.end() && !is_one_run(p) && is_const_int((*run)->args[0], length) &&
        length < kVectorRun) {
      p.extra = {*run};
      p.reduced.erase(run);
      p.columns = true;
      results.push_back(p.extra[0]->args[0]);
    }
    const Expr count = extent_of(p.reduced);
    p.count = parts_for_threads(results, count, p.columns);
    if (!p.extra.empty() && is_const_int(count, runs) && runs >= kLeastRuns)
      p.count = std::max<std::int64_t>(p.count, 1);
    if (p.count < (p.extra.empty() ? 2 : 1)) return false;
    set_length(p, count);
    return true;
  }

  // A number of parts with work for all threads; 0 if `count` elements for each of the results are few or unknown.
  static std::int64_t parts_for_threads(const Exprs& results, const Expr& count, bool columns) {
    std::int64_t length = 0;
    const std::int64_t n = assumed_product(results);
    if (n == 0 || !is_const_int(count, length)) return 0;
    const std::int64_t width = columns ? std::min(n, kColumns) : 1, items = n / width;
    if (width * length < kLeastDivided) return 0;
    return std::min(kThreads / items, width * length / kLeastOfItem);
  }

  static void set_length(Parts& p, const Expr& count) {
    p.even = p.count == 1 || (is_const(count) && count->i % (p.count * kMultiple) == 0);
    p.length = p.count == 1 ? count : idx::ceildiv(count, p.count * kMultiple) * Expr(kMultiple);
  }

  // Whether all reduced elements are contiguous in memory.
  static bool is_one_run(const Parts& p) {
    const Expr at = loop_var(extent_of(p.reduced));
    std::vector<std::pair<Expr, Expr>> replace;
    const Exprs index = idx::delinearize(at, extents_of(p.reduced));
    for (std::size_t k = 0; k < index.size(); ++k) replace.emplace_back(p.reduced[k], index[k]);
    return unit_loads(substitute(p.body, replace), at, {at}) > 0;
  }

  // A reduction that stays whole but reads one run of memory in another order (an image whose channels are last): over
  // the run from its begin to its end. On a CPU, one that reads several dims: over these. Empty if it does so already,
  // or reads none.
  Expr in_memory_order(const Expr& r, const ReducedDigits& d) const {
    Parts p;
    p.reduced = d.vars;
    p.body = d.body;
    if (few_threads_ && d.vars.size() > r->vars.size() && !is_one_run(p))
      return reduce(static_cast<ReduceKind>(r->i), d.vars, d.body);
    if (d.vars.size() < 2 || unit_loads(r->args[0], r->vars.back(), r->vars) > 0 || !is_one_run(p)) return {};
    const Expr at = loop_var(extent_of(d.vars));
    std::vector<std::pair<Expr, Expr>> replace;
    const Exprs index = idx::delinearize(at, extents_of(d.vars));
    for (std::size_t k = 0; k < index.size(); ++k) replace.emplace_back(d.vars[k], index[k]);
    return reduce(static_cast<ReduceKind>(r->i), {at}, substitute(d.body, replace));
  }

  // Index of the partial results of part `part`, for the result's element `kept`.
  static Exprs partial_index(const Parts& p, Exprs kept, const Exprs& extra, const Expr& part) {
    kept.insert(kept.end(), extra.begin(), extra.end());
    kept.insert(p.columns ? kept.begin() : kept.end(), part);
    return kept;
  }

  static Index of_part(const Parts& p) {
    Index i;
    const Expr part = loop_var(p.count), count = extent_of(p.reduced);
    i.begin = part * p.length;
    i.terms = p.even ? p.length : idx::min(p.length, count - i.begin);
    i.at = loop_var(i.terms);
    const Exprs index = idx::delinearize(i.begin + i.at, extents_of(p.reduced));
    for (std::size_t k = 0; k < index.size(); ++k) i.replace.emplace_back(p.reduced[k], index[k]);
    Exprs kept, extra;
    for (const auto& [from, to] : {std::pair(&p.kept, &kept), std::pair(&p.extra, &extra)})
      for (const Expr& v : *from) {
        to->push_back(loop_var(v->args[0]));
        i.replace.emplace_back(v, to->back());
      }
    i.outer = partial_index(p, kept, extra, part);
    return i;
  }

  static Index combined(const Parts& p) {
    Index i;
    const Expr part = loop_var(p.count);
    Exprs extra;
    for (const Expr& v : p.extra) extra.push_back(loop_var(v->args[0]));
    i.outer = partial_index(p, p.kept, extra, part);
    i.terms = p.even ? p.length : idx::min(p.length, extent_of(p.reduced) - part * p.length);
    i.over = extra;
    i.over.insert(i.over.begin(), part);
    return i;
  }

  Value* loop(const Parts& p, const std::function<Expr(const Index&)>& body) {
    const Index i = of_part(p);
    return g_.add_loop(i.outer, body(i));
  }

  // Matches a - b, where only a depends on the reduced variables, and b is another reduction (usually of the same row),
  // for which the parts of this one would otherwise have to wait.
  static bool is_shifted(const Expr& e, const Parts& p, Expr& a, Expr& b) {
    if (e->op != Op::kSub || (e->dtype != DType::kFloat32 && e->dtype != DType::kFloat64)) return false;
    a = e->args[0], b = e->args[1];
    const auto depends = [&](const Expr& x) {
      const auto used = [&](const Expr& v) { return mentions(x, v); };
      return std::any_of(p.reduced.begin(), p.reduced.end(), used) || std::any_of(p.extra.begin(), p.extra.end(), used);
    };
    if (!depends(a) || depends(b)) return false;
    const auto loads = loads_of(b);
    return std::any_of(loads.begin(), loads.end(), [](const Value* v) {
      const Node* n = storage_of(v)->producer;
      return n && n->as<LoopOp>() && n->as<LoopOp>()->body->has_reduce;
    });
  }

  // A sum of exp(a - b), with the row's maximum b: each part sums exp(a - m) with its own maximum m, and the parts'
  // sums are multiplied by exp(m - b). m is made finite, so that parts of nothing but -inf give 0.
  Expr of_exponentials(const Expr& r, const Parts& p) {
    Expr a, b;
    if (static_cast<ReduceKind>(r->i) != ReduceKind::kSum || p.body->op != Op::kExp ||
        !is_shifted(p.body->args[0], p, a, b))
      return {};
    const DType t = a->dtype;
    const double most = t == DType::kFloat64 ? std::numeric_limits<double>::max()
                                             : static_cast<double>(std::numeric_limits<float>::max());
    const Value* largest = loop(p, [&](const Index& i) { return reduce(ReduceKind::kMax, {i.at}, i.of(a)); });
    const auto shift = [&](const Index& i) {
      return binary(Op::kMin, binary(Op::kMax, load(largest, t, i.outer), constant(-most, t)), constant(most, t));
    };
    const Value* sum = loop(p, [&](const Index& i) {
      return reduce(ReduceKind::kSum, {i.at}, unary(Op::kExp, binary(Op::kSub, i.of(a), shift(i))));
    });
    const Index whole = combined(p);
    return reduce(ReduceKind::kSum, whole.over,
                  binary(Op::kMul, load(sum, t, whole.outer), unary(Op::kExp, binary(Op::kSub, shift(whole), b))));
  }

  // A sum of (a - b)^2, with the mean b: each part sums (a - m)^2 with its own mean m, to which n (m - b)^2 is added.
  // (Chan, Golub, LeVeque: "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979.)
  Expr of_squares(const Expr& r, const Parts& p) {
    Expr a, b;
    if (static_cast<ReduceKind>(r->i) != ReduceKind::kSum || p.body->op != Op::kMul ||
        !same(p.body->args[0], p.body->args[1]) || !is_shifted(p.body->args[0], p, a, b))
      return {};
    const DType t = a->dtype;
    const auto square = [](const Expr& x) { return binary(Op::kMul, x, x); };
    const Value* sum = loop(p, [&](const Index& i) { return reduce(ReduceKind::kSum, {i.at}, i.of(a)); });
    const auto mean = [&](const Index& i) {
      return binary(Op::kDiv, load(sum, t, i.outer), cast(idx::max(i.terms, 1), t));
    };
    const Value* squares = loop(p, [&](const Index& i) {
      return reduce(ReduceKind::kSum, {i.at}, square(binary(Op::kSub, i.of(a), mean(i))));
    });
    const Index whole = combined(p);
    const Expr between = binary(Op::kMul, cast(idx::max(whole.terms, 0), t), square(binary(Op::kSub, mean(whole), b)));
    return reduce(ReduceKind::kSum, whole.over, binary(Op::kAdd, load(squares, t, whole.outer), between));
  }

  // The best of the parts' best elements; finds first which part has it.
  Expr split_arg(const Expr& r, const Parts& p) {
    const auto kind = static_cast<ReduceKind>(r->i);
    const Value* partial = loop(p, [&](const Index& i) { return i.begin + reduce(kind, {i.at}, i.of(p.body)); });
    Exprs over;
    std::vector<std::pair<Expr, Expr>> fresh;
    for (const Expr& v : p.kept) {
      over.push_back(loop_var(v->args[0]));
      fresh.emplace_back(v, over.back());
    }
    const Index whole = combined(p);
    const Expr of_part = load(partial, partial->dtype, whole.outer);
    const Expr best = reduce(kind, whole.over, substitute(p.body, {{p.reduced[0], of_part}}));
    const Value* which = g_.add_loop(over, substitute(best, fresh));
    return load(partial, partial->dtype, partial_index(p, p.kept, {}, load(which, which->dtype, p.kept)));
  }

  // Windows of many results are short sums that read overlapping elements: splitting them only adds a kernel.
  static bool is_window(const Expr& r, const Expr& results, const Expr& count) {
    std::int64_t n = 0, terms = 0;
    return r->vars.size() > 1 && is_const_int(count, terms) && terms <= kMostTaps &&
           (!is_const_int(results, n) || n >= kEnoughWindows);
  }

  // At least `count` parts, of which none is longer than what a workgroup's threads load in whole vectors at a time.
  static std::int64_t whole_shares(std::int64_t length, std::int64_t count) {
    const std::int64_t share = (length + count - 1) / count;
    return share <= kLeastPart ? count
                               : (length + kLeastPart * (share / kLeastPart) - 1) / (kLeastPart * (share / kLeastPart));
  }
  static bool all_have_elements(std::int64_t length, std::int64_t count) {
    const std::int64_t part = (length + count * kMultiple - 1) / (count * kMultiple) * kMultiple;
    return (count - 1) * part < length;
  }

  // A number of parts of equal length, if there is one.
  static std::int64_t even_parts(std::int64_t length) {
    std::int64_t parts = kMostPartsOfArg;
    while (parts > 1 && length % (parts * kMultiple) != 0) --parts;
    return parts;
  }

  static std::int64_t parts_of_rows(const Exprs& results, const Expr& count) {
    std::int64_t length = 0;
    const std::int64_t n = assumed_product(results);
    const bool known = is_const(idx::product(results));
    if (n == 0) return 0;
    if (!is_const_int(count, length)) return known && n <= kFewResults ? kWorkgroups / n : 0;
    if (length < (n <= kVeryFewRows ? kLeastOfFew : kLeastRow)) return 0;
    const std::int64_t wanted = std::min(kWorkgroups / n, length / kLeastPart);
    return known ? wanted : std::min(wanted, kMostPartsOfUnknown);
  }

  std::int64_t least_column(const Exprs& results) const {
    return assumed_product(results) <= few_columns_ ? few_columns_length_ : kTeamColumn;
  }

  // `least`: columns of at most so many elements are not worth a second kernel; one kernel reduces each with a team of
  // threads.
  std::int64_t parts_of_columns(const Exprs& results, const Expr& count, std::int64_t least) const {
    std::int64_t length = 0;
    const std::int64_t n = assumed_product(results);
    const bool known = is_const_int(count, length);
    if (n == 0 || (known && length <= least) || (!known && !is_const(idx::product(results)))) return 0;
    const std::int64_t groups = (n + kGroupColumns - 1) / kGroupColumns;
    const std::int64_t wanted = std::min(kMostPartsOfColumn, kColumnGroups / groups);
    return known ? std::min(wanted, length / (n <= few_columns_ ? kLeastOfFewColumns : kLeastColumn)) : wanted;
  }

  Graph& g_;
  const bool few_threads_;
  const std::int64_t row_bytes_, cache_bytes_, few_columns_length_, few_columns_;
  const bool long_rows_;  // a part may be shorter than others, as kernels of rows use vectors for it too
};

}  // namespace

void split_reductions(Graph& g, const std::vector<Epilogue>& epilogues, const FuseOptions& options) {
  const auto constants = constant_nodes(g);
  std::vector<Node*> nodes;
  for (const auto& n : g.nodes)
    if (n->as<LoopOp>() && n->as<LoopOp>()->body->has_reduce && !constants.count(n.get())) nodes.push_back(n.get());
  bool changed = false;
  for (Node* n : nodes) {
    auto* l = n->as<LoopOp>();
    Exprs reductions;
    certain_reductions(l->body, reductions);
    std::vector<std::pair<Expr, Expr>> done;
    g.origin = n->origin;
    for (const Expr& r : reductions) {
      const char* why = nullptr;
      if (const Expr y = Splitter(g, options).split(r, l->vars, why))
        done.emplace_back(r, y);
      else if (is_long(r))
        remark(options, "split_reductions", n->origin, [&] { return std::string(why); });
    }
    g.origin.clear();
    if (done.empty()) continue;
    l = n->as<LoopOp>();
    l->body = rewrite(l->body, [&](const Expr& x) -> Expr {
      if (!x->has_reduce) return x;
      for (const auto& [from, to] : done)
        if (same(from, x)) return to;
      return Expr();
    });
    refresh_inputs(*n);
    changed = true;
  }
  if (!changed) return;
  sort_nodes(g);
  // Parts of a mean, and of the squared differences from it. Epilogues have expressions of their own, in which nothing
  // is replaced.
  std::unordered_set<const Value*> kept;
  for (const Epilogue& e : epilogues) {
    for (const Value* v : loads_of(e.kernel.epilogue)) kept.insert(v);
    for (const Value* v : e.kernel.node->outputs) kept.insert(v);
    for (const Node* n : e.loops) kept.insert(n->outputs.begin(), n->outputs.end());
  }
  merge_equal_nodes(g, kept);
}

}  // namespace sardonyx
