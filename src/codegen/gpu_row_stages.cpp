// Emits the stages of a kernel of rows (gpu_rows.cpp). Each stage is a loop over this thread's elements of the row;
// reductions then combine the results of the team's threads.
#include <algorithm>

#include "codegen/gpu_generator.h"

namespace sardonyx::codegen {
namespace {

// Bytes that a thread loads before the first reduction for later stages: 16 registers, about what the weight and bias
// of a norm take; they are held during the reduction.
constexpr std::size_t kMostAhead = 64;
constexpr int kPacksInFlight = 4;  // of a thread, from a row that does not stay in registers

}  // namespace

class GpuGenerator::RowStages {
 public:
  RowStages(GpuGenerator& generator, const RowPlan& plan, bool in_registers)
      : generator_(generator), emit_(generator.emit_), plan_(plan), in_registers_(in_registers) {
    if (in_registers && !plan.loads_late) ahead_ = later_operands();
  }

  void emit() {
    for (const RowStage& s : plan_.stages) {
      if (s.row)
        row_results(s);
      else
        single_result(s);
    }
  }

 private:
  using Named = std::vector<std::pair<Expr, std::string>>;  // loads, and the registers that hold them
  /// What a loop over this thread's elements executes besides their loads.
  struct LoopBody {
    std::function<void(const std::string& chunk)> before;  ///< before the elements of a pack; may be empty
    /// One element. `guard` is a condition that the code must evaluate: empty if the element is certain to exist.
    std::function<void(const std::string& guard, const std::string& index)> element;
    /// After the elements of a pack; may be empty.
    std::function<void(const std::string& place, const std::string& first)> after;
  };

  bool is_local(const Value* value) const { return std::find(local_.begin(), local_.end(), value) != local_.end(); }
  Exprs row_loads(const Expr& body) const;
  bool safe_past_end(const Expr& body, const Exprs& loaded) const;
  Exprs later_operands() const;
  bool is_constant_of_packs(const Expr& l) const;
  bool is_kept(const Expr& l) const;
  std::int64_t stages_with(const Expr& l) const;
  void load_here(const Expr& l, const std::string& first, Named& here);
  std::string place_pack(const std::string& place);
  void load_pack(const Expr& l, const std::string& to, const std::string& first);
  void load_elements(const Expr& l, const std::string& to, const std::string& first);
  void keep(const Expr& l);
  Named open_loop(const Exprs& loaded, const std::string& c, const std::string& place, std::string& first);
  int packs_at_a_time() const;
  Named open_long_loop(const Exprs& loaded, const std::string& c, const std::string& place, std::string& first);
  void loop(const Expr& body, const LoopBody& code);
  void row_results(const RowStage& s);
  std::string reduce_extreme(const Expr& x);
  std::string reduce_terms(const Expr& x);
  void single_result(const RowStage& s);

