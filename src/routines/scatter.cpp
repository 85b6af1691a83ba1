// scatter, append, group, nonzero, scan: routines that process a tensor in order.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "host/parallel.h"
#include "routines/elements.h"
#include "routines/families.h"

namespace sardonyx::routines {
namespace {

enum Reduction { kNone, kAdd, kMul, kMin, kMax };

template <typename T>
T combine(T a, T b, std::int64_t reduction) {
  // Integers wrap, so they are added as unsigned ones.
  using C = std::conditional_t<std::is_integral_v<T>, std::uint64_t, compute_of<T>>;
  switch (reduction) {
    case kAdd:
      return static_cast<T>(static_cast<C>(a) + static_cast<C>(b));
    case kMul:
      return static_cast<T>(static_cast<C>(a) * static_cast<C>(b));
    case kMin:  // NaN wins, here and below
      return is_nan(a) || is_nan(b) ? (is_nan(a) ? a : b) : before(b, a) ? b : a;
    case kMax:
      return before(a, b) ? b : a;
    default:
      return b;
  }
}

// scatter
//   inputs:  data, viewed as [n, inner]; rows, int64, m elements; updates, m * inner elements of data's dtype
//   outputs: y, of data's shape: data with row rows[k] replaced by, or combined with, row k of the updates, in order
//            of k
//   params:  reduction (0 replace, 1 add, 2 multiply, 3 minimum, 4 maximum), inner
// A row outside of [0, n) is an error.
void scatter(Call& c) {
  const Tensor &data = c.inputs[0], &rows = c.inputs[1], &updates = c.inputs[2], &y = c.outputs[0];
  const std::int64_t reduction = c.params[0], inner = c.params[1], m = rows.elements();
  const std::size_t size = size_of(data.dtype);
  if (y.data != data.data) std::memcpy(y.data, data.data, static_cast<std::size_t>(data.elements()) * size);
  if (m == 0 || inner == 0) return;
  const std::int64_t n = data.elements() / inner;
  if (updates.elements() != m * inner)
    fail(ErrorKind::kInternal, "internal error: {} updates for {} rows of {}", updates.elements(), m, inner);
  const auto* at = rows.as<std::int64_t>();
  for (std::int64_t k = 0; k < m; ++k)
    if (at[k] < 0 || at[k] >= n) fail(ErrorKind::kInvalidArgument, "an index (number {}) is out of range", k);
  if (reduction == kNone) {
    const std::size_t bytes = static_cast<std::size_t>(inner) * size;
    for (std::int64_t k = 0; k < m; ++k)
      std::memcpy(y.as<char>() + static_cast<std::size_t>(at[k]) * bytes,
                  updates.as<char>() + static_cast<std::size_t>(k) * bytes, bytes);
    return;
  }
  dispatch(data.dtype, "scatter", [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t k = 0; k < m; ++k) {
      T* to = y.as<T>() + at[k] * inner;
      const T* from = updates.as<T>() + k * inner;
      for (std::int64_t j = 0; j < inner; ++j) to[j] = combine<T>(to[j], from[j], reduction);
    }
  });
}

// append
//   inputs:  starts [B] int64; new keys, new values; optionally past keys, past values [B, H, P, D]
//   outputs: present keys, present values [B, H, C, D], C >= P: for sequence b the past with its rows from
//            starts[b] on replaced by the new rows, and zeros after row P. An output may alias its past (then C = P);
//            only the new rows are written then.
//   params:  S, the number of new rows; P; for keys and for values: stride and offset. Element (b, s, h, d) of the new
//            rows is at (b * S + s) * stride + offset + h * D + d.
// Rows that would lie outside of the output are skipped.
void append(Call& c) {
  const auto* starts = c.inputs[0].as<std::int64_t>();
  const std::int64_t fresh = c.params[0], past_rows = c.params[1];
  for (const std::size_t which : {0, 1}) {
    const Tensor &x = c.inputs[1 + which], &y = c.outputs[which];
    const char* past = c.inputs.size() > 3 ? c.inputs[3 + which].as<char>() : nullptr;
    const std::int64_t batch = y.dims[0], heads = y.dims[1], capacity = y.dims[2], size = y.dims[3];
    const auto element = static_cast<std::int64_t>(size_of(y.dtype)), bytes = size * element;
    const std::int64_t stride = c.params[2 + 2 * which], offset = c.params[3 + 2 * which];
    if (batch > 0 && fresh > 0 && heads > 0 && (batch * fresh - 1) * stride + offset + heads * size > x.elements())
      fail(ErrorKind::kInternal, "internal error: rows to append lie outside of their tensor");
    host::parallel_for(batch * heads, std::max<std::int64_t>(1, 262144 / std::max<std::int64_t>(1, capacity * bytes)),
                       c.threads, [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t p = begin; p < end; ++p) {
                           const std::int64_t b = p / heads, h = p % heads;
                           char* to = y.as<char>() + p * capacity * bytes;
                           if (y.data != past) {
                             const std::int64_t kept = past ? std::min(past_rows, capacity) : 0;
                             if (kept > 0)
                               std::memcpy(to, past + p * past_rows * bytes, static_cast<std::size_t>(kept * bytes));
                             std::memset(to + kept * bytes, 0, static_cast<std::size_t>((capacity - kept) * bytes));
                           }
                           for (std::int64_t s = 0; s < fresh; ++s) {
                             if (starts[b] < 0 || starts[b] >= capacity - s) continue;
                             const std::int64_t from = (b * fresh + s) * stride + offset + h * size;
                             std::memcpy(to + (starts[b] + s) * bytes, x.as<char>() + from * element,
                                         static_cast<std::size_t>(bytes));
                           }
                         }
                       });
  }
}

