// Row kernels: a reduction, the loops that use its result in the same row, and the loops that only feed this row, in
// one pass over rows.
//
// A kernel has outer variables (the dims that the first reduction keeps). A loop joins if all its loads of members are
// in the row that it computes. Then all stages can run one after another within a row.
#include "fuse/row_kernels.h"

#include <algorithm>

#include "fuse/kernel_paths.h"
#include "fuse/layout_queries.h"
#include "fuse/reduction_digits.h"
#include "fuse/row_queries.h"
#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr std::size_t kMaxMembers =
    12;  // operations of a kernel: bounds its text and the rows that it keeps in registers
constexpr std::int64_t kShortColumn = 32;       // elements that a thread keeps in registers
constexpr std::int64_t kFewRows = 256;          // with a workgroup each, they leave a GPU idle
constexpr std::int64_t kManyElements = 131072;  // in few rows together, from which on a separate kernel pays
constexpr std::int64_t kMuchForOne = 32768;     // of one row: a workgroup takes longer for them than a launch
constexpr std::int64_t kMuchLonger = 16;        // than what is reduced: reading that again is cheap
constexpr std::int64_t kLongRow = 2048;         // elements that a workgroup or more divide
constexpr std::int64_t kMostParts = 128;        // partial results of a row, which every workgroup combines
constexpr std::int64_t kPack = 8;               // elements of the longest vector
constexpr std::size_t kMaxTensors = 60;  // that one kernel reads and writes: the runtime passes 64 pointers at most

struct Member {
  Node* node;
  // For each dim of the output: index of the group's outer variable, or -1 for an inner dim or a dim of 1.
  std::vector<int> outer_at;
};

class Grouper {
 public:
  Grouper(Graph& g, const std::unordered_set<const Node*>& taken, const FuseOptions& options)
      : g_(g), options_(options), taken_(taken.begin(), taken.end()), paths_(g) {
    for (const auto& n : g.nodes) {
      if (n->as<ViewOp>()) continue;
      for (Value* v : n->inputs) {
        auto& list = users_[storage_of(v)];
        if (std::find(list.begin(), list.end(), n.get()) == list.end()) list.push_back(n.get());
      }
    }
    constants_ = constant_nodes(g);
    for (Value* v : g.outputs) outputs_.insert(storage_of(v));
    for (const Value* v : required_values(g)) outputs_.insert(storage_of(v));
  }

  std::vector<RowKernel> run() {
    std::vector<RowKernel> out;
    for (const auto& n : g_.nodes) {
      const auto* l = n->as<LoopOp>();
      if (!l || !l->body->has_reduce || taken_.count(n.get()) || constants_.count(n.get())) continue;
      if (!start(n.get())) continue;
      while (!complete_ && (grow_down() || grow_up())) {
      }
      report();
      if (members_.size() < 2) continue;
      RowKernel r = build();
      for (const Node* m : r.nodes) taken_.insert(m);
      paths_.add(r.nodes);
      out.push_back(std::move(r));
    }
    return out;
  }

 private:
  bool start(Node* n) {
    members_.clear();
    outer_extents_.clear();
    complete_ = false;
    const auto* l = n->as<LoopOp>();
    Member m{n, {}};
    for (const Expr& v : l->vars) {
      if (is_const(v->args[0], 1)) {
        m.outer_at.push_back(-1);
        continue;
      }
      m.outer_at.push_back(static_cast<int>(outer_extents_.size()));
      outer_extents_.push_back(v->args[0]);
    }
    members_.push_back(std::move(m));
    return true;
  }

  const Member* member(const Value* v) const {
    for (const Member& m : members_)
      if (m.node->outputs[0] == v) return &m;
    return nullptr;
  }

  // With fewer rows, it is better to divide a row among threads.
  bool enough_rows() const {
    std::int64_t n;
    const Expr rows = idx::product(outer_extents_);
    return !is_const_int(rows, n) || n >= 4;
  }

