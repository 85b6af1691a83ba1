// topk, unique: routines that sort.
#include <algorithm>
#include <numeric>

#include "host/parallel.h"
#include "routines/elements.h"
#include "routines/families.h"

namespace sardonyx::routines {
namespace {

// topk
//   inputs:  x [outer, n, inner]
//   outputs: values [outer, k, inner] of x's dtype, indices [outer, k, inner] int64; k <= n
//   params:  largest (else smallest), sorted (else in any order)
// Of equal elements the one with the lower index comes first. NaN counts as the largest.
void topk(Call& c) {
  const Tensor &x = c.inputs[0], &values = c.outputs[0], &indices = c.outputs[1];
  const std::int64_t outer = x.dims[0], n = x.dims[1], inner = x.dims[2], k = values.dims[1];
  const bool largest = c.params[0] != 0, sorted = c.params[1] != 0;
  if (k > n) fail(ErrorKind::kInvalidArgument, "the {} {} of {} elements", k, largest ? "largest" : "smallest", n);
  if (k == 0) return;
  dispatch(x.dtype, "topk", [&](auto zero) {
    using T = decltype(zero);
    host::parallel_for(outer * inner, std::max<std::int64_t>(1, 16384 / n), c.threads,
                       [&](std::int64_t begin, std::int64_t end) {
                         std::vector<T> row(static_cast<std::size_t>(n));
                         std::vector<std::int64_t> order(static_cast<std::size_t>(n));
                         const auto first = [&](std::int64_t a, std::int64_t b) {
                           const T p = row[static_cast<std::size_t>(a)], q = row[static_cast<std::size_t>(b)];
                           if (largest ? before(q, p) : before(p, q)) return true;
                           if (largest ? before(p, q) : before(q, p)) return false;
                           return a < b;
                         };
                         for (std::int64_t r = begin; r < end; ++r) {
                           const T* from = x.as<T>() + r / inner * n * inner + r % inner;
                           for (std::int64_t j = 0; j < n; ++j) row[static_cast<std::size_t>(j)] = from[j * inner];
                           std::iota(order.begin(), order.end(), std::int64_t{0});
                           if (k < n) std::nth_element(order.begin(), order.begin() + (k - 1), order.end(), first);
                           if (sorted) std::sort(order.begin(), order.begin() + k, first);
                           T* v = values.as<T>() + r / inner * k * inner + r % inner;
                           auto* i = indices.as<std::int64_t>() + r / inner * k * inner + r % inner;
                           for (std::int64_t j = 0; j < k; ++j) {
                             i[j * inner] = order[static_cast<std::size_t>(j)];
                             v[j * inner] = row[static_cast<std::size_t>(order[static_cast<std::size_t>(j)])];
                           }
                         }
                       });
  });
}

// unique
//   inputs:  x [n, m]: n rows
//   outputs: first [n] int64: the first row of each distinct value
//            inverse [n] int64: the distinct value of each row
//            counts [n] int64: the number of rows with each distinct value
//            count [1] int64: the number of distinct values. Only the first `count` elements of first and counts are
//            valid.
//   params:  sorted: distinct values in ascending lexicographic order, else in order of appearance
// NaN equals NaN and is greater than everything.
void unique(Call& c) {
  const Tensor& x = c.inputs[0];
  const std::int64_t n = x.dims[0], m = x.dims[1];
  auto *first = c.outputs[0].as<std::int64_t>(), *inverse = c.outputs[1].as<std::int64_t>(),
       *counts = c.outputs[2].as<std::int64_t>();
  std::vector<std::int64_t> order(static_cast<std::size_t>(n)), kind(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::int64_t kinds = 0;
  std::fill(first, first + n, 0);
  std::fill(counts, counts + n, 0);
  dispatch(x.dtype, "unique", [&](auto zero) {
    using T = decltype(zero);
    const T* data = x.as<T>();
    const auto less = [&](std::int64_t a, std::int64_t b) {
      for (std::int64_t j = 0; j < m; ++j) {
        const T p = data[a * m + j], q = data[b * m + j];
        if (before(p, q)) return true;
        if (before(q, p)) return false;
      }
      return false;
    };
    std::stable_sort(order.begin(), order.end(), less);
    for (std::size_t k = 0; k < order.size(); ++k) {
      if (k == 0 || less(order[k - 1], order[k])) first[kinds++] = order[k];
      kind[static_cast<std::size_t>(order[k])] = kinds - 1;
    }
  });
  if (c.params[0] == 0) {  // renumber by first appearance
    std::vector<std::int64_t> by_first(static_cast<std::size_t>(kinds)), number(static_cast<std::size_t>(kinds));
    std::iota(by_first.begin(), by_first.end(), std::int64_t{0});
    std::sort(by_first.begin(), by_first.end(), [&](std::int64_t a, std::int64_t b) { return first[a] < first[b]; });
    for (std::int64_t k = 0; k < kinds; ++k)
      number[static_cast<std::size_t>(by_first[static_cast<std::size_t>(k)])] = k;
    for (std::int64_t& k : kind) k = number[static_cast<std::size_t>(k)];
    std::sort(first, first + kinds);
  }
  for (std::int64_t r = 0; r < n; ++r) {
    inverse[r] = kind[static_cast<std::size_t>(r)];
    ++counts[inverse[r]];
  }
  *c.outputs[3].as<std::int64_t>() = kinds;
}

}  // namespace

void register_sorting(Table& t) {
  t["topk"] = topk;
  t["unique"] = unique;
}

}  // namespace sardonyx::routines
