// An operand of a contraction, as the functions with which kernels/gemm_loader.h loads it.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codegen/contraction.h"
#include "codegen/emit.h"
#include "codegen/quantized_operand.h"
#include "codegen/tma_tiling.h"

namespace sardonyx::codegen {

/// The name in generated code.
const char* name_of(Access a);

class Operand {
 public:
  Operand(const Contraction& c, bool is_a);
  Access access() const { return access_; }
  /// Whether its address advances by the same stride from each k to the next (kLinearA, kLinearB of
  /// kernels/gemm_problem.h), and elements are never masked.
  bool linear() const { return access_ != Access::kElements && !where_ && step_of_k(); }
  /// Whether hardware checks which elements are outside (kBufferA of kernels/gemm_problem.h).
  bool checked(IndexRange* range) const;
  /// kRunA, kRunB of kernels/gemm_problem.h.
  std::int64_t run() const { return run_; }
  /// Weights that are quantised in blocks; access() is kElements then.
  const std::optional<QuantizedOperand>& quantized() const { return quantized_; }
  /// The operand in memory, if it is nothing else and TMA can load it.
  std::optional<CopiedOperand> copied() const;
  const Value* in_memory() const { return e_->value; }
  void emit(Emitter& e) const;

  /// Emits the address of a row, where access() is kElements although elements along K follow one another in memory.
  void emit_row(Emitter& e) const;

  /// Whether it is `loaded` before any launch, and can be copied without conversion, with its scales; zero points are
  /// loaded too.
  bool loads_early(const std::function<bool(const Value*)>& loaded) const;
  /// Whether kernels/stream.h supports it: the same, with one zero point.
  bool streams(const std::function<bool(const Value*)>& loaded) const;
  /// How many consecutive runs share a scale, if a column's scales are contiguous, of 16 bits, and whole aligned
  /// vectors of 16 bytes; otherwise 0.
  int vectors_per_scale() const;
  /// Whether the scales of consecutive columns are contiguous. Requires vectors_per_scale().
  bool scales_follow() const;
  /// Emits what stream.h needs in addition. Requires streams().
  void emit_stream(Emitter& e) const;

 private:
  static void bind(Emitter& e, const Expr& var, const std::string& value);
  bool plain() const {
    const bool typed = e_->dtype == c_.type || (c_.type == DType::kUInt8 && e_->dtype == DType::kInt8);
    return e_->op == Op::kLoad && typed && !e_->args.empty();
  }
  // Whether each vector has elements at its end that are not in memory (Contraction::stored).
  bool is_short() const;
  bool try_vector();
  bool try_across();
  std::vector<std::pair<Expr, Expr>> split_k() const;
  bool contiguous(const std::vector<std::pair<Expr, Expr>>& r, const Expr& j);
  // Emits what kernels/gemm_loader.h may assume for kVector and kAcross: no padding, and a constant stride of K.
  void emit_facts(Emitter& e) const;
  // The stride of index_ in elements, if it is the same everywhere; null otherwise.
  Expr step_of_k() const;
  void blocks(Emitter& e, const QuantizedOperand& q) const;
  void elements(Emitter& e) const;
  // The load of the scale, if it is stored in 16 bits; null otherwise.
  Expr scale_load() const;
  // A type that constants can have; there are none of 8-bit floats.
  DType sum_type() const { return size_of(c_.type) == 1 && is_float(c_.type) ? DType::kFloat32 : e_->dtype; }

  const Contraction& c_;
  bool is_a_;
  Expr line_, e_, inside_;
  std::int64_t vec_;
  std::int64_t run_ = 0;  ///< kRunA, kRunB of kernels/gemm_problem.h
  Access access_ = Access::kElements;
  std::optional<QuantizedOperand> quantized_;
  Expr index_, offset_, where_;  // of kVector (index: k / vec_) and kAcross (index: k)
};

}  // namespace sardonyx::codegen
