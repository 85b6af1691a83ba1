// GPU kernels for rows: reductions along contiguous memory, softmax, normalisation. A team of threads processes a row.
// If the row is short enough it stays in registers, so that all stages read memory once; longer rows are read again by
// each stage (mostly from the caches). gpu_row_plan.cpp decides this, gpu_row_stages.cpp emits the stages.
#include "codegen/gpu_generator.h"

namespace sardonyx::codegen {
namespace {

constexpr int kShortShare = 16;  // elements of a thread, in registers
constexpr int kLongShare = 64;   // from which on AMD's compiler must be told to leave room for a second workgroup
constexpr std::int64_t kOneRound =
    1 << 20;  // rows up to which a workgroup certainly has one round: block_step() of gpu.h

// The number of sums over rows; 0 if there are other reductions too.
int sums_of(const RowPlan& r) {
  int sums = 0;
  bool only = true;
  for (const RowStage& s : r.stages)
    if (s.body->has_reduce)
      visit(s.body, [&](const Expr& x) {
        if (x->op != Op::kReduce) return;
        ++sums;
        only &= static_cast<ReduceKind>(x->i) == ReduceKind::kSum;
      });
  return only ? sums : 0;
}

}  // namespace

// Opens the loop over rows, of which each team processes one at a time. It defines `team`, `t` (this thread's number in
// the team) and `mine` (whether this team has a row). All threads execute it equally often, because of barriers.
void GpuGenerator::open_teams(const Exprs& outer, const Expr& team) {
  emit_.line(fmt::format("const u32 team = {};",
                         is_const(team) ? std::to_string(team->i) : "u32(" + emit_.argument(team) + ")"));
  emit_.line("const i32 t = i32(thread_id() & (team - 1));");
  emit_.line("const u32 per_block = kThreads / team;");
  loop_over_teams(outer, team, "thread_id() / team");
}

// The same with neighbouring threads on neighbouring rows, whose elements are contiguous: threads of a team are 256 /
// team threads apart.
void GpuGenerator::open_columns(const Exprs& outer, std::int64_t team) {
  emit_.line(fmt::format("constexpr u32 team = {}, per_block = kThreads / team;", team));
  emit_.line("const i32 t = i32(thread_id() / per_block);");
  loop_over_teams(outer, Expr(team), "thread_id() % per_block", true);
}

void GpuGenerator::loop_over_teams(const Exprs& outer, const Expr& team, const std::string& place, bool share_lines) {
  Expr items = 1;
  for (const Expr& v : outer) items = items * v->args[0];
  threads_ = items * team;
  const bool narrow = range_.narrow(items);
  const std::string n = emit_.value(items);
  const char* type = narrow ? "u32" : "i64";
  std::int64_t known = 0, size = 0;
  const bool once = is_const_int(items, known) && is_const_int(team, size);
  const std::int64_t teams = once ? kGpuThreads / size : 1;
  const std::string blocks =
      once ? fmt::format("block_step<{}>()", (known + teams - 1) / teams) : std::string("block_count()");
  const std::string first =
      share_lines && once ? fmt::format("block_of_die<{}>()", (known + teams - 1) / teams) : std::string("block_id()");
  emit_.open(fmt::format("for ({0} p = {0}({3}) * per_block; p < {0}({1}); p += {0}({2}) * per_block)", type, n, blocks,
                         first));
  emit_.line(fmt::format("const {0} row = p + {1};", type, place));
  emit_.line(fmt::format("const bool mine = has_row<{}>(row < {}({}));", once && known % teams == 0, type, n));
  emit_.line(fmt::format("{0} q = {0}(mine ? row : {1}({2}) - 1);", narrow ? "i32" : "i64", type, n));
  decode(outer, "q", narrow);
}

void GpuGenerator::rows(const RowPlan& r) {
  work_ = 0;
  for (const RowStage& s : r.stages) work_ = work_ + cost_of(s.body) * (s.row ? r.var->args[0] : Expr(1));
  const int v = r.packing.length;
  if (v > 1) {
    std::vector<const Value*> stored;
    for (const RowStage& s : r.stages)
      if (s.row) stored.push_back(s.stage->out);
    emit_.line(fmt::format("const bool packed = {};", pack_condition(r.packing, stored)));
  } else {
    emit_.line("constexpr bool packed = false;");
  }
  const char* type = emit_.type_of(r.var);
  if (!r.uneven) emit_.line(fmt::format("const {0} n = {1};", type, emit_.value(r.var->args[0])));
  open_teams(r.outer, r.team);
  if (r.uneven) emit_.line(fmt::format("const {0} n = {1};", type, emit_.value(r.var->args[0])));
  emit_.line(fmt::format("const {0} step = packed ? 1 : {0}(team), begin = packed ? t * {1} : t;", type, v));
  if (!r.never_fits && !r.always_fits) emit_.open(fmt::format("if (n <= {}(team) * {})", type, v * r.chunks));
  if (!r.never_fits) row_stages(r, true);
  if (!r.never_fits && !r.always_fits) {
    emit_.close();
    emit_.open("else");
  }
  if (!r.always_fits) row_stages(r, false);
  if (!r.never_fits && !r.always_fits) emit_.close();
  Exprs extents;
  for (const Expr& o : r.outer) extents.push_back(o->args[0]);
  std::int64_t rows = 0;
  if (!is_const(r.team) || !is_const_int(idx::product(extents), rows) || rows > kOneRound) emit_.line("end_round();");
  emit_.close();
  // Norms with short shares of a row wait for memory and for their sums, which more rows at a time hide: a layer norm
  // of 2056 rows of 768 took 3.9 us on an H200 instead of 5.1. Softmax of 512 elements got slower.
  if (sums_of(r) > 1 && r.always_fits && r.packing.length * r.chunks <= kShortShare)
    bounds_ = {.threads = kGpuThreads, .min_blocks = 4};
  else if (row_options_.row_bytes > 0 && r.always_fits && r.packing.length * r.chunks > kLongShare)
    bounds_ = {.threads = kGpuThreads, .min_waves = 2};
}

}  // namespace sardonyx::codegen