// append_rows
//   inputs:  slots [N] int64; new keys, new values; key cache, value cache [pages, P, H, D], in rows of H * D elements
//   outputs: the caches with row slots[n] replaced by new row n, in order of n. An output may alias its cache; only the
//            new rows are written then.
//   params:  N; H * D; for keys and for values: stride and offset. Element j of new row n is at
//            n * stride + offset + j.
// Rows whose slot is outside of the cache are skipped.
//
// append_own_rows: the same, where attention for row n reads no other new row, so that one kernel may do both.
void append_rows(Call& c) {
  const auto* slots = c.inputs[0].as<std::int64_t>();
  const std::int64_t fresh = c.params[0], size = c.params[1];
  for (const std::size_t which : {0, 1}) {
    const Tensor &x = c.inputs[1 + which], &cache = c.inputs[3 + which], &y = c.outputs[which];
    const auto element = static_cast<std::int64_t>(size_of(y.dtype)), bytes = size * element;
    const std::int64_t stride = c.params[2 + 2 * which], offset = c.params[3 + 2 * which];
    if (y.data != cache.data) std::memcpy(y.data, cache.data, static_cast<std::size_t>(y.elements() * element));
    if (size <= 0 || fresh <= 0) continue;
    if (fresh > c.inputs[0].elements() || (fresh - 1) * stride + offset + size > x.elements())
      fail(ErrorKind::kInternal, "internal error: rows to append lie outside of their tensor");
    const std::int64_t rows = y.elements() / size;
    for (std::int64_t n = 0; n < fresh; ++n) {
      if (slots[n] < 0 || slots[n] >= rows) continue;
      std::memcpy(y.as<char>() + slots[n] * bytes, x.as<char>() + (n * stride + offset) * element,
                  static_cast<std::size_t>(bytes));
    }
  }
}

