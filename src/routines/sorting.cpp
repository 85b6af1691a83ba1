// topk, unique: routines that sort.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "host/parallel.h"
#include "routines/clones.h"
#include "routines/elements.h"
#include "routines/families.h"

namespace sardonyx::routines {
namespace {

constexpr std::int64_t kBlock = 32;  // elements compared at a time

// The next block from j on with an element that may be as good as `bound`, or what is left: exact but for NaN.
template <bool kLargest, typename T>
[[gnu::always_inline]] inline std::int64_t skip_worse_of(const T* row, std::int64_t j, std::int64_t n, T bound) {
  const auto w = static_cast<compute_of<T>>(bound);
  for (; j + kBlock <= n; j += kBlock) {
    int any = 0;
    for (std::int64_t l = 0; l < kBlock; ++l) {
      const auto x = static_cast<compute_of<T>>(row[j + l]);
      any |= kLargest ? !(x < w) : !(x > w);
    }
    if (any) break;
  }
  return j;
}

// best[l]: the best of the elements of whose indices l is the remainder, by the number of lanes; first those of the
// first `lanes` elements. NaN is passed over.
template <bool kLargest, typename T>
[[gnu::always_inline]] inline void best_of_lanes_of(const T* row, std::int64_t n, std::int64_t lanes, T* best) {
  for (std::int64_t block = 0; block < lanes; block += kBlock)
    for (std::int64_t first = lanes; first + lanes <= n; first += lanes)
      for (std::int64_t l = block; l < block + kBlock; ++l) {
        const auto p = static_cast<compute_of<T>>(row[first + l]), q = static_cast<compute_of<T>>(best[l]);
        best[l] = (kLargest ? p > q : p < q) ? row[first + l] : best[l];
      }
}

template <typename T>
std::int64_t skip_worse(const T* row, std::int64_t j, std::int64_t n, T bound, bool largest) {
  return largest ? skip_worse_of<true>(row, j, n, bound) : skip_worse_of<false>(row, j, n, bound);
}
SARDONYX_CLONES std::int64_t skip_worse(const float* row, std::int64_t j, std::int64_t n, float bound, bool largest) {
  return largest ? skip_worse_of<true>(row, j, n, bound) : skip_worse_of<false>(row, j, n, bound);
}
template <typename T>
void best_of_lanes(const T* row, std::int64_t n, std::int64_t lanes, T* best, bool largest) {
  return largest ? best_of_lanes_of<true>(row, n, lanes, best) : best_of_lanes_of<false>(row, n, lanes, best);
}
SARDONYX_CLONES void best_of_lanes(const float* row, std::int64_t n, std::int64_t lanes, float* best, bool largest) {
  return largest ? best_of_lanes_of<true>(row, n, lanes, best) : best_of_lanes_of<false>(row, n, lanes, best);
}

// The k best elements of a row. A bound is found first: the best elements of some parts of the row, of which k are at
// least as good as the k-th of them. Elements that reach the bound are candidates, so that most elements of a long row
// are only compared with one number, in vectors. If there are many candidates all the same, or the row is short, all
// but the k best of them are dropped now and then, and the worst of these is the bound. A candidate is one integer,
// which makes comparing cheap: how good its value is (better ones are smaller, equal ones equal), and below that its
// index.
template <typename T>
class Best {
 public:
  Best(std::int64_t k, bool largest)
      : k_(static_cast<std::size_t>(k)), most_(k_ + std::max(k_, kLeastSpare)), largest_(largest) {}

  /// Finds them in any order; n >= k.
  void search(const T* row, std::int64_t n) {
    found_.resize(most_ + static_cast<std::size_t>(kBlock));
    size_ = 0;
    if (largest_)
      collect<true>(row, n);
    else
      collect<false>(row, n);
    shrink();
  }
  void sort() { std::sort(found_.begin(), found_.begin() + static_cast<std::ptrdiff_t>(k_)); }
  std::int64_t index(std::int64_t j) const { return index_of(found_[static_cast<std::size_t>(j)]); }

 private:
  static constexpr bool kWide = sizeof(T) > 4;
  using Code = std::conditional_t<kWide, std::uint64_t, std::uint32_t>;
  using Candidate = std::conditional_t<kWide, unsigned __int128, std::uint64_t>;
  static constexpr int kIndexBits = kWide ? 64 : 32;
  static constexpr std::size_t kLeastSpare = 48;  // for few elements, so that they are not selected again and again
  static constexpr std::int64_t kRounds = 4;      // elements of a lane, from which on the bound pays

  static std::int64_t index_of(Candidate c) { return static_cast<std::int64_t>(static_cast<Code>(c)); }

