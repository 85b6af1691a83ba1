// One operand of a contraction as the functions by which kernels/gemm_loader.h fetches it.
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

/// In generated code.
const char* name_of(Access a);

class Operand {
 public:
  Operand(const Contraction& c, bool is_a);
  Access access() const { return access_; }
  /// Weights of few bits in blocks; access() is kElements then.
  const std::optional<QuantizedOperand>& quantized() const { return quantized_; }
  /// In memory, if that is all it is and it is such as the copy engine of Hopper takes.
  std::optional<CopiedOperand> copied() const;
  const Value* in_memory() const { return e_->value; }
  void emit(Emitter& e) const;

  /// Whether kernels/stream.h takes it: `loaded` before any launch, and copied as it is, with its scales.
  bool streams(const std::function<bool(const Value*)>& loaded) const;
  /// How many runs, one after another, have the same scale, if a column's lie side by side in 16 bits, whole vectors of
  /// them at multiples of 16 bytes; else 0.
  int runs_of_scale() const;
  /// Whether a column's scales lie right behind those of the column before it; of an operand that has runs_of_scale().
  bool scales_follow() const;
  /// What stream.h needs besides; of an operand that streams.
  void emit_stream(Emitter& e) const;

 private:
  static void bind(Emitter& e, const Expr& var, const std::string& value);
  bool plain() const { return e_->op == Op::kLoad && e_->dtype == c_.type && !e_->args.empty(); }
  bool try_vector();
  bool try_across();
  std::vector<std::pair<Expr, Expr>> split_k() const;
  bool contiguous(const std::vector<std::pair<Expr, Expr>>& r, const Expr& j);
  // What kernels/gemm_loader.h may take for granted of kVector and kAcross: no padding, and how far one K lies from the
  // next.
  void emit_facts(Emitter& e) const;
  void blocks(Emitter& e, const QuantizedOperand& q) const;
  void elements(Emitter& e) const;
  // The scale as it lies in memory, in 16 bits; null if it is anything else.
  Expr scale_load() const;
  // A type of which there are constants, as there are none of 8-bit floats.
  DType sum_type() const { return size_of(c_.type) == 1 && is_float(c_.type) ? DType::kFloat32 : e_->dtype; }

  const Contraction& c_;
  bool is_a_;
  Expr line_, e_, inside_;
  std::int64_t vec_;
  Access access_ = Access::kElements;
  std::optional<QuantizedOperand> quantized_;
  Expr index_, offset_, where_;  // of kVector (index: k / vec_) and kAcross (index: k)
};

}  // namespace sardonyx::codegen
