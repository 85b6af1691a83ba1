// TfIdfVectorizer: counts of n-grams. Its strings form is out of scope.
#include <map>

#include "ops/families.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

// The n-grams of one length, by output coordinate. Several may share a coordinate: they fill `depth` layers.
struct Grams {
  std::int64_t length = 0, depth = 0;
  std::vector<std::vector<std::vector<std::int64_t>>> at;  // [coordinate][layer]
};

Value* int_table(Graph& g, std::vector<std::int64_t> dims, const std::vector<std::int64_t>& v) {
  std::byte* bytes;
  Data data = make_data(v.size() * sizeof(std::int64_t), &bytes);
  std::copy(v.begin(), v.end(), reinterpret_cast<std::int64_t*>(bytes));
  return g.add_constant(DType::kInt64, std::move(dims), std::move(data));
}

// The pool holds all 1-grams, then all 2-grams ...; counts[k] says where those of k + 1 items begin.
std::vector<Grams> read_pool(OpContext& c, std::int64_t columns) {
  const auto pool = c.attr_ints("pool_int64s"), counts = c.attr_ints("ngram_counts"),
             coordinates = c.attr_ints("ngram_indexes");
  const std::int64_t shortest = c.attr("min_gram_length", 1), longest = c.attr("max_gram_length", 1),
                     size = static_cast<std::int64_t>(pool.size());
  c.require(shortest >= 1 && shortest <= longest, "n-grams of {} to {} items", shortest, longest);
  std::vector<Grams> out;
  std::size_t number = 0;
  for (std::size_t k = 0; k < counts.size(); ++k) {
    const std::int64_t n = static_cast<std::int64_t>(k) + 1, begin = counts[k],
                       end = k + 1 < counts.size() ? counts[k + 1] : size;
    c.require(begin >= 0 && begin <= end && end <= size && (end - begin) % n == 0, "ngram_counts don't fit the pool");
    std::map<std::vector<std::int64_t>, std::size_t> last;  // of equal n-grams the last one counts
    for (std::int64_t i = begin; i < end; i += n, ++number) {
      c.require(number < coordinates.size(), "ngram_indexes has too few elements");
      last[std::vector<std::int64_t>(pool.begin() + i, pool.begin() + i + n)] = number;
    }
    if (n < shortest || n > longest || last.empty()) continue;
    Grams g{n, 0, std::vector<std::vector<std::vector<std::int64_t>>>(static_cast<std::size_t>(columns))};
    for (const auto& [gram, at] : last) {
      auto& layers = g.at[static_cast<std::size_t>(coordinates[at])];
      layers.push_back(gram);
      g.depth = std::max(g.depth, static_cast<std::int64_t>(layers.size()));
    }
    out.push_back(std::move(g));
  }
  return out;
}

// How often the n-grams of one length occur in rows x [batch, size], by coordinate: [batch, columns] int64.
Value* count(OpContext& c, Value* x, const Grams& grams, std::int64_t columns) {
  Graph& g = c.graph();
  const std::int64_t n = grams.length, depth = grams.depth;
  std::vector<std::int64_t> items(static_cast<std::size_t>(columns * depth * n)),
      present(static_cast<std::size_t>(columns * depth));
  for (std::size_t j = 0; j < grams.at.size(); ++j)
    for (std::size_t d = 0; d < grams.at[j].size(); ++d) {
      const std::size_t row = j * static_cast<std::size_t>(depth) + d;
      present[row] = 1;
      std::copy(grams.at[j][d].begin(), grams.at[j][d].end(),
                items.begin() + static_cast<std::ptrdiff_t>(row * static_cast<std::size_t>(n)));
    }
  Value* pool = int_table(g, {columns, depth, n}, items);
  Value* valid = int_table(g, {columns, depth}, present);
  const Expr size = x->shape[1];
  // A single item can't be spread out: it is counted once.
  const std::int64_t spreads = n == 1 ? 1 : c.attr("max_skip_count", 0) + 1;
  return tensor::generate(g, {x->shape[0], columns}, [&](const Exprs& i) {
    const Expr d = loop_var(depth), spread = loop_var(spreads), first = loop_var(size);
    Expr hit = logical_and(compare(Op::kNe, tensor::at(valid, {i[1], d}), 0),
                           compare(Op::kLt, first + (spread + 1) * (n - 1), size));
    Expr same = constant_bool(true);
    for (std::int64_t q = 0; q < n; ++q)
      same = logical_and(same, compare(Op::kEq, cast(tensor::at(x, {i[0], first + (spread + 1) * q}), DType::kInt64),
                                       tensor::at(pool, {i[1], d, q})));
    return reduce(ReduceKind::kSum, {d, spread, first}, cast(select(hit, same, constant_bool(false)), DType::kInt64));
  });
}

void tfidf_op(OpContext& c) {
  Graph& g = c.graph();
  Value* x = c.in(0);
  if (c.has_attr("pool_strings")) c.refuse("n-grams of strings; keep text processing outside the model");
  c.require(is_integer(x->dtype) && x->rank() <= 2, "an input of dtype {} and rank {}", name(x->dtype), x->rank());
  const auto coordinates = c.attr_ints("ngram_indexes");
  const auto weights = c.attr_floats("weights");
  std::int64_t columns = 0;
  for (std::int64_t k : coordinates) {
    c.require(k >= 0 && k < (1 << 28), "an n-gram index of {}", k);
    columns = std::max(columns, k + 1);
  }
  const std::int64_t skips = c.attr("max_skip_count", 0);
  c.require(skips >= 0 && skips < (1 << 28), "max_skip_count is {}", skips);
  const std::string mode = c.attr_s("mode", "TF");
  c.require(mode == "TF" || mode == "IDF" || mode == "TFIDF", "mode is '{}'", mode);
  c.require(weights.empty() || static_cast<std::int64_t>(weights.size()) >= columns, "{} weights for {} n-grams",
            weights.size(), columns);
  const bool batched = x->rank() == 2;
  Value* rows = batched ? x : tensor::reshape(g, x, {1, x->elements()});
  std::vector<Value*> parts;
  for (const Grams& grams : read_pool(c, columns)) parts.push_back(count(c, rows, grams, columns));
  Value* scale = nullptr;
  if (mode != "TF" && !weights.empty()) {
    std::byte* bytes;
    Data data = make_data(static_cast<std::size_t>(columns) * sizeof(float), &bytes);
    std::copy(weights.begin(), weights.begin() + columns, reinterpret_cast<float*>(bytes));
    scale = g.add_constant(DType::kFloat32, {columns}, std::move(data));
  }
  Value* y = tensor::generate(g, {rows->shape[0], columns}, [&](const Exprs& i) {
    Expr n = 0;
    for (Value* p : parts) n = n + tensor::at(p, i);
    if (mode == "IDF") n = select(compare(Op::kGt, n, 0), Expr(1), Expr(0));
    const Expr f = cast(n, DType::kFloat32);
    return scale ? binary(Op::kMul, f, tensor::at(scale, {i[1]})) : f;
  });
  c.out(0, batched ? y : tensor::reshape(g, y, {columns}));
}

}  // namespace

void register_text(OpRegistry& r) {
  r.add(
      {.name = "TfIdfVectorizer", .lower = tfidf_op, .dtypes = "int32, int64", .notes = "the strings form is refused"});
}

}  // namespace sardonyx
