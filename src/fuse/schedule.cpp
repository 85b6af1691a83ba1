// Scheduling: a topological order of groups that stays close to the model's order.
#include "fuse/schedule.h"

#include <map>

#include "fuse/groups.h"
#include "fuse/passes.h"

namespace sardonyx {
namespace {

class Scheduler {
 public:
  Scheduler(Graph& g, std::vector<std::unique_ptr<Group>> groups) : g_(g), groups_(std::move(groups)) {}

  Schedule run() {
    find_dependencies();
    // Loops that only connect inputs to outputs come last: the first launch on a GPU has the highest latency, so other
    // work should follow it.
    for (const auto& u : groups_)
      if (std::holds_alternative<LoopKernel>(u->step.op) && !waits_[u.get()] && users_[u.get()].empty())
        u->position += static_cast<int>(g_.nodes.size());
    const auto constants = constant_nodes(g_);
    Schedule schedule;
    schedule.graph = &g_;
    for (Group* u : in_order()) {
      bool constant = true;
      for (const Node* n : u->nodes) constant &= constants.count(n) > 0;
      (constant ? schedule.init : schedule.steps).push_back(std::move(u->step));
    }
    return schedule;
  }

 private:
  void find_dependencies() {
    std::unordered_map<const Node*, Group*> group_of;
    std::unordered_map<std::int64_t, Group*> binder;  // of symbols that become known during the run
    for (const auto& u : groups_)
      for (const Node* n : u->nodes) {
        group_of[n] = u.get();
        for (std::int64_t s : symbols_defined(*n)) binder[s] = u.get();
      }
    for (const auto& u : groups_) {
      std::unordered_set<const Group*> sources;
      const auto depend_on = [&](Group* source) {
        if (source == u.get() || !sources.insert(source).second) return;
        users_[source].push_back(u.get());
        ++waits_[u.get()];
      };
      for (const Node* n : u->nodes) {
        for (std::int64_t s : symbols_used(*n))
          if (auto it = binder.find(s); it != binder.end()) depend_on(it->second);
        for (Value* v : n->inputs) {
          const Value* s = storage_of(v);
          if (!s->producer || s->graph != &g_) continue;
          if (auto it = group_of.find(s->producer); it != group_of.end()) depend_on(it->second);
        }
      }
    }
  }

  std::vector<Group*> in_order() {
    std::map<std::pair<int, const Group*>, Group*> ready;
    for (const auto& u : groups_)
      if (!waits_[u.get()]) ready[{u->position, u.get()}] = u.get();
    std::vector<Group*> order;
    while (!ready.empty()) {
      Group* u = ready.begin()->second;
      ready.erase(ready.begin());
      order.push_back(u);
      for (Group* next : users_[u])
        if (--waits_[next] == 0) ready[{next->position, next}] = next;
    }
    check(order.size() == groups_.size(), "kernels depend on each other in a cycle");
    return order;
  }

  Graph& g_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::unordered_map<const Group*, std::vector<Group*>> users_;
  std::unordered_map<const Group*, int> waits_;  // groups that must run before
};

}  // namespace

Schedule schedule_groups(Graph& g, std::vector<std::unique_ptr<Group>> groups) {
  return Scheduler(g, std::move(groups)).run();
}

Schedule fuse(Graph& g, const FuseOptions& options) {
  PassState state{g, options, {}};
  run_passes(state);
  return schedule_groups(g, group_nodes(g, state.epilogues, options));
}

}  // namespace sardonyx
