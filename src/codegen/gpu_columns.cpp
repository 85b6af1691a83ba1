// GPU kernels of columns that are used more than once: a softmax, a norm or a log-sum-exp whose elements lie across
// memory. A team of threads divides a column, or a pack of neighbouring columns, and keeps its elements in registers.
// Neighbouring threads have neighbouring packs, and all threads of a team load before anything is computed. Columns too
// long for registers are read again by each stage.
#include <algorithm>

#include "codegen/gpu_generator.h"
#include "codegen/window_costs.h"

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kMostKept = 512;      // bytes of a thread
constexpr std::int64_t kMostElements = 128;  // of one operand, which the compiler may keep as float32
constexpr std::int64_t kFewElements = 64;    // with which several workgroups hide each other's waits
constexpr std::int64_t kLongColumn = 256;    // elements, from which RDNA needs few waves
constexpr std::int64_t kShortestRun = 32;    // bytes that neighbouring threads load
constexpr int kInFlight = 8;                 // packs of a thread, of columns that are read again

// Costs in instructions of a wave, set by softmax and norms of 19 to 512 elements on gfx942 and gfx1100.
constexpr double kOfElement = 0.5;                      // an operation of an expression: many are of indices
constexpr double kOfPack = 10;                          // a load and a store with their addresses
constexpr double kOfExchange = 100, kOfExchanged = 16;  // a team's reduction, and each of its columns
constexpr double kMemoryWait = 400, kTeamWait = 120;    // that other waves hide
// The same for each byte, by the bandwidth that a SIMD has: 2 bytes in a cycle, of which GCN's instructions take four.
constexpr double kMemoryOfGcn = 8, kMemoryOfRdna = 16;
constexpr double kOfOccupancy = 0.002;  // for each element in registers, which leave room for fewer waves
constexpr double kHalfLine = 1.05, kQuarterLine = 1.3;  // runs of 64 and of 32 bytes

// The stage with `var` in place of its own variable; reductions keep theirs.
std::optional<RowStage> along(const Stage& s, const Expr& var) {
  RowStage r{&s, merge_reduce_vars(flatten_loads(s.body)), storage_offset(*s.out, s.index), !s.inner.empty()};
  if (!r.row) return r;
  const Exprs own = merge_vars(s.inner, r.body, r.offset);
  if (own.size() != 1 || !idx::provably_equal(own[0]->args[0], var->args[0]) || r.body->has_reduce) return {};
  r.body = substitute(r.body, {{own[0], var}});
  r.offset = substitute(r.offset, {{own[0], var}});
  return r;
}

}  // namespace

// How threads of a workgroup divide columns: `width` of them have neighbouring packs of `length` columns.
struct GpuGenerator::ColumnShape {
  std::int64_t length = 1, width = 1;
  bool kept = false;  // in registers
};

struct GpuGenerator::ColumnWork {
  std::int64_t rows = 1, columns = 1, length = 1;  // rows of columns
  std::int64_t bytes = 0, widest = 1;              // of an element of all operands, and of the widest
  std::int64_t reductions = 0;
  bool stores = false;      // of each element
  double instructions = 0;  // of an element
};

// Emits the stages of one team.
class GpuGenerator::ColumnStages {
 public:
  ColumnStages(GpuGenerator& generator, const Columns& columns)
      : emit_(generator.emit_), generator_(generator), c_(columns), v_(columns.packing.length) {}
  void emit();

 private:
  using Named = std::vector<std::pair<Expr, std::string>>;
  void load_row_packs(const Exprs& loads, const Named& to, const std::string& chunk, const std::string& place);
  void open_elements(const Exprs& loads, std::string& place);
  void close_elements();
  void open_lanes(const Named& packs);
  void reduction(const Expr& r);
  void single_result(const RowStage& s);
  void row_results(const RowStage& s);
  std::string store_at(const RowStage& s);
  Exprs loads_of(const Expr& body) const;
  std::string exists() const { return c_.whole && c_.kept ? "" : exists_; }

  Emitter& emit_;
  GpuGenerator& generator_;
  const Columns& c_;
  const int v_;
  std::string first_;  // the pack's first column
  Named of_columns_;   // packs that all rows share
  Named rows_;         // arrays of packs, one for each chunk
  Named here_;         // packs of the element that is being computed
  Named sums_;         // reductions, and their arrays
  std::string exists_;
};