  // Finds the outer variable of each dim of a loop's output from its loads of members. False if it accesses other rows.
  bool fit(const Node* n, std::vector<int>& outer_at) const {
    const auto* l = n->as<LoopOp>();
    std::vector<Expr> outer(outer_extents_.size());
    bool ok = true, any = false;
    visit(l->body, [&](const Expr& x) {
      if (!ok || x->op != Op::kLoad) return;
      const Member* m = member(x->value);
      if (!m) {
        ok &= !member(storage_of(x->value));  // loads of members through views are not supported
        return;
      }
      any = true;
      for (std::size_t k = 0; k < x->args.size(); ++k) {
        const int o = m->outer_at[k];
        if (o < 0) continue;
        Expr& slot = outer[static_cast<std::size_t>(o)];
        if (x->args[k]->op != Op::kVar)
          ok = false;
        else if (!slot)
          slot = x->args[k];
        else
          ok &= same(slot, x->args[k]);
      }
    });
    if (!ok || !any) return false;
    outer_at.assign(l->vars.size(), -1);
    for (std::size_t o = 0; o < outer.size(); ++o) {
      if (!outer[o]) return false;
      bool found = false;
      for (std::size_t k = 0; k < l->vars.size(); ++k)
        if (same(l->vars[k], outer[o])) {
          if (outer_at[k] >= 0 || !idx::provably_equal(l->vars[k]->args[0], outer_extents_[o])) return false;
          outer_at[k] = static_cast<int>(o);
          found = true;
        }
      if (!found) return false;
    }
    return true;
  }

  // Whether a loop has symbolic dims that the reduced rows lack, so that it needs more threads than a row has (the
  // tokens of a prompt, if rows are sequences).
  bool wider_than_rows(const Node* n, const std::vector<int>& outer_at) const {
    std::unordered_set<std::int64_t> known;
    const auto note = [&](const Expr& e) {
      visit(e, [&](const Expr& x) {
        if (x->op == Op::kSym) known.insert(x->i);
      });
    };
    for (const Member& m : members_) {
      const auto* l = m.node->as<LoopOp>();
      for (const Expr& v : l->vars) note(v->args[0]);
      visit(l->body, [&](const Expr& x) {
        if (x->op == Op::kReduce)
          for (const Expr& v : x->vars) note(v->args[0]);
      });
    }
    bool wider = false;
    const auto* l = n->as<LoopOp>();
    for (std::size_t k = 0; k < l->vars.size(); ++k)
      if (outer_at[k] < 0)
        visit(l->vars[k]->args[0], [&](const Expr& x) { wider |= x->op == Op::kSym && !known.count(x->i); });
    return wider;
  }

  // Whether a member reduces windows that overlap. One thread computes several such results, from elements that it
  // loads once: a row kernel has a team of threads for each result.
  bool reduces_windows_that_overlap() const {
    return std::any_of(members_.begin(), members_.end(),
                       [](const Member& m) { return has_overlapping_windows(m.node->as<LoopOp>()->body); });
  }

  // Whether the first reduction is along columns of more elements than a thread keeps in registers. On a CPU only
  // columns whose results are next to each other are reduced side by side. Neighbouring columns are then reduced side
  // by side, and loops that use the results or feed the reduction are better in a separate kernel, which reads along
  // memory.
  bool reduces_long_columns() const {
    if (!options_.split_reductions) return false;
    const auto* l = members_[0].node->as<LoopOp>();
    const Exprs candidates = options_.few_threads ? innermost_of(*members_[0].node) : l->vars;
    bool columns = false, longer = false;
    visit(l->body, [&](const Expr& x) {
      if (x->op != Op::kReduce) return;
      std::int64_t n = 0, terms = 1;
      for (const Expr& v : x->vars)
        if (is_const_int(v->args[0], n) && terms <= kShortColumn) terms *= n;
      longer |= terms > kShortColumn;
      for (const Expr& v : candidates) columns |= unit_loads(x->args[0], v, x->vars) > 0;
    });
    return columns && longer;
  }

