#include "fuse/groups.h"

#include <algorithm>

#include "fuse/routine_inputs.h"
#include "fuse/row_kernels.h"

namespace sardonyx {
namespace {

void append_once(std::vector<Value*>& list, Value* v) {
  if (std::find(list.begin(), list.end(), v) == list.end()) list.push_back(v);
}

class Grouping {
 public:
  Grouping(Graph& g, const FuseOptions& options) : g_(g), options_(options) {}

  std::vector<std::unique_ptr<Group>> run(std::vector<Epilogue>& epilogues) {
    std::unordered_set<const Node*> absorbed;
    for (const Epilogue& e : epilogues) absorbed.insert(e.loops.begin(), e.loops.end());
    std::vector<RowKernel> rows;
    if (!options_.disabled) rows = find_row_kernels(g_, absorbed, options_);
    for (Epilogue& e : epilogues) {
      std::vector<Node*> nodes = {e.kernel.node};
      nodes.insert(nodes.end(), e.loops.begin(), e.loops.end());
      add(std::move(nodes), e.kernel);
    }
    for (RowKernel& r : rows) add(r.nodes, std::move(r.kernel));
    RoutineInputs inputs = find_routine_inputs(g_, grouped_, options_);
    for (RoutineInputs::Routine& r : inputs.routines) add(std::move(r.nodes), std::move(r.step));
    grouped_.insert(inputs.unread.begin(), inputs.unread.end());
    for (const auto& n : g_.nodes)
      if (!grouped_.count(n.get()) && !n->as<ConstantOp>() && !n->as<ViewOp>()) add({n.get()}, single(*n));
    std::unordered_map<const Node*, int> position;
    for (const auto& n : g_.nodes) position.emplace(n.get(), static_cast<int>(position.size()));
    for (const auto& group : groups_) {
      for (const Node* n : group->nodes) group->position = std::max(group->position, position.at(n));
      find_reads(*group);
      find_writes(*group);
    }
    return std::move(groups_);
  }

 private:
  using Operation = decltype(Step::op);

  void add(std::vector<Node*> nodes, Operation op) {
    grouped_.insert(nodes.begin(), nodes.end());
    groups_.push_back(std::make_unique<Group>());
    groups_.back()->nodes = std::move(nodes);
    groups_.back()->step.op = std::move(op);
  }

  Operation single(Node& n) {
    if (const auto* l = n.as<LoopOp>()) return LoopKernel{{}, {Stage{n.outputs[0], l->vars, l->vars, l->body, true}}};
    if (n.as<MatMulOp>() || n.as<ConvOp>() || n.as<AttentionOp>()) {
      TileKernel t;
      t.node = &n;
      t.out = n.outputs[0];
      return t;
    }
    NodeStep s;
    s.node = &n;
    const auto nested = [&](Graph& body) { s.bodies.push_back(std::make_unique<Schedule>(fuse(body, options_))); };
    if (const auto* i = n.as<IfOp>()) {
      nested(*i->then_graph);
      nested(*i->else_graph);
    }
    if (const auto* w = n.as<WhileOp>()) nested(*w->body);
    return s;
  }

  static void find_reads(Group& group) {
    std::unordered_set<const Value*> inside;
    for (const Node* n : group.nodes) inside.insert(n->outputs.begin(), n->outputs.end());
    if (const auto* s = std::get_if<NodeStep>(&group.step.op))
      for (const ComputedInput& c : s->computed) {
        inside.insert(c.stage.out);
        group.step.origin = join_origins(group.step.origin, c.stage.out->producer->origin);
      }
    for (const Node* n : group.nodes) {
      for (Value* v : n->inputs)
        if (!inside.count(storage_of(v))) append_once(group.step.reads, storage_of(v));
      group.step.origin = join_origins(group.step.origin, n->origin);
    }
  }

  static void find_writes(Group& group) {
    if (const auto* k = std::get_if<LoopKernel>(&group.step.op)) {
      for (const Stage& s : k->stages)
        if (s.stored) group.step.writes.push_back(s.out);
    } else if (const auto* t = std::get_if<TileKernel>(&group.step.op)) {
      group.step.writes.push_back(t->out);
    } else {
      group.step.writes = std::get<NodeStep>(group.step.op).node->outputs;
    }
  }

  Graph& g_;
  const FuseOptions& options_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::unordered_set<const Node*> grouped_;
};

}  // namespace

std::vector<std::unique_ptr<Group>> group_nodes(Graph& g, std::vector<Epilogue>& epilogues,
                                                const FuseOptions& options) {
  return Grouping(g, options).run(epilogues);
}

}  // namespace sardonyx