  GpuGenerator& generator_;
  Emitter& emit_;
  const RowPlan& plan_;
  const bool in_registers_;
  Named kept_;                       // this thread's elements of the whole row
  Exprs ahead_;                      // loads of later stages that the first loop keeps
  std::vector<const Value*> local_;  // results of stages that have one value per row
};

// Loads of a body that depend on the position in the row and are always evaluated, or in one part of the row.
Exprs GpuGenerator::RowStages::row_loads(const Expr& body) const {
  Exprs list;
  certain_loads(body, [&](const Expr& l) {
    if (is_local(l->value) || !uses_var(l, plan_.var)) return;
    bool nested = false;  // an index that contains a load
    for (const Expr& a : l->args) nested |= a->has_load;
    if (!nested && std::none_of(list.begin(), list.end(), [&](const Expr& x) { return same(x, l); })) list.push_back(l);
  });
  for (const RowPart& p : plan_.parts) {
    bool here = false;
    visit(body, [&](const Expr& x) { here = here || same(x, p.load); });
    if (here) list.push_back(p.load);
  }
  return list;
}

// Whether `body` may be evaluated past the row's end, where the loads `loaded` yield zeros.
bool GpuGenerator::RowStages::safe_past_end(const Expr& body, const Exprs& loaded) const {
  bool ok = true;
  visit(body, [&](const Expr& x) {
    if (x->op != Op::kLoad || is_local(x->value)) return;
    ok &= std::any_of(loaded.begin(), loaded.end(), [&](const Expr& l) { return same(l, x); }) ||
          (!uses_var(x, plan_.var) && !x->args[0]->has_load);
  });
  return ok;
}

// Operands of later stages that this kernel does not write (the weights of a norm). They are loaded together with the
// first stage's: after its reduction, their latency would be exposed.
Exprs GpuGenerator::RowStages::later_operands() const {
  const std::vector<RowStage>& stages = plan_.stages;
  const auto elements = static_cast<std::size_t>(plan_.chunks) * static_cast<std::size_t>(plan_.packing.length);
  Exprs ahead;
  std::size_t bytes = 0;
  for (std::size_t k = 1; k < stages.size(); ++k) {
    if (!stages[k].row) continue;
    for (const Expr& l : row_loads(stages[k].body)) {
      if (std::any_of(stages.begin(), stages.end(), [&](const RowStage& s) { return s.stage->out == l->value; }))
        continue;
      bytes += size_of(l->dtype) * (is_constant_of_packs(l) ? static_cast<std::size_t>(plan_.chunks) : elements);
      if (bytes <= kMostAhead) ahead.push_back(l);
    }
  }
  return ahead;
}

bool GpuGenerator::RowStages::is_kept(const Expr& l) const {
  return std::ranges::any_of(kept_, [&](const auto& k) { return same(k.first, l); });
}

// The stages that load this.
std::int64_t GpuGenerator::RowStages::stages_with(const Expr& l) const {
  return std::ranges::count_if(plan_.stages, [&](const RowStage& s) {
    const Exprs loads = all_loads(s.body);
    return std::ranges::any_of(loads, [&](const Expr& x) { return same(x, l); });
  });
}

bool GpuGenerator::RowStages::is_constant_of_packs(const Expr& l) const {
  return std::ranges::any_of(plan_.of_packs, [&](const Expr& x) { return same(x, l); });
}

// Where the pack begins whose place is `place`. One that would exceed the row's end overlaps with the one before: its
// elements from `place` on are those that no other pack has.
std::string GpuGenerator::RowStages::place_pack(const std::string& place) {
  if (!plan_.overlaps) return place;
  const std::string first = emit_.fresh("f");
  const char* type = emit_.type_of(plan_.var);
  emit_.line(fmt::format("const {0} {1} = min({2}, {0}(n - {3}));", type, first, place, plan_.packing.length));
  return first;
}

// Emits the loads of one pack, which begins at `first`.
void GpuGenerator::RowStages::load_pack(const Expr& l, const std::string& to, const std::string& first) {
  const int v = plan_.packing.length;
  const Exprs& packed = plan_.packing.loads;
  const bool packs = std::any_of(packed.begin(), packed.end(), [&](const Expr& x) { return same(x, l); });
  const bool constant = is_constant_of_packs(l);
  Expr c, rest;
  if (idx::split_affine(l->args[0], plan_.var, c, rest) && is_const(c, 1)) {
    const auto part = std::ranges::find_if(plan_.parts, [&](const RowPart& p) { return same(p.load, l); });
    if (part != plan_.parts.end())
      return emit_.line(fmt::format("{0} = load_part<{1}>({2} + {3}, {4}, step, {5}({6}), {5}({7}), packed);", to, v,
                                    emit_.buffer(l->value), emit_.value(rest), first, emit_.type_of(plan_.var),
                                    part->low, part->high));
    if (plan_.overlaps && packs)
      return emit_.line(
          fmt::format("{} = load_pack<{}>({} + {} + {});", to, v, emit_.buffer(l->value), emit_.value(rest), first));
    emit_.line(fmt::format("{} = load_row<{}>({} + {}, {}, step, n, {});", to, v, emit_.buffer(l->value),
                           emit_.value(rest), first, packs ? "packed" : "false"));
    return;
  }
  if (packs) {  // along a period that packs divide
    emit_.open("if (packed)");
    emit_.bind(plan_.var, first);
    emit_.line(fmt::format("{} = load_pack<{}>({} + {});", to, v, emit_.buffer(l->value), emit_.value(l->args[0])));
    emit_.close();
    emit_.open("else");
  }
  if (constant) {
    emit_.open("if (packed)");
    const std::string i = emit_.fresh("i");
    const char* type = emit_.type_of(plan_.var);
    emit_.line(plan_.exact ? fmt::format("const {} {} = {};", type, i, first)
                           : fmt::format("const {0} {1} = min({2}, {0}(n - {3}));", type, i, first, v));
    emit_.bind(plan_.var, i);
    const std::string at = emit_.value(l->args[0]);
    emit_.line(fmt::format("{} = to_bits({}[{}]);", to, emit_.buffer(l->value), at));
    emit_.close();
    emit_.open("else");
  }
  load_elements(l, to, first);
  if (packs || constant) emit_.close();
}

// The same for elements that are not next to each other.
void GpuGenerator::RowStages::load_elements(const Expr& l, const std::string& to, const std::string& first) {
  emit_.line(fmt::format("{} = 0;", to));
  emit_.line("#pragma unroll");
  emit_.open(fmt::format("for (int l = 0; l < {}; ++l)", plan_.packing.length));
  const std::string i = emit_.fresh("i");
  emit_.line(fmt::format("const {} {} = {} + l * step;", emit_.type_of(plan_.var), i, first));
  emit_.bind(plan_.var, i);
  const bool checked = !plan_.exact && !plan_.overlaps;
  if (checked) emit_.open(fmt::format("if ({} < n)", i));
  const std::string at = emit_.value(l->args[0]);
  emit_.line(fmt::format("{}[l] = to_bits({}[{}]);", to, emit_.buffer(l->value), at));
  if (checked) emit_.close();
  emit_.close();
}

// Emits loads of all of this thread's elements into registers.
void GpuGenerator::RowStages::keep(const Expr& l) {
  if (is_kept(l) || (plan_.loads_late && stages_with(l) < 2)) return;
  const int v = plan_.packing.length;
  const std::string name = emit_.fresh("r"), c = emit_.fresh("c"), first = emit_.fresh("f");
  emit_.line(fmt::format("Pack<{}, {}> {}[{}];", storage_name(l->dtype), v, name, plan_.chunks));
  emit_.line("#pragma unroll");
  emit_.open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", c, plan_.chunks));
  emit_.line(fmt::format("const {0} {1} = {2} * {0}(team) * {3} + begin;", emit_.type_of(plan_.var), first, c, v));
  load_pack(l, name + "[" + c + "]", place_pack(first));
  emit_.close();
  kept_.emplace_back(l, name);
}

// Opens the loop over this thread's packs. Returns where each load's pack is.
GpuGenerator::RowStages::Named GpuGenerator::RowStages::open_loop(const Exprs& loaded, const std::string& c,
                                                                  const std::string& place, std::string& first) {
  const int v = plan_.packing.length;
  const char* type = emit_.type_of(plan_.var);
  Named here;
  if (in_registers_) {
    emit_.line("#pragma unroll");
    emit_.open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", c, plan_.chunks));
    emit_.line(fmt::format("const {0} {1} = {2} * {0}(team) * {3} + begin;", type, place, c, v));
    first = place_pack(place);
    for (const auto& [l, name] : kept_) here.emplace_back(l, fmt::format("{}[{}]", name, c));
    for (const Expr& l : loaded)
      if (!is_kept(l)) load_here(l, first, here);
    return here;
  }
  if (packs_at_a_time() > 1) return open_long_loop(loaded, c, place, first);
  emit_.open(fmt::format("for ({0} {1} = begin; {1} < n; {1} += {0}(team) * {2})", type, place, v));
  first = place_pack(place);
  for (const Expr& l : loaded) load_here(l, first, here);
  return here;
}

// Loads a pack inside of the loop.
void GpuGenerator::RowStages::load_here(const Expr& l, const std::string& first, Named& here) {
  const std::string name = emit_.fresh("r");
  emit_.line(fmt::format("Pack<{}, {}> {};", storage_name(l->dtype), plan_.packing.length, name));
  load_pack(l, name, first);
  here.emplace_back(l, name);
}

// Packs of a row that does not stay in registers that a thread has in flight: with one, it mostly waits for memory.
int GpuGenerator::RowStages::packs_at_a_time() const {
  return generator_.row_options_.any_address && !in_registers_ && plan_.packing.length > 1 ? kPacksInFlight : 1;
}

// The same loop with the loads of several packs before anything else. Closes with two braces.
GpuGenerator::RowStages::Named GpuGenerator::RowStages::open_long_loop(const Exprs& loaded, const std::string& c,
                                                                       const std::string& place, std::string& first) {
  const int v = plan_.packing.length, count = packs_at_a_time();
  const char* type = emit_.type_of(plan_.var);
  const std::string base = emit_.fresh("f"), at = emit_.fresh("f");
  Named arrays, here;
  const auto open_packs = [&](const std::string& where) {
    emit_.line("#pragma unroll");
    emit_.open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", c, count));
    emit_.line(fmt::format("const {0} {1} = {2} + {3} * {0}(team) * {4};", type, where, base, c, v));
  };
  emit_.open(fmt::format("for ({0} {1} = begin; {1} < n; {1} += {0}(team) * {2})", type, base, v * count));
  for (const Expr& l : loaded) {
    arrays.emplace_back(l, emit_.fresh("r"));
    emit_.line(fmt::format("Pack<{}, {}> {}[{}];", storage_name(l->dtype), v, arrays.back().second, count));
  }
  open_packs(at);
  const std::string from = place_pack(at);
  for (const auto& [l, name] : arrays) load_pack(l, fmt::format("{}[{}]", name, c), from);
  emit_.close();
  emit_.line("loads_in_flight();");
  open_packs(place);
  first = place_pack(place);
  for (const auto& [l, name] : arrays) here.emplace_back(l, fmt::format("{}[{}]", name, c));
  return here;
}

// Emits the loop over this thread's elements.
void GpuGenerator::RowStages::loop(const Expr& body, const LoopBody& code) {
  const Exprs loaded = row_loads(body);
  const bool safe = plan_.overlaps || safe_past_end(body, loaded);
  if (in_registers_) {
    for (const Expr& l : loaded) keep(l);
    for (const Expr& l : ahead_) keep(l);
    ahead_.clear();
  }
  const std::string c = emit_.fresh("c"), place = emit_.fresh("f");
  std::string first;
  const Named here = open_loop(loaded, c, place, first);
  if (code.before) code.before(c);
  emit_.line("#pragma unroll");
  emit_.open(fmt::format("for (int l = 0; l < {}; ++l)", plan_.packing.length));
  const std::string i = emit_.fresh("i");
  emit_.line(fmt::format("const {} {} = {} + l * step;", emit_.type_of(plan_.var), i, first));
  emit_.bind(plan_.var, i);
  for (const auto& [l, name] : here) emit_.bind_value(l, element_text(l->dtype, name + "[l]"));
  const bool whole = plan_.exact && in_registers_;
  const std::string guard = whole ? "" : plan_.overlaps ? fmt::format("{} >= {}", i, place) : fmt::format("{} < n", i);
  if (!whole && !safe) emit_.open(fmt::format("if ({})", guard));
  code.element(safe ? guard : std::string(), i);
  if (!whole && !safe) emit_.close();
  emit_.close();
  if (code.after) code.after(place, first);
  emit_.close();
  if (packs_at_a_time() > 1) emit_.close();
}

// A stage with elements along the row: they stay in registers for later stages if the row does.
void GpuGenerator::RowStages::row_results(const RowStage& s) {
  const Value* out = s.stage->out;
  const int v = plan_.packing.length;
  const std::string y = emit_.fresh("r");
  const std::string declared = fmt::format("Pack<{}, {}> {}", storage_name(out->dtype), v, y);
  if (in_registers_) emit_.line(fmt::format("{}[{}];", declared, plan_.chunks));
  Expr step, rest;
  const bool contiguous = idx::split_affine(s.offset, plan_.var, step, rest) && is_const(step, 1);
  const bool stored = !in_registers_ || s.stage->used_after;
  // The results of a pack before they are rounded, which then takes one instruction for two.
  const bool wide = generator_.row_options_.packs_float8 && contiguous && v % 4 == 0 && emit_.rounds_float8(s.body);
  const std::string unrounded = wide ? emit_.fresh("w") : "";
  std::string slot;
  LoopBody code;
  code.before = [&](const std::string& c) {
    slot = in_registers_ ? y + "[" + c + "]" : y;
    if (!in_registers_) emit_.line(declared + " = 0;");
    if (wide) emit_.line(fmt::format("f32 {}[{}] = {{}};", unrounded, v));
  };
  code.element = [&](const std::string& guard, const std::string& i) {
    if (wide) return emit_.line(fmt::format("{}[l] = {};", unrounded, emit_.wide(s.body).text));
    const std::string x = emit_.value(s.body);
    emit_.line(fmt::format("{}[l] = {};", slot, bits_text(out->dtype, x)));
    if (contiguous || !stored) return;
    const std::string inside = plan_.overlaps ? guard : fmt::format("{} < n", i);
    emit_.open(plan_.exact && in_registers_ ? "if (mine)" : fmt::format("if (mine && {})", inside));
    emit_.line(fmt::format("{}[{}] = {};", emit_.buffer(out), emit_.value(s.offset), x));
    emit_.close();
  };
  code.after = [&](const std::string& place, const std::string& first) {
    if (wide) emit_.line(fmt::format("{} = pack_floats<{}>({});", slot, type_name(out->dtype), unrounded));
    if (!contiguous || !stored) return;
    if (plan_.overlaps)
      return emit_.line(fmt::format("if (mine && {} < n) store_pack<{}>({} + {} + {}, {});", place, v,
                                    emit_.buffer(out), emit_.value(rest), first, slot));
    emit_.line(fmt::format("if (mine) store_row<{}>({} + {}, {}, step, n, packed, {});", v, emit_.buffer(out),
                           emit_.value(rest), first, slot));
  };
  loop(s.body, code);
  if (in_registers_) kept_.emplace_back(load(out, out->dtype, {s.offset}), y);
}

// The position of an extreme, as the name of a C++ variable.
std::string GpuGenerator::RowStages::reduce_extreme(const Expr& x) {
  const auto kind = static_cast<ReduceKind>(x->i);
  const Expr& body = x->args[0];
  const std::string acc = emit_.fresh("a"), all = emit_.fresh("a");
  const bool max = kind == ReduceKind::kArgMax || kind == ReduceKind::kArgMaxLast;
  const bool last = kind == ReduceKind::kArgMinLast || kind == ReduceKind::kArgMaxLast;
  const std::string type = computed_name(body->dtype), order = fmt::format("{}, {}", max, last);
  emit_.line(fmt::format("Best<{0}> {1} = {{{0}(0), -1}};", type, acc));
  LoopBody code;
  code.element = [&](const std::string& guard, const std::string& i) {
    const std::string y = emit_.value(body);
    emit_.line(fmt::format("{0} = better_next<{1}>({0}, Best<{2}>{{cast<{2}>({3}), {4}}});", acc, order, type, y,
                           guard.empty() ? i : fmt::format("{} ? {} : -1", guard, i)));
  };
  loop(body, code);
  emit_.line(fmt::format(
      "const i64 {0} = reduce_row({1}, team, [](Best<{2}> a, Best<{2}> b) {{ return better<{3}>(a, b); }}).at;", all,
      acc, type, order));
  return all;
}

// A sum, product, minimum or the like, as the name of a C++ variable.
std::string GpuGenerator::RowStages::reduce_terms(const Expr& x) {
  const auto kind = static_cast<ReduceKind>(x->i);
  const Expr& body = x->args[0];
  const std::string acc = emit_.fresh("a"), all = emit_.fresh("a");
  const char* type = type_name(x->dtype);
  emit_.line(fmt::format("{} {} = {};", type, acc, Emitter::neutral(kind, x->dtype)));
  LoopBody code;
  code.element = [&](const std::string& guard, const std::string&) {
    const std::string value = emit_.value(body);
    const std::string y = x->dtype == DType::kInt64 ? "i64(" + value + ")" : value;
    const std::string sum = Emitter::combine(kind, x->dtype, acc, y);
    // What a pack has in common with another one does not change an extreme.
    const bool always = guard.empty() || (plan_.overlaps && (kind == ReduceKind::kMax || kind == ReduceKind::kMin));
    emit_.line(always ? fmt::format("{} = {};", acc, sum)
                      : fmt::format("{0} = {1} ? {2}({3}) : {0};", acc, guard, type, sum));
  };
  loop(body, code);
  emit_.line(fmt::format("const {0} {1} = reduce_row({2}, team, []({0} a, {0} b) -> {0} {{ return {3}; }});", type, all,
                         acc, Emitter::combine(kind, x->dtype, "a", "b")));
  return all;
}

// A stage with one value per row: its reductions, and what is computed from them.
void GpuGenerator::RowStages::single_result(const RowStage& s) {
  const Value* out = s.stage->out;
  Exprs reductions;
  top_reductions(s.body, reductions);
  for (const Expr& x : reductions)
    emit_.bind_value(x, static_cast<ReduceKind>(x->i) >= ReduceKind::kArgMin ? reduce_extreme(x) : reduce_terms(x));
  const std::string x = emit_.value(s.body), name = emit_.fresh("x");
  emit_.line(fmt::format("const {} {} = {};", type_name(out->dtype), name, x));
  emit_.bind_local(out, name);
  local_.push_back(out);
  if (!s.stage->stored) return;
  emit_.open("if (mine && t == 0)");
  generator_.store(out, s.offset, name);
  emit_.close();
}

void GpuGenerator::row_stages(const RowPlan& r, bool in_registers) { RowStages(*this, r, in_registers).emit(); }

}  // namespace sardonyx::codegen
