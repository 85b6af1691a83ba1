// Generates the GPU code of one loop kernel: the class that its parts share. Private to the files gpu_*.cpp here.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "codegen/emit.h"
#include "codegen/loop_analysis.h"
#include "codegen/loop_codegen.h"

namespace sardonyx::codegen {

/// A load whose packs along a variable mostly follow memory (gpu_pieces.cpp).
struct Piece {
  Expr load;
  Expr inside;  ///< where it is evaluated
  Expr whole;   ///< for a pack's first position: all elements are inside and follow one another
};

/// Loads of every `stride`-th element of a tensor, which together are all (gpu_interleaved.cpp).
struct Interleaved {
  const Value* value = nullptr;
  DType dtype = DType::kFloat32;
  int stride = 0;
  Expr first;   ///< offset of the first element where the variable is 0
  Exprs loads;  ///< of the first element, of the next one, ...
};

/// Accesses along one variable that can be vectorised with packs of `length` elements.
struct Packing {
  int length = 1;   ///< elements; 1: no packs
  Exprs loads;      ///< flat, contiguous along the variable, and aligned
  Exprs multiples;  ///< must be multiples of the length at run time for packs to be used
  std::vector<Piece> pieces;
  std::vector<Interleaved> interleaved;
};

struct RowStage {
  const Stage* stage = nullptr;
  Expr body, offset;
  bool row = false;  ///< has elements along the row; otherwise a single value
};

/// A load that a row needs only from element `low` to before `high`, as one of a Concat's parts. Both are multiples of
/// a pack.
struct RowPart {
  Expr load;  ///< contiguous along the row
  std::int64_t low = 0, high = 0;
};

/// How a kernel's rows are computed (gpu_rows.cpp).
struct RowPlan {
  Expr var;  ///< along the row
  std::vector<RowStage> stages;
  Exprs outer;  ///< variables that number the rows
  Packing packing;
  std::vector<RowPart> parts;                    ///< their loads are among those of `packing`
  Exprs of_packs;                                ///< loads that are the same for all elements of a pack
  int chunks = 1;                                ///< packs that a thread keeps in registers
  Expr team;                                     ///< threads per row
  bool loads_late = false;                       ///< loads that one stage uses are not kept before its loop
  bool uneven = false;                           ///< the length differs between rows
  bool always_fits = false, never_fits = false;  ///< in the registers of a team; neither: decided at run time
  bool exact = false;  ///< a team's registers hold exactly one row, so that no element needs a check
  /// Rows are no multiple of a pack: the last pack overlaps with the one before it, and packs begin at any element.
  bool overlaps = false;
};

/// What a kind of device allows in kernels of rows, as in GpuLoopOptions.
struct RowOptions {
  std::int64_t row_bytes = 0;
  bool any_address = false;
  bool packs_float8 = false;
};

/// Plans a kernel of rows. All stages must run along one variable: reductions over one variable, of equal extents. They
/// get the same variable, so that equal loads of different stages become equal expressions. Empty if the kernel is none
/// of rows, or runs faster with neighbouring threads on neighbouring results.
std::optional<RowPlan> plan_rows(const LoopKernel& kernel, IndexRange& range, const RowOptions& options);

namespace window {
struct RowLoad;  // window_costs.h
}

class GpuGenerator {
 public:
  /// A part of the innermost variable's range, and what is stored there.
  struct Segment {
    std::int64_t low = 0, high = 0;
    Expr body;
    bool singly = false;  ///< one by one, as it is too short for packs
  };
  GpuGenerator(const LoopKernel& kernel, const GpuLoopOptions& options);
  GpuLoopSource run();

 private:
  // ---- gpu_codegen.cpp
  /// Computes the variables from the number of a work item in `q`, a C++ variable that is modified.
  void decode(const Exprs& vars, const std::string& q, bool narrow);
  void store(const Value* out, const Expr& offset, const std::string& x);
  /// A loop over `count` work items by all threads, with the number in the variable `q`. Each: so many threads are
  /// launched. Returns whether the number is an i32.
  bool open_items(const Expr& count, const std::string& from, const std::string& q, bool each);
  /// The run-time condition for packs, as C++ text.
  std::string pack_condition(const Packing& p, const std::vector<const Value*>& stored);
  void clear(const Exprs& vars);