std::optional<GpuGenerator::Columns> GpuGenerator::columns_of(const std::optional<OutputLoop>& p) const {
  if (!row_options_.any_address) return {};
  Columns c;
  std::int64_t columns = 0;
  if (p) {
    c.outer = p->vars;
  } else {
    if (kernel_.stages.size() < 2) return {};
    c.outer = kernel_.outer;
  }
  if (c.outer.empty() || !is_const_int(c.outer.back()->args[0], columns)) return {};
  // The length of a column, from the first reduction.
  const Expr first = p ? p->outputs[0].body : merge_reduce_vars(flatten_loads(kernel_.stages[0].body));
  Exprs reductions;
  top_reductions(first, reductions);
  if (reductions.empty() || reductions[0]->vars.size() != 1 || !is_const_int(reductions[0]->vars[0]->args[0], c.length))
    return {};
  c.var = loop_var(c.length);
  c.base = loop_var(c.outer.back()->args[0]);
  if (p)
    for (const OutputLoop::Output& o : p->outputs) {
      const auto s = std::ranges::find_if(kernel_.stages, [&](const Stage& x) { return x.out == o.out; });
      c.stages.push_back({&*s, o.body, o.offset, false});
    }
  else
    for (const Stage& s : kernel_.stages) {
      std::optional<RowStage> r = along(s, c.var);
      if (!r) return {};
      c.stages.push_back(std::move(*r));
    }
  return plan_columns_in_registers(c, columns) ? std::optional(std::move(c)) : std::nullopt;
}

// The fastest way to divide columns: few threads for each need few exchanges and waste few threads of a team, many keep
// the card busy and hide each other's waits. Packs have at most `most` columns.
GpuGenerator::ColumnShape GpuGenerator::column_shape(const ColumnWork& work, std::int64_t most) const {
  const auto simds = static_cast<double>(std::max<std::int64_t>(least_threads_, 1));  // times their lanes
  const double moved = static_cast<double>(work.rows * work.columns * work.length) *
                       static_cast<double>(work.bytes + (work.stores ? work.widest : 0));
  const double memory = (quad_gathers_ ? kMemoryOfGcn : kMemoryOfRdna) * moved / simds;
  // On RDNA few waves suffice for long columns, and long runs matter more: softmax over 512 rows of 8 x 1024 takes
  // 21.9 us with 128 elements of a thread on gfx1100, and 26.6 with half of them (by the clock).
  const bool few_waves = !quad_gathers_ && work.length >= kLongColumn;
  ColumnShape best{most, std::max<std::int64_t>(kShortestRun / (most * work.widest), 1)};
  double least = 0;
  for (std::int64_t length = most; length >= std::min<std::int64_t>(most, 2); length /= 2)
    for (std::int64_t width = 1; width <= kGpuThreads; width *= 2) {
      const std::int64_t run = length * width * work.widest, team = kGpuThreads / width;
      const std::int64_t share = (work.length + team - 1) / team;
      if (run < kShortestRun || share * length > kMostElements || share * length * work.bytes > kMostKept) continue;
      const std::int64_t packs = work.rows * ((work.columns + length - 1) / length);
      const auto threads = static_cast<double>((packs + width - 1) / width * kGpuThreads);
      const double waves = std::max(1.0, threads / simds);
      const auto each = static_cast<double>(share);
      double own = each * (static_cast<double>(length) * work.instructions + kOfPack), waits = kMemoryWait;
      if (team > 1) {
        const auto reductions = static_cast<double>(work.reductions);
        own += reductions * (kOfExchange + kOfExchanged * static_cast<double>(length));
        waits += reductions * kTeamWait;
      }
      const double held = few_waves ? 0 : each * static_cast<double>(length);
      double cost = std::max({waves * own, own + waits, memory}) * (1 + kOfOccupancy * held);
      cost *= run >= 128 ? 1 : run >= 64 ? kHalfLine : kQuarterLine;
      if (held > kFewElements) cost *= 2;  // few waves fit
      if (best.kept && cost >= least) continue;
      least = cost;
      best = {length, width, true};
    }
  return best;
}

