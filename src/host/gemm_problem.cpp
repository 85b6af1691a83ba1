// Merges the axes of a GEMM.
#include "host/gemm_problem.h"

#include <algorithm>

#include "support/error.h"

namespace sardonyx::host {
namespace {

using Dims = std::vector<std::int64_t>;

/// Extents with leading ones up to `rank`.
Dims padded(const Dims& dims, std::size_t rank) {
  Dims result(rank - dims.size(), 1);
  result.insert(result.end(), dims.begin(), dims.end());
  return result;
}

/// An axis of the output's rows: its extent, and which tensors have it (a, b, then the operands).
struct Axis {
  std::int64_t extent;
  std::vector<bool> present;
};

}  // namespace

GemmProblem simplify(const GemmDesc& desc) {
  const std::size_t rank = std::max(desc.batch_a.size(), desc.batch_b.size());
  const Dims batch_a = padded(desc.batch_a, rank), batch_b = padded(desc.batch_b, rank);
  check(desc.m >= 0 && desc.n >= 0 && desc.k >= 0, "gemm of {} x {} x {}", desc.m, desc.n, desc.k);

  // The axes of rows: batch axes, then m.
  std::vector<Axis> axes;
  std::vector<bool> operand_has_n;
  for (std::size_t i = 0; i <= rank; ++i) {
    const bool is_m = i == rank;
    const std::int64_t in_a = is_m ? desc.m : batch_a[i], in_b = is_m ? 1 : batch_b[i];
    check(in_a == in_b || in_a == 1 || in_b == 1, "gemm batch axis {}: {} and {}", i, in_a, in_b);
    Axis axis{in_a == 1 ? in_b : in_a, {in_a != 1 || is_m, in_b != 1}};
    for (const PostOp& op : desc.post) {
      if (!op.has_operand()) continue;
      check(op.dims.size() == rank + 2, "a gemm operand of rank {} for an output of rank {}", op.dims.size(), rank + 2);
      check(op.dims[i] == 1 || op.dims[i] == axis.extent, "gemm operand axis {}: {} for {}", i, op.dims[i],
            axis.extent);
      axis.present.push_back(op.dims[i] != 1);
    }
    if (axis.extent != 1 || is_m) axes.push_back(std::move(axis));
  }
  for (const PostOp& op : desc.post) {
    if (!op.has_operand()) continue;
    check(op.dims.back() == 1 || op.dims.back() == desc.n, "gemm operand columns: {} for {}", op.dims.back(), desc.n);
    operand_has_n.push_back(op.dims.back() != 1);
  }

  const bool trans_a = desc.trans_a && desc.m != 1;  // the same for a single row
  // A row axis of extent 1 has the same tensors as the axis before it.
  if (axes.size() > 1 && axes.back().extent == 1 && !axes[axes.size() - 2].present[1]) {
    axes.back().present = axes[axes.size() - 2].present;
  }
  for (std::size_t i = axes.size() - 1; i-- > 0;) {
    const bool into_m = i + 2 == axes.size();
    if (axes[i].present != axes[i + 1].present || (into_m && trans_a)) continue;
    axes[i + 1].extent *= axes[i].extent;
    axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(i));
  }

  GemmProblem problem;
  problem.n = desc.n;
  problem.k = desc.k;
  problem.m = axes.back().extent;
  problem.trans_a = trans_a;
  problem.operands.resize(operand_has_n.size());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const Axis& axis = axes[i];
    if (i + 1 < axes.size()) {
      problem.batch.push_back(axis.extent);
      problem.batch_a.push_back(axis.present[0] ? axis.extent : 1);
      problem.batch_b.push_back(axis.present[1] ? axis.extent : 1);
    }
    for (std::size_t p = 0; p < operand_has_n.size(); ++p) {
      problem.operands[p].push_back(axis.present[2 + p] ? axis.extent : 1);
    }
  }
  for (std::size_t p = 0; p < operand_has_n.size(); ++p) problem.operands[p].push_back(operand_has_n[p] ? desc.n : 1);
  return problem;
}

}  // namespace sardonyx::host