  // ---- gpu_map.cpp: one thread per element or pack
  void map(const FlatLoop& f);
  void map_packs(const FlatLoop& f, const Packing& p);
  bool has_one_body(const Exprs& leaves) const;
  struct Segments {
    std::vector<Segment> parts;
    Packing packing;
    std::int64_t packs = 0;  ///< of a row
  };
  std::optional<Segments> segments_of(const FlatLoop& f, int aligned) const;
  void segments(const FlatLoop& f, const Segments& s);
  void pack_body(const Expr& body, const Packing& p, const Expr& inner, const Expr& base, const Expr& offset);
  void load_packs(const Expr& body, const Packing& p, const Expr& inner, const Expr& base,
                  std::vector<std::pair<Expr, std::string>>& packs);

  // ---- gpu_pieces.cpp: packs that mostly follow memory
  struct GuardedLoad {
    Expr load;
    Exprs conditions;  ///< under which it is evaluated
    int times = 1;     ///< in how many places
  };
  static std::vector<GuardedLoad> guarded_loads(const Expr& body);
  static Expr inside_of(const GuardedLoad& g);
  /// For a load's offset and the conditions on it: whether the pack of elements from `var` on is whole, if it is for
  /// most values of `var`, whose values must all be known.
  std::optional<Expr> whole_packs(const Expr& offset, const Exprs& conditions, const Expr& var, int length) const;
  void add_pieces(const Exprs& bodies, const Expr& var, Packing& p) const;
  void load_piece(const Piece& piece, const std::string& name, int length, const Expr& var, const Expr& first);
  void load_elements(const Piece& piece, const std::string& name, int length, const Expr& var, const Expr& first);

  // ---- gpu_interleaved.cpp
  static void add_interleaved(const Expr& body, const Expr& var, Packing& p);
  void load_interleaved(const Packing& p, const Expr& inner, const Expr& base,
                        std::vector<std::pair<Expr, std::string>>& packs);

  // ---- gpu_gathers.cpp
  /// Elements of a pack with which a loop is fastest whose packs may have `p.length`.
  int gather_length(const FlatLoop& f, const Packing& p) const;

  // ---- gpu_blocks.cpp: a block per thread, transposed in registers
  struct Blocks {
    std::size_t across = 0;     ///< number of the variable along which the transposed operands are contiguous
    Packing packing;            ///< along the innermost variable; `length` elements along both
    Exprs crossing;             ///< loads that are transposed
    std::vector<Piece> pieces;  ///< others, whose packs along the variable are mostly whole
    bool overlaps = false;      ///< the last block along a variable overlaps with the one before
  };
  /// Whether a loop whose result has packs can be computed in blocks, and pays: it has operands without packs.
  std::optional<Blocks> blocks_of(const FlatLoop& f, const Packing& p, bool overlaps) const;
  std::optional<Blocks> overlapping_blocks_of(const FlatLoop& f, int least) const;
  /// Leaves a C++ variable `done`: false where sizes or addresses at run time do not allow packs.
  void blocks(const FlatLoop& f, const Blocks& b);

  // ---- gpu_joined_rows.cpp: packs that continue from one row to the next
  struct JoinedRows {
    int length = 1;
    Exprs flat;     ///< loads of which each element has its own
    Exprs of_rows;  ///< loads that are the same for a row
  };
  /// Empty where the loop has other loads.
  std::optional<JoinedRows> joined_rows_of(const FlatLoop& f) const;
  /// Leaves a C++ variable `done`: the number of elements that packs cover.
  void joined_rows(const FlatLoop& f, const JoinedRows& j);