  // Whether a team of threads keeps the columns that the first reduction reads in registers, so that this loop finds
  // them there: neighbouring columns are next to each other in all members and in the loop's result.
  bool keeps_columns(const Node* n, const std::vector<int>& outer_at) const {
    const auto& vars = members_[0].node->as<LoopOp>()->vars;
    const int last = static_cast<int>(outer_extents_.size()) - 1;
    std::int64_t columns = 0;
    if (options_.column_length == 0 || last < 0 || !reduces_long_columns() ||
        !is_const_int(outer_extents_.back(), columns) || columns < kPack || innermost_outer(*n, outer_at) != last ||
        !std::ranges::all_of(members_, [&](const Member& m) { return innermost_outer(*m.node, m.outer_at) == last; }))
      return false;
    bool fits = true;
    visit(members_[0].node->as<LoopOp>()->body, [&](const Expr& x) {
      if (x->op != Op::kReduce) return;
      std::int64_t terms = 1, extent = 0;
      for (const Expr& v : x->vars)
        terms = is_const_int(v->args[0], extent) ? terms * extent : options_.column_length + 1;
      fits = fits && terms <= options_.column_length;
      for (std::size_t k = 0; k < vars.size(); ++k)
        if (members_[0].outer_at[k] == last) fits = fits && unit_loads(x->args[0], vars[k], x->vars) > 0;
    });
    return fits;
  }

  // Whether there are few rows and the loop is much longer than what is reduced (partial results): a separate kernel
  // has more workgroups, or threads.
  bool longer_than_few_rows(const Node* n, const std::vector<int>& outer_at) const {
    const std::int64_t rows = assumed_product(outer_extents_);
    std::int64_t length = 0, longest = 1;
    if (!options_.split_reductions || rows >= kFewRows) return false;
    const auto* l = n->as<LoopOp>();
    Expr inner = 1;
    for (std::size_t k = 0; k < l->vars.size(); ++k)
      if (outer_at[k] < 0) inner = inner * l->vars[k]->args[0];
    bool known = is_const_int(inner, length);
    for (const Member& m : members_) known &= most_terms(*m.node, longest);
    return known && (rows * length >= kManyElements || length >= kMuchForOne) && length >= kMuchLonger * longest;
  }

  // Whether the rows of the loop's result run across memory (a normalised image whose channels are last). Each row
  // would write one element here and one there; a separate kernel has neighbouring threads, or lanes of a vector, on
  // neighbouring elements. On a CPU rows that are read along memory stay: a transpose runs across it either way.
  bool runs_across_memory(const Node* n, const std::vector<int>& outer_at) const {
    if (!options_.split_reductions) return false;
    const auto* l = n->as<LoopOp>();
    std::int64_t length = 1, extent = 0;
    Exprs inner;
    for (std::size_t k = 0; k < l->vars.size(); ++k) {
      if (outer_at[k] >= 0) continue;
      length *= is_const_int(l->vars[k]->args[0], extent) ? extent : kShortColumn + 1;
      inner.push_back(l->vars[k]);
    }
    if (length <= kShortColumn) return false;
    const auto read_along = [&](const Expr& v) { return unit_loads(l->body, v, inner) > 0; };
    if (options_.few_threads && std::ranges::any_of(inner, read_along)) return false;
    return innermost_outer(*n, outer_at) >= 0;
  }

  // On a GPU: whether the loop has rows of another length than all members, some of which are long (a part of a
  // softmax's result, which a GEMM reads). A kernel whose rows have one length keeps them in registers.
  bool has_another_length(const Node* n, const std::vector<int>& outer_at) const {
    if (!options_.split_reductions || options_.few_threads) return false;
    const std::vector<std::int64_t> own = row_lengths(*n, outer_at);
    std::vector<std::int64_t> others;
    for (const Member& m : members_)
      for (const std::int64_t k : row_lengths(*m.node, m.outer_at)) others.push_back(k);
    return own[0] > 0 && std::ranges::none_of(others, [&](std::int64_t k) { return k == 0 || k == own[0]; }) &&
           std::ranges::any_of(others, [](std::int64_t k) { return k > kShortColumn; });
  }

  // Whether all that the members reduce is short, and not along rows: partial results of rows. The most of them.
  bool combine_parts(std::int64_t& parts) const {
    bool ok = true;
    for (const Member& m : members_) {
      ok = ok && !has_inner(*m.node, m.outer_at);
      visit(m.node->as<LoopOp>()->body, [&](const Expr& x) {
        std::int64_t n = 0;
        if (x->op == Op::kReduce)
          ok = ok && x->vars.size() == 1 && is_const_int(x->vars[0]->args[0], n) && !x->args[0]->has_reduce &&
               static_cast<ReduceKind>(x->i) < ReduceKind::kArgMin;
        else if (x->op == Op::kSelect)
          ok = ok && !x->args[1]->has_reduce && !x->args[2]->has_reduce;
        parts = std::max(parts, n);
      });
    }
    return ok && parts <= kMostParts;
  }

