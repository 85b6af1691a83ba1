// Reductions as loops in C++: Emitter::reduction and its helpers.
#include <algorithm>

#include "codegen/emit_types.h"

namespace sardonyx::codegen {

std::string Emitter::combine(ReduceKind kind, DType t, const std::string& acc, const std::string& x) {
  auto back = [&](const std::string& s) {
    return bits_of(t) < 32 && !is_float(t) ? fmt::format("{}({})", type_name(t), s) : s;
  };
  switch (kind) {
    case ReduceKind::kSum:
      return back(acc + " + " + x);
    case ReduceKind::kProd:
      return back(acc + " * " + x);
    case ReduceKind::kMin:
      return fmt::format("min({}, {})", acc, x);
    case ReduceKind::kMax:
      return fmt::format("max({}, {})", acc, x);
    case ReduceKind::kAny:
      return acc + " | " + x;
    case ReduceKind::kAll:
      return acc + " & " + x;
    default:
      fail(ErrorKind::kInternal, "internal error: not a combining reduction");
  }
}

std::string Emitter::neutral(ReduceKind kind, DType t) {
  const char* n = type_name(t);
  switch (kind) {
    case ReduceKind::kSum:
      return fmt::format("{}(0)", n);
    case ReduceKind::kProd:
      return fmt::format("{}(1)", n);
    case ReduceKind::kMin:
    case ReduceKind::kMax: {
      const bool max = kind == ReduceKind::kMax;
      if (t == DType::kBool) return max ? "false" : "true";
      if (is_float(t)) return fmt::format("{}({}inf32())", n, max ? "-" : "");
      const int bits = bits_of(t);
      if (!is_signed(t)) return max ? fmt::format("{}(0)", n) : fmt::format("{}(~{}(0))", n, n);
      const std::string low =
          bits == 64 ? "i64(-9223372036854775807ll - 1)" : fmt::format("{}(-{}ll)", n, std::int64_t{1} << (bits - 1));
      return max ? low : fmt::format("{}(~{})", n, low);
    }
    case ReduceKind::kAny:
      return "false";
    case ReduceKind::kAll:
      return "true";
    default:
      return "";
  }
}

int unit_stride_loads(const Expr& e, const Expr& var) {
  int n = 0;
  visit(e, [&](const Expr& x) {
    if (x->op != Op::kLoad || x->args.size() != 1) return;
    Expr c, rest;
    if (idx::split_affine(x->args[0], var, c, rest) && is_const(c, 1)) ++n;
  });
  return n;
}

Exprs order_reduce_vars(const Expr& e, bool& contiguous) {
  Exprs vars = e->vars;
  int best = 0;
  std::size_t at = vars.size();
  for (std::size_t k = 0; k < vars.size(); ++k) {
    const int n = unit_stride_loads(e->args[0], vars[k]);
    if (n > best) {
      best = n;
      at = k;
    }
  }
  contiguous = at < vars.size();
  if (contiguous)
    std::rotate(vars.begin() + static_cast<std::ptrdiff_t>(at), vars.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                vars.end());
  return vars;
}

/// acc = the lanes of the reduction `e` in one, halves by halves.
void Emitter::fold_lanes(const Expr& e, const std::string& acc, int lanes) {
  const auto kind = static_cast<ReduceKind>(e->i);
  const DType t = e->dtype;
  const std::string lane = acc + "_";
  if (t != DType::kFloat32 && t != DType::kFloat64) {
    line(fmt::format("for (int h = {}; h > 0; h /= 2) for (int l = 0; l < h; ++l) {}[l] = {};", lanes / 2, lane,
                     combine(kind, t, lane + "[l]", lane + "[l + h]")));
    line(fmt::format("const {} {} = {}[0];", type_name(t), acc, lane));
    return;
  }
  // In registers: halves of what was just stored in whole vectors would wait for the stores.
  std::string all = fresh("q");
  line(fmt::format("VectorOf<{0}, {1}> {2}; __builtin_memcpy(&{2}, {3}, sizeof {2});", type_name(t), lanes, all, lane));
  for (int left = lanes / 2; left > 1; left /= 2) {
    const std::string half = fresh("q");
    line(fmt::format("const auto {} = {};", half, combine(kind, t, all + ".lo", all + ".hi")));
    all = half;
  }
  line(fmt::format("const {} {} = {};", type_name(t), acc, combine(kind, t, all + ".lo", all + ".hi")));
}

void Emitter::keep_term(const Expr& reduction, const std::string& at, const std::string& x) {
  const auto kept = kept_terms.find(reduction);
  if (kept != kept_terms.end()) line(fmt::format("{}[{}] = {};", kept->second, at, x));
}

std::string Emitter::reduction(const Expr& e) {
  const auto kind = static_cast<ReduceKind>(e->i);
  if (kind >= ReduceKind::kArgMin) return arg_reduction(e);
  const DType t = e->dtype;
  check(compute_type(t) == t || t == DType::kBool, "reduction in {}: widen the body first", name(t));
  bool contiguous;
  const Exprs vars = order_reduce_vars(e, contiguous);
  const Expr& body = e->args[0];
  const std::string acc = fresh("r");
  std::int64_t last = 0;
  const bool short_loop = is_const_int(vars.back()->args[0], last) && last < 32;
  if (short_loop || plain_reductions) {
    line(fmt::format("{} {} = {};", type_name(t), acc, neutral(kind, t)));
    std::string i;
    for (const Expr& v : vars) {
      i = fresh("i");
      const std::string n = value(v->args[0]);
      open(fmt::format("for ({2} {0} = 0; {0} < {1}; ++{0})", i, n, type_of(v)));
      bind(v, i);
    }
    const std::string x = narrow(body) ? "i64(" + value(body) + ")" : value(body);
    keep_term(e, i, x);
    line(fmt::format("{} = {};", acc, combine(kind, t, acc, x)));
    for (std::size_t k = 0; k < vars.size(); ++k) close();
    return acc;
  }
  // Independent accumulators along the contiguous variable (or, if there is none, the last), so that the loop
  // vectorises without reordering a single sum. Across memory that still computes in vectors, and no sum waits for the
  // one before.
  const int lanes = size_of(t) >= 8 ? 16 : 32;
  const std::string lane = acc + "_";
  line(fmt::format("{} {}[{}];", type_name(t), lane, lanes));
  line(fmt::format("for (int l = 0; l < {}; ++l) {}[l] = {};", lanes, lane, neutral(kind, t)));
  for (std::size_t k = 0; k + 1 < vars.size(); ++k) {
    const std::string i = fresh("i"), n = value(vars[k]->args[0]);
    open(fmt::format("for (i64 {0} = 0; {0} < {1}; ++{0})", i, n));
    bind(vars[k], i);
  }
  const std::string v = fresh("v"), n = value(vars.back()->args[0]);
  line(fmt::format("i64 {} = 0;", v));
  const auto add_lanes = [&](const std::string& count) {
    line("#pragma clang loop vectorize(assume_safety)");
    open(fmt::format("for (int l = 0; l < {}; ++l)", count));
    const std::string i = fresh("i");
    line(fmt::format("const i64 {} = {} + l;", i, v));
    bind(vars.back(), i);
    const std::string x = value(body);
    keep_term(e, i, x);
    line(fmt::format("{0}[l] = {1};", lane, combine(kind, t, lane + "[l]", x)));
    close();
  };
  if (last == 0 || last >= lanes) {
    open(fmt::format("for (; {0} + {2} <= {1}; {0} += {2})", v, n, lanes));
    add_lanes(std::to_string(lanes));
    close();
  }
  // What is left, in lanes too: a row of 49 would spend most of its time on 17 terms that are added one by one.
  if (last == 0)
    add_lanes(fmt::format("int({} - {})", n, v));
  else if (last % lanes != 0)
    add_lanes(std::to_string(last % lanes));
  for (std::size_t k = 0; k + 1 < vars.size(); ++k) close();
  fold_lanes(e, acc, lanes);
  return acc;
}

namespace {

/// The search for an extreme's position: conditions in C++ on an element x and the best one before it.
struct Search {
  explicit Search(ReduceKind kind, DType type)
      : max(kind == ReduceKind::kArgMax || kind == ReduceKind::kArgMaxLast),
        last(kind == ReduceKind::kArgMinLast || kind == ReduceKind::kArgMaxLast),
        floats(is_float(type)) {}

