// See reorder.h.
#include "fuse/reorder.h"

#include <numeric>
#include <utility>

namespace sardonyx {

Order exchanged(std::size_t rank) {
  Order order(rank);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::swap(order[rank - 2], order[rank - 1]);
  return order;
}

Expr reindexed(const Expr& e, const Orders& orders) {
  return rewrite(e, [&](const Expr& x) -> Expr {
    if (!x->has_load) return x;
    if (x->op != Op::kLoad) return Expr();
    Exprs args;
    for (const Expr& a : x->args) args.push_back(reindexed(a, orders));
    const auto it = orders.find(x->value);
    return load(x->value, x->dtype, it == orders.end() ? std::move(args) : permuted(args, it->second));
  });
}

}  // namespace sardonyx
