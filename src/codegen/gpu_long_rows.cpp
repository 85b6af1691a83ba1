// GPU kernels that combine the partial results of a row (fuse/split_reductions.h) and use them all along the row, which
// is so long that several workgroups divide it. Each combines the partial results itself, which a wave does without
// LDS; a launch of its own for them would take longer than all else.
#include <algorithm>

#include "codegen/gpu_generator.h"

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kMostParts = 128;     // partial results of a row
constexpr std::int64_t kLanes = 32;          // that combine them: a wave has at least so many
constexpr std::int64_t kLeastLength = 2048;  // elements of a row, one pack of each thread
constexpr std::int64_t kLeastPacks = 4;
constexpr int kPacks = 2;  // of a thread

// Whether every reduction of `body` is a short one over what other kernels stored.
bool combines_parts(const Expr& body, std::int64_t& most) {
  Exprs top;
  top_reductions(body, top);
  bool ok = true;
  visit(body, [&](const Expr& x) {
    if (x->op != Op::kReduce) return;
    std::int64_t n = 0;
    ok = ok && std::any_of(top.begin(), top.end(), [&](const Expr& t) { return same(t, x); }) && x->vars.size() == 1 &&
         is_const_int(x->vars[0]->args[0], n) && n <= kMostParts && !x->args[0]->has_reduce &&
         static_cast<ReduceKind>(x->i) < ReduceKind::kArgMin;
    most = std::max(most, n);
  });
  return ok;
}

}  // namespace

std::optional<GpuGenerator::LongRows> GpuGenerator::long_rows_of() const {
  if (!row_options_.any_address || kernel_.stages.size() < 2) return {};
  LongRows l;
  std::int64_t parts = 1, n = 1, extent = 0;
  for (const Stage& s : kernel_.stages) {
    RowStage made{&s, merge_reduce_vars(flatten_loads(s.body)), storage_offset(*s.out, s.index), !s.inner.empty()};
    if (&s == &kernel_.stages.back())
      l.row = made;
    else if (made.row || !combines_parts(made.body, parts))
      return {};
    else
      l.values.push_back(made);
  }
  if (!l.row.row || l.row.body->has_reduce) return {};
  l.vars = merge_vars(kernel_.stages.back().inner, l.row.body, l.row.offset);
  for (const Expr& v : l.vars) {
    if (!is_const_int(v->args[0], extent)) return {};
    n *= extent;
  }
  if (n < kLeastLength || n < kLeastPacks * parts) return {};
  l.packing = find_packing({l.row.body}, {{l.row.stage->out, l.row.offset}}, l.vars.back(), true);
  if (l.vars.size() > 1)
    while (extent % l.packing.length != 0) l.packing.length /= 2;
  while (l.lanes < std::min(parts, kLanes)) l.lanes *= 2;
  return l;
}

// A value of the row: all lanes of a team combine the partial results.
void GpuGenerator::long_row_value(const RowStage& s, std::int64_t lanes, const LongRowParts& parts) {
  Exprs reductions;
  top_reductions(s.body, reductions);
  for (const Expr& r : reductions) {
    const auto kind = static_cast<ReduceKind>(r->i);
    const char* type = type_name(r->dtype);
    const std::string acc = emit_.fresh("a"), all = emit_.fresh("a");
    emit_.line(fmt::format("{} {} = {};", type, acc, Emitter::neutral(kind, r->dtype)));
    for (const LongRowPart& p : parts) {
      if (!same(p.of, r)) continue;
      const std::string y = emit_.value(p.body);
      const std::string sum = Emitter::combine(kind, r->dtype, acc, r->dtype == DType::kInt64 ? "i64(" + y + ")" : y);
      emit_.line(fmt::format("{0} = {1} ? {2}({3}) : {0};", acc, p.exists, type, sum));
    }
    emit_.line(fmt::format("const {0} {1} = reduce_lanes({2}, {3}, []({0} a, {0} b) -> {0} {{ return {4}; }});", type,
                           all, acc, lanes, Emitter::combine(kind, r->dtype, "a", "b")));
    emit_.bind_value(r, all);
  }
  const Value* out = s.stage->out;
  const std::string x = emit_.value(s.body), name = emit_.fresh("x");
  emit_.line(fmt::format("const {} {} = {};", type_name(out->dtype), name, x));
  emit_.bind_local(out, name);
  if (!s.stage->stored) return;
  emit_.open("if (part == 0 && thread_id() == 0)");
  store(out, s.offset, name);
  emit_.close();
}

// The partial results of this lane: loads of what other kernels stored, before anything is computed.
GpuGenerator::LongRowParts GpuGenerator::long_row_parts(const LongRows& l) {
  LongRowParts parts;
  for (const RowStage& s : l.values) {
    Exprs reductions;
    top_reductions(s.body, reductions);
    for (const Expr& r : reductions) {
      if (std::any_of(parts.begin(), parts.end(), [&](const LongRowPart& p) { return same(p.of, r); })) continue;
      const Expr& v = r->vars[0];
      const std::int64_t n = v->args[0]->i;
      for (std::int64_t from = 0; from < n; from += l.lanes) {
        const Expr at = loop_var(v->args[0]);
        const std::string i = emit_.fresh("i"), exists = emit_.fresh("e");
        emit_.line(fmt::format("const bool {} = t + {} < {};", exists, from, n));
        emit_.line(fmt::format("const {0} {1} = min({0}(t + {2}), {0}({3}));", emit_.type_of(at), i, from, n - 1));
        emit_.bind(at, i);
        parts.push_back({r, substitute(r->args[0], {{v, at}}), exists});
        certain_loads(parts.back().body, [&](const Expr& x) {
          const bool own = std::any_of(l.values.begin(), l.values.end(),
                                       [&](const RowStage& o) { return o.stage->out == x->value; });
          if (!own && !x->args[0]->has_load) emit_.value(x);
        });
      }
    }
  }
  return parts;
}

