// See fold_pads.h.
#include "fuse/fold_pads.h"

#include <algorithm>
#include <optional>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

struct Pads {
  Value* image = nullptr;
  std::vector<std::int64_t> before, after;  // of the dims after the channels
};

void terms_of(const Expr& condition, Exprs& out) {
  if (condition->op != Op::kAnd) return out.push_back(condition);
  for (const Expr& x : condition->args) terms_of(x, out);
}

// The pads of a loop select(all indices are inside, image[indices], fill), where indices are the loop's variables minus
// the pads. Empty for other loops, and if the image's batch or channels are padded, or anything is cropped.
std::optional<Pads> pads_of(const Value& padded, std::int64_t fill) {
  const auto* l = padded.producer ? padded.producer->as<LoopOp>() : nullptr;
  if (!l || l->body->op != Op::kSelect) return {};
  const Expr &condition = l->body->args[0], &inside = l->body->args[1], &outside = l->body->args[2];
  if (inside->op != Op::kLoad || inside->args.size() != l->vars.size() || inside->value->graph != padded.graph ||
      !same(outside, constant(static_cast<double>(fill), outside->dtype)))
    return {};
  Pads p{const_cast<Value*>(inside->value), {}, {}};
  Exprs possible, needed;  // terms of the condition
  for (std::size_t k = 0; k < l->vars.size(); ++k) {
    const Expr &index = inside->args[k], &extent = p.image->shape[k];
    std::int64_t before = 0, after = 0;
    if (!is_const_int(idx::sub(l->vars[k], index), before) ||
        !is_const_int(idx::sub(l->vars[k]->args[0], extent + Expr(before)), after) || before < 0 || after < 0)
      return {};
    const Expr above = compare(Op::kGe, index, 0), below = compare(Op::kLt, index, extent);
    possible.insert(possible.end(), {above, below});
    if (before > 0) needed.push_back(above);
    if (after > 0) needed.push_back(below);
    if (k >= 2) {
      p.before.push_back(before);
      p.after.push_back(after);
    } else if (before != 0 || after != 0) {
      return {};
    }
  }
  Exprs terms;
  terms_of(condition, terms);
  const auto among = [](const Exprs& all) {
    return [&all](const Expr& x) {
      return std::any_of(all.begin(), all.end(), [&](const Expr& y) { return same(x, y); });
    };
  };
  if (!std::all_of(terms.begin(), terms.end(), among(possible)) ||
      !std::all_of(needed.begin(), needed.end(), among(terms)))
    return {};
  return p;
}

}  // namespace

void fold_pads(Graph& g, const FuseOptions&) {
  for (const auto& n : g.nodes) {
    auto* conv = n->as<ConvOp>();
    if (!conv || conv->transposed || n->inputs[0]->rank() < 3) continue;
    const std::optional<Pads> p = pads_of(*n->inputs[0], conv->padding);
    if (!p) continue;
    for (std::size_t k = 0; k < p->before.size(); ++k) {
      conv->pads_begin[k] = conv->pads_begin[k] + Expr(p->before[k]);
      conv->pads_end[k] = conv->pads_end[k] + Expr(p->after[k]);
    }
    n->origin = join_origins(n->inputs[0]->producer->origin, n->origin);
    n->inputs[0] = p->image;
  }
  remove_dead_nodes(g);
}

}  // namespace sardonyx
