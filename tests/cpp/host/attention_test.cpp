// Attention, compared with loops in double.
#include "host/attention.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <random>
#include <thread>

#include "reference.h"

namespace sardonyx::host::test {
namespace {

enum class Order { kHeadsFirst, kRowsFirst, kTransposed };

HeadStrides strides(Order order, std::int64_t heads, std::int64_t rows, std::int64_t size) {
  switch (order) {
    case Order::kHeadsFirst:
      return {heads * rows * size, rows * size, size, 1};
    case Order::kRowsFirst:
      return {heads * rows * size, size, heads * size, 1};
    case Order::kTransposed:
      return {heads * rows * size, rows * size, 1, rows};
  }
  return {};
}

AttentionDesc plain(std::int64_t heads, std::int64_t queries, std::int64_t keys, std::int64_t size,
                    Order order = Order::kHeadsFirst) {
  AttentionDesc d;
  d.batch = 2;
  d.heads = d.kv_heads = heads;
  d.queries = queries, d.keys = keys;
  d.head_dim = d.value_dim = size;
  d.q = d.out = strides(order, heads, queries, size);
  d.k = d.v = strides(order, heads, keys, size);
  d.scale = 1 / std::sqrt(static_cast<float>(size));
  d.threads = 2;
  return d;
}

struct Tensors {
  std::vector<float> q, k, v, mask;
  std::vector<std::uint8_t> bools;
  std::vector<std::int64_t> begin, end;
  std::vector<float> sink;
};

std::int64_t reach(const HeadStrides& s, std::int64_t batch, std::int64_t heads, std::int64_t rows, std::int64_t size) {
  return (batch - 1) * s.batch + (heads - 1) * s.head + (rows - 1) * s.row + (size - 1) * s.element + 1;
}

Tensors tensors(const AttentionDesc& d) {
  Tensors t;
  t.q = uniform(reach(d.q, d.batch, d.heads, d.queries, d.head_dim), -2, 2, 1);
  t.k = uniform(reach(d.k, d.batch, d.kv_heads, d.keys, d.head_dim), -2, 2, 2);
  t.v = uniform(reach(d.v, d.batch, d.kv_heads, d.keys, d.value_dim), -1, 1, 3);
  if (d.has_mask) {
    t.mask = uniform(reach(d.mask, d.batch, d.heads, d.queries, d.keys), -4, 4, 4);
    for (std::size_t i = 0; i < t.mask.size(); ++i) {
      t.bools.push_back(t.mask[i] > -3);
      if (i % 7 == 3) t.mask[i] = -INFINITY;
    }
  }
  const auto limits = [&](const HeadStrides& s, float low, float high) {
    std::vector<std::int64_t> x;
    for (const float f : uniform(reach(s, d.batch, d.heads, d.queries, 1), low, high, 5))
      x.push_back(static_cast<std::int64_t>(std::floor(f)));
    return x;
  };
  const auto keys = static_cast<float>(d.keys);
  if (d.has_begin) t.begin = limits(d.begin, -3, keys);
  if (d.has_end) t.end = limits(d.end, 0, keys + 3);
  if (d.has_sink) t.sink = uniform(reach(d.sink, d.batch, d.heads, d.queries, 1), -2, 2, 6);
  return t;
}

void expect_close(const AttentionDesc& d, const std::string& label) {
  const Tensors t = tensors(d);
  std::vector<float> out(static_cast<std::size_t>(reach(d.out, d.batch, d.heads, d.queries, d.value_dim)), -77.f);
  const void* mask = d.mask_type == DType::kBool ? static_cast<const void*>(t.bools.data()) : t.mask.data();
  attention(d, t.q.data(), t.k.data(), t.v.data(), mask, out.data(), {t.begin.data(), t.end.data(), t.sink.data()});
  const auto at = [](const HeadStrides& s, std::int64_t b, std::int64_t h, std::int64_t r, std::int64_t e) {
    return static_cast<std::size_t>(b * s.batch + h * s.head + r * s.row + e * s.element);
  };
  // With u = 2^-24, a score of head_dim products is wrong by at most (head_dim + 3) u of the sum of their sizes (4
  // each, times scale) plus u of the largest score and mask, about 20; so each probability is wrong by that
  // factor, and exp adds 2 units. A weighted mean of values below 1 is wrong by twice the factor, and by u for each
  // key.
  const double score_error =
      0x1p-24 * (static_cast<double>(d.head_dim + 3) * 4 * static_cast<double>(d.head_dim) * d.scale + 20);
  const double tolerance = 2 * score_error + 0x1p-24 * (static_cast<double>(d.keys) + 8);
  const std::int64_t group = d.heads / d.kv_heads;
  for (std::int64_t b = 0; b < d.batch; ++b) {
    for (std::int64_t h = 0; h < d.heads; ++h) {
      for (std::int64_t i = 0; i < d.queries; ++i) {
        std::vector<double> p(static_cast<std::size_t>(d.keys), -INFINITY);
        double highest = -INFINITY, sum = 0;
        for (std::int64_t j = 0; j < d.keys; ++j) {
          if (d.causal && j > i + d.causal_offset) continue;
          if (d.has_begin && j < t.begin[at(d.begin, b, h, i, 0)]) continue;
          if (d.has_end && j >= t.end[at(d.end, b, h, i, 0)]) continue;
          double s = 0;
          for (std::int64_t e = 0; e < d.head_dim; ++e)
            s += double{t.q[at(d.q, b, h, i, e)]} * t.k[at(d.k, b, h / group, j, e)];
          s *= d.scale;
          if (d.softcap != 0) s = d.softcap * std::tanh(s / d.softcap);
          if (d.has_mask && d.mask_type == DType::kBool && !t.bools[at(d.mask, b, h, i, j)]) s = -INFINITY;
          if (d.has_mask && d.mask_type != DType::kBool) s += t.mask[at(d.mask, b, h, i, j)];
          p[static_cast<std::size_t>(j)] = s;
          highest = std::max(highest, s);
        }
        const double sink = d.has_sink ? t.sink[at(d.sink, b, h, i, 0)] : -INFINITY;
        const bool empty = highest == -INFINITY;
        highest = std::max(highest, sink);
        sum = d.has_sink ? std::exp(sink - highest) : 0;
        for (double& x : p) sum += x = std::exp(x - highest);
        for (std::int64_t e = 0; e < d.value_dim; ++e) {
          double expected = 0;
          for (std::int64_t j = 0; j < d.keys; ++j)
            expected += p[static_cast<std::size_t>(j)] / sum * t.v[at(d.v, b, h / group, j, e)];
          const float got = out[at(d.out, b, h, i, e)];
          if (empty) {
            ASSERT_TRUE(d.zero_empty || d.has_sink ? got == 0 : std::isnan(got)) << label << " gives " << got;
          } else {
            ASSERT_NEAR(got, expected, tolerance)
                << label << " batch " << b << " head " << h << " query " << i << " element " << e;
          }
        }
      }
    }
  }
}

TEST(Attention, SizesAndStorageOrders) {
  for (Order order : {Order::kHeadsFirst, Order::kRowsFirst}) {
    for (const auto& [queries, keys] :
         {std::pair<int, int>{1, 1}, {1, 300}, {3, 5}, {16, 16}, {17, 129}, {33, 128}, {70, 257}}) {
      for (std::int64_t size : {1, 8, 33, 64}) {
        expect_close(plain(2, queries, keys, size, order),
                     fmt::format("{} queries, {} keys, size {}", queries, keys, size));
      }
    }
  }
}

TEST(Attention, LimitsOfKeysSoftCapAndSink) {
  for (const auto& [queries, keys] : {std::pair<int, int>{1, 1}, {1, 300}, {17, 129}, {40, 257}})
    for (int which = 1; which < 32; ++which) {
      AttentionDesc d = plain(4, queries, keys, 16);
      d.kv_heads = 2;
      d.k = d.v = strides(Order::kHeadsFirst, 2, keys, 16);
      d.has_begin = which & 1, d.has_end = which & 2, d.has_sink = which & 4;
      if (which & 8) d.softcap = 1.5F;
      d.zero_empty = which & 16;
      d.begin = {4 * queries, queries, 1, 0};
      d.end = {queries, 0, 1, 0};  // the same for all heads
      d.sink = {0, 1, 0, 0};       // one for each head
      expect_close(d, fmt::format("{} queries, {} keys, case {}", queries, keys, which));
    }
}

// Rows, keys and columns around the sizes of blocks, vectors and tiles.
TEST(Attention, SizesAroundThoseOfBlocks) {
  for (const auto& [queries, keys] :
       {std::pair<int, int>{31, 127}, {48, 130}, {63, 6}, {64, 128}, {65, 256}, {100, 14}, {197, 197}, {129, 385}}) {
    for (std::int64_t size : {40, 48, 63, 65, 80, 96}) {
      AttentionDesc d = plain(1, queries, keys, size, Order::kRowsFirst);
      d.batch = 1;
      expect_close(d, fmt::format("{} queries, {} keys, size {}", queries, keys, size));
    }
  }
  expect_close(plain(1, 66, 70, 128), "size 128");
  AttentionDesc many = plain(2, 150, 140, 32);
  many.threads = 12;  // smaller blocks
  expect_close(many, "many threads");
}

TEST(Attention, KeysStoredTransposedAndValuesOfAnotherSize) {
  AttentionDesc d = plain(3, 20, 140, 16);
  d.k = strides(Order::kTransposed, 3, 140, 16);
  d.value_dim = 40;
  d.v = strides(Order::kRowsFirst, 3, 140, 40);
  d.out = strides(Order::kRowsFirst, 3, 20, 40);
  expect_close(d, "transposed");
}

TEST(Attention, GroupsOfHeads) {
  for (std::int64_t queries : {1, 19}) {
    for (std::int64_t kv_heads : {1, 2, 6}) {
      AttentionDesc d = plain(6, queries, 50, 24, Order::kRowsFirst);
      d.kv_heads = kv_heads;
      d.k = d.v = strides(Order::kRowsFirst, kv_heads, 50, 24);
      expect_close(d, fmt::format("{} queries, {} kv heads", queries, kv_heads));
    }
  }
}

TEST(Attention, Causal) {
  for (const auto& [queries, keys, offset] :
       {std::array<std::int64_t, 3>{40, 40, 0}, {5, 200, 195}, {150, 150, 0}, {7, 9, 2}, {9, 4, -3}}) {
    AttentionDesc d = plain(2, queries, keys, 16);
    d.causal = true;
    d.causal_offset = offset;
    expect_close(d, fmt::format("{} queries, {} keys, offset {}", queries, keys, offset));
  }
}

TEST(Attention, MasksOfEveryBroadcast) {
  for (DType type : {DType::kFloat32, DType::kBool}) {
    for (int bits = 0; bits < 16; ++bits) {
      AttentionDesc d = plain(3, 37, 150, 16);
      d.has_mask = true;
      d.mask_type = type;
      d.causal = bits == 15;
      std::int64_t distance = 1;
      d.mask.element = 0;
      if (bits & 1) d.mask.element = distance, distance *= d.keys;
      if (bits & 2) d.mask.row = distance, distance *= d.queries;
      if (bits & 4) d.mask.head = distance, distance *= d.heads;
      if (bits & 8) d.mask.batch = distance;
      expect_close(d, fmt::format("{} mask {}", name(type), bits));
    }
  }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  AttentionDesc d = plain(1, 4, 200, 8);
  d.batch = 1;
  Tensors t = tensors(d);
  for (float& x : t.q) x *= 1000;
  for (float& x : t.v) x = 0.25f;
  std::vector<float> out(4 * 8);
  attention(d, t.q.data(), t.k.data(), t.v.data(), nullptr, out.data());
  for (float x : out) ASSERT_NEAR(x, 0.25, 200 * 0x1p-24);  // a mean of equal values, whatever the weights
}

// Heads that share keys see different numbers of them; large scores of keys that a head does not see count for nothing.
TEST(Attention, UnseenLargeScoresOfSharedKeys) {
  for (const std::int64_t queries : {4, 8, 32}) {  // of several heads in one block, for each instruction set
    AttentionDesc d = plain(2, queries, 90, 8);
    d.batch = 3;
    d.threads = 1;
    d.kv_heads = 1;
    d.k = d.v = strides(Order::kRowsFirst, 1, 90, 8);
    d.has_end = true;
    d.end = {0, 1, 0, 0};
    Tensors t = tensors(d);
    const std::vector<std::int64_t> seen = {90, 12};
    for (float& x : t.q) x = 1;
    for (std::size_t i = 0; i < t.k.size(); ++i) t.k[i] = i % (90 * 8) < 12 * 8 ? 0.f : 1000.f;
    for (float& x : t.v) x = 0.25f;
    std::vector<float> out(static_cast<std::size_t>(3 * 2 * queries * 8));
    attention(d, t.q.data(), t.k.data(), t.v.data(), nullptr, out.data(), {nullptr, seen.data(), nullptr});
    for (float x : out) ASSERT_NEAR(x, 0.25, 90 * 0x1p-24) << queries;  // a mean of equal values
  }
}

// The highest score grows by little and by much from block to block, by itself and by a mask of finite numbers.
TEST(Attention, RisingScoresAndTheLeastNumberAsMask) {
  for (const float step : {0.01f, 0.5f, 40.f}) {
    AttentionDesc d = plain(1, 70, 700, 8);
    d.batch = 1;
    d.has_mask = true;
    d.mask = {0, 0, 700, 1};
    const Tensors t = tensors(d);
    std::vector<float> mask(70 * 700), out(70 * 8);
    for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = static_cast<float>(i % 700) * step;
    // A row with nothing but the least number has equal scores, one that ends in them does not see those keys.
    for (std::size_t j = 0; j < 700; ++j) mask[j] = -FLT_MAX;
    for (std::size_t j = 300; j < 700; ++j) mask[700 + j] = -FLT_MAX;
    attention(d, t.q.data(), t.k.data(), t.v.data(), mask.data(), out.data());
    for (std::size_t i = 0; i < 70; ++i) {
      std::vector<double> p(700);
      double sum = 0, highest = -INFINITY;
      for (std::size_t j = 0; j < 700; ++j) {
        double s = 0;
        for (std::size_t e = 0; e < 8; ++e) s += double{t.q[i * 8 + e]} * t.k[j * 8 + e];
        p[j] = static_cast<float>(s * d.scale) + mask[i * 700 + j];  // as float32: the least number swallows scores
        highest = std::max(highest, p[j]);
      }
      for (double& x : p) sum += x = std::exp(x - highest);
      for (std::size_t e = 0; e < 8; ++e) {
        double expected = 0;
        for (std::size_t j = 0; j < 700; ++j) expected += p[j] / sum * t.v[j * 8 + e];
        // Scores of up to 28000 have a unit of 2^-9.
        ASSERT_NEAR(out[i * 8 + e], expected, step > 1 ? 2 * 0x1p-9 : 2e-4) << "step " << step << " row " << i;
      }
    }
  }
}

TEST(Attention, NotANumberStaysOne) {
  AttentionDesc d = plain(1, 2, 20, 8);
  d.batch = 1;
  Tensors t = tensors(d);
  t.q[3] = NAN;
  std::vector<float> out(2 * 8);
  attention(d, t.q.data(), t.k.data(), t.v.data(), nullptr, out.data());
  for (int e = 0; e < 8; ++e) {
    EXPECT_TRUE(std::isnan(out[static_cast<std::size_t>(e)]));
    EXPECT_FALSE(std::isnan(out[static_cast<std::size_t>(8 + e)]));
  }
}

TEST(Attention, FromManyThreads) {
  const AttentionDesc d = plain(4, 50, 60, 32);
  const Tensors t = tensors(d);
  std::vector<float> expected(static_cast<std::size_t>(reach(d.out, 2, 4, 50, 32)));
  attention(d, t.q.data(), t.k.data(), t.v.data(), nullptr, expected.data());
  std::vector<int> equal(4, 1);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < equal.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 20; ++round) {
        std::vector<float> out(expected.size());
        attention(d, t.q.data(), t.k.data(), t.v.data(), nullptr, out.data());
        equal[i] &= out == expected;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(equal, std::vector<int>(4, 1));
}

// Pages of int8 with a scale for each row of a head give what their products give as floats in one piece. Pages are
// longer than the part of the keys that is computed at a time.
TEST(Attention, ScaledPages) {
  constexpr std::int64_t kRows = 300, kHeads = 2, kSize = 24, kKeys = 700, kPages = 4;
  const std::int64_t numbers[] = {2, 0, 3};
  std::vector<std::int8_t> k(kPages * kRows * kHeads * kSize), v(k.size());
  std::vector<float> k_scale(kPages * kRows * kHeads), v_scale(k_scale.size());
  std::mt19937 random(1);
  for (auto* x : {&k, &v})
    for (std::int8_t& e : *x) e = static_cast<std::int8_t>(static_cast<int>(random() % 255) - 127);
  for (auto* x : {&k_scale, &v_scale})
    for (float& e : *x) e = 0.005f + static_cast<float>(random() % 100) * 1e-4f;
  std::vector<float> k_floats(kKeys * kHeads * kSize), v_floats(k_floats.size());
  for (std::int64_t t = 0; t < kKeys; ++t)
    for (std::int64_t h = 0; h < kHeads; ++h) {
      const std::int64_t from = (numbers[t / kRows] * kRows + t % kRows) * kHeads + h, to = t * kHeads + h;
      for (std::int64_t e = 0; e < kSize; ++e) {
        const auto at = static_cast<std::size_t>(from * kSize + e), place = static_cast<std::size_t>(to * kSize + e);
        k_floats[place] = k[at] * k_scale[static_cast<std::size_t>(from)];
        v_floats[place] = v[at] * v_scale[static_cast<std::size_t>(from)];
      }
    }
  AttentionDesc d;
  d.heads = 4, d.kv_heads = kHeads, d.queries = 5, d.keys = kKeys, d.head_dim = d.value_dim = kSize;
  d.q = d.out = {d.heads * d.queries * kSize, d.queries * kSize, kSize, 1};
  d.k = d.v = {0, kSize, kHeads * kSize, 1};
  d.scale = 0.2f;
  std::vector<float> q(4 * 5 * kSize), expected(q.size()), found(q.size());
  for (float& e : q) e = static_cast<float>(random() % 1000) / 500 - 1;
  attention(d, q.data(), k_floats.data(), v_floats.data(), nullptr, expected.data());
  d.scaled = true;
  d.page_rows = kRows, d.k_page = d.v_page = kRows * kHeads * kSize;
  d.k_scale = d.v_scale = {0, 1, kHeads, 0};
  d.k_scale_page = d.v_scale_page = kRows * kHeads;
  AttentionTerms terms;
  terms.pages = numbers, terms.k_scale = k_scale.data(), terms.v_scale = v_scale.data();
  attention(d, q.data(), reinterpret_cast<const float*>(k.data()), reinterpret_cast<const float*>(v.data()), nullptr,
            found.data(), terms);
  // Sums of 700 products in float32 in another order.
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-5) << i;
}

TEST(Attention, RefusesWhatDoesNotFit) {
  AttentionDesc d = plain(3, 4, 4, 4);
  d.kv_heads = 2;
  EXPECT_ANY_THROW(attention(d, nullptr, nullptr, nullptr, nullptr, nullptr));
  d = plain(2, 4, 4, 4);
  d.v.element = 2;
  EXPECT_ANY_THROW(attention(d, nullptr, nullptr, nullptr, nullptr, nullptr));
  d = plain(2, 4, 4, 4);
  d.scaled = true;
  EXPECT_ANY_THROW(attention(d, nullptr, nullptr, nullptr, nullptr, nullptr));
}

}  // namespace
}  // namespace sardonyx::host::test
