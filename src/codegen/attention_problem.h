// Internal to code generation of attention: functions of the struct that kernels/attention.h requires which do not
// depend on how queries, keys and values are loaded.
#pragma once
#include <cmath>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/attention_codegen.h"
#include "codegen/emit.h"
#include "codegen/index_range.h"
#include "codegen/loop_analysis.h"
#include "fuse/schedule.h"
#include "kernels/layout_attention.h"
#include "program/kernel_spec.h"
#include "support/error.h"
#include "target/chip.h"

namespace sardonyx::codegen {

/// A kernel of kernels/attention.h or attention_step_mma.h.
inline KernelSpec attention_spec(std::string body, std::string_view arch, const LaunchBounds& bounds = {},
                                 std::uint32_t shared_bytes = 0) {
  KernelSpec s;
  s.family = KernelFamily::kAttention;
  s.body = std::move(body);
  s.headers = {"attention.h", "attention_step_mma.h"};
  s.bounds = bounds;
  // CDNA: a wave needs at most half of the register file, including accumulation registers.
  if (chip_of(arch).has(Feature::kUnifiedRegisters)) s.bounds.min_waves = 2;
  s.shared_bytes = shared_bytes;
  s.work_unit = WorkUnit::kLaunch;
  return s;
}
/// Shared memory of attention_step_mma.
inline std::uint32_t step_mma_bytes(std::int64_t dim, std::int64_t group, std::int64_t cluster, bool appends,
                                    bool paged) {
  return static_cast<std::uint32_t>(sdx::layout::StepMmaLayout{static_cast<int>(dim), static_cast<int>(group),
                                                               static_cast<int>(cluster), appends, paged}
                                        .bytes());
}

/// An operand of attention: the address of its rows, or its elements.
struct AttentionOperand {
  std::string name;
  Expr load;             // flat
  Expr row, element;     // variables
  Expr start, distance;  // offset of row 0, element 0; stride of rows
  bool direct = false;   // rows can be read 16 bytes at a time
  bool loose = false;    // the same, but they are not aligned: for kernels/attention_short.h
  /// Elements of a row that can be read at a time wherever a vector begins, up to 8: for kernels/attention_short_mma.h;
  /// 0: only one by one, by query_at() and its like.
  std::int64_t unit = 0;
  bool gathered = false;  // the same, but each row's place is computed (`start`, with the row), as in a paged KV cache
  Expr numbers, scale;    // the same for int8 and a number of each row, with which they are multiplied; else empty
  /// kKeyDirect and kValueDirect of kernels/attention.h.
  int form() const { return direct ? 1 : gathered ? 2 : numbers ? 3 : 0; }
};

class AttentionProblem {
 protected:
  AttentionProblem(const TileKernel& kernel, std::string_view arch)
      : kernel_(kernel), a_(*kernel.node->as<AttentionOp>()), arch_(arch), chip_(chip_of(arch)), emit_(text_) {
    b_ = a_.vars[0], h_ = a_.vars[1], s_ = a_.vars[2], t_ = a_.vars[3], d_ = a_.vars[4], e_ = a_.vars[5];
    emit_.plain_reductions = true;
    type_ = a_.q->dtype;
    vec_ = 16 / static_cast<std::int64_t>(size_of(type_));
  }
  static std::int64_t extent(const Expr& v) { return v->args[0]->i; }
  /// How many of a row's `length` elements, from `start` on, can be accessed at a time: 8, 4, 2 or 1.
  static std::int64_t unit_of(std::int64_t length, const Expr& start) {
    return std::gcd(std::int64_t{8}, std::gcd(length, divisor_of(start)));
  }
  /// Whether kernels/attention_short_mma.h has a form for the problem's keys.
  bool few_keys_by_mma() const {
    const MatrixLayout layout = chip_.layout();
    std::int64_t keys = 0;
    return (layout == MatrixLayout::kMma || layout == MatrixLayout::kWgmma) && size_of(type_) == 2 &&
           is_const_int(t_->args[0], keys) && keys >= 1 && keys <= kMostShortKeys;
  }
  static constexpr std::int64_t kMostShortKeys = 128;
  Expr operations() const {
    Expr n = 2 * (d_->args[0] + e_->args[0]);
    for (const Expr* v : {&b_, &h_, &s_, &t_}) n = n * (*v)->args[0];
    return n;
  }