  template <bool kLargest>
  static Code code(T value) {
    constexpr Code kSign = Code(1) << (sizeof(Code) * 8 - 1);
    Code c;
    if constexpr (std::is_integral_v<T>) {
      c = static_cast<Code>(value) ^ (std::is_signed_v<T> ? kSign : 0);
    } else {
      // Adding 0 makes -0 to 0.
      const auto x = static_cast<std::conditional_t<kWide, double, float>>(value) + 0;
      std::memcpy(&c, &x, sizeof c);
      c = std::isnan(x) ? ~Code(0) : c & kSign ? ~c : c | kSign;
    }
    return kLargest ? ~c : c;
  }
  template <bool kLargest>
  static Candidate candidate(T value, std::int64_t index) {
    return static_cast<Candidate>(code<kLargest>(value)) << kIndexBits | static_cast<Code>(index);
  }
  void shrink() {
    if (size_ <= k_) return;
    const auto begin = found_.begin();
    std::nth_element(begin, begin + static_cast<std::ptrdiff_t>(k_) - 1, begin + static_cast<std::ptrdiff_t>(size_));
    size_ = k_;
  }
  // The k-th best of the best elements of as many parts of the row as there are lanes; lane l has every element whose
  // index is l modulo their number. An element that is skipped (beside NaN) only makes the bound worse.
  template <bool kLargest>
  Candidate bound_of(const T* row, std::int64_t n, std::int64_t lanes) {
    best_.assign(row, row + lanes);
    best_of_lanes(row, n, lanes, best_.data(), kLargest);
    for (std::int64_t l = 0; l < lanes; ++l)
      found_[size_++] = candidate<kLargest>(best_[static_cast<std::size_t>(l)], l);
    shrink();
    size_ = 0;
    value_ = best_[static_cast<std::size_t>(index_of(found_[k_ - 1]))];
    return found_[k_ - 1] | static_cast<Code>(~Code(0));  // equal elements reach it, whatever their index
  }
  template <bool kLargest>
  void collect(const T* row, std::int64_t n) {
    const auto lanes = static_cast<std::int64_t>(most_ / kBlock * kBlock);
    std::int64_t j = 0;
    Candidate bound = 0;
    const bool bounded = n >= kRounds * lanes;
    if (bounded) {
      bound = bound_of<kLargest>(row, n, lanes);
    } else {
      j = std::min(n, static_cast<std::int64_t>(most_));
      for (std::int64_t i = 0; i < j; ++i) found_[size_++] = candidate<kLargest>(row[i], i);
    }
    T value = bounded ? value_ : T{};
    while (j < n) {
      if (size_ >= most_) {
        // The last of the k best. Later elements that equal it come after it.
        shrink();
        bound = found_[k_ - 1];
        value = row[index_of(bound)];
      }
      while (j < n && size_ < most_) {
        j = skip_worse(row, j, n, value, kLargest);
        Candidate* const found = found_.data();
        std::size_t size = size_;
        for (const std::int64_t end = std::min(n, j + kBlock); j < end; ++j) {
          // Without branches, half of which would be guessed wrong.
          const Candidate c = candidate<kLargest>(row[j], j);
          found[size] = c;
          size += c <= bound;
        }
        size_ = size;
      }
    }
  }

  const std::size_t k_, most_;
  const bool largest_;
  std::size_t size_ = 0;
  T value_{};  // of the bound
  std::vector<T> best_;
  std::vector<Candidate> found_;  // the first size_; a block beyond most_ fits
};

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
  check(n <= std::numeric_limits<std::uint32_t>::max(), "topk of {} elements", n);
  dispatch(x.dtype, "topk", [&](auto zero) {
    using T = decltype(zero);
    host::parallel_for(outer * inner, std::max<std::int64_t>(1, 16384 / n), c.threads,
                       [&](std::int64_t begin, std::int64_t end) {
                         std::vector<T> row(static_cast<std::size_t>(inner == 1 ? 0 : n));
                         Best<T> best(k, largest);
                         for (std::int64_t r = begin; r < end; ++r) {
                           const T* from = x.as<T>() + r / inner * n * inner + r % inner;
                           for (std::size_t j = 0; j < row.size(); ++j)
                             row[j] = from[static_cast<std::int64_t>(j) * inner];
                           best.search(inner == 1 ? from : row.data(), n);
                           if (sorted) best.sort();
                           T* v = values.as<T>() + r / inner * k * inner + r % inner;
                           auto* i = indices.as<std::int64_t>() + r / inner * k * inner + r % inner;
                           for (std::int64_t j = 0; j < k; ++j) {
                             i[j * inner] = best.index(j);
                             v[j * inner] = from[best.index(j) * inner];
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