// group
//   inputs:  owner of each of n rows, int64, in [0, count)
//   outputs: positions [n] int64: where each row goes; rows are grouped into blocks with one owner each
//            sources [blocks, rows] int64: the row at each place, or -1
//            owners [blocks] int64: the owner of each block (for unused blocks, that of an earlier block)
//   params:  count; rows per block. There must be at least min(n, n / rows + count) blocks.
// Owners are in ascending order, and so are the rows of each.
void group(Call& c) {
  const Tensor& in = c.inputs[0];
  const auto* owner = in.as<std::int64_t>();
  auto* position = c.outputs[0].as<std::int64_t>();
  auto* source = c.outputs[1].as<std::int64_t>();
  auto* owners = c.outputs[2].as<std::int64_t>();
  const std::int64_t n = in.elements(), count = c.params[0], rows = c.params[1], blocks = c.outputs[2].elements();
  std::vector<std::int64_t> next(static_cast<std::size_t>(count) + 1);
  for (std::int64_t k = 0; k < n; ++k) {
    if (owner[k] < 0 || owner[k] >= count)
      fail(ErrorKind::kInternal, "internal error: row {} of a group belongs to {} of {}", k, owner[k], count);
    ++next[static_cast<std::size_t>(owner[k])];
  }
  std::int64_t block = 0, last = 0;
  for (std::int64_t e = 0; e < count; ++e) {
    const std::int64_t own = (next[static_cast<std::size_t>(e)] + rows - 1) / rows;
    next[static_cast<std::size_t>(e)] = block * rows;
    if (block + own > blocks) fail(ErrorKind::kInternal, "internal error: {} blocks are too few", blocks);
    for (std::int64_t k = 0; k < own; ++k) owners[block++] = last = e;
  }
  while (block < blocks) owners[block++] = last;
  std::fill(source, source + blocks * rows, -1);
  for (std::int64_t k = 0; k < n; ++k) {
    const std::int64_t at = next[static_cast<std::size_t>(owner[k])]++;
    position[k] = at;
    source[at] = k;
  }
}

// nonzero
//   inputs:  x, bool, any shape
//   outputs: positions [elements] int64 of the true elements, ascending; count [1] int64 of the true elements
void nonzero(Call& c) {
  const Tensor& x = c.inputs[0];
  const auto* flags = x.as<std::uint8_t>();
  auto* out = c.outputs[0].as<std::int64_t>();
  std::int64_t count = 0;
  for (std::int64_t k = 0, n = x.elements(); k < n; ++k)
    if (flags[k]) out[count++] = k;
  *c.outputs[1].as<std::int64_t>() = count;
}

// scan
//   inputs:  x [outer, n, inner]
//   outputs: y of the same shape: prefix sums (products) along n. Floats are accumulated in double.
//   params:  product (else sum), exclusive, reverse
void scan(Call& c) {
  const Tensor &x = c.inputs[0], &y = c.outputs[0];
  const std::int64_t outer = x.dims[0], n = x.dims[1], inner = x.dims[2];
  const bool product = c.params[0] != 0, exclusive = c.params[1] != 0, reverse = c.params[2] != 0;
  dispatch(x.dtype, "a running sum", [&](auto zero) {
    using T = decltype(zero);
    using A = std::conditional_t<std::is_integral_v<T>, std::uint64_t, double>;  // unsigned: overflow wraps
    host::parallel_for(outer, std::max<std::int64_t>(1, 65536 / std::max<std::int64_t>(1, n * inner)), c.threads,
                       [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t o = begin; o < end; ++o) {
                           std::vector<A> acc(static_cast<std::size_t>(inner), product ? A(1) : A(0));
                           for (std::int64_t k = 0; k < n; ++k) {
                             const std::int64_t row = (o * n + (reverse ? n - 1 - k : k)) * inner;
                             for (std::int64_t j = 0; j < inner; ++j) {
                               A& a = acc[static_cast<std::size_t>(j)];
                               // Negative integers wrap, as their sums do.
                               using Wide = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;
                               const A e = static_cast<A>(static_cast<Wide>(x.as<T>()[row + j]));
                               const A next = product ? a * e : a + e;
                               y.as<T>()[row + j] = static_cast<T>(exclusive ? a : next);
                               a = next;
                             }
                           }
                         }
                       });
  });
}

}  // namespace

void register_scatter(Table& t) {
  t["scatter"] = scatter;
  t["append"] = append;
  t["append_rows"] = append_rows;
  t["append_own_rows"] = append_rows;
  t["group"] = group;
  t["nonzero"] = nonzero;
  t["scan"] = scan;
}

}  // namespace sardonyx::routines