bool GpuGenerator::plan_columns_in_registers(Columns& c, std::int64_t columns) const {
  const Expr& column = c.outer.back();
  Exprs bodies;
  std::vector<std::pair<const Value*, Expr>> stores;
  std::size_t passes = 0;
  for (const RowStage& s : c.stages) {
    Exprs reductions;
    top_reductions(s.body, reductions);
    for (const Expr& r : reductions) {
      std::int64_t n = 0;
      if (is_search(r) || r->vars.size() != 1 || !is_const_int(r->vars[0]->args[0], n) || n != c.length ||
          !reduces_known(r, reductions))
        return false;
      bodies.push_back(substitute(r->args[0], {{r->vars[0], c.var}}));
    }
    if (s.row) bodies.push_back(s.body);
    passes += reductions.size() + (s.row ? 1 : 0);
    if (s.stage->stored) stores.emplace_back(s.stage->out, s.offset);
    // A stage reads what is one value for its column only.
    for (const RowStage& o : c.stages) {
      const Exprs loads = all_loads(s.body);
      if (std::ranges::any_of(loads, [&](const Expr& l) { return l->value == o.stage->out; }) && (o.row || &o >= &s))
        return false;
    }
  }
  int wider = 0;  // loads that run along columns' neighbours, less those along the column itself
  for (const Expr& b : bodies) wider += unit_stride_loads(b, column) - unit_stride_loads(b, c.var);
  if (passes < 2 || wider <= 0) return false;
  for (Expr& b : bodies)  // values of a column are no loads
    b = rewrite(b, [&](const Expr& x) {
      const bool own = x->op == Op::kLoad &&
                       std::ranges::any_of(c.stages, [&](const RowStage& s) { return s.stage->out == x->value; });
      return own ? constant(1, x->dtype) : Expr();
    });
  c.packing = find_packing(bodies, stores, column, true);
  while (c.packing.length > columns) c.packing.length /= 2;
  const std::int64_t v = c.packing.length;
  std::int64_t bytes = 0, widest = 1;
  Exprs seen;
  for (const Expr& l : c.packing.loads) {
    widest = std::max(widest, static_cast<std::int64_t>(size_of(l->dtype)));
    if (uses_var(l, c.var)) bytes += static_cast<std::int64_t>(size_of(l->dtype)) * v;
  }
  if (bytes == 0) return false;
  ColumnWork work;
  work.length = c.length, work.columns = columns, work.widest = widest;
  work.rows = window::known_product(c.outer) / columns;
  work.bytes = bytes / v;
  for (const RowStage& s : c.stages) {
    Exprs reductions;
    top_reductions(s.body, reductions);
    work.reductions += static_cast<std::int64_t>(reductions.size());
    work.stores |= s.row && s.stage->stored;
  }
  for (const Expr& b : bodies) work.instructions += kOfElement * instructions(b);
  const ColumnShape shape = column_shape(work, v);
  c.packing.length = static_cast<int>(shape.length);
  const std::int64_t width = shape.width;
  c.team = kGpuThreads / width;
  c.kept = shape.kept;
  c.chunks = c.kept ? static_cast<int>((c.length + c.team - 1) / c.team) : kInFlight;
  c.whole = c.length % c.team == 0;
  return true;
}

void GpuGenerator::columns(const Columns& c) {
  work_ = 0;
  for (const RowStage& s : c.stages) work_ = work_ + cost_of(s.body) * (s.row ? Expr(c.length) : Expr(1));
  ColumnStages(*this, c).emit();
}

void GpuGenerator::ColumnStages::emit() {
  const Expr& column = c_.outer.back();
  Exprs outer = c_.outer;
  const std::int64_t columns = column->args[0]->i;
  const Expr group = loop_var((columns + v_ - 1) / v_);
  outer.back() = group;
  generator_.open_columns(outer, c_.team);
  first_ = emit_.fresh("f");
  emit_.line(columns % v_ == 0
                 ? fmt::format("const {} {} = {} * {};", emit_.type_of(column), first_, emit_.value(group), v_)
                 : fmt::format("const {0} {1} = min({2} * {3}, {0}({4}));", emit_.type_of(column), first_,
                               emit_.value(group), v_, columns - v_));
  emit_.bind(c_.base, first_);
  Exprs rows;
  for (const Expr& l : c_.packing.loads) {
    if (uses_var(l, c_.var)) {
      rows.push_back(l);
      continue;
    }
    of_columns_.emplace_back(l, emit_.fresh("v"));
    emit_.line(fmt::format("const auto {} = load_pack<{}>({} + {});", of_columns_.back().second, v_,
                           emit_.buffer(l->value), emit_.value(substitute(l->args[0], {{column, c_.base}}))));
  }
  if (c_.kept) {
    for (const Expr& l : rows) {
      rows_.emplace_back(l, emit_.fresh("r"));
      emit_.line(fmt::format("Pack<{}, {}> {}[{}];", storage_name(l->dtype), v_, rows_.back().second, c_.chunks));
    }
    const std::string k = emit_.fresh("c");
    emit_.line("#pragma unroll");
    emit_.open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", k, c_.chunks));
    load_row_packs(rows, rows_, k, fmt::format("t + {} * i32(team)", k));
    emit_.close();
    emit_.line("loads_in_flight();");
  }
  for (const RowStage& s : c_.stages) {
    if (s.row)
      row_results(s);
    else
      single_result(s);
  }
  emit_.close();
}

