#include "host/gemm_by_definition.h"

#include <cmath>

#include "host/convert.h"
#include "support/error.h"

namespace sardonyx::host {
namespace {

float read(DType t, const void* p, std::int64_t k) {
  float f;
  to_float32(t, static_cast<const char*>(p) + static_cast<std::size_t>(k) * size_of(t), &f, 1, 1);
  return f;
}

}  // namespace

void gemm_by_definition(const GemmDesc& d, const void* a, const void* b, const std::vector<const void*>& operands,
                        void* out) {
  const std::size_t rank = std::max(d.batch_a.size(), d.batch_b.size());
  std::vector<std::int64_t> batch(rank, 1);
  for (const auto* list : {&d.batch_a, &d.batch_b})
    for (std::size_t k = 0; k < list->size(); ++k) {
      std::int64_t& x = batch[rank - list->size() + k];
      if (x == 1) x = (*list)[k];
    }
  std::vector<std::int64_t> extents = batch;
  extents.push_back(d.m);
  extents.push_back(d.n);
  std::int64_t total = 1;
  for (std::int64_t e : extents) total *= e;
  std::vector<std::int64_t> at(extents.size());
  for (std::int64_t k = 0; k < total; ++k) {
    std::int64_t rest = k;
    for (std::size_t j = extents.size(); j-- > 0;) {
      at[j] = rest % extents[j];
      rest /= extents[j];
    }
    auto matrix = [&](const std::vector<std::int64_t>& dims) {
      std::int64_t i = 0;
      for (std::size_t j = 0; j < dims.size(); ++j) i = i * dims[j] + (dims[j] == 1 ? 0 : at[rank - dims.size() + j]);
      return i * d.k;
    };
    const std::int64_t ma = matrix(d.batch_a) * d.m, mb = matrix(d.batch_b) * d.n, m = at[rank], n = at[rank + 1];
    double sum = 0;
    for (std::int64_t i = 0; i < d.k; ++i)
      sum += static_cast<double>(read(d.a, a, ma + (d.trans_a ? i * d.m + m : m * d.k + i))) *
             read(d.b, b, mb + (d.trans_b ? n * d.k + i : i * d.n + n));
    std::size_t operand = 0;
    for (const PostOp& op : d.post) {
      double y = 0;
      if (op.has_operand()) {
        std::int64_t i = 0;
        for (std::size_t j = 0; j < op.dims.size(); ++j) i = i * op.dims[j] + (op.dims[j] == 1 ? 0 : at[j]);
        y = read(op.dtype, operands[operand++], i);
      }
      sum = apply_post_op(op, sum, y);
    }
    const float f = static_cast<float>(sum);
    from_float32(d.out, &f, static_cast<char*>(out) + static_cast<std::size_t>(k) * size_of(d.out), 1, 1);
  }
}

}  // namespace sardonyx::host