  // A function of the struct, over variables named like its parameters.
  template <class F>
  void function(const std::string& signature, const std::vector<std::pair<Expr, std::string>>& vars, F body) {
    emit_.open("SDX_FN " + signature + " const");
    for (const auto& [var, name] : vars) {
      if (is_const(var)) continue;
      const std::string i = emit_.fresh("i");
      emit_.line(fmt::format("const i64 {} = {};", i, name));
      emit_.bind(var, i);
    }
    body();
    emit_.close();
  }
  void returns(const Expr& e) {
    const std::string x = emit_.value(e);
    emit_.line(fmt::format("return {};", x));
  }
  void returns_address(const Value* v, const Expr& offset) {
    const std::string x = emit_.value(offset);
    emit_.line(fmt::format("return {} + {};", emit_.buffer(v), x));
  }

  void scores() {
    plain_ = a_.softcap == 0 && !a_.has_bias && a_.scale->f > 0;
    if (plain_) return function("f32 factor()", {}, [&] { returns(a_.scale); });
    if (a_.softcap == 0 && a_.has_bias) split_bias();
    if (column_ || row_bias_) function("f32 factor()", {}, [&] { returns(a_.scale); });
    if (column_) {
      function("f32 column(i64 b, i64 h, i64 t)", {{b_, "b"}, {h_, "h"}, {t_, "t"}}, [&] {
        returns(column_->dtype == DType::kBool
                    ? select(column_, constant_float(0, DType::kFloat32), constant_float(-INFINITY, DType::kFloat32))
                    : cast(column_, DType::kFloat32));
      });
    }
    if (row_bias_) {
      text_ += fmt::format("  using Bias = {};\n", storage_name(row_bias_->dtype));
      function("const Bias* bias(i64 b, i64 h, i64 s)", {{b_, "b"}, {h_, "h"}, {s_, "s"}},
               [&] { returns_address(row_bias_->value, row_bias_at_); });
    }
    Value product;
    product.dtype = DType::kFloat32;
    emit_.bind_local(&product, "x");
    Expr y = binary(Op::kMul, load(&product, DType::kFloat32, {}), a_.scale);
    if (a_.softcap != 0) {
      const Expr cap = constant_float(a_.softcap, DType::kFloat32);
      y = binary(Op::kMul, unary(Op::kTanh, binary(Op::kDiv, y, cap)), cap);
    }
    if (a_.has_bias) {
      Expr bias = flatten_loads(a_.bias);
      if (bias->dtype == DType::kBool)
        y = select(bias, y, constant_float(-INFINITY, DType::kFloat32));
      else
        y = binary(Op::kAdd, y, cast(bias, DType::kFloat32));
    }
    emit_.range = &range_;
    function("f32 score(i64 b, i64 h, i64 s, i64 t, f32 x)", {{b_, "b"}, {h_, "h"}, {s_, "s"}, {t_, "t"}},
             [&] { returns(y); });
    emit_.range = nullptr;
  }

  // Divides the bias into a part that is the same for all queries and 16-bit floats that are contiguous along the keys,
  // if it is one of them or their sum.
  void split_bias() {
    Expr bias = flatten_loads(a_.bias);
    if (bias->op == Op::kCast && bias->dtype == DType::kFloat32 && is_float(bias->args[0]->dtype)) bias = bias->args[0];
    const auto is_column = [&](const Expr& x) { return !mentions(x, s_); };
    const auto is_rows = [&](const Expr& x) {
      Expr step, rest;
      if (x->op != Op::kLoad || (x->dtype != DType::kFloat16 && x->dtype != DType::kBFloat16) || is_const(t_) ||
          !idx::split_affine(x->args[0], t_, step, rest) || !is_const(step, 1) || mentions(rest, t_))
        return false;
      row_bias_at_ = rest;
      return true;
    };
    if (is_column(bias)) {
      column_ = bias;
    } else if (is_rows(bias)) {
      row_bias_ = bias;
    } else if (bias->op == Op::kAdd) {
      for (const int k : {0, 1}) {
        const Expr &rows = bias->args[k], &column = bias->args[1 - k];
        if (!is_column(column) || !is_rows(rows)) continue;
        row_bias_ = rows, column_ = column;
        return;
      }
    }
  }

