// Fusion: inline, epilogues, layouts, rows; then steps in an order that respects what each reads.
#include <algorithm>
#include <map>

#include "fuse/append.h"
#include "fuse/attention.h"
#include "fuse/epilogue.h"
#include "fuse/few_channels.h"
#include "fuse/float8_products.h"
#include "fuse/graph_util.h"
#include "fuse/inline.h"
#include "fuse/integer_products.h"
#include "fuse/layout.h"
#include "fuse/merge_equal.h"
#include "fuse/merge_matmuls.h"
#include "fuse/narrow.h"
#include "fuse/pack.h"
#include "fuse/pair_products.h"
#include "fuse/prologue.h"
#include "fuse/repeats.h"
#include "fuse/rows.h"
#include "fuse/schedule.h"
#include "fuse/split.h"
#include "fuse/used_rows.h"
#include "fuse/widen.h"

namespace sardonyx {

Value* storage_of(Value* v) {
  while (v->producer && v->producer->as<ViewOp>()) v = v->producer->inputs[0];
  return v;
}

namespace {

// Tile nodes that the device does not take become loops.
void lower_refused_tiles(Graph& g, const FuseOptions& options) {
  for (const auto& n : g.nodes) {
    if (n->outputs.empty() || (options.accepts_tile && options.accepts_tile(*n))) continue;
    if (const auto* m = n->as<MatMulOp>())
      n->op = loop_of_matmul(*m, n->outputs[0]->dtype);
    else if (const auto* c = n->as<ConvOp>())
      n->op = loop_of_conv(*c, n->inputs, n->outputs[0]);
    else
      continue;
    refresh_inputs(*n);
  }
}

LoopKernel single_kernel(Node& n) {
  const auto* l = n.as<LoopOp>();
  return {{}, {Stage{n.outputs[0], l->vars, l->vars, l->body, true}}};
}

// Index with 0 for dims of extent 1, which need no variable.
void append(std::vector<Value*>& list, Value* v) {
  if (std::find(list.begin(), list.end(), v) == list.end()) list.push_back(v);
}

struct Unit {  // one step to be: some nodes
  std::vector<Node*> nodes;
  Step step;
  int position = 0;
};

}  // namespace

Schedule fuse(Graph& g, const FuseOptions& options) {
  Schedule schedule;
  schedule.graph = &g;
  remove_dead_nodes(g);
  if (!options.disabled) merge_equal_nodes(g);
  if (options.integer_tiles) lower_integer_products(g);
  if (options.float8_tiles != DType::kFloat32) lower_float8_products(g, options.float8_tiles);
  if (options.precision != DType::kFloat32) narrow_floats(g, options.precision);
  if (options.fill_channels && !options.disabled) fill_channels(g);
  if (options.widen_halves && !options.disabled) widen_halves(g);
  lower_refused_tiles(g, options);
  if (!options.disabled) {
    merge_matmuls(g, options);
    inline_loops(g, options);
    append_from_source(g);
    drop_unused_rows(g);
    if (options.prologues) inline_dequantization(g);
    if (options.pair_products) pair_products(g);
    find_attention(g, options);
    if (options.shrink_repeats) shrink_repeats(g);
  }
  lower_refused_tiles(g, options);  // operands may have changed what the device takes
  std::vector<Epilogue> epilogues;
  if (!options.disabled) epilogues = find_epilogues(g, options);
  choose_layouts(g, epilogues, options);
  if (options.contiguous_sums) pack_operands(g);
  if (options.split_reductions && !options.disabled) split_reductions(g);
  remove_dead_nodes(g);

  // Group nodes into units.
  std::vector<RowGroup> rows;
  std::unordered_set<const Node*> taken;
  for (const Epilogue& e : epilogues)
    for (const Node* n : e.loops) taken.insert(n);
  if (!options.disabled) rows = find_rows(g, taken);
  const auto constants = constant_nodes(g);
  std::unordered_map<const Node*, Unit*> unit_of;
  std::vector<std::unique_ptr<Unit>> units;
  auto new_unit = [&](std::vector<Node*> nodes) {
    units.push_back(std::make_unique<Unit>());
    units.back()->nodes = std::move(nodes);
    for (const Node* n : units.back()->nodes) unit_of[n] = units.back().get();
    return units.back().get();
  };
  for (Epilogue& e : epilogues) {
    std::vector<Node*> nodes = {e.kernel.node};
    nodes.insert(nodes.end(), e.loops.begin(), e.loops.end());
    new_unit(std::move(nodes))->step.op = e.kernel;
  }
  for (RowGroup& r : rows) new_unit(r.nodes)->step.op = std::move(r.kernel);
  std::unordered_map<const Node*, int> position;
  for (std::size_t k = 0; k < g.nodes.size(); ++k) {
    Node* n = g.nodes[k].get();
    position[n] = static_cast<int>(k);
    if (unit_of.count(n) || n->as<ConstantOp>() || n->as<ViewOp>()) continue;
    Unit* u = new_unit({n});
    if (n->as<LoopOp>())
      u->step.op = single_kernel(*n);
    else if (n->as<MatMulOp>() || n->as<ConvOp>() || n->as<AttentionOp>()) {
      TileKernel t;
      t.node = n;
      t.out = n->outputs[0];
      u->step.op = t;
    } else {
      NodeStep s;
      s.node = n;
      auto nested = [&](Graph& body) { s.bodies.push_back(std::make_unique<Schedule>(fuse(body, options))); };
      if (auto* i = n->as<IfOp>()) {
        nested(*i->then_graph);
        nested(*i->else_graph);
      }
      if (auto* w = n->as<WhileOp>()) nested(*w->body);
      u->step.op = std::move(s);
    }
  }

  // Reads and writes of each unit, then a topological order that stays close to the model's.
  for (const auto& u : units) {
    std::unordered_set<const Value*> inside;
    for (const Node* n : u->nodes)
      for (const Value* v : n->outputs) inside.insert(v);
    for (Node* n : u->nodes) {
      for (Value* v : n->inputs)
        if (!inside.count(storage_of(v))) append(u->step.reads, storage_of(v));
      u->step.origin = join_origins(u->step.origin, n->origin);
      u->position = std::max(u->position, position[n]);
    }
    if (auto* k = std::get_if<LoopKernel>(&u->step.op)) {
      for (const Stage& s : k->stages)
        if (s.stored) u->step.writes.push_back(s.out);
    } else if (auto* t = std::get_if<TileKernel>(&u->step.op)) {
      u->step.writes.push_back(t->out);
    } else {
      u->step.writes = u->nodes[0]->outputs;
    }
  }
  std::unordered_map<const Unit*, std::vector<Unit*>> after;
  std::unordered_map<const Unit*, int> waits;
  std::unordered_map<std::int64_t, Unit*> binder;  // of symbols that become known on the way
  for (const auto& u : units)
    for (const Node* n : u->nodes)
      for (std::int64_t s : symbols_defined(*n)) binder[s] = u.get();
  for (const auto& u : units) {
    std::unordered_set<const Unit*> sources;
    for (const Node* n : u->nodes) {
      for (std::int64_t s : symbols_used(*n)) {
        auto it = binder.find(s);
        if (it != binder.end() && it->second != u.get() && sources.insert(it->second).second) {
          after[it->second].push_back(u.get());
          ++waits[u.get()];
        }
      }
      for (Value* v : n->inputs) {
        const Value* s = storage_of(v);
        if (!s->producer || s->graph != &g) continue;
        auto it = unit_of.find(s->producer);
        if (it != unit_of.end() && it->second != u.get() && sources.insert(it->second).second) {
          after[it->second].push_back(u.get());
          ++waits[u.get()];
        }
      }
    }
  }
  // Loops between inputs and outputs alone come last: a GPU's first launch takes longest to begin, and should be worth
  // it.
  for (const auto& u : units)
    if (std::holds_alternative<LoopKernel>(u->step.op) && !waits[u.get()] && after[u.get()].empty())
      u->position += static_cast<int>(position.size());
  std::map<std::pair<int, const Unit*>, Unit*> ready;
  for (const auto& u : units)
    if (!waits[u.get()]) ready[{u->position, u.get()}] = u.get();
  std::size_t emitted = 0;
  std::vector<Unit*> order;
  while (!ready.empty()) {
    Unit* u = ready.begin()->second;
    ready.erase(ready.begin());
    order.push_back(u);
    ++emitted;
    for (Unit* next : after[u])
      if (--waits[next] == 0) ready[{next->position, next}] = next;
  }
  check(emitted == units.size(), "fusion made a cycle");
  for (Unit* u : order) {
    bool constant = true;
    for (const Node* n : u->nodes) constant &= constants.count(n) > 0;
    (constant ? schedule.init : schedule.steps).push_back(std::move(u->step));
  }
  return schedule;
}

}  // namespace sardonyx