  /// Whether x takes the place of `best`, if it comes after it. NaN counts as the extreme, and the first one is taken,
  /// as in numpy. Without branches, between which loads would wait for one another.
  std::string taken(const std::string& x, const std::string& best) const {
    const std::string better = fmt::format("{} {}{} {}", x, max ? ">" : "<", last ? "=" : "", best);
    return floats ? fmt::format("({0} == {0} & {1}) | ({2} != {2} & {0} == {0})", best, better, x) : better;
  }
  /// The same where they may come in any order, from their positions.
  std::string taken(const std::string& x, const std::string& at, const std::string& best,
                    const std::string& where) const {
    std::string equal = fmt::format("{} == {}", x, best);
    const std::string nan = fmt::format("({0} != {0} & {1} != {1})", x, best);
    // Of NaN the first one is taken, of equal elements the first or the last.
    std::string later = fmt::format("({} & {} {} {})", equal, at, last ? ">" : "<", where);
    if (floats) later += fmt::format(" | ({} & {} < {})", nan, at, where);
    const std::string better = fmt::format("{} {} {}", x, max ? ">" : "<", best);
    const std::string beyond = floats ? fmt::format("({0} == {0} & {1}) | ({2} != {2} & {0} == {0})", best, better, x)
                                      : fmt::format("({})", better);
    return beyond + " | " + later;
  }

