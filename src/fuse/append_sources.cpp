// See append_sources.h.
#include "fuse/append_sources.h"

#include "graph/analysis.h"

namespace sardonyx {
namespace {

// One step back from the tensor that is read to the one that it is a view of, or of which it copies a part; false if
// there is none. Elements are (token (b, s), feature j) at (b * S + s) * stride + offset + j.
bool step(Value*& x, Expr& stride, Expr& offset, const Expr& batch, const Expr& tokens, const Expr& features) {
  const Node* p = x->producer;
  if (!p || x->graph == nullptr) return false;
  if (p->as<ViewOp>()) {
    x = p->inputs[0];
    return true;
  }
  const auto* l = p->as<LoopOp>();
  if (!l || l->body->op != Op::kLoad) return false;
  const Expr b = loop_var(batch), s = loop_var(tokens), j = loop_var(features);
  const Exprs at = idx::delinearize((b * tokens + s) * stride + offset + j, x->shape);
  std::vector<std::pair<Expr, Expr>> r;
  for (std::size_t k = 0; k < l->vars.size(); ++k) r.emplace_back(l->vars[k], at[k]);
  const Expr from = substitute(l->body, r);
  const Expr flat = idx::linearize(from->args, from->value->shape);
  Expr one, distance, batches, rest, more, start;
  if (flat->has_load || !idx::split_affine(flat, j, one, rest) || !is_const(one, 1) ||
      !idx::split_affine(rest, s, distance, more) || !idx::split_affine(more, b, batches, start) ||
      !idx::provably_equal(batches, distance * tokens))
    return false;
  for (const Expr& v : {b, s, j})
    if (mentions(distance, v) || mentions(start, v)) return false;
  x = const_cast<Value*>(from->value);
  stride = distance;
  offset = start;
  return true;
}

}  // namespace

void append_from_source(Graph& g, const FuseOptions& options) {
  bool changed = false;
  for (const auto& n : g.nodes) {
    auto* r = n->as<RoutineOp>();
    const bool pages = r && (r->name == "append_rows" || r->name == "append_own_rows");
    if (!r || !(pages || r->name == "append")) continue;
    // New rows are [batch, tokens, features]; pages take them token by token.
    const Exprs shape = n->outputs[0]->shape;
    const Expr batch = pages ? Expr(1) : shape[0];
    const Expr features = pages ? r->params[1] : shape[1] * shape[3];
    for (const std::size_t which : {0, 1}) {
      Value* x = n->inputs[1 + which];
      Expr stride = r->params[2 + 2 * which], offset = r->params[3 + 2 * which];
      bool moved = false;
      // Views alone gain nothing.
      for (int depth = 0; depth < 8; ++depth) {
        Value* from = x;
        if (!step(from, stride, offset, batch, r->params[0], features)) break;
        moved |= x->producer->as<LoopOp>() != nullptr;
        x = from;
      }
      if (!moved || x->dtype != n->inputs[1 + which]->dtype || x->graph != &g) {
        remark(options, "append_sources", n->origin, [&] {
          return fmt::format("the new {} are not parts of a tensor with rows at one distance",
                             which == 0 ? "keys" : "values");
        });
        continue;
      }
      n->inputs[1 + which] = x;
      r->params[2 + 2 * which] = stride;
      r->params[3 + 2 * which] = offset;
      changed = true;
    }
  }
  if (changed) remove_dead_nodes(g);
}

}  // namespace sardonyx