  void limits() {
    if (a_.begin || a_.end) {
      const std::vector<std::pair<Expr, std::string>> vars = {{b_, "b"}, {h_, "h"}, {s_, "s"}};
      function("i64 begin(i64 b, i64 h, i64 s)", vars, [&] { returns(a_.begin ? flatten_loads(a_.begin) : Expr(0)); });
      function("i64 end(i64 b, i64 h, i64 s)", vars, [&] { returns(a_.end ? flatten_loads(a_.end) : t_->args[0]); });
    }
    if (a_.sink)
      function("f32 sink(i64 b, i64 h)", {{b_, "b"}, {h_, "h"}},
               [&] { returns(cast(flatten_loads(a_.sink), DType::kFloat32)); });
  }

  void out() {
    Exprs index = {b_, h_, s_, e_};
    index.erase(index.begin(), index.end() - kernel_.out->rank());
    const Expr at = storage_offset(*kernel_.out, index);
    Expr step = 1, rest = at;
    if (!is_const(e_) && mentions(at, e_))
      check(idx::split_affine(at, e_, step, rest), "{}: attention's output has no order", kernel_.node->origin);
    out_direct_ = is_const(step, 1) && extent(e_) % 8 == 0 && divisor_of(rest) % 8 == 0;
    function("Out* out(i64 b, i64 h, i64 s)", {{b_, "b"}, {h_, "h"}, {s_, "s"}},
             [&] { returns_address(kernel_.out, rest); });
    function("i64 out_step()", {}, [&] { returns(step); });
    out_rows_ = is_const(step, 1);
    if (out_rows_) out_unit_ = unit_of(extent(e_), rest);
    Value sum;
    sum.dtype = DType::kFloat32;
    emit_.bind_local(&sum, "x");
    emit_.quantizes = true;
    std::vector<std::pair<Expr, Expr>> to;
    for (std::size_t k = 0; k < kernel_.vars.size(); ++k) to.emplace_back(kernel_.vars[k], index[k]);
    const Expr y = flatten_loads(substitute(attention_result(kernel_, load(&sum, sum.dtype, {})), to));
    function("Out result(i64 b, i64 h, i64 s, i64 d, f32 x)", {{b_, "b"}, {h_, "h"}, {s_, "s"}, {e_, "d"}},
             [&] { returns(y); });
    if (out_direct_ && of_eight_bits(kernel_.out->dtype))
      function("auto wide(i64 b, i64 h, i64 s, i64 d, f32 x)", {{b_, "b"}, {h_, "h"}, {s_, "s"}, {e_, "d"}}, [&] {
        const Emitter::Wide wide = emit_.wide(y);
        wide_out_ = !wide.text.empty();
        emit_.line(fmt::format("return {};", wide_out_ ? wide.text : "x"));
      });
    emit_.quantizes = false;
  }

  const TileKernel& kernel_;
  const AttentionOp& a_;
  std::string_view arch_;
  const Chip& chip_;
  std::string text_;
  Emitter emit_;
  // Indices of biases that certainly fit 32 bits: they are computed for each score.
  IndexRange range_{[](std::int64_t) { return false; }};
  Expr b_, h_, s_, t_, d_, e_;
  DType type_;
  std::int64_t vec_ = 0;
  bool plain_ = false, out_direct_ = false, out_rows_ = false;
  std::int64_t out_unit_ = 0;    // elements of a result's row that can be stored at a time; 0: they are not contiguous
  bool wide_out_ = false;        // P::wide() gives results before the rounding
  Expr column_;                  ///< what is added to the scores of a key, for all queries; may be empty
  Expr row_bias_, row_bias_at_;  ///< tensor that is added to the scores, and the element for key 0; may be empty
};

}  // namespace sardonyx::codegen