  bool max, last, floats;
};

}  // namespace

/// Positions side by side in lanes, each of which searches every 16th element, then the best of the lanes.
std::string Emitter::arg_lanes(const Expr& e) {
  constexpr int kLanes = 16;
  const DType c = compute_type(e->args[0]->dtype);
  const Search search(static_cast<ReduceKind>(e->i), c);
  const Expr& var = e->vars[0];
  std::int64_t known = 0;
  const bool short_positions = is_const_int(var->args[0], known) && known < INT32_MAX;
  const char* position = short_positions ? "i32" : "i64";
  const std::string best = fresh("r"), where = fresh("r"), v = fresh("v"), n = value(var->args[0]);
  line(fmt::format("{0} {1}_[{2}]; {3} {4}_[{2}];", type_name(c), best, kLanes, position, where));
  line(fmt::format("for (int l = 0; l < {}; ++l) {{ {}_[l] = {}(0); {}_[l] = -1; }}", kLanes, best, type_name(c),
                   where));
  line(fmt::format("i64 {} = 0;", v));
  const auto search_lanes = [&](const std::string& count) {
    line("#pragma clang loop vectorize(assume_safety)");
    open(fmt::format("for (int l = 0; l < {}; ++l)", count));
    const std::string i = fresh("i"), x = fresh("x"), take = fresh("c");
    line(fmt::format("const i64 {} = {} + l;", i, v));
    bind(var, i);
    line(fmt::format("const {} {} = {};", type_name(c), x, cast_text(e->args[0]->dtype, c, 1, value(e->args[0]))));
    line(fmt::format("const bool {} = ({}_[l] < 0) | {};", take, where, search.taken(x, best + "_[l]")));
    line(fmt::format("{0}_[l] = {1} ? {2} : {0}_[l]; {3}_[l] = {1} ? {4}({5}) : {3}_[l];", best, take, x, where,
                     position, i));
    close();
  };
  open(fmt::format("for (; {0} + {2} <= {1}; {0} += {2})", v, n, kLanes));
  search_lanes(std::to_string(kLanes));
  close();
  if (known == 0 || known % kLanes != 0) search_lanes(fmt::format("int({} - {})", n, v));
  line(fmt::format("{} {} = {}_[0]; i64 {} = {}_[0];", type_name(c), best, best, where, where));
  open(fmt::format("for (int l = 1; l < {}; ++l)", kLanes));
  const std::string take = fresh("c");
  line(fmt::format("const bool {} = ({}_[l] >= 0) & ({});", take, where,
                   search.taken(best + "_[l]", where + "_[l]", best, where)));
  line(fmt::format("{0} = {1} ? {0}_[l] : {0}; {2} = {1} ? {2}_[l] : {2};", best, take, where));
  close();
  line(fmt::format("{0} = max(i64(0), i64({0}));", where));
  return where;
}

std::string Emitter::arg_reduction(const Expr& e) {
  constexpr std::int64_t kLeastInLanes = 64;  // combining the lanes takes as long as some tens of elements
  std::int64_t count = 0;
  if (!plain_reductions && e->vars.size() == 1 && (!is_const_int(e->vars[0]->args[0], count) || count >= kLeastInLanes))
    return arg_lanes(e);
  const DType t = e->args[0]->dtype;
  const DType c = compute_type(t);
  const std::string best = fresh("r"), where = fresh("r"), at = fresh("n");
  line(fmt::format("{} {} = {}(0);", type_name(c), best, type_name(c)));
  line(fmt::format("i64 {} = 0, {} = 0;", where, at));
  for (const Expr& v : e->vars) {
    const std::string i = fresh("i"), n = value(v->args[0]);
    // Otherwise a GPU waits for each element before it loads the next.
    if (plain_reductions && same(v, e->vars.back())) line("#pragma unroll 8");
    open(fmt::format("for ({2} {0} = 0; {0} < {1}; ++{0})", i, n, type_of(v)));
    bind(v, i);
  }
  const std::string x = fresh("x");
  line(fmt::format("const {} {} = {};", type_name(c), x, cast_text(t, c, 1, value(e->args[0]))));
  const std::string take = fresh("c"), taken = Search(static_cast<ReduceKind>(e->i), c).taken(x, best);
  line(fmt::format("const bool {} = ({} == 0) | {};", take, at, taken));
  line(fmt::format("{0} = {1} ? {2} : {0}; {3} = {1} ? {4} : {3};", best, take, x, where, at));
  line(fmt::format("++{};", at));
  for (std::size_t k = 0; k < e->vars.size(); ++k) close();
  return where;
}

}  // namespace sardonyx::codegen
