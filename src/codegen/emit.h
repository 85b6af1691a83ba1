// Expressions as C++ statements of the kernel dialect.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "codegen/index_range.h"
#include "graph/graph.h"

namespace sardonyx::codegen {

/// The kernel dialect's name of a dtype in registers and in memory (bool is stored as u8).
const char* type_name(DType t);
const char* storage_name(DType t);
/// The dialect's name of the type in which arithmetic on t is done.
const char* computed_name(DType t);
/// A literal.
std::string literal(const Expr& constant);

/// Rewrites every load of `e` to one with a single index: the offset in the value's storage order.
Expr flatten_loads(const Expr& e);
/// Offset of `indices` in v's storage order.
Expr storage_offset(const Value& v, const Exprs& indices);

/// Whether t is a type of 8-bit numbers, or `e` loads values of one.
bool of_eight_bits(DType t);
bool loads_eight_bits(const Expr& e);

/// Calls `f` with every subexpression with a load that is evaluated whenever `e` is, outer ones first: for a select,
/// what both sides have in common (to a limited nesting); for a reduction, only the reduction itself. `f` returns
/// whether to descend.
void certain_parts(const Expr& e, const std::function<bool(const Expr&)>& f, int selections = 4);

/// Whether it has sines in float32 whose arguments may be large; see Emitter::sines.
bool has_far_sines(const Expr& e);

/// Writes statements; each distinct subexpression is computed once per scope.
class Emitter {
 public:
  explicit Emitter(std::string& out) : out_(out) { scopes_.emplace_back(); }

  /// Writes the statements that e needs and returns the C++ text of its value. Loads must be flat.
  std::string value(const Expr& e);
  /// Statements of a block get their own scope of names.
  void open(const std::string& header);
  void close(const char* after = "");
  void line(const std::string& text);
  /// A variable's or symbol's C++ name. Names of loop variables end with their scope.
  void bind(const Expr& var, const std::string& name);
  /// Loads of `v` become this local variable.
  void bind_local(const Value* v, const std::string& name) { locals_[v] = name; }
  /// Loads of `v` read this local array.
  void bind_array(const Value* v, const std::string& name) { buffer_names_[v] = name; }
  /// Local arrays in which reductions over one variable store their terms.
  std::unordered_map<Expr, std::string, ExprHash, ExprSame> kept_terms;
  /// This expression's value is already in a C++ variable.
  void bind_value(const Expr& e, const std::string& name) { scopes_.back()[e] = name; }
  /// A new name; the underscore distinguishes it from types (i64) and parameters (b0, s0).
  std::string fresh(const std::string& prefix) { return prefix + "_" + std::to_string(next_++); }
  /// The C++ expression acc (op) x, and the neutral element.
  static std::string combine(ReduceKind kind, DType t, const std::string& acc, const std::string& x);
  static std::string neutral(ReduceKind kind, DType t);

  /// Reductions have a single accumulator instead of many side by side (for targets with threads instead of vectors).
  bool plain_reductions = false;
  /// Scales and zero points are arguments of the kernel (among `symbols`, scales as the bits of a float32) instead of
  /// literals, so that layers that differ only in them share a kernel. For kernels that read or write values of 8 bits.
  bool scales_are_arguments = false;
  /// Quantisation by a known scale multiplies instead of dividing (emit_quantize.cpp), which suits GPUs.
  bool quantizes = false;
  /// Sides of a short select are computed without branches, in which loads would wait for each other: loads take the
  /// condition (of values that the kernel does not write).
  bool guards_loads = false;
  /// Such loads read the tensor's first element where their side is not selected, instead of being skipped (AMD).
  bool guards_addresses = false;
  /// Casts between int64 and floats go through int32 where the value is known to fit (known_range.h), which suits
  /// vectors.
  bool vector_casts = false;

  /// Sines and cosines of float32 are of angles that were tested (bounded_sin() of kernels/prelude_trig_f32.h).
  bool bounded_angles = false;
  /// Maxima and minima before a rounding to float16 that saturates become bounds of it. For AMD's GPUs.
  bool joins_bounds = false;

  /// Factors of index expressions that have a name in the kernel, so that layers that differ only in them share it.
  std::vector<std::pair<std::int64_t, std::string>> named_factors;

