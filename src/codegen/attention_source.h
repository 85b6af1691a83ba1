// Internal to code generation of attention: the struct P that kernels/attention.h requires, and the parameters that all
// kernels of a problem have.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "codegen/attention_problem.h"

namespace sardonyx::codegen {

/// The text that all forms of a kernel have in common. attention_codegen.cpp adds the forms.
class AttentionSource : protected AttentionProblem {
 protected:
  using Operand = AttentionOperand;
  using AttentionProblem::AttentionProblem;

  /// Fills in everything below.
  void write();

  Operand q_, k_, v_;
  std::int64_t group_ = 1;  ///< heads that share keys
  /// Of pages of keys and values: their number of rows, and the distances of two rows; all 0 if there are none, or
  /// pages of another kind.
  std::int64_t page_rows_ = 0, key_stride_ = 0, value_stride_ = 0;
  std::string one_query_text_;    ///< functions of attention_step_mma's struct; empty: it does not support the problem
  std::string head_, sizes_;      ///< parameters before and after `partial`
  std::string members_, values_;  ///< of P: declarations and initialisers
  std::string after_wait_;        ///< statements that wait for the previous launch's results
  std::string problem_;           ///< P and its value p

  Operand operand(const std::string& name, const Expr& load, const Expr& row, const Expr& element);
  /// Sets page_rows_, key_stride_ and value_stride_, if the rows of both operands lie in pages that a tile of
  /// attention_step_mma does not cross.
  void find_pages(const Operand& k, const Operand& v);

 private:
  void write_problem();
  std::string units() const;
  /// The distance of two rows of a page of `rows` rows; otherwise 0.
  std::int64_t page_stride(const Operand& o, std::int64_t& rows) const;
  Operand scaled(const std::string& name, const Expr& numbers, const Expr& scale, const Expr& element) const;
  std::int64_t group_of(const Operand& k, const Operand& v) const;
  std::string one_query_functions(const Operand& k, const Operand& v, std::int64_t group);
  bool whole_cache(const Operand& k, const Operand& v, std::int64_t group, bool bytes) const;
  void query_functions(const Operand& q);
  void row_functions(const Operand& o);
  void element_function(const Operand& o, const std::string& row);
};

}  // namespace sardonyx::codegen