// Loads pack k of this thread. One that would exceed the row's end overlaps with the one before.
GpuGenerator::LongRowPack GpuGenerator::long_row_pack(const LongRows& l, int k, std::int64_t n) {
  LongRowPack p;
  const int v = l.packing.length;
  const Expr inner = l.vars.back();
  p.base = loop_var(inner->args[0]);
  p.place = emit_.fresh("f");
  const std::string first = emit_.fresh("f");
  emit_.line(
      fmt::format("const i32 {} = ((part * {} + {}) * i32(kThreads) + i32(thread_id())) * {};", p.place, kPacks, k, v));
  emit_.line(fmt::format("const i32 {} = min({}, {});", first, p.place, n - v));
  if (l.vars.size() == 1) {
    emit_.bind(p.base, first);
  } else {
    const std::string q = emit_.fresh("q"), at = emit_.fresh("i");
    const std::int64_t extent = inner->args[0]->i;
    emit_.line(fmt::format("i32 {} = {};", q, first));
    emit_.line(fmt::format("const i32 {} = take_digit({}, {});", at, q, extent));
    emit_.bind(p.base, at);
    for (std::size_t d = l.vars.size() - 1; d-- > 0;) {
      const Expr own = loop_var(l.vars[d]->args[0]);
      const std::string name = emit_.fresh("o");
      emit_.line(d == 0 ? fmt::format("const i32 {} = {};", name, q)
                        : fmt::format("const i32 {} = take_digit({}, {});", name, q, l.vars[d]->args[0]->i));
      emit_.bind(own, name);
      p.at.emplace_back(l.vars[d], own);
    }
  }
  p.body = substitute(l.row.body, p.at);
  p.offset = substitute(l.row.offset, p.at);
  for (const Expr& packed : l.packing.loads) {
    const Expr own = substitute(packed, p.at);
    const std::string name = emit_.fresh("v");
    const std::string at = emit_.value(substitute(own->args[0], {{inner, p.base}}));
    emit_.line(fmt::format("const auto {} = load_pack<{}>({} + {});", name, v, emit_.buffer(own->value), at));
    p.loaded.emplace_back(own, name);
  }
  return p;
}

void GpuGenerator::long_row_elements(const LongRows& l, const LongRowPack& p, std::int64_t n) {
  const Expr inner = l.vars.back();
  const Value* out = l.row.stage->out;
  const int v = l.packing.length;
  const std::string y = emit_.fresh("y"), i = emit_.fresh("i");
  emit_.open("");
  emit_.line(fmt::format("Pack<{}, {}> {};", storage_name(out->dtype), v, y));
  emit_.line("#pragma unroll");
  emit_.open(fmt::format("for (int l = 0; l < {}; ++l)", v));
  emit_.line(fmt::format("const {} {} = {} + l;", emit_.type_of(inner), i, emit_.value(p.base)));
  emit_.bind(inner, i);
  for (const auto& [x, name] : p.loaded) emit_.bind_value(x, element_text(x->dtype, name + "[l]"));
  const std::string x = emit_.value(p.body);
  emit_.line(fmt::format("{}[l] = {};", y, bits_text(out->dtype, x)));
  emit_.close();
  const std::string at = emit_.value(substitute(p.offset, {{inner, p.base}}));
  emit_.line(fmt::format("if ({} < {}) store_pack<{}>({} + {}, {});", p.place, n, v, emit_.buffer(out), at, y));
  emit_.close();
}

void GpuGenerator::long_rows(const LongRows& l) {
  Expr length = 1, rows = 1;
  for (const Expr& v : l.vars) length = length * v->args[0];
  for (const Expr& v : kernel_.outer) rows = rows * v->args[0];
  const std::int64_t n = length->i, each = std::int64_t{kGpuThreads} * l.packing.length * kPacks;
  const std::int64_t groups = (n + each - 1) / each;
  const Expr items = rows * Expr(groups);
  const bool narrow = range_.narrow(items * Expr(kGpuThreads));
  const char* type = narrow ? "i32" : "i64";
  std::int64_t known = 0;
  threads_ = items * Expr(kGpuThreads);
  work_ = cost_of(l.row.body) * Expr(l.packing.length * kPacks);
  for (const RowStage& s : l.values) work_ = work_ + cost_of(s.body);
  emit_.line(fmt::format("const i32 t = i32(thread_id() % {});", l.lanes));
  emit_.open(fmt::format("for ({0} p = {0}(block_id()); p < {0}({1}); p += {0}({2}))", narrow ? "u32" : "i64",
                         emit_.value(items),
                         is_const_int(items, known) ? fmt::format("block_step<{}>()", known) : "block_count()"));
  emit_.line(fmt::format("{0} q = {0}(p);", type));
  emit_.line(fmt::format("const i32 part = i32(take_digit(q, {}({})));", type, groups));
  decode(kernel_.outer, "q", narrow);
  const LongRowParts parts = long_row_parts(l);
  std::vector<LongRowPack> packs;
  for (int k = 0; k < kPacks; ++k) packs.push_back(long_row_pack(l, k, n));
  emit_.line("loads_in_flight();");
  for (const RowStage& s : l.values) long_row_value(s, l.lanes, parts);
  for (const LongRowPack& p : packs) long_row_elements(l, p, n);
  emit_.close();
}

}  // namespace sardonyx::codegen
