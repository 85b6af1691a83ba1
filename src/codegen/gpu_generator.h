// Writes the GPU code of one loop kernel; what its parts share. Only for the files gpu_*.cpp of this directory.
#pragma once
#include <functional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "codegen/emit.h"
#include "codegen/loop_analysis.h"
#include "codegen/loop_codegen.h"

namespace sardonyx::codegen {

/// Accesses along one variable that may go through packs of `length` elements.
struct Packing {
  int length = 1;   ///< 1: no packs
  Exprs loads;      ///< flat, moving by one element with the variable, and aligned
  Exprs multiples;  ///< what must be a multiple of the length in a run for packs to be used
};

class GpuGenerator {
 public:
  GpuGenerator(const LoopKernel& kernel, const GpuLoopOptions& options);
  GpuLoopSource run();

 private:
  // ---- gpu_codegen.cpp
  /// Names variables from the number `q` of a point, a C++ variable, which is used up.
  void decode(const Exprs& vars, const std::string& q, bool narrow);
  void store(const Value* out, const Expr& offset, const std::string& x);
  /// A loop over `count` points by all threads, with the number in the variable `q`. Returns whether that is an i32.
  bool open_points(const Expr& count, const std::string& from, const std::string& q);
  /// C++ text of what must hold for packs to be used.
  std::string pack_condition(const Packing& p, const std::vector<const Value*>& stored);
  void clear(const Exprs& vars);

  // ---- gpu_map.cpp: a thread for each element, or for a pack of them
  void map(const FlatLoop& f);
  void map_packs(const FlatLoop& f, const Packing& p);
  void pack_body(const Expr& body, const Packing& p, const Expr& inner, const Expr& base, const Expr& offset);
  void load_packs(const Expr& body, const Packing& p, const Expr& inner, const Expr& base,
                  std::vector<std::pair<Expr, std::string>>& packs);

  // ---- gpu_windows.cpp: a thread for a pack of outputs, or for several packs whose windows overlap
  struct WindowTile {
    int length = 1;           ///< of a pack
    Expr inner, group, lane;  ///< the innermost variable is group * length + lane
    int count = 1;            ///< packs of a thread, side by side along `along`
    Expr along, base;         ///< the first one's place
    Exprs multiples;          ///< what must be a multiple of `length` in a run
    std::int64_t team = 1;    ///< threads that share the terms of a reduction, one in each row of 256 / team threads
  };
  /// One term of a reduction, with constants in place of the variables that are written out.
  struct WindowTerm {
    Expr value;                   ///< where `inside` holds, or everywhere
    Expr inside, outside;         ///< empty: everywhere
    Exprs loads;                  ///< of `value`, all of them
    Expr filled;                  ///< the load that gives `outside` where it is filled with it; or empty
    std::string condition, fill;  ///< C++ of `inside`, and of what that load is filled with
  };
  struct Fetched {
    Expr load, inside;
    std::string element;  ///< C++ of one lane's
  };
  /// `terms`: how many terms of the longest reduction a team of threads may share out if there are few outputs; 0:
  /// each output is one thread's work.
  void windows(const PointLoop& p, std::int64_t terms);
  void window_loop(const PointLoop& p, const Exprs& reductions, const WindowTile& w);
  using Sums = std::vector<std::pair<Expr, std::string>>;  ///< reductions and C++ of a lane's
  /// `known`: those of each pack that others may be computed from.
  void window_sums(const Expr& r, const std::vector<Expr>& of_tile, const WindowTile& w, const std::vector<Sums>& known,
                   std::vector<std::string>& sums);
  std::string open_terms(const Exprs& vars, std::int64_t team, int at_a_time);
  void window_outputs(const PointLoop& p, const std::vector<std::pair<Expr, Expr>>& at, const WindowTile& w,
                      const Sums& sums);
  WindowTerm window_term(const Expr& e, ReduceKind kind, const WindowTile& w);
  std::string fetch(const Expr& load, const WindowTerm* term, const WindowTile& w, std::vector<Fetched>& done);
  void single_points(const PointLoop& p, const std::string& from);

  // ---- gpu_lines.cpp: 32 threads side by side for each line
  static bool suits_lines(const FlatLoop& f);
  void lines(const FlatLoop& f);
  void line_body(const Expr& body, const FlatLoop& f, int chunks);

  // ---- gpu_rows.cpp: a team of threads for each row
  struct RowStage {
    const Stage* stage;
    Expr body, offset;
    bool row;  ///< has elements along the row; else one value
  };
  struct RowPlan {
    Expr var;  ///< along the row
    std::vector<RowStage> stages;
    Exprs outer;
    Packing packing;
    int chunks = 1;       ///< packs of a thread that fit in its registers
    Expr team;            ///< threads for a row
    bool uneven = false;  ///< the row's length depends on which row it is
    bool always_fits = false, never_fits = false, exact = false;
  };
  bool plan_rows(RowPlan& r);
  void choose_team(RowPlan& r) const;
  void rows(const RowPlan& r);
  void row_stages(const RowPlan& r, bool in_registers);
  void open_teams(const Exprs& outer, const Expr& team);
  void open_columns(const Exprs& outer, std::int64_t team);
  void loop_over_teams(const Exprs& outer, const Expr& team, const std::string& place);

  // ---- gpu_teams.cpp: the same for reductions over several variables, and for whatever else has stages
  void general(const std::vector<RowStage>& stages, const Exprs& outer, const Expr& team);
  void cooperate(const Expr& body);
  bool closed(const Expr& r) const;

  const LoopKernel& kernel_;
  IndexRange range_;
  std::string text_;
  Emitter emit_;
  Expr threads_, work_;
  std::unordered_set<std::int64_t> known_;  // variables in scope
};

/// What may go through packs of at most 16 bytes along `var`: loads of `bodies` that are always evaluated, and stores
/// of values at offsets.
Packing find_packing(const Exprs& bodies, const std::vector<std::pair<const Value*, Expr>>& stores, const Expr& var);
/// Packs only if `e` is a multiple of their length: by a condition, or none at all if there is no such condition.
void add_multiple(Packing& p, const Expr& e);
/// True if e is a multiple of n once all of `conditions` are, to which this may add.
bool multiple_of(const Expr& e, int n, Exprs& conditions);
/// Distinct loads of `e`, those inside reductions included.
Exprs all_loads(const Expr& e);
/// Instructions of one evaluation, roughly.
int instructions(const Expr& e);
/// Calls `f` with every load that is evaluated whenever `e` is, those of reductions inside excepted.
void certain_loads(const Expr& e, const std::function<void(const Expr&)>& f);
/// Whether `body` is a selection whose condition is the same for all of `inner`.
bool splits(const Expr& body, const Expr& inner);
bool uses_var(const Expr& e, const Expr& var);
/// "b" of a value's bits, "element of the pack" in C++.
std::string element_text(DType t, const std::string& bits);
std::string bits_text(DType t, const std::string& x);

}  // namespace sardonyx::codegen