// Loads the packs of the row at `place`; past the column's end, those of the last row.
void GpuGenerator::ColumnStages::load_row_packs(const Exprs& loads, const Named& to, const std::string& chunk,
                                                const std::string& place) {
  const std::string i = emit_.fresh("i");
  const char* type = emit_.type_of(c_.var);
  emit_.line(c_.whole && c_.kept
                 ? fmt::format("const {} {} = {};", type, i, place)
                 : fmt::format("const {0} {1} = min({0}({2}), {0}({3}));", type, i, place, c_.length - 1));
  emit_.bind(c_.var, i);
  for (std::size_t k = 0; k < loads.size(); ++k) {
    const std::string at = emit_.value(substitute(loads[k]->args[0], {{c_.outer.back(), c_.base}}));
    emit_.line(
        fmt::format("{}[{}] = load_pack<{}>({} + {});", to[k].second, chunk, v_, emit_.buffer(loads[k]->value), at));
  }
}

Exprs GpuGenerator::ColumnStages::loads_of(const Expr& body) const {
  Exprs loads;
  certain_loads(body, [&](const Expr& l) {
    const auto is_load = [&](const Expr& x) { return same(x, l); };
    if (uses_var(l, c_.var) && std::ranges::any_of(c_.packing.loads, is_load) && std::ranges::none_of(loads, is_load))
      loads.push_back(l);
  });
  return loads;
}

// Opens the loops over this thread's rows, and binds the row; `place` is its C++ name.
void GpuGenerator::ColumnStages::open_elements(const Exprs& loads, std::string& place) {
  const std::string k = emit_.fresh("c"), base = emit_.fresh("f");
  const char* type = emit_.type_of(c_.var);
  const auto open_chunks = [&] {
    emit_.line("#pragma unroll");
    emit_.open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", k, c_.chunks));
  };
  Named arrays = rows_;
  std::string at = fmt::format("t + {} * i32(team)", k);
  if (!c_.kept) {
    emit_.open(fmt::format("for ({0} {1} = t; {1} < {2}; {1} += {0}(team) * {3})", type, base, c_.length, c_.chunks));
    at = fmt::format("{} + {} * {}(team)", base, k, type);
    arrays.clear();
    for (const Expr& l : loads) {
      arrays.emplace_back(l, emit_.fresh("r"));
      emit_.line(fmt::format("Pack<{}, {}> {}[{}];", storage_name(l->dtype), v_, arrays.back().second, c_.chunks));
    }
    open_chunks();
    load_row_packs(loads, arrays, k, at);
    emit_.close();
    emit_.line("loads_in_flight();");
  }
  open_chunks();
  place = emit_.fresh("i");
  exists_ = emit_.fresh("e");
  emit_.line(fmt::format("const {} {} = {};", type, place, at));
  if (!exists().empty()) emit_.line(fmt::format("const bool {} = {} < {};", exists_, place, c_.length));
  if (!exists().empty()) {
    const std::string inside = emit_.fresh("i");
    emit_.line(fmt::format("const {0} {1} = min({2}, {0}({3}));", type, inside, place, c_.length - 1));
    place = inside;
  }
  emit_.bind(c_.var, place);
  here_ = of_columns_;
  for (const auto& [l, name] : arrays) here_.emplace_back(l, fmt::format("{}[{}]", name, k));
}

void GpuGenerator::ColumnStages::close_elements() {
  emit_.close();
  if (!c_.kept) emit_.close();
}