  // ---- gpu_windows.cpp: one thread per pack of outputs, or per several packs whose windows overlap
  struct WindowTile {
    int length = 1;           ///< of a pack
    Expr inner, group, lane;  ///< the innermost variable is group * length + lane
    int count = 1;            ///< packs of a thread, neighbours along `along`
    Expr along, base;         ///< position of the first one
    bool whole = false;       ///< they are all of `along`, so that their positions are known
    Exprs multiples;          ///< must be multiples of `length` at run time
    bool rows = false;        ///< windows slide along packs of a row
    std::int64_t team = 1;    ///< threads that divide the terms of a reduction, one in each row of 256 / team threads
  };
  /// One term of a reduction, with constants substituted for the variables of unrolled loops.
  struct WindowTerm {
    Expr value;                   ///< where `inside` holds, or everywhere
    Expr inside, outside;         ///< empty: everywhere
    Exprs loads;                  ///< all loads of `value`
    Expr filled;                  ///< the load that yields `outside` if it is filled with a suitable element; or empty
    std::string condition, fill;  ///< C++ of `inside`, and of that element
    Exprs bounds;                 ///< more conditions on that load, which depend on the lane
  };
  struct Fetched {
    Expr load, inside;
    std::string element;  ///< C++ of one lane's value
    std::string pack;     ///< of all lanes' bits; empty: there is none
    bool part_of_row = false;
  };
  /// `terms`: maximum number of terms of the longest reduction that a team of threads may divide if there are few
  /// outputs; 0: one thread per output.
  void windows(const OutputLoop& p, std::int64_t terms);
  void choose_tile(const Exprs& vars, const Exprs& bodies, std::int64_t packs, std::int64_t enough, double least,
                   WindowTile& w) const;
  void window_loops(const OutputLoop& p, const Exprs& reductions, const WindowTile& w, const WindowTile& large,
                    Expr many);
  void window_loop(const OutputLoop& p, const Exprs& reductions, const WindowTile& w);
  using Sums = std::vector<std::pair<Expr, std::string>>;  ///< reductions, and the C++ of a lane's result
  /// `known`: sums of each pack from which others may be computed.
  void open_sums(const Expr& r, std::size_t count, const WindowTile& w, bool halves, std::vector<std::string>& sums);
  void close_half_extremes(const Expr& r, const WindowTile& w, const std::vector<std::string>& sums);
  void window_sums(const Expr& r, const std::vector<Expr>& of_tile, const WindowTile& w, const std::vector<Sums>& known,
                   std::vector<std::string>& sums);
  /// Whether a reduction is the extreme of packs of float16 (kernels/extremes.h).
  bool has_half_extremes(const Expr& r, const WindowTile& w) const;
  /// Adds a term to the extremes `to`.
  void add_half_extreme(const Expr& value, const std::vector<std::pair<Expr, std::string>>& elements,
                        const std::vector<Fetched>& fetched, const WindowTile& w, const std::string& to);
  /// Variables of a reduction that are written out for a tile.
  Exprs written_out_for(const Expr& r, const std::vector<Expr>& of_tile, const WindowTile& w) const;
  /// A tile of whole rows of results of a small image, if it pays; of an unknown number of `items`, if it pays from
  /// least_items() on. `w`: the tile that is chosen otherwise.
  std::optional<WindowTile> whole_rows(const OutputLoop& p, const Exprs& reductions, const Expr& items,
                                       const WindowTile& w) const;
  std::optional<WindowTile> whole_row(const OutputLoop& p, const Exprs& reductions, const Expr& inner,
                                      const Expr& along, int length) const;
  std::int64_t least_items(const WindowTile& t) const;
  /// The reduction for the elements of a pack.
  static Expr in_packs(const Expr& r, const WindowTile& w) {
    return w.lane ? substitute(r, {{w.inner, w.group * Expr(w.length) + w.lane}}) : r;
  }
  // ---- gpu_window_teams.cpp
  std::optional<Expr> pack_of_lanes(const Expr& load, const WindowTile& w) const;
  Exprs loads_ahead(const Expr& term, const WindowTile& w) const;
  std::string open_terms(const Exprs& vars, const WindowTile& w, int at_a_time, const Exprs& ahead,
                         std::vector<Fetched>& fetched);
  // ---- gpu_windows.cpp
  /// `fetched`: what is loaded already. `to`: C++ of what the bits of each output are assigned to; empty: they are
  /// stored.
  void window_outputs(const OutputLoop& p, const std::vector<std::pair<Expr, Expr>>& at, const WindowTile& w,
                      const Sums& sums, std::vector<Fetched> fetched = {}, const std::vector<std::string>& to = {});
  void tile_outputs(const OutputLoop& p, const std::vector<std::vector<std::pair<Expr, Expr>>>& at, const WindowTile& w,
                    const std::vector<Sums>& sums);
  std::vector<std::string> open_stored_rows(const OutputLoop& p, const WindowTile& w);
  void store_rows(const OutputLoop& p, const WindowTile& w, const std::vector<std::string>& rows);
  WindowTerm window_term(const Expr& e, ReduceKind kind, const WindowTile& w);
  std::string fetch(const Expr& load, const WindowTerm* term, const WindowTile& w, std::vector<Fetched>& done);
  /// C++ of the address of a load's element or pack at `offset`, which is 0 where a checked term is outside.
  std::string address_of(const Expr& load, const Expr& offset, const WindowTerm* term);
  void fill_with_outside(const Expr& load, const WindowTerm* term, const std::string& name);
  /// A term, and what it loads for sure.
  struct LoadingTerm {
    WindowTerm term;
    Exprs loads;
  };
  // ---- gpu_window_runs.cpp
  /// Loads packs of neighbouring elements that all lanes read (the channels of a group).
  void fetch_runs(const std::vector<const LoadingTerm*>& terms, const WindowTile& w, std::vector<Fetched>& done);
  bool suits_run(const Expr& first, int length, const WindowTile& w) const;
  void single_outputs(const OutputLoop& p, const std::string& from);
  // ---- gpu_window_rows.cpp
  std::optional<window::RowLoad> row_of(const Expr& load, const Exprs& bounds, const WindowTile& w) const;
  bool row_term(const Expr& e, ReduceKind kind, const WindowTile& w, WindowTerm& t);
  std::string fetch_row(const Expr& l, const window::RowLoad& row, const WindowTerm* term, const WindowTile& w,
                        std::vector<Fetched>& done);