  // Whether several workgroups may divide this loop, each of which combines the row's partial results itself
  // (FuseOptions::long_rows): it is by far longer than what is reduced, and runs along memory.
  bool is_long_row(const Node* n, const std::vector<int>& outer_at) const {
    if (!options_.long_rows || assumed_product(outer_extents_) >= kFewRows || !n->outputs[0]->storage_order.empty())
      return false;
    const auto* l = n->as<LoopOp>();
    std::int64_t length = 1, parts = 1, last = 0, dims = 0;
    Expr inner;
    bool along = false;  // the innermost dim is one of the row's
    for (std::size_t k = 0; k < l->vars.size(); ++k) {
      if (is_const(l->vars[k]->args[0], 1)) continue;
      along = outer_at[k] < 0;
      if (!along) continue;
      if (!is_const_int(l->vars[k]->args[0], last)) return false;
      inner = l->vars[k];
      length *= last;
      ++dims;
    }
    return along && combine_parts(parts) && length >= kLongRow && length >= kMuchLonger * parts &&
           (dims == 1 || last % kPack == 0) && unit_loads(l->body, inner, {inner}) > 0;
  }

  // Whether a kernel of the members, `target` and `extra` (may be null) would depend on itself.
  bool depends_through_outside(const Node* target, const Node* extra) const {
    std::vector<const Node*> nodes = {target};
    if (extra) nodes.push_back(extra);
    for (const Member& m : members_) nodes.push_back(m.node);
    return paths_.leave_and_return(nodes);
  }

  bool joinable(const Node* n) const {
    if (taken_.count(n) || constants_.count(n) || !n->as<LoopOp>()) return false;
    for (const Member& m : members_)
      if (m.node == n) return false;
    std::size_t tensors = n->inputs.size() + 1;
    for (const Member& m : members_) tensors += m.node->inputs.size() + 1;
    return members_.size() < kMaxMembers && tensors <= kMaxTensors;
  }

  bool grow_down() {
    for (std::size_t k = 0; k < members_.size(); ++k)
      for (Node* n : users_[members_[k].node->outputs[0]]) {
        std::vector<int> outer_at;
        if (obstacle(n, outer_at)) continue;
        complete_ = has_inner(*n, outer_at) && is_long_row(n, outer_at);
        members_.push_back({n, outer_at});
        return true;
      }
    return false;
  }

  // Why a user of a member does not join; null if it does, with the indices of its outer variables.
  const char* obstacle(const Node* n, std::vector<int>& outer_at) const {
    if (!joinable(n)) return "";
    if (!fit(n, outer_at)) return "it reads other rows than the one it writes";
    if (has_inner(*n, outer_at)) {
      if (n->as<LoopOp>()->body->has_reduce) return "it is a reduction of another shape";
      if (reduces_windows_that_overlap()) return "it has several elements for each window, and windows overlap";
      const bool long_row = is_long_row(n, outer_at);
      if (!long_row && !enough_rows()) return "there are too few rows to keep the device busy";
      if (wider_than_rows(n, outer_at)) return "it is larger than the rows that are reduced";
      if (!long_row && longer_than_few_rows(n, outer_at))
        return "it is longer than what is reduced, and there are few rows";
      if (!long_row && has_another_length(n, outer_at)) return "its rows are of another length";
      const bool columns = keeps_columns(n, outer_at);
      if (!columns && runs_across_memory(n, outer_at)) return "its rows run across memory";
      if (!columns && reduces_long_columns()) return "the reduction runs across memory, and this loop along it";
    }
    if (depends_through_outside(n, nullptr)) return "it depends on a node that is not part of the kernel";
    return nullptr;
  }

  // When the kernel is final: reports why users of its values are not part of it.
  void report() {
    if (!options_.remarks) return;
    for (const Member& m : members_)
      for (Node* n : users_[m.node->outputs[0]]) {
        std::vector<int> outer_at;
        const char* why = obstacle(n, outer_at);
        if (why && *why)
          options_.remarks(
              {"groups", n->origin, fmt::format("not in the kernel of '{}': {}", m.node->origin, why), {}});
      }
  }

