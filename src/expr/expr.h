// Scalar expressions: the one language of shapes, indices and element values.
//
// A shape's dim is an int64 expression over symbols ("batch"). A loop's body is an expression over loop variables,
// symbols and loads of tensors' elements. Expressions are immutable DAGs shared by pointer; equality is structural.
//
//   Expr n = symbol(0, "n");                    // a dim known at run time
//   Expr i = loop_var(n);                       // 0 <= i < n
//   Expr y = exp(load(x, {i}));                 // element values: any dtype
//   Expr f = floordiv(i * n + i, n);            // index arithmetic on int64 is simplified: this is i
//
// Two families build nodes: `unary`, `binary`, `select`, `cast` are element arithmetic with the dtype's own semantics
// (integers wrap). The index functions (idx::add, mul, floordiv, mod, min, max) work on int64 without overflow and keep
// polynomials in a normal form, so that reshapes and transposes cancel when loops are fused.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "support/dtype.h"

namespace sardonyx {

class Value;  // a tensor of the graph; expressions only hold its address

enum class Op : std::uint8_t {
  // Leaves
  kConst,
  kVar,
  kSym,
  kLoad,
  // Unary, same dtype in and out unless said
  kNeg,
  kAbs,
  kSign,
  kNot /*bool*/,
  kBitNot,
  kExp,
  kExpm1,
  kLog,
  kLog1p,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kTanh,
  kAsinh,
  kAcosh,
  kAtanh,
  kErf,
  kSigmoid,
  kFloor,
  kCeil,
  kRound /*half to even*/,
  kTrunc,
  kIsNaN /*->bool*/,
  kIsInf /*->bool*/,
  kCast,     // to the node's dtype, ONNX Cast semantics; `i`: 1 saturate (fp8), +2 round down, +4 to nearest (else up;
             // float8e8m0), +8 kCastRounds
  kBitCast,  // same size, reinterpreted
  // Binary, both args of one dtype
  kAdd,
  kSub,
  kMul,
  kDiv /*integers truncate*/,
  kFloorDiv,
  kMod /*sign of divisor*/,
  kFMod /*sign of dividend*/,
  kPow,
  kMin,
  kMax,
  kAnd /*bool*/,
  kOr /*bool*/,
  kXor /*bool*/,
  kBitAnd,
  kBitOr,
  kBitXor,
  kShl,
  kShr,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,  // -> bool
  // Others
  kSelect,  // args: condition (bool), then, else; only the chosen side is evaluated
  kReduce,  // args: body; vars: reduced loop variables; `i`: ReduceKind
  kRandom,  // args: seed (uint64), counter (int64); -> float32 uniform in [0,1) by Philox4x32-10
};

/// A bit of kCast's mode: the model itself casts here, so the value must be rounded. Other casts to 16-bit floats only
/// say in which type a value is stored.
inline constexpr int kCastRounds = 8;
/// A bit of kCast's mode, for casts from float32 to float16: values beyond the range become the largest finite number
/// of their sign rather than infinity. NaN stays NaN.
inline constexpr int kCastSaturatesHalf = 16;

enum class ReduceKind : std::uint8_t {
  kSum,
  kProd,
  kMin,
  kMax,
  kAny,
  kAll,
  kArgMin,
  kArgMax,
  kArgMinLast,
  kArgMaxLast
};

struct ExprNode;
/// A shared, immutable expression. Empty by default.
class Expr {
 public:
  Expr() = default;
  explicit Expr(std::shared_ptr<const ExprNode> p) : p_(std::move(p)) {}
  Expr(std::int64_t v);  // NOLINT: integers convert to int64 constants, so that shapes read naturally
  Expr(int v) : Expr(static_cast<std::int64_t>(v)) {}  // NOLINT
  const ExprNode* operator->() const { return p_.get(); }
  const ExprNode& operator*() const { return *p_; }
  const ExprNode* get() const { return p_.get(); }
  explicit operator bool() const { return p_ != nullptr; }