  // ---- gpu_channel_windows.cpp: windows of single channels by matrix instructions (kernels/window_mfma.h)
  struct ChannelWindows {
    Expr reduction;
    Expr image, taps;  ///< loads of one term
    Expr x, y;         ///< variables of the results along a row, and across rows; y may be empty
    Expr channel;      ///< variable of channels, if they are last; two of them are loaded together
    Exprs outer;       ///< the others
    std::int64_t channels = 1;
    std::int64_t pixel = 1, tap = 1;     ///< elements between pixels, and between taps
    std::int64_t width = 0, height = 1;  ///< of the image
    std::int64_t results_x = 0, results_y = 1;
    std::int64_t taps_x = 0, taps_y = 1;
    std::int64_t step_x = 1, step_y = 1, tap_step_y = 1;  ///< elements and rows between results, rows between taps
    std::int64_t pad_x = 0, pad_y = 0;
    std::int64_t row = 0;               ///< elements of the image between rows
    Expr at, taps_at;                   ///< offsets of a channel's first element, and of its first tap
    std::int64_t first = 0;             ///< elements before the first tap, so that packs are aligned
    std::int64_t groups = 1, rows = 1;  ///< of four results that a lane has: along a row, and of how many rows
  };
  std::optional<ChannelWindows> channel_windows_of(const OutputLoop& p, const Exprs& reductions) const;
  bool has_window_strides(const OutputLoop& p, ChannelWindows& c) const;
  void plan_channel_windows(ChannelWindows& c) const;
  void channel_windows(const OutputLoop& p, const ChannelWindows& c);
  static void find_window_variables(const OutputLoop& p, const Expr& inside, ChannelWindows& c);
  static bool find_window_limits(const Expr& inside, ChannelWindows& c);
  std::string channel_sums(const ChannelWindows& c, const std::string& unit, const std::string& first_row);
  /// Loads what results need of each channel, so that they do not wait for it.
  std::vector<Fetched> fetch_of_channels(const OutputLoop& p, const ChannelWindows& c, const WindowTile& w,
                                         const std::vector<std::pair<Expr, Expr>>& at);
  void row_windows(const OutputLoop& p, const ChannelWindows& c, const std::string& q, const std::string& quad,
                   const std::string& row, const std::string& lane);
  void pixel_windows(const OutputLoop& p, const ChannelWindows& c, const std::string& block, const std::string& unit,
                     const std::string& row, const std::string& lane);

  // ---- gpu_lines.cpp: 32 neighbouring threads per line
  static bool suits_lines(const FlatLoop& f);
  void lines(const FlatLoop& f);
  void line_body(const Expr& body, const FlatLoop& f, int chunks);

  // ---- gpu_rows.cpp, gpu_row_stages.cpp: a team of threads per row
  class RowStages;  // gpu_row_stages.cpp
  void rows(const RowPlan& r);
  void row_stages(const RowPlan& r, bool in_registers);
  void open_teams(const Exprs& outer, const Expr& team);
  void open_columns(const Exprs& outer, std::int64_t team);
  void loop_over_teams(const Exprs& outer, const Expr& team, const std::string& place, bool share_lines = false);

  // ---- gpu_long_rows.cpp: several workgroups per row
  struct LongRows {
    std::vector<RowStage> values;  ///< one value per row each
    RowStage row;                  ///< what is stored along the row, its variables in `vars`
    Exprs vars;                    ///< outermost first
    Packing packing;               ///< along the last variable
    std::int64_t lanes = 1;        ///< that combine the partial results
  };
  /// A partial result of a lane: `body` in a reduction `of`, if there is one.
  struct LongRowPart {
    Expr of, body;
    std::string exists;
  };
  using LongRowParts = std::vector<LongRowPart>;
  struct LongRowPack {
    Expr base;                              ///< position along the last variable
    std::vector<std::pair<Expr, Expr>> at;  ///< the other variables
    Expr body, offset;                      ///< with these
    std::string place;                      ///< the pack's begin in the row; past the end: there is none
    std::vector<std::pair<Expr, std::string>> loaded;
  };
  std::optional<LongRows> long_rows_of() const;
  void long_rows(const LongRows& l);
  LongRowParts long_row_parts(const LongRows& l);
  LongRowPack long_row_pack(const LongRows& l, int k, std::int64_t n);
  void long_row_value(const RowStage& s, std::int64_t lanes, const LongRowParts& parts);
  void long_row_elements(const LongRows& l, const LongRowPack& p, std::int64_t n);