  // A loop that feeds members becomes a first stage if all of its users are members that read it in their own row.
  bool grow_up() {
    if (!enough_rows() || reduces_long_columns()) return false;
    for (std::size_t k = 0; k < members_.size(); ++k)
      for (Value* v : members_[k].node->inputs) {
        Node* p = v->producer;
        if (!p || v->graph != &g_ || !joinable(p) || p->as<LoopOp>()->body->has_reduce) continue;
        std::vector<int> outer_at;
        if (!feeds_rows(p, outer_at) || longer_than_few_rows(p, outer_at) ||
            depends_through_outside(members_.back().node, p))
          continue;
        members_.push_back({p, outer_at});
        return true;
      }
    return false;
  }

  bool feeds_rows(const Node* p, std::vector<int>& outer_at) {
    const Value* v = p->outputs[0];
    const auto* l = p->as<LoopOp>();
    outer_at.assign(l->vars.size(), -1);
    bool ok = true, any = false;
    for (const Member& m : members_) {
      const auto* ml = m.node->as<LoopOp>();
      visit(ml->body, [&](const Expr& x) {
        if (!ok || x->op != Op::kLoad) return;
        if (x->value != v) {
          ok &= storage_of(x->value) != v;
          return;
        }
        std::vector<int> here(l->vars.size(), -1);
        int found = 0;
        for (std::size_t d = 0; d < x->args.size(); ++d)
          for (std::size_t k = 0; k < ml->vars.size(); ++k)
            if (m.outer_at[k] >= 0 && same(x->args[d], ml->vars[k])) {
              here[d] = m.outer_at[k];
              ++found;
            }
        if (found != static_cast<int>(outer_extents_.size())) ok = false;
        for (std::size_t d = 0; d < here.size(); ++d)
          if (here[d] >= 0 &&
              !idx::provably_equal(l->vars[d]->args[0], outer_extents_[static_cast<std::size_t>(here[d])]))
            ok = false;
        if (any && here != outer_at) ok = false;
        outer_at = here;
        any = true;
      });
    }
    return ok && any;
  }

  RowKernel build() {
    RowKernel r;
    std::sort(members_.begin(), members_.end(),
              [&](const Member& a, const Member& b) { return paths_.position(a.node) < paths_.position(b.node); });
    for (const Expr& e : outer_extents_) r.kernel.outer.push_back(loop_var(e));
    std::unordered_set<const Node*> inside;
    for (const Member& m : members_) inside.insert(m.node);
    for (const Member& m : members_) {
      const auto* l = m.node->as<LoopOp>();
      Stage s;
      s.out = m.node->outputs[0];
      std::vector<std::pair<Expr, Expr>> sub;
      s.index.resize(l->vars.size());
      // In the order of the result's memory, along which a stage loads and stores vectors.
      for (std::size_t at = 0; at < l->vars.size(); ++at) {
        const std::vector<int>& order = s.out->storage_order;
        const std::size_t k = order.empty() ? at : static_cast<std::size_t>(order[at]);
        if (m.outer_at[k] >= 0) {
          s.index[k] = r.kernel.outer[static_cast<std::size_t>(m.outer_at[k])];
          sub.emplace_back(l->vars[k], s.index[k]);
        } else if (is_const(l->vars[k]->args[0], 1)) {
          s.index[k] = Expr(0);
          sub.emplace_back(l->vars[k], Expr(0));
        } else {
          s.index[k] = l->vars[k];
          s.inner.push_back(l->vars[k]);
        }
      }
      s.body = substitute(l->body, sub);
      s.used_after = outputs_.count(s.out) > 0;
      for (const Node* u : users_[s.out]) s.used_after |= !inside.count(u);
      s.stored = s.used_after || !s.inner.empty();
      r.nodes.push_back(m.node);
      r.kernel.stages.push_back(std::move(s));
    }
    return r;
  }

  Graph& g_;
  const FuseOptions& options_;
  std::unordered_set<const Node*> taken_, constants_;
  KernelPaths paths_;
  std::unordered_map<const Value*, std::vector<Node*>> users_;
  std::unordered_set<const Value*> outputs_;
  std::vector<Member> members_;
  Exprs outer_extents_;
  bool complete_ = false;  // several workgroups divide its rows, in its last loop
};

}  // namespace

std::vector<RowKernel> find_row_kernels(Graph& g, const std::unordered_set<const Node*>& taken,
                                        const FuseOptions& options) {
  return Grouper(g, taken, options).run();
}

}  // namespace sardonyx
