// See groups_to_blocks.h.
#include "fuse/groups_to_blocks.h"

#include <algorithm>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kTile = 16, kMostTiles = 8;  // rows that kernels multiply together, and of these in a block
constexpr std::int64_t kBlocks = 4;                 // of a group, at least, before they get longer

Value* owners_of(Graph& g, const MatMulOp& m) {
  const Expr& e = m.owner;
  const auto* v = e->op == Op::kLoad && e->args.size() == 1 && same(e->args[0], m.vars[0]) ? e->value : nullptr;
  return v ? const_cast<Value*>(v) : g.add_loop({m.vars[0]}, e);
}

void divide(Graph& g, Node& n) {
  const MatMulOp m = *n.as<MatMulOp>();
  g.origin = n.origin;
  Value* y = n.outputs[0];
  const Expr rows = m.vars[0]->args[0], groups = m.group->args[0];
  // With few rows, each of a group's is a block of its own.
  const Expr height =
      idx::max(1, idx::min(idx::floordiv(rows, groups * Expr(kBlocks)), Expr(kMostTiles)) * Expr(kTile));
  const Expr blocks = idx::min(rows, idx::floordiv(rows, height) + groups);
  const DType i64 = DType::kInt64;
  const auto placed = g.add_node(RoutineOp{"group", {groups, height}, {}}, {owners_of(g, m)},
                                 {{i64, {rows}}, {i64, {blocks, height}}, {i64, {blocks}}})
                          ->outputs;
  Value *positions = placed[0], *sources = placed[1], *owners = placed[2];
  MatMulOp blocked;
  const Expr z = loop_var(blocks), row = loop_var(height), column = m.vars[2];
  blocked.vars = {z, row, column};
  blocked.k = m.k;
  // Rows of a block that are not used have arbitrary results.
  blocked.a = substitute(m.a, {{m.vars[0], idx::max(0, load(sources, i64, {z, row}))}, {m.vars[1], Expr(0)}});
  blocked.b = of_group(m, load(owners, i64, {z}));
  Node* product = g.add_node(std::move(blocked), {}, {{y->dtype, {blocks, height, column->args[0]}}});
  refresh_inputs(*product);
  Value* all = g.add_view(product->outputs[0], {blocks * height, column->args[0]});
  const Exprs vars = vars_of(y->shape);
  n.op = LoopOp{vars, load(all, all->dtype, {load(positions, i64, {vars[0]}), vars[2]})};
  refresh_inputs(n);
}

}  // namespace

void groups_to_blocks(Graph& g, const FuseOptions& options) {
  const std::size_t count = g.nodes.size();
  for (std::size_t k = 0; k < count; ++k) {
    Node& n = *g.nodes[k];
    const auto* m = n.as<MatMulOp>();
    std::string why;
    if (!m || !m->end || (options.row_groups && options.accepts_tile && options.accepts_tile(n, why))) continue;
    remark(options, "groups_to_blocks", n.origin,
           [&] { return "its rows are copied to blocks: " + (why.empty() ? "the device has no such kernel" : why); });
    divide(g, n);
  }
  g.origin.clear();
  sort_nodes(g);
}

}  // namespace sardonyx