  // ---- gpu_columns.cpp: a team of threads per pack of columns that are used more than once
  struct Columns {
    std::vector<RowStage> stages;
    Exprs outer;  ///< that number the columns; neighbouring columns are along the last one
    Expr var;     ///< along the column
    Expr base;    ///< the first column of a pack
    std::int64_t length = 0, team = 1;
    Packing packing;     ///< along the last of `outer`
    bool kept = false;   ///< in registers
    int chunks = 1;      ///< packs that a thread keeps, or has in flight
    bool whole = false;  ///< the column has a multiple of the team's threads
  };
  class ColumnStages;
  /// `p`: the kernel as one loop, if it is one. Empty where columns are used once, or lie along memory.
  std::optional<Columns> columns_of(const std::optional<OutputLoop>& p) const;
  struct ColumnShape;
  struct ColumnWork;
  ColumnShape column_shape(const ColumnWork& work, std::int64_t most) const;
  bool plan_columns_in_registers(Columns& c, std::int64_t columns) const;
  void columns(const Columns& c);

  // ---- gpu_teams.cpp: the same for reductions over several variables, and all other kernels with stages
  void general(const std::vector<RowStage>& stages, const Exprs& outer, const Expr& team);
  void search_together(const Expr& r);
  void cooperate(const Expr& body);
  bool closed(const Expr& r) const;

  const LoopKernel& kernel_;
  bool in_blocks_, loads_first_, half_extremes_, matrix_windows_;
  std::int64_t least_threads_;
  RowOptions row_options_;
  bool guarded_loads_ = false, quad_gathers_ = false;
  std::vector<std::string> fills_;  // statements that follow a window's loads
  IndexRange range_;
  std::string text_;
  Emitter emit_;
  Expr threads_, work_;
  LaunchBounds bounds_;
  std::unordered_set<std::int64_t> known_;  // variables in scope
};

/// The accesses along `var` that can use packs of at most 16 bytes: loads of `bodies` that are always evaluated, and
/// stores of values at offsets. `any_address`: packs may begin at any element.
Packing find_packing(const Exprs& bodies, const std::vector<std::pair<const Value*, Expr>>& stores, const Expr& var,
                     bool any_address = false);
/// Restricts packs to where `e` is a multiple of their length: by a run-time condition, or not at all if there is none.
void add_multiple(Packing& p, const Expr& e);
/// Whether e is a multiple of n if all of `conditions` are; may add to them.
bool multiple_of(const Expr& e, int n, Exprs& conditions);
/// The load of which `e` consists, except for a conversion to a wider type; empty if `e` is anything else.
Expr bare_load(const Expr& e);
/// C++ of the element with which a load of type t must be filled so that it becomes `outside`; empty if there is none.
std::string filling(const Expr& outside, DType t);
/// Whether offsets of elements fit 32 bits without a sign.
bool has_small_offsets(const Value& v);
/// Whether a load is in bounds for all values of its variables.
bool in_bounds(const Expr& load);
/// Distinct loads of `e`, including those inside reductions.
Exprs all_loads(const Expr& e);
/// Approximate number of instructions of one evaluation, and of one operation.
int instructions(const Expr& e);
int instruction_count(const Expr& operation);
/// Calls `f` with every load that is evaluated whenever `e` is, except those inside reductions.
void certain_loads(const Expr& e, const std::function<void(const Expr&)>& f);
/// Computes variables from the number of an element in `q`, a C++ variable that is modified: its last digit is the last
/// variable's. narrow: it has 32 bits.
void emit_digits(Emitter& e, const Exprs& vars, const std::string& q, bool narrow);
/// Whether `body` is a select whose condition is the same for all values of `inner`.
bool splits(const Expr& body, const Expr& inner);
bool uses_var(const Expr& e, const Expr& var);
/// Whether `e` depends on no other variable, symbol or tensor.
bool only_of(const Expr& e, const Expr& var);
/// The part of a sum that depends on `var`.
Expr part_along(const Expr& e, const Expr& var);
/// "b" of a value's bits, "element of the pack" in C++.
std::string element_text(DType t, const std::string& bits);
std::string bits_text(DType t, const std::string& x);

}  // namespace sardonyx::codegen