 private:
  std::shared_ptr<const ExprNode> p_;
};

struct ExprNode {
  Op op;
  DType dtype;
  std::int64_t i = 0;            // integer constant; variable or symbol id; cast mode; ReduceKind
  double f = 0;                  // floating-point constant
  const Value* value = nullptr;  // kLoad
  std::string name;              // kSym
  std::vector<Expr> args;        // operands; kLoad: one int64 index per dim; kVar: its extent; kSym: none
  std::vector<Expr> vars;        // kReduce
  std::size_t hash = 0;
  bool has_load = false, has_var = false, has_sym = false, has_reduce = false;
};

using Exprs = std::vector<Expr>;

// ---- leaves
Expr constant_int(std::int64_t v, DType t = DType::kInt64);  ///< any integer dtype or bool
Expr constant_float(double v, DType t);                      ///< rounded to `t`
Expr constant(double v, DType t);                            ///< integer or float by `t`
Expr constant_bool(bool v);
Expr loop_var(const Expr& extent);             ///< a fresh int64 variable, 0 <= v < extent
Expr symbol(int id, const std::string& name);  ///< a run-time int64 >= 0
/// A run-time int64 that may be negative (read from data rather than from a shape).
Expr data_symbol(int id, const std::string& name);
Expr load(const Value* value, DType dtype, Exprs indices);

// ---- element arithmetic (constants are folded in the dtype's precision)
Expr unary(Op op, const Expr& a);
Expr binary(Op op, const Expr& a, const Expr& b);
Expr compare(Op op, const Expr& a, const Expr& b);  ///< kEq..kGe -> bool; int64 operands use index reasoning
Expr select(const Expr& condition, const Expr& then, const Expr& otherwise);
Expr cast(const Expr& a, DType to, int mode = 0);
Expr bitcast(const Expr& a, DType to);
Expr reduce(ReduceKind kind, Exprs vars,
            const Expr& body);  ///< arg kinds give int64: the (flattened) position along vars
Expr random_uniform(const Expr& seed, const Expr& counter);
Expr logical_and(const Expr& a, const Expr& b);
Expr logical_or(const Expr& a, const Expr& b);
Expr logical_not(const Expr& a);

// ---- index arithmetic on int64 (no overflow by contract: indices and dims), kept in normal form
namespace idx {
Expr add(const Expr& a, const Expr& b);
Expr sub(const Expr& a, const Expr& b);
Expr mul(const Expr& a, const Expr& b);
Expr floordiv(const Expr& a, const Expr& b);  ///< rounds down; b > 0
Expr ceildiv(const Expr& a, const Expr& b);
Expr mod(const Expr& a, const Expr& b);  ///< in [0, b); b > 0
Expr min(const Expr& a, const Expr& b);
Expr max(const Expr& a, const Expr& b);
Expr product(const Exprs& dims);  ///< 1 for none
/// Row-major offset of `indices` in a tensor of `shape`. An index into a dim of 1 is 0, whatever it is written as.
Expr linearize(const Exprs& indices, const Exprs& shape);
/// The indices into `shape` of a row-major offset.
Exprs delinearize(const Expr& offset, const Exprs& shape);
/// e = coefficient * var + rest with both free of var; false when e is not of that form.
bool split_affine(const Expr& e, const Expr& var, Expr& coefficient, Expr& rest);
/// True if a >= 0 can be proved. `dims_positive`: assumes that symbols of shapes are >= 1 (inside a loop that runs).
bool provably_nonnegative(const Expr& a, bool dims_positive = false);
bool provably_equal(const Expr& a, const Expr& b);
}  // namespace idx
// Operators are index arithmetic for int64 index expressions; use `binary` for element arithmetic on data.
inline Expr operator+(const Expr& a, const Expr& b) { return idx::add(a, b); }
inline Expr operator-(const Expr& a, const Expr& b) { return idx::sub(a, b); }
inline Expr operator*(const Expr& a, const Expr& b) { return idx::mul(a, b); }

// ---- queries
bool same(const Expr& a, const Expr& b);  ///< structurally equal
int order(const Expr& a, const Expr& b);  ///< a total order that is the same in every run
bool is_const(const Expr& a);
bool is_const(const Expr& a, std::int64_t v);  ///< an integer constant equal to v
bool is_const_int(const Expr& a, std::int64_t& v);
std::string to_string(const Expr& a);
std::string to_string(const Exprs& dims);  ///< "[n, 3, 224]"
struct ExprHash {
  std::size_t operator()(const Expr& e) const { return e->hash; }
};
struct ExprSame {
  bool operator()(const Expr& a, const Expr& b) const { return same(a, b); }
};

// ---- rewriting
/// Rebuilds `e` bottom-up with simplification. `f` sees each original node first; a non-empty result replaces it (not
/// visited further).
Expr rewrite(const Expr& e, const std::function<Expr(const Expr&)>& f);
/// Replaces variables and symbols, by identity (op and id).
using Substitution = std::unordered_map<const ExprNode*, Expr>;
Expr substitute(const Expr& e, const std::vector<std::pair<Expr, Expr>>& replacements);
/// A copy with fresh variables for every kReduce inside, so that one body can be used twice in one kernel.
Expr freshen_reduce_vars(const Expr& e);
/// Calls `f` once for every distinct node, operands first.
void visit(const Expr& e, const std::function<void(const Expr&)>& f);

// ---- evaluation on the CPU
/// Values of symbols, by id. Missing ones make evaluation fail.
struct SymbolValues {
  std::vector<std::int64_t> value;
  std::vector<bool> known;
  void set(int id, std::int64_t v);
  bool has(int id) const { return id < static_cast<int>(known.size()) && known[id]; }
};
/// Value of an int64 expression without loads or free variables. Throws Error(kInvalidArgument) on overflow or division
/// by 0, and kInternal when a symbol is unknown.
std::int64_t evaluate(const Expr& e, const SymbolValues& symbols);

/// Folds one operation on constants; returns an empty Expr when it can't be folded.
Expr fold_constants(Op op, DType result, const Exprs& args, std::int64_t mode);
/// Rounds to the nearest value of floating-point type `t` (ties to even; overflow to infinity).
double round_to(double v, DType t);

}  // namespace sardonyx
