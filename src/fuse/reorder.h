// Internal to fuse/: values whose dims are put into another order, and the loads that follow.
#pragma once
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace sardonyx {

/// Element k is the old position of dim k.
using Order = std::vector<std::size_t>;
/// Values that get another order of dims.
using Orders = std::unordered_map<const Value*, Order>;

template <class T>
std::vector<T> permuted(const std::vector<T>& of, const Order& order) {
  std::vector<T> out;
  for (const std::size_t k : order) out.push_back(of[k]);
  return out;
}

/// That of `rank` dims (at least two) whose last two are exchanged.
Order exchanged(std::size_t rank);

/// `e` with the indices of its loads of these values permuted.
Expr reindexed(const Expr& e, const Orders& orders);

}  // namespace sardonyx
