// GPU kernels of windows (gpu_windows.cpp): elements that all lanes of a pack read, or the results of a row, and that
// are contiguous in memory.
#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "codegen/gpu_generator.h"

namespace sardonyx::codegen {
namespace {

constexpr int kLongestRun = 8;

bool same_or_none(const Expr& a, const Expr& b) { return a ? b && same(a, b) : !b; }

}  // namespace

// Whether a pack of `length` elements may be loaded where `first` is.
bool GpuGenerator::suits_run(const Expr& first, int length, const WindowTile& w) const {
  if (length * size_of(first->dtype) > 16) return false;
  if (row_options_.any_address && (!w.lane || (w.rows && in_bounds(first)))) return true;
  Exprs conditions;
  return multiple_of(first->args[0], length, conditions) &&
         std::all_of(conditions.begin(), conditions.end(), [&](const Expr& e) {
           return std::any_of(w.multiples.begin(), w.multiples.end(),
                              [&](const Expr& m) { return same(m, e) && w.length % length == 0; });
         });
}

void GpuGenerator::fetch_runs(const std::vector<const LoadingTerm*>& terms, const WindowTile& w,
                              std::vector<Fetched>& done) {
  if (!w.lane && !(w.whole && row_options_.any_address)) return;  // addresses need not be aligned
  struct Element {
    Expr load;
    const WindowTerm* term;
    bool taken = false;
  };
  std::vector<Element> all;
  using Places = std::unordered_map<Expr, std::size_t, ExprHash, ExprSame>;  // numbers of elements by their offsets
  std::map<const Value*, Places> places;
  for (const LoadingTerm* t : terms)
    for (const Expr& l : t->loads)
      if ((!w.lane || !uses_var(l, w.lane)) && places[l->value].emplace(l->args[0], all.size()).second)
        all.push_back({l, &t->term});
  const auto checked = [](const Element& e) { return in_bounds(e.load) ? Expr() : e.term->inside; };
  const auto filled = [](const Element& e) { return e.term->filled && same(e.term->filled, e.load); };
  const bool overlap = !w.lane;  // packs may have elements that others have
  // The element `by` places after number k, if both can be loaded together.
  const auto neighbour = [&](std::size_t k, std::int64_t by) -> std::optional<std::size_t> {
    const Element& first = all[k];
    const Places& near = places[first.load->value];
    const auto found = near.find(first.load->args[0] + Expr(by));
    if (found == near.end()) return {};
    const Element& e = all[found->second];
    if ((e.taken && !overlap) || e.load->dtype != first.load->dtype || !same_or_none(checked(e), checked(first)) ||
        filled(e) != filled(first) || e.term->fill != first.term->fill)
      return {};
    return found->second;
  };
  // Number k and those that follow it, as many as a pack may have; a last pack overlaps with the one before it.
  const auto run_from = [&](std::size_t k) {
    std::vector<std::size_t> run = {k};
    for (std::int64_t i = 1; i < kLongestRun; ++i) {
      const auto next = neighbour(k, i);
      if (!next) break;
      run.push_back(*next);
    }
    std::vector<std::size_t> before;
    const std::size_t whole = std::bit_ceil(run.size());
    for (std::int64_t i = 1; overlap && run.size() + before.size() < whole; ++i) {
      const auto earlier = neighbour(k, -i);
      if (!earlier) return run;
      before.insert(before.begin(), *earlier);
    }
    run.insert(run.begin(), before.begin(), before.end());
    return run;
  };
  const auto load_run = [&](const std::vector<std::size_t>& run, std::size_t length) {
    const Element& first = all[run[0]];
    const std::string name = emit_.fresh("v");
    emit_.line(fmt::format("auto {} = load_pack<{}>({});", name, length,
                           address_of(first.load, first.load->args[0], first.term)));
    fill_with_outside(first.load, first.term, name);
    for (std::size_t i = 0; i < length; ++i) {
      Element& e = all[run[i]];
      if (std::exchange(e.taken, true)) continue;
      done.push_back({e.load, checked(e), element_text(e.load->dtype, fmt::format("{}[{}]", name, i))});
    }
  };
  for (std::size_t k = 0; k < all.size(); ++k)
    for (int length = kLongestRun; length > 1 && !all[k].taken; length /= 2) {
      if (!suits_run(all[k].load, length, w)) continue;
      const std::vector<std::size_t> run = run_from(k);
      if (run.size() >= static_cast<std::size_t>(length)) load_run(run, static_cast<std::size_t>(length));
    }
}

}  // namespace sardonyx::codegen
