// GPU kernels with one thread per pack where rows are no multiple of a pack: packs continue from one row to the next,
// so that they are aligned, and what is one value for each row (a softmax's maximum) is selected for each element.
#include <optional>

#include "codegen/gpu_generator.h"

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kWidest = 16, kLongest = 8;  // bytes and elements of a pack

// Whether an offset numbers the elements of rows of `n` one by one.
bool is_flat(const Expr& offset, const Expr& outer, const Expr& inner, std::int64_t n) {
  Expr step, rest, stride, none;
  return idx::split_affine(offset, inner, step, rest) && is_const(step, 1) &&
         idx::split_affine(rest, outer, stride, none) && is_const(stride, n) && is_const(none, 0);
}

}  // namespace

std::optional<GpuGenerator::JoinedRows> GpuGenerator::joined_rows_of(const FlatLoop& f) const {
  std::int64_t n = 0;
  // On NVIDIA's GPUs such kernels were not measured.
  if (!loads_first_ || f.vars.size() != 2 || !is_const_int(f.vars[1]->args[0], n) || n < kLongest ||
      !is_flat(f.offset, f.vars[0], f.vars[1], n))
    return {};
  JoinedRows j;
  std::size_t widest = size_of(kernel_.stages[0].out->dtype), certain = 0, all = 0;
  bool suits = widest >= 1;
  certain_loads(f.body, [&](const Expr& l) {
    ++certain;
    if (is_flat(l->args[0], f.vars[0], f.vars[1], n)) {
      j.flat.push_back(l);
      widest = std::max(widest, size_of(l->dtype));
    } else {
      j.of_rows.push_back(l);
      suits = suits && !uses_var(l, f.vars[1]) && !l->args[0]->has_load;
    }
  });
  std::unordered_set<Expr, ExprHash, ExprSame> seen;
  visit(f.body, [&](const Expr& x) { all += x->op == Op::kLoad && seen.insert(x).second; });
  if (!suits || certain != all || j.flat.empty()) return {};
  j.length = static_cast<int>(std::min<std::int64_t>(kWidest / static_cast<std::int64_t>(widest), kLongest));
  return j;
}

void GpuGenerator::joined_rows(const FlatLoop& f, const JoinedRows& j) {
  const Expr &outer = f.vars[0], &inner = f.vars[1], items = outer->args[0] * inner->args[0];
  const Expr row = loop_var(outer->args[0]), next = loop_var(outer->args[0]);
  const Value* out = kernel_.stages[0].out;
  Packing p;
  p.length = j.length, p.loads = j.flat;
  emit_.line(fmt::format("{} done = 0;", range_.narrow(items) ? "u32" : "i64"));
  emit_.open(fmt::format("if ({})", pack_condition(p, {out})));
  const std::string q = emit_.fresh("q"), at = emit_.fresh("i"), column = emit_.fresh("c"), left = emit_.fresh("n"),
                    first = emit_.fresh("r"), second = emit_.fresh("r");
  const bool narrow = open_items(idx::floordiv(items, j.length), "0", q, true);
  const char* type = narrow ? "i32" : "i64";
  const std::int64_t n = inner->args[0]->i;
  emit_.line(fmt::format("const {} {} = {} * {};", type, at, q, j.length));
  emit_.line(fmt::format("{} = {};", q, at));
  emit_.line(fmt::format("const {0} {1} = {0}(take_digit({2}, {0}({3}))), {4} = {3} - {1};", type, column, q, n, left));
  emit_.line(fmt::format("const {0} {1} = {2}, {3} = {1} + {0}({4} < {5});", type, first, q, second, left, j.length));
  emit_.bind(row, first);
  emit_.bind(next, second);
  std::vector<std::string> packs, rows, others;
  for (const Expr& l : j.flat) {
    packs.push_back(emit_.fresh("v"));
    emit_.line(
        fmt::format("const auto {} = load_pack<{}>({} + {});", packs.back(), j.length, emit_.buffer(l->value), at));
  }
  for (const Expr& l : j.of_rows) {
    rows.push_back(emit_.value(substitute(l, {{outer, row}})));
    others.push_back(emit_.value(substitute(l, {{outer, next}})));
  }
  const std::string y = emit_.fresh("y"), after = emit_.fresh("s");
  emit_.line(fmt::format("Pack<{}, {}> {};", storage_name(out->dtype), j.length, y));
  emit_.line("#pragma unroll");
  emit_.open(fmt::format("for (int l = 0; l < {}; ++l)", j.length));
  emit_.line(fmt::format("const bool {} = l >= {};", after, left));
  const std::string o = emit_.fresh("o"), i = emit_.fresh("o");
  emit_.line(fmt::format("const {} {} = {} ? {} : {};", emit_.type_of(outer), o, after, second, first));
  emit_.line(fmt::format("const {} {} = {} ? l - {} : {} + l;", emit_.type_of(inner), i, after, left, column));
  emit_.bind(outer, o);
  emit_.bind(inner, i);
  for (std::size_t k = 0; k < packs.size(); ++k)
    emit_.bind_value(j.flat[k], element_text(j.flat[k]->dtype, packs[k] + "[l]"));
  for (std::size_t k = 0; k < rows.size(); ++k)
    emit_.bind_value(j.of_rows[k], fmt::format("({} ? {} : {})", after, others[k], rows[k]));
  const std::string x = emit_.value(f.body);
  emit_.line(fmt::format("{}[l] = {};", y, bits_text(out->dtype, x)));
  emit_.close();
  emit_.line(fmt::format("store_pack<{}>({} + {}, {});", j.length, emit_.buffer(out), at, y));
  emit_.close();
  emit_.line(fmt::format("done = {};", emit_.value(idx::floordiv(items, j.length) * Expr(j.length))));
  emit_.close();
}

}  // namespace sardonyx::codegen
