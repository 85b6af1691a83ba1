// See merge_groups.h.
#include "fuse/merge_groups.h"

#include <algorithm>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kLeastChannels = 8;  // of a group: loops over windows are faster for fewer
constexpr std::int64_t kMostChannels = 32;  // of merged groups
constexpr std::int64_t kVector = 8;         // channels of a 16-byte load

// How many groups become one; 1: none.
std::int64_t factor_of(std::int64_t groups, std::int64_t in, std::int64_t out) {
  std::int64_t factor = 1;
  while (groups % (2 * factor) == 0 && 2 * factor * std::max(in, out) <= kMostChannels) factor *= 2;
  return factor * in % kVector == 0 ? factor : 1;
}

void merge(Graph& g, Node& n, ConvOp& c, const std::unordered_set<const Node*>& constants, const FuseOptions& options) {
  const Value *x = n.inputs[0], *w = n.inputs[1];
  std::int64_t groups = 0, channels = 0, outputs = 0;
  if (c.transposed || !is_const_int(c.groups, groups) || groups < 2 || !is_const_int(x->shape[1], channels) ||
      !is_const_int(w->shape[0], outputs))
    return;
  const std::int64_t in = channels / groups, out = outputs / groups;
  if (std::min(in, out) < kLeastChannels) return;
  const std::int64_t factor = factor_of(groups, in, out);
  if (factor == 1) return;
  const auto reject = [&](const char* why) {
    remark(options, "merge_groups", n.origin, [&] { return std::string(why); }, {{"groups", std::to_string(groups)}});
  };
  if (!is_float(x->dtype) || size_of(x->dtype) != 2 || w->dtype != x->dtype)
    return reject("only 16-bit floats have matrix instructions to spare");
  if (!constants.count(w->producer)) return reject("its weights are not constant");
  // weights[o, i, ..] = i is in o's group ? w[o, i % in, ..] : 0
  Exprs vars;
  for (const Expr& d : w->shape) vars.push_back(loop_var(d));
  vars[1] = loop_var(Expr(in * factor));
  Exprs at = vars;
  at[1] = idx::mod(vars[1], in);
  const Expr same_group = compare(Op::kEq, idx::floordiv(vars[1], in), idx::mod(idx::floordiv(vars[0], out), factor));
  g.origin = n.origin;
  n.inputs[1] = g.add_loop(vars, select(same_group, load(w, w->dtype, at), constant_float(0, w->dtype)));
  c.groups = groups / factor;
}

}  // namespace

void merge_groups(Graph& g, const FuseOptions& options) {
  const auto constants = constant_nodes(g);
  const std::size_t count = g.nodes.size();
  for (std::size_t k = 0; k < count; ++k)
    if (auto* c = g.nodes[k]->as<ConvOp>()) merge(g, *g.nodes[k], *c, constants, options);
  g.origin.clear();
  sort_nodes(g);
}

}  // namespace sardonyx
