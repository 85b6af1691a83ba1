// merge_equal_nodes(): compares nodes after renaming their loop variables by position and extent.
#include "fuse/merge_equal.h"

#include <unordered_map>
#include <unordered_set>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

// Nodes with equal keys compute the same.
struct Key {
  std::string text;  // kind and attributes
  Exprs exprs;
  std::vector<const Value*> inputs;

  bool operator==(const Key& o) const {
    if (text != o.text || inputs != o.inputs || exprs.size() != o.exprs.size()) return false;
    for (std::size_t k = 0; k < exprs.size(); ++k)
      if (!same(exprs[k], o.exprs[k])) return false;
    return true;
  }
};

struct KeyHash {
  std::size_t operator()(const Key& k) const {
    std::size_t h = std::hash<std::string>()(k.text);
    for (const Expr& e : k.exprs) h = h * 31 + e->hash;
    for (const Value* v : k.inputs) h = h * 31 + static_cast<std::size_t>(v->id);
    return h;
  }
};

class Merger {
 public:
  Merger(Graph& g, const std::unordered_set<const Value*>& kept) : g_(g), pinned_(kept) {
    for (const auto& n : g.nodes)
      if (n->as<IfOp>() || n->as<WhileOp>()) pinned_.insert(n->inputs.begin(), n->inputs.end());
  }

  void run() {
    std::unordered_map<Key, Node*, KeyHash> seen;
    for (const auto& n : g_.nodes) {
      renew(*n);
      Key key;
      if (!describe(*n, key)) continue;
      const auto [it, is_new] = seen.emplace(std::move(key), n.get());
      if (is_new) continue;
      bool free = true;
      for (const Value* v : n->outputs) free &= pinned_.count(v) == 0;
      if (!free) continue;
      for (std::size_t k = 0; k < n->outputs.size(); ++k) replaced_[n->outputs[k]] = it->second->outputs[k];
      it->second->origin = join_origins(it->second->origin, n->origin);
    }
    for (Value*& v : g_.outputs) v = now(v);
  }

 private:
  Value* now(Value* v) const {
    const auto it = replaced_.find(v);
    return it == replaced_.end() ? v : it->second;
  }

  Expr renew(const Expr& e) const {
    if (!e || !e->has_load || replaced_.empty()) return e;
    return rewrite(e, [this](const Expr& x) -> Expr {
      if (!x->has_load) return x;
      if (x->op != Op::kLoad) return Expr();
      Exprs args;
      for (const Expr& a : x->args) args.push_back(renew(a));
      return load(now(const_cast<Value*>(x->value)), x->dtype, std::move(args));
    });
  }

  void renew(Node& n) const {
    for (Value*& v : n.inputs) v = now(v);
    if (auto* l = n.as<LoopOp>())
      l->body = renew(l->body);
    else if (auto* m = n.as<MatMulOp>()) {
      m->a = renew(m->a);
      m->b = renew(m->b);
      m->owner = renew(m->owner);
      m->end = renew(m->end);
    } else if (auto* a = n.as<AttentionOp>()) {
      for (Expr* e : {&a->scale, &a->q, &a->k, &a->v, &a->k_scale, &a->v_scale, &a->bias, &a->begin, &a->end, &a->sink})
        if (*e) *e = renew(*e);
    }
  }

  // The variable that represents all with this position and extent.
  Expr variable(std::size_t place, const Expr& extent) {
    auto& list = variables_[place];
    for (const Expr& v : list)
      if (same(v->args[0], extent)) return v;
    list.push_back(loop_var(extent));
    return list.back();
  }

  Exprs variables(const Exprs& vars, std::size_t place, std::vector<std::pair<Expr, Expr>>& renamed) {
    Exprs out;
    for (std::size_t k = 0; k < vars.size(); ++k) {
      out.push_back(variable(place + k, vars[k]->args[0]));
      renamed.emplace_back(vars[k], out.back());
    }
    return out;
  }

  static constexpr std::size_t kInner = 64;  // positions reserved per nesting level of reductions

  Expr canonical(const Expr& e, std::size_t depth = 1) {
    if (!e->has_reduce) return e;
    return rewrite(e, [&](const Expr& x) -> Expr {
      if (!x->has_reduce) return x;
      if (x->op != Op::kReduce) return Expr();
      std::vector<std::pair<Expr, Expr>> renamed;
      Exprs vars = variables(x->vars, depth * kInner, renamed);
      return reduce(static_cast<ReduceKind>(x->i), std::move(vars),
                    canonical(substitute(x->args[0], renamed), depth + 1));
    });
  }

  template <typename List>
  static std::string join(const List& list) {
    std::string s;
    for (const auto& x : list) s += fmt::format(" {}", x);
    return s;
  }

  bool describe(const Node& n, Key& key) {
    for (const Value* v : n.outputs) {
      key.text += std::string(name(v->dtype)) + fmt::format("{}{} ", v->rank(), join(v->storage_order));
      key.exprs.insert(key.exprs.end(), v->shape.begin(), v->shape.end());
    }
    const auto exprs = [&](std::initializer_list<Expr> list) {
      for (const Expr& e : list) key.exprs.push_back(e ? e : Expr(-1));
    };
    if (const auto* l = n.as<LoopOp>()) {
      std::vector<std::pair<Expr, Expr>> renamed;
      variables(l->vars, 0, renamed);
      key.text += "loop";
      exprs({canonical(substitute(l->body, renamed))});
      return true;
    }
    if (const auto* m = n.as<MatMulOp>()) {
      std::vector<std::pair<Expr, Expr>> renamed;
      variables(m->vars, 0, renamed);
      variables({m->k}, m->vars.size(), renamed);
      key.text += "product";
      if (m->end) variables({m->group}, m->vars.size() + 1, renamed);
      const auto of = [&](const Expr& e) { return e ? canonical(substitute(e, renamed)) : Expr(); };
      exprs({m->k->args[0], of(m->a), of(m->b), of(m->owner), of(m->end)});
      return true;
    }
    key.inputs.assign(n.inputs.begin(), n.inputs.end());
    if (n.as<ViewOp>()) {
      key.text += "view";
      return true;
    }
    if (const auto* c = n.as<ConvOp>()) {
      key.text += fmt::format("convolution{};{};{} {} {} {}", join(c->strides), join(c->dilations), c->groups,
                              c->transposed, c->has_bias, c->exact);
      key.exprs.insert(key.exprs.end(), c->pads_begin.begin(), c->pads_begin.end());
      key.exprs.insert(key.exprs.end(), c->pads_end.begin(), c->pads_end.end());
      return true;
    }
    if (const auto* r = n.as<RoutineOp>()) {
      key.text +=
          fmt::format("routine {}{};{};{}", r->name, join(r->floats), r->params.size(), fmt::ptr(r->launches.get()));
      key.exprs.insert(key.exprs.end(), r->params.begin(), r->params.end());
      return true;
    }
    return false;
  }

  Graph& g_;
  std::unordered_set<const Value*> pinned_;
  std::unordered_map<const Value*, Value*> replaced_;
  std::unordered_map<std::size_t, Exprs> variables_;
};

}  // namespace

void merge_equal_nodes(Graph& g, const std::unordered_set<const Value*>& kept) {
  Merger(g, kept).run();
  remove_dead_nodes(g);
}

}  // namespace sardonyx