  /// For a GPU: index expressions are in 32 bits where this allows it, expressions of symbols alone become parameters,
  /// and divisions by them become multiplications by a number that the caller passes (see LoopSource::divisors).
  IndexRange* range = nullptr;
  /// The C++ type of an expression's variable; with `range`, int64 may become "i32".
  const char* type_of(const Expr& e) const;
  /// The parameter for a divisor: d0, d1, ...
  std::string divisor(const Expr& e);
  /// A parameter with this value, for any expression of symbols; see is_parameter for what is not allowed.
  std::string argument(const Expr& e);
  /// Whether `e` can be a parameter that is evaluated before the launch.
  bool is_parameter(const Expr& e) const;

  /// Results are stored in 16 bits or fewer, for which faster functions are exact enough (kernels/prelude_fast.h).
  bool for_halves = false;
  /// The same for functions whose arguments were stored in 16 bits, whatever the type of their results.
  bool of_halves = false;
  /// The name of what with_sines() of the prelude passes; empty: sines are computed one by one.
  std::string sines;

  /// Tensors loaded or stored, in order of first use: parameters b0, b1, ...
  std::vector<Value*> buffers;
  /// Symbols used, in order of first use: parameters s0, s1, ... With `range`: any expressions of symbols.
  Exprs symbols;
  Exprs divisors;
  std::string buffer(const Value* v);

  /// An expression without its last rounding, for kernels that round several results at a time (pack_wide() of
  /// kernels/prelude_pack.h). `text` is empty where there is none; else a float32, or for 8-bit integers an int32 that
  /// has to be saturated. `saturates`: rounding to float16 has to.
  struct Wide {
    std::string text;
    bool saturates = false;
  };
  Wide wide(const Expr& e);
  /// QuantizeLinear by a known scale: round(x / scale) + zero, between least and most. Empty if `e` is none.
  struct Codes {
    Expr x;
    float scale = 1;
    double zero = 0, least = 0, most = 0;
  };
  static std::optional<Codes> codes_of(const Expr& e);
  /// Whether wide() of an expression in float8 has a text.
  bool rounds_float8(const Expr& e) const;
  /// An int32 number: an argument where scales are, else a literal.
  std::string zero_point(std::int64_t x);

 private:
  std::string find(const Expr& e) const;
  std::string compute(const Expr& e);
  std::string operation(const Expr& e, const std::vector<std::string>& a);
  std::string half_operation(const Expr& e, const std::vector<std::string>& a);
  std::string one_plus(const Expr& e);
  std::string sine_or_cosine(const Expr& e, const std::string& c);
  std::string call(const Expr& e, const char* function, const std::string& a) const;
  std::string bounded_half(const Expr& e);
  // Quantisation by a known scale; empty: `e` is something else.
  std::string quantization(const Expr& e);
  // The name of `x` as an operand of `e`; empty: it is no factor that has one.
  std::string named_factor(const Expr& e, const Expr& x) const;
  std::string wide_codes(const Codes& c);
  std::string zero_text(double zero, double least);
  // A float32 number: an argument if they are, else a literal.
  std::string scale(double x);
  std::string parameter(const Expr& e);
  bool narrow(const Expr& e) const;
  bool division(const Expr& e, const std::vector<std::string>& a, bool in_32, std::string& text);
  std::string reduction(const Expr& e);
  std::string guarded_selection(const Expr& e, const std::string& condition);
  std::string arg_reduction(const Expr& e);
  std::string arg_lanes(const Expr& e);
  void fold_lanes(const Expr& e, const std::string& acc, int lanes);
  void keep_term(const Expr& reduction, const std::string& at, const std::string& x);
  std::string selection(const Expr& e);

  std::string& out_;
  std::string guard_;  // the condition of loads; empty: none
  std::vector<std::unordered_map<Expr, std::string, ExprHash, ExprSame>> scopes_;
  std::unordered_map<const Value*, std::string> locals_;
  std::unordered_map<const Value*, std::string> buffer_names_;
  int next_ = 0;
};

/// Loop variables of a reduction in the best order for memory: the one with stride 1 in most loads is last.
/// `contiguous`: whether there is one.
Exprs order_reduce_vars(const Expr& reduce, bool& contiguous);
/// The number of loads of `e` (flat) that move by exactly one element with var.
int unit_stride_loads(const Expr& e, const Expr& var);

}  // namespace sardonyx::codegen
