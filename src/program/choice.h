// Choices among ways to compute the same result: tilings of a GEMM or convolution, forms of attention, kernels that
// stream weights, calls of a vendor's library. With these functions code generation decides which candidates are
// compiled, the runtime which of them runs for given sizes, and reports show what would run.
//
// A candidate is taken for one of three reasons: it was measured to be the fastest for these sizes (Choice::tuned, from
// the tuning database), the tuner is timing it (runtime/tile_tuner.h), or its estimated cost is the lowest ("by rule").
// Estimates are the cost model of tilings (tiling.h) or an expression of the sizes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "expr/expr.h"
#include "program/launch.h"
#include "program/tiling.h"

namespace sardonyx {

/// Sizes that a choice depends on. GEMM and convolution: out[batches, m, n], with K = k. Attention: heads of all
/// sequences, queries, keys, head dim.
struct ProblemSizes {
  std::int64_t batches = 0, m = 0, n = 0, k = 0;
  bool operator==(const ProblemSizes&) const = default;
};

/// What a call of a vendor's GEMM library computes beside the product.
struct LibraryEpilogue {
  bool bias = false, residual = false;
  GemmActivation activation = GemmActivation::kNone;
  bool operator==(const LibraryEpilogue&) const = default;
};

/// A candidate that was measured for these sizes; of several, the fastest comes first.
struct TunedSize {
  ProblemSizes sizes;
  std::string candidate;                                  ///< its name
  std::optional<LibraryEpilogue> library = std::nullopt;  ///< set: a call of a vendor's library, else our own kernel
};

struct Candidate {
  std::string name;
  Expr applies;  ///< 0: it does not support these sizes; empty: it supports all
  Expr cost;     ///< of a candidate without a tiling: 0 for sizes for which the rule takes it, else more
  std::vector<GpuTiling> tiling;  ///< at most one; it then decides which sizes are supported, and the cost
};

struct Choice {
  std::string problem;  ///< everything but the sizes that affects speed; a key of the tuning database
  Expr batches, m, n, k;
  std::vector<Candidate> candidates;  ///< of equal cost, the first is taken
  std::vector<TunedSize> tuned;       ///< for equal sizes, the first that can run is taken
};

/// Whether every symbol of `e` has a value.
bool evaluable(const Expr& e, const SymbolValues& symbols);
ProblemSizes sizes_of(const Choice& choice, const SymbolValues& symbols);
/// Whether every symbol that the choice depends on has a value.
bool decidable(const Choice& choice, const SymbolValues& symbols);
/// The candidate of this name, or candidates.size().
std::size_t index_of(const Choice& choice, std::string_view name);

/// The candidates that support these sizes, the cheapest by rule first, on a GPU with `units` compute units.
std::vector<std::size_t> by_cost(const Choice& choice, const SymbolValues& symbols, int units);
/// What runs if there is no tuner: an index into `names`, which are the candidates' and, after them, those of a
/// vendor's library. Throws Error(kInternal) if no candidate supports these sizes.
std::size_t chosen_candidate(const Choice& choice, const SymbolValues& symbols, int units,
                             const std::vector<std::string>& names);
/// The same among the candidates alone.
std::size_t chosen_candidate(const Choice& choice, const SymbolValues& symbols, int units);
std::vector<std::string> names_of(const Choice& choice);

/// Whether `sizes` are possible, given the sizes that are known at compile time.
bool may_be(const Choice& choice, const ProblemSizes& sizes);
/// For each candidate: whether the rule chooses it for some sizes that a run can have. Symbols of tilings are tried as
/// powers of two; a cost that is an expression is assumed to become 0 unless it is another constant.
std::vector<bool> taken_by_rule(const Choice& choice, int units);

}  // namespace sardonyx
