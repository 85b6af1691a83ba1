// GPU kernels of windows (gpu_windows.cpp): loops over the terms of a reduction that a team of threads divides.
#include <algorithm>
#include <optional>

#include "codegen/gpu_generator.h"

namespace sardonyx::codegen {

// Where the pack of a load begins, whose elements are those of the lanes.
std::optional<Expr> GpuGenerator::pack_of_lanes(const Expr& l, const WindowTile& w) const {
  Expr step, rest;
  Exprs conditions;
  if (!w.lane || !idx::split_affine(l->args[0], w.lane, step, rest) || !is_const(step, 1) ||
      !multiple_of(rest, w.length, conditions) || w.length * static_cast<int>(size_of(l->dtype)) > 16)
    return {};
  const bool holds = std::ranges::all_of(conditions, [&](const Expr& e) {
    return std::ranges::any_of(w.multiples, [&](const Expr& m) { return same(m, e); });
  });
  return holds ? std::optional(rest) : std::nullopt;
}

// The packs that a term loads, if these are all of its loads: they can be loaded before other terms are computed.
// Otherwise AMD's compiler may wait for the load of a term before it issues the next one's.
Exprs GpuGenerator::loads_ahead(const Expr& term, const WindowTile& w) const {
  Exprs loads;
  if (!loads_first_ || term->op == Op::kSelect) return {};
  bool all = true;
  certain_loads(term, [&](const Expr& l) {
    all = all && !l->args[0]->has_load && pack_of_lanes(l, w).has_value();
    loads.push_back(l);
  });
  return all ? loads : Exprs();
}

// Opens two loops over the terms of a thread, and binds their variables. The inner one is unrolled, so that its loads
// are in flight together; those past the last term read the last one again. What is loaded `ahead`, in a loop of its
// own, is added to `fetched`. Returns the C++ condition that the term exists.
std::string GpuGenerator::open_terms(const Exprs& vars, const WindowTile& w, int at_a_time, const Exprs& ahead,
                                     std::vector<Fetched>& fetched) {
  Expr count = 1;
  for (const Expr& v : vars) count = count * v->args[0];
  const bool narrow = range_.narrow(count);
  const char* type = narrow ? "i32" : "i64";
  const std::string f = emit_.fresh("f"), c = emit_.fresh("c"), all = emit_.value(count);
  std::int64_t n = 0;
  if (is_const_int(count, n))
    at_a_time = static_cast<int>(std::min<std::int64_t>(at_a_time, (n + w.team - 1) / w.team));
  emit_.open(fmt::format("for ({0} {1} = t; {1} < {2}; {1} += {0}(team) * {3})", type, f, all, at_a_time));
  const auto open_term = [&] {
    const std::string q = emit_.fresh("q"), exists = emit_.fresh("e");
    emit_.line("#pragma unroll");
    emit_.open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", c, at_a_time));
    emit_.line(fmt::format("{0} {1} = {2} + {0}(team) * {3};", type, q, f, c));
    emit_.line(fmt::format("const bool {} = {} < {};", exists, q, all));
    emit_.line(fmt::format("{0} = {1} ? {0} : {2} - 1;", q, exists, all));
    decode(vars, q, narrow);
    return exists;
  };
  if (ahead.empty()) return open_term();
  for (const Expr& l : ahead) {
    const std::string name = emit_.fresh("v"), element = fmt::format("{}[{}]", name, c);
    emit_.line(fmt::format("Pack<{}, {}> {}[{}];", storage_name(l->dtype), w.length, name, at_a_time));
    fetched.push_back({l, {}, element_text(l->dtype, element + "[l]"), element});
  }
  open_term();
  for (std::size_t k = 0; k < ahead.size(); ++k)
    emit_.line(fmt::format("{} = load_pack<{}>({});", fetched[k].pack, w.length,
                           address_of(ahead[k], *pack_of_lanes(ahead[k], w), nullptr)));
  emit_.close();
  clear(vars);
  emit_.line("loads_in_flight();");
  return open_term();
}

}  // namespace sardonyx::codegen
