// GPU kernels of windows (gpu_windows.cpp): elements that all lanes of a pack read, and that are contiguous in memory.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "codegen/gpu_generator.h"

namespace sardonyx::codegen {
namespace {

constexpr int kLongestRun = 8;

bool same_or_none(const Expr& a, const Expr& b) { return a ? b && same(a, b) : !b; }

}  // namespace

// Whether a pack of `length` elements may be loaded where `first` is.
bool GpuGenerator::suits_run(const Expr& first, int length, const WindowTile& w) const {
  if (w.rows && row_options_.any_address && in_bounds(first)) return length * size_of(first->dtype) <= 16;
  Exprs conditions;
  return length * size_of(first->dtype) <= 16 && multiple_of(first->args[0], length, conditions) &&
         std::all_of(conditions.begin(), conditions.end(), [&](const Expr& e) {
           return std::any_of(w.multiples.begin(), w.multiples.end(),
                              [&](const Expr& m) { return same(m, e) && w.length % length == 0; });
         });
}

void GpuGenerator::fetch_runs(const std::vector<const LoadingTerm*>& terms, const WindowTile& w,
                              std::vector<Fetched>& done) {
  if (!w.lane) return;  // addresses need not be aligned
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
      if (!uses_var(l, w.lane) && places[l->value].emplace(l->args[0], all.size()).second) all.push_back({l, &t->term});
  const auto checked = [](const Element& e) { return in_bounds(e.load) ? Expr() : e.term->inside; };
  const auto filled = [](const Element& e) { return e.term->filled && same(e.term->filled, e.load); };
  for (std::size_t k = 0; k < all.size(); ++k)
    for (int length = kLongestRun; length > 1 && !all[k].taken; length /= 2) {
      const Element& first = all[k];
      if (!suits_run(first.load, length, w)) continue;
      std::vector<std::size_t> run = {k};
      const Places& near = places[first.load->value];
      for (std::int64_t i = 1; i < length; ++i) {
        const auto found = near.find(first.load->args[0] + Expr(i));
        if (found == near.end()) break;
        const Element& e = all[found->second];
        if (e.taken || e.load->dtype != first.load->dtype || !same_or_none(checked(e), checked(first)) ||
            filled(e) != filled(first) || e.term->fill != first.term->fill)
          break;
        run.push_back(found->second);
      }
      if (run.size() < static_cast<std::size_t>(length)) continue;
      const std::string name = emit_.fresh("v");
      emit_.line(fmt::format("auto {} = load_pack<{}>({});", name, length,
                             address_of(first.load, first.load->args[0], first.term)));
      fill_with_outside(first.load, first.term, name);
      for (std::size_t i = 0; i < run.size(); ++i) {
        Element& e = all[run[i]];
        e.taken = true;
        done.push_back({e.load, checked(e), element_text(e.load->dtype, fmt::format("{}[{}]", name, i))});
      }
    }
}

}  // namespace sardonyx::codegen