// Opens the loop over the columns of a pack.
void GpuGenerator::ColumnStages::open_lanes(const Named& packs) {
  const Expr& column = c_.outer.back();
  emit_.line("#pragma unroll");
  emit_.open(fmt::format("for (int l = 0; l < {}; ++l)", v_));
  const std::string j = emit_.fresh("j");
  emit_.line(fmt::format("const {} {} = {} + l;", emit_.type_of(column), j, first_));
  emit_.bind(column, j);
  for (const auto& [l, name] : packs) emit_.bind_value(l, element_text(l->dtype, name + "[l]"));
  for (const auto& [r, name] : sums_) emit_.bind_value(r, name + "[l]");
}

void GpuGenerator::ColumnStages::reduction(const Expr& r) {
  const auto kind = static_cast<ReduceKind>(r->i);
  const Expr body = substitute(r->args[0], {{r->vars[0], c_.var}});
  const char* type = type_name(r->dtype);
  const std::string acc = emit_.fresh("a");
  emit_.line(fmt::format("{} {}[{}];", type, acc, v_));
  emit_.line("#pragma unroll");
  emit_.line(fmt::format("for (int l = 0; l < {}; ++l) {}[l] = {};", v_, acc, Emitter::neutral(kind, r->dtype)));
  std::string place;
  open_elements(loads_of(body), place);
  open_lanes(here_);
  const std::string value = emit_.value(body), own = acc + "[l]";
  const std::string sum =
      Emitter::combine(kind, r->dtype, own, r->dtype == DType::kInt64 ? "i64(" + value + ")" : value);
  emit_.line(exists().empty() ? fmt::format("{} = {};", own, sum)
                              : fmt::format("{0} = {1} ? {2}({3}) : {0};", own, exists(), type, sum));
  emit_.close();
  close_elements();
  if (c_.team > 1)
    emit_.line(fmt::format("reduce_columns({0}, team, []({1} a, {1} b) -> {1} {{ return {2}; }});", acc, type,
                           Emitter::combine(kind, r->dtype, "a", "b")));
  sums_.emplace_back(r, acc);
}

// C++ of where the pack is stored.
std::string GpuGenerator::ColumnStages::store_at(const RowStage& s) {
  return fmt::format("{} + {}", emit_.buffer(s.stage->out),
                     emit_.value(substitute(s.offset, {{c_.outer.back(), c_.base}})));
}

void GpuGenerator::ColumnStages::single_result(const RowStage& s) {
  const Value* out = s.stage->out;
  Exprs reductions;
  top_reductions(s.body, reductions);
  for (const Expr& r : reductions)
    if (std::ranges::none_of(sums_, [&](const auto& x) { return same(x.first, r); })) reduction(r);
  const std::string name = emit_.fresh("x");
  emit_.line(fmt::format("{} {}[{}];", type_name(out->dtype), name, v_));
  open_lanes(of_columns_);
  const std::string x = emit_.value(s.body);
  emit_.line(fmt::format("{}[l] = {};", name, x));
  emit_.close();
  emit_.bind_local(out, name + "[l]");
  if (!s.stage->stored) return;
  emit_.open("if (mine && t == 0)");
  const std::string y = emit_.fresh("y");
  emit_.line(fmt::format("Pack<{}, {}> {};", storage_name(out->dtype), v_, y));
  emit_.line("#pragma unroll");
  emit_.line(fmt::format("for (int l = 0; l < {}; ++l) {}[l] = {};", v_, y, bits_text(out->dtype, name + "[l]")));
  const std::string at = store_at(s);
  emit_.line(fmt::format("store_pack<{}>({}, {});", v_, at, y));
  emit_.close();
}

void GpuGenerator::ColumnStages::row_results(const RowStage& s) {
  const Value* out = s.stage->out;
  std::string place;
  open_elements(loads_of(s.body), place);
  const std::string y = emit_.fresh("y");
  emit_.line(fmt::format("Pack<{}, {}> {};", storage_name(out->dtype), v_, y));
  open_lanes(here_);
  const std::string x = emit_.value(s.body);
  emit_.line(fmt::format("{}[l] = {};", y, bits_text(out->dtype, x)));
  emit_.close();
  const std::string at = store_at(s);
  emit_.line(fmt::format("if (mine{}) store_pack<{}>({}, {});", exists().empty() ? "" : " && " + exists(), v_, at, y));
  close_elements();
}

}  // namespace sardonyx::codegen
